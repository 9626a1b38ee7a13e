"""Tests of `actor_learner.learning.tuning`."""

import tensorflow as tf

from actor_learner.learning import learner, ppo_learner, tuning
from tests.learning import test_ppo_learner, tiny_agent


def test_tuning_is_turned_off_unless_asked_for():
    dataset = tf.data.Dataset.range(3)
    assert tuning.without_tuning(dataset).options().autotune.enabled is False
    options = tf.data.Options()
    options.autotune.enabled = True
    asked = dataset.with_options(options)
    assert tuning.without_tuning(asked) is asked


def test_other_options_are_kept():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    untuned = tuning.without_tuning(tf.data.Dataset.range(3).with_options(options))
    assert untuned.options().threading.private_threadpool_size == 3
    assert [int(number) for number in untuned] == [0, 1, 2]


def test_learners_read_their_datasets_untuned(tmp_path):
    def tuned():
        return tf.data.Dataset.from_tensors((tiny_agent.experience(), ())).repeat()

    step = tiny_agent.train_step()
    agent = tiny_agent.TinyAgent(step)
    with learner.Learner(str(tmp_path / "a"), step, agent, tuned) as trained:
        assert trained._batches.dataset.options().autotune.enabled is False
    made, _ = test_ppo_learner.make(tmp_path / "b")
    assert isinstance(made, ppo_learner.PPOLearner)
    with made:
        assert made._generic_learner._batches.dataset.options().autotune.enabled is False
        assert made._normalization_dataset.options().autotune.enabled is False
