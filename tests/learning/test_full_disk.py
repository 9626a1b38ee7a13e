"""Checkpoints, best policies, exports and triggers on a real disk that fills up and is freed."""

import errno
import json

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.networks import q_network
from tf_agents.policies import q_policy

from actor_learner import run_directory
from actor_learner.learning import (
    best_policy_trigger,
    checkpoints,
    evaluation,
    interval_trigger,
    trigger_runner,
)
from actor_learner.support import unsaved
from tests.learning import tiny_agent, tiny_learner
from tests.small_disk import small_disk  # noqa: F401 - a fixture.


@pytest.fixture
def ledger():
    with unsaved.scope() as made:
        yield made


def values_of(path):
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_a_checkpoint_that_does_not_fit_leaves_the_former_ones_and_nothing_of_itself(
    small_disk,  # noqa: F811
):
    directory = small_disk.path / "checkpoints"
    weights = tf.Variable(np.ones(100_000, np.float32))
    checkpointer = checkpoints.Checkpointer(str(directory), weights=weights)
    checkpointer.save(1)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    small_disk.fill()
    for step in (1, 2):  # Step 1 is there already, and whole.
        with pytest.raises(tf.errors.OpError):
            checkpointer.save(step)
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    # Without room for the list of checkpoints, they are restored all the same.
    found = checkpoints.Checkpointer(str(directory), weights=weights)
    assert found.initialize_or_restore() == str(directory / "ckpt-1")
    small_disk.free()
    assert checkpointer.save(2) == str(directory / "ckpt-2")
    values_of(directory / "ckpt-2")


@pytest.mark.parametrize("left_behind", ["ckpt-5_temp", "checkpoint.tmp0a1b"])
def test_a_first_save_that_was_killed_is_no_checkpoint(tmp_path, left_behind):
    run = run_directory.RunDirectory(tmp_path)
    directory = tmp_path / "train" / "checkpoints"
    (directory / left_behind).mkdir(parents=True)
    assert not run.has_checkpoints
    checkpointer = checkpoints.Checkpointer(str(directory), step=tf.Variable(0))
    assert not checkpointer.checkpoint_exists
    assert list(directory.iterdir()) == []
    checkpointer.save(5)
    assert run.has_checkpoints


def test_a_learner_trains_on_without_checkpoints_and_summaries_and_saves_once_there_is_room(
    small_disk,  # noqa: F811
    ledger,
):
    learner = tiny_learner.make(small_disk.path, checkpoint_interval=2, summary_interval=1)
    learner.run(iterations=2)
    directory = small_disk.path / "train" / "checkpoints"
    assert (directory / "ckpt-2.index").exists()
    small_disk.fill()
    for _ in range(5):
        learner.run(iterations=2)
    assert int(learner.train_step.numpy()) == 12
    assert [entry.what for entry in ledger.entries] == ["the checkpoint"]
    assert sorted(path.name for path in directory.glob("ckpt-*.index")) == ["ckpt-2.index"]
    assert any("TensorBoard summaries" in line for line in ledger.closing_lines())
    small_disk.free()
    assert ledger.settle()
    assert (directory / "ckpt-12.index").exists()
    learner.close()


def test_the_best_policy_waits_in_memory_and_is_written_as_it_was(small_disk, ledger):  # noqa: F811
    train_step = tiny_agent.train_step()
    specs = tiny_agent.TinyAgent(train_step)
    network = q_network.QNetwork(specs.time_step_spec.observation, specs.action_spec)
    network.create_variables()
    policy = q_policy.QPolicy(specs.time_step_spec, specs.action_spec, network)
    directory = small_disk.path / "best"
    best = best_policy_trigger.BestPolicyTrigger(policy, str(directory), train_step=train_step)

    def rate(mean):
        """At train step `mean`, all weights being `mean`, too."""
        train_step.assign(mean)
        for variable in policy.variables():
            variable.assign(tf.fill(variable.shape, float(mean)))
        best(evaluation.EvaluationResult(mean, 0, np.full(2, float(mean)), np.ones(2)))

    def written():
        score = json.loads((directory / "score.json").read_text())
        loaded = tf.saved_model.load(str(directory / "policy"))
        weights = {float(x) for v in loaded.model_variables for x in np.unique(v.numpy())}
        return score["mean"], score["train_step"], int(loaded.get_train_step()), weights

    rate(1)
    small_disk.fill()
    rate(3)
    assert best.best["mean"] == 1.0 and best.is_held
    assert "the best policy (mean return 3)" in ledger.summary()
    rate(2)  # Better than what is written, but not than what waits.
    assert written() == (1.0, 1, 1, {1.0})
    assert not (small_disk.path / "best.new").exists()
    small_disk.free()
    assert ledger.settle()
    assert written() == (3.0, 3, 3, {3.0})
    assert best.best["mean"] == 3.0 and not best.is_held
    rate(4)
    assert written() == (4.0, 4, 4, {4.0})


def test_a_trigger_that_finds_the_disk_full_is_fired_again_and_training_goes_on(ledger):
    fired = []

    def write():
        fired.append(len(fired))
        if len(fired) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    def plain(train_step):
        raise OSError(errno.ENOSPC, "No space left on device")

    runner = trigger_runner.TriggerRunner(
        [interval_trigger.IntervalTrigger(10, write), plain], save=lambda: "nothing was saved"
    )
    runner.call(10)
    assert [entry.what for entry in ledger.entries] == ["what the trigger IntervalTrigger writes"]
    assert ledger.settle()
    assert fired == [0, 1]
    (lost,) = ledger.closing_lines()
    assert "1 times what the trigger" in lost and "plain" in lost
