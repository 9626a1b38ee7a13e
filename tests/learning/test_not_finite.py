"""Steps whose loss or gradient is not finite: stopped at or left out, whatever the agent."""

import glob

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner.agents import optimizers
from actor_learner.learning import not_finite
from actor_learner.support import errors
from tests.learning import tiny_agent, tiny_learner


def batches(*values):
    """A dataset of batches that hold one of these numbers each, then endless ones."""
    like = tiny_agent.experience()

    def batch(value):
        def fill(leaf):
            return leaf * tf.cast(value, leaf.dtype) if leaf.dtype.is_floating else leaf

        return tf.nest.map_structure(fill, like), ()

    ones = tf.data.Dataset.from_tensors(1.0).repeat()
    given = tf.data.Dataset.from_tensor_slices(np.array(values, np.float32))
    return lambda: given.concatenate(ones).map(batch)


class OwnOptimizer(tiny_agent.TinyAgent):
    """The tiny agent with a second weight, whose gradient stays finite when the first's does not.

    Its loss is the same whatever the batch.
    """

    def __init__(self, train_step, optimizer):
        super().__init__(train_step)
        self.optimizer = optimizer
        self.other = tf.Variable(0.0, name="other")

    def _train(self, experience, weights=None):
        gradients = [self.other - 1.0, tf.reduce_mean(experience.observation)]
        variables = [self.other, self.weight]
        self.optimizer.apply_gradients(zip(gradients, variables))
        self.train_step_counter.assign_add(1)
        return tf_agent.LossInfo(tf.constant(1.0), ())


def make(tmp_path, agent=None, *, dataset_fn, **options):
    if agent is None:
        return tiny_learner.make(tmp_path, dataset_fn=dataset_fn, **options)
    from actor_learner.learning import learner

    return learner.Learner(str(tmp_path), agent.train_step_counter, agent, dataset_fn, **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_training_stops_before_the_weights_and_tells_what_it_saw(tmp_path, value):
    with make(tmp_path, dataset_fn=batches(1, 1, 1, value)) as trained:
        with pytest.raises(errors.NotFiniteError) as raised:
            trained.run(10)
        assert trained.train_step_numpy == 3
        weight = trained._agent.weight.numpy()
        assert 0.2 < weight < 0.4  # Three steps of Adam, of 0.1 each.
        told = str(raised.value)
        for part in ("train step 3", "reward: no finite number", "observation: ", "ckpt-3", "skip"):
            assert part in told
        trained.run(2)  # The batches after it are those of a new iterator.
        assert trained.train_step_numpy == 3 + 2
    with make(tmp_path, dataset_fn=batches()) as resumed:
        assert resumed.restored_from.endswith("ckpt-3")
        assert resumed._agent.weight.numpy() == weight


def test_skipping_equals_a_run_without_the_bad_batches(tmp_path):
    bad = batches(np.nan, 1, 2, np.inf, 3, np.nan, 4)
    with (
        make(tmp_path / "a", dataset_fn=bad, when_not_finite="skip") as skipping,
        make(tmp_path / "b", dataset_fn=batches(1, 2, 3, 4)) as plain,
    ):
        assert np.isnan(skipping.run(1).loss)  # There is none to give yet.
        losses = skipping.run(7).loss, plain.run(5).loss
        np.testing.assert_array_equal(*losses)
        assert skipping.skipped_steps == 3 and plain.skipped_steps == 0
        assert skipping.train_step_numpy == plain.train_step_numpy == 5
        assert skipping._agent.weight.numpy() == plain._agent.weight.numpy()


def test_skipping_ends_after_so_many_in_a_row(tmp_path):
    nan = np.nan
    dataset_fn = batches(nan, nan, 1, nan, nan, 1, nan, nan, nan)
    options = {"when_not_finite": "skip", "max_skipped_in_a_row": 2}
    with make(tmp_path, dataset_fn=dataset_fn, **options) as trained:
        trained.run(4)
        trained.run(3)  # A row goes on from one call to the next.
        with pytest.raises(errors.NotFiniteError, match="2 train steps in a row were skipped"):
            trained.run(3)
        assert trained.skipped_steps == 6 and trained.train_step_numpy == 2


def test_what_follows_a_skipped_step_is_not_done_for_it(tmp_path):
    called = tf.Variable(0.0)
    options = {
        "when_not_finite": "skip",
        "after_train_strategy_step_fn": lambda experience, loss: called.assign_add(
            tf.reduce_mean(experience[0].reward)
        ),
    }
    with make(tmp_path, dataset_fn=batches(1, np.nan, 1, 5), **options) as trained:
        trained.run(4)
    assert called.numpy() == 7.0


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: optimizers.Adam(0.1),
        lambda: optimizers.Adam(0.1, clip_norm=1.0),
        lambda: optimizers.RMSprop(0.1),
        lambda: tf.keras.optimizers.legacy.SGD(0.1),
        lambda: tf.keras.optimizers.Adam(0.1),
    ],
    ids=["our Adam", "our Adam, clipping", "our RMSprop", "Keras' older SGD", "Keras' Adam"],
)
@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_a_gradient_that_is_not_finite_is_applied_by_no_optimizer(tmp_path, optimizer, value):
    made = optimizer()
    ours = type(made).__module__.startswith("actor_learner")
    if value == 1e30 and (not ours or made._clip_norm):
        pytest.skip("finite, and of no harm to this one")
    agent = OwnOptimizer(tiny_agent.train_step(), made)
    with make(tmp_path, agent, dataset_fn=batches(1, value)) as trained:
        trained.run(1)
        other, weight = agent.other.numpy(), agent.weight.numpy()
        with pytest.raises(errors.NotFiniteError):
            trained.run(1)
        assert trained.train_step_numpy == 1 and agent.weight.numpy() == weight
        if "Keras' Adam" not in repr(made) and not isinstance(made, tf.keras.optimizers.Adam):
            assert agent.other.numpy() == other  # All gradients of a call, or none.
        assert np.isfinite(agent.other.numpy())


@pytest.mark.parametrize("increment", [1, 3])
def test_agents_may_count_as_they_like_while_steps_are_skipped(tmp_path, increment):
    options = {"when_not_finite": "skip", "summary_interval": 5, "increment": increment}
    with make(tmp_path, dataset_fn=batches(1, np.nan, 1, 1, np.nan), **options) as trained:
        trained.run(8)
        trained.run(8)
        assert trained.train_step_numpy == 14 * increment and trained.skipped_steps == 2


def test_other_errors_of_a_train_step_stay_what_they_are(tmp_path):
    def refuse(experience, loss):
        tf.debugging.assert_less(loss.loss, 0.0, "never mind")

    options = {"after_train_strategy_step_fn": refuse, "when_not_finite": "skip"}
    with make(tmp_path, dataset_fn=batches(), **options) as trained:
        with pytest.raises(tf.errors.InvalidArgumentError, match="never mind"):
            trained.run(1)


def test_no_checkpoint_is_written_of_weights_that_are_not_finite(tmp_path):
    with make(tmp_path, dataset_fn=batches()) as trained:
        trained.run(1)
        trained.save_checkpoint()
        trained._agent.weight.assign(np.inf)
        with pytest.raises(errors.NotFiniteError, match="weight"):
            trained.save_checkpoint()
        with pytest.raises(errors.NotFiniteError, match="The agent itself is not finite: weight"):
            trained.run(1)
    names = {path.split("/")[-1] for path in glob.glob(f"{tmp_path}/train/checkpoints/*.index")}
    assert names == {"ckpt-1.index"}


def test_a_trigger_that_meets_weights_which_are_not_finite_ends_training_as_divergence(tmp_path):
    def poison(train_step):
        if train_step == 2:
            trained._agent.weight.assign(np.nan)

    # The learner's own checkpoint is a trigger, too, and comes after this one.
    with make(tmp_path, dataset_fn=batches(), triggers=[poison], checkpoint_interval=1) as trained:
        trained.run(1)
        with pytest.raises(errors.NotFiniteError, match="weight") as raised:
            trained.run(1)
    message = str(raised.value)
    assert "IntervalTrigger" in message and "at train step 2" in message
    assert "was not saved; the last checkpoint is left as it is" in message
    names = {path.split("/")[-1] for path in glob.glob(f"{tmp_path}/train/checkpoints/*.index")}
    assert names == {"ckpt-1.index"}


@pytest.mark.parametrize("option", [{"when_not_finite": "go on"}, {"max_skipped_in_a_row": 0}])
def test_settings_that_make_no_sense_are_refused(tmp_path, option):
    with pytest.raises(ValueError, match=next(iter(option))):
        make(tmp_path, dataset_fn=batches(), **option)


def test_the_reason_is_told_in_the_words_of_the_check():
    error = tf.errors.InvalidArgumentError(
        None, None, "Graph execution error:\n\n{{function_node f}} Critic loss is inf or nan. : "
        "Tensor had NaN values\n\t [[{{node x}}]]"
    )  # fmt: skip
    assert not_finite.reason(error) == "Critic loss is inf or nan (NaN)"
    assert not_finite.reason(tf.errors.InvalidArgumentError(None, None, "shapes")) is None
