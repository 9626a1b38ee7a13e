"""Tests of `actor_learner.learning.ppo_learner`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import types

import pytest
import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner.learning import ppo_learner
from actor_learner.support import errors
from tests.learning import tiny_agent


class RecordingAgent(tiny_agent.TinyAgent):
    """Looks like a PPO agent to the learner and keeps the observations it was trained on."""

    def __init__(self, train_step, recurrent=False, in_train=False, normalizers=False):
        super().__init__(train_step)
        self._actor_net = types.SimpleNamespace(state_spec=("state",) if recurrent else ())
        self._value_net = types.SimpleNamespace(state_spec=())
        self._compute_value_and_advantage_in_train = in_train
        self.update_normalizers_in_train = normalizers
        self.seen = tf.Variable(tf.zeros([0]), shape=[None], trainable=False)
        self.sizes = tf.Variable(tf.zeros([0], tf.int32), shape=[None], trainable=False)
        self.normalized = tf.Variable(tf.zeros([0]), shape=[None], trainable=False)

    def update_observation_normalizer(self, observation):
        self.normalized.assign(tf.concat([self.normalized, _flat(observation)], 0))

    def update_reward_normalizer(self, reward):
        tf.debugging.assert_rank(reward, 2)

    def _train(self, experience, weights=None):
        seen = _flat(experience.observation)
        self.seen.assign(tf.concat([self.seen, seen], 0))
        self.sizes.assign(tf.concat([self.sizes, [tf.size(seen)]], 0))
        self.train_step_counter.assign_add(1)
        return tf_agent.LossInfo(tf.reduce_mean(experience.observation), ())

    def take_seen(self):
        seen = self.seen.numpy().tolist()
        self.seen.assign(tf.zeros([0]))
        return seen

    def take_sizes(self):
        sizes = self.sizes.numpy().tolist()
        self.sizes.assign(tf.zeros([0], tf.int32))
        return sizes


def _flat(observation):
    return tf.reshape(observation[..., 0], [-1])


def rounds_of(lengths):
    """A dataset function; its n-th use gives sequences of `lengths` with observations 100n + i."""
    uses = tf.Variable(0.0)
    offsets = tf.cumsum([0, *lengths[:-1]])

    def sequence(index):
        use = tf.cond(index == 0, lambda: uses.assign_add(1.0), uses.read_value)
        first = 100.0 * use + tf.cast(offsets[index], tf.float32)
        values = first + tf.cast(tf.range(tf.constant(lengths)[index]), tf.float32)
        return tf.tile(values[None, :, None], [1, 1, 2])

    def as_sample(observation):
        ones = tf.ones(tf.shape(observation)[:2])
        code = tf.cast(ones, tf.int32)
        return (
            tiny_agent.experience()._replace(
                step_type=code,
                observation=observation,
                action=code,
                next_step_type=code,
                reward=ones,
                discount=ones,
            ),
            (),
        )

    def dataset_fn():
        sequences = tf.data.Dataset.range(len(lengths), output_type=tf.int32).map(sequence)
        return sequences.map(as_sample)

    return dataset_fn


def make(root_dir, lengths=(10, 15), agent=None, step=None, **kwargs):
    step = tiny_agent.train_step() if step is None else step
    agent = RecordingAgent(step) if agent is None else agent
    arguments = dict(
        experience_dataset_fn=rounds_of(lengths),
        normalization_dataset_fn=rounds_of(lengths),
        num_samples=len(lengths),
    )
    arguments.update(kwargs)
    return ppo_learner.PPOLearner(str(root_dir), step, agent, **arguments), agent


@pytest.mark.parametrize(
    "lengths, size, sizes",
    [
        ((10, 15), 10, [9, 8, 8]),  # 25 frames: no rest of five.
        ((10, 10), 10, [10, 10]),
        ((4,), 10, [4]),
        ((7, 4), 10, [6, 5]),  # No minibatch of one frame.
        ((3,), 1, [1, 1, 1]),
    ],
)
def test_each_epoch_uses_every_frame_of_its_round_once(tmp_path, lengths, size, sizes):
    made, agent = make(
        tmp_path, lengths, num_epochs=3, minibatch_size=size, shuffle_buffer_size=100
    )
    frames = sum(lengths)
    with made:
        for number in (1, 2, 3):
            made.run()
            seen = agent.take_seen()
            for epoch in range(3):
                in_epoch = sorted(seen[epoch * frames : (epoch + 1) * frames])
                assert in_epoch == [100.0 * number + i for i in range(frames)]
            assert len(seen) == 3 * frames
            assert agent.take_sizes() == 3 * sizes
            assert made.train_step_numpy == number * 3 * len(sizes)
            assert made.num_frames_for_training.numpy() == frames


def test_every_epoch_is_shuffled_anew(tmp_path):
    made, agent = make(
        tmp_path, lengths=(40,), num_epochs=2, minibatch_size=10, shuffle_buffer_size=100
    )
    with made:
        made.run()
    seen = agent.take_seen()
    assert sorted(seen[:40]) == sorted(seen[40:]) == [100.0 + i for i in range(40)]
    assert seen[:40] != seen[40:]


def test_without_minibatches_whole_sequences_are_repeated(tmp_path):
    made, agent = make(tmp_path, lengths=(2, 3), num_epochs=2)
    with made:
        made.run()
        assert agent.take_seen() == [100, 101, 102, 103, 104] * 2
        made.run()
        assert agent.take_seen() == [200, 201, 202, 203, 204] * 2
        assert made.train_step_numpy == 8


def test_normalizers_see_each_frame_of_a_round_once(tmp_path):
    made, agent = make(tmp_path, lengths=(2, 3), num_epochs=4)
    with made:
        made.run()
        made.run()
    assert agent.normalized.numpy().tolist() == [100, 101, 102, 103, 104, 200, 201, 202, 203, 204]


def test_minibatches_of_any_size_run_in_the_same_graph(tmp_path):
    made, _ = make(
        tmp_path, lengths=(25,), num_epochs=2, minibatch_size=10, shuffle_buffer_size=100
    )
    with made:
        for _ in range(4):
            made.run()
        assert made._generic_learner._calls.quiet_loop.trace_count == 1
        assert made._generic_learner._calls.recording_loop.trace_count == 1


def test_a_small_shuffle_buffer_shuffles_little(tmp_path):
    made, agent = make(tmp_path, lengths=(10,), minibatch_size=4, shuffle_buffer_size=1)
    with made:
        made.run()
    assert agent.take_seen() == [100.0 + i for i in range(10)]


@pytest.mark.parametrize("late", ["experience_dataset_fn", "normalization_dataset_fn"])
def test_a_round_that_stays_incomplete_is_a_timeout_and_not_a_hang(tmp_path, late):
    made, _ = make(
        tmp_path,
        lengths=(2, 3),
        **{late: rounds_of((2,))},
        sample_timeout_message=lambda: "no actor writes to 'train'",
    )
    with made:
        with pytest.raises(errors.ReplayTimeoutError, match="no actor writes to 'train'"):
            made.run()
        with pytest.raises(errors.ReplayTimeoutError, match="no actor writes to 'train'"):
            made.run()


@pytest.mark.parametrize(
    "agent, kwargs, message",
    [
        ({}, dict(minibatch_size=5), "shuffle_buffer_size must be provided"),
        (
            dict(recurrent=True),
            dict(minibatch_size=5, shuffle_buffer_size=5),
            "minibatch_size must be set to None for RNN",
        ),
        (
            dict(in_train=True),
            dict(minibatch_size=5, shuffle_buffer_size=5),
            "compute_value_and_advantage_in_train should be set to False",
        ),
        (dict(normalizers=True), {}, "update_normalizers_in_train should be set to False"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path, agent, kwargs, message):
    step = tiny_agent.train_step()
    with pytest.raises(ValueError, match=message):
        make(tmp_path, agent=RecordingAgent(step, **agent), step=step, **kwargs)


def test_checkpoints_triggers_and_stopping_are_those_of_the_learner(tmp_path):
    calls = []
    items = {"environment_step": tf.Variable(5)}
    made, _ = make(tmp_path, triggers=[calls.append], checkpoint_items=items)
    with made:
        made.run()
        made.add_trigger(calls.append)
        made.run()
        assert calls == [2, 4, 4]
        assert made.stop_reason is None
        path = made.save_checkpoint()
    items = {"environment_step": tf.Variable(0)}
    again, _ = make(tmp_path, checkpoint_items=items)
    assert again.restored_from == path
    assert again.train_step_numpy == 4
    assert items["environment_step"].numpy() == 5
    again.close()
    with pytest.raises(errors.ActorLearnerError, match="closed"):
        again.run()


def test_replicas_share_minibatches_out_and_leave_no_frame_to_the_next_round(tmp_path):
    script = """
        import sys
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        from tf_agents.agents import tf_agent
        from tf_agents.train.utils import train_utils
        from tests.learning import test_ppo_learner

        class Agent(test_ppo_learner.RecordingAgent):
            def update_observation_normalizer(self, observation):
                pass

            def _train(self, experience, weights=None):
                self.train_step_counter.assign_add(1)
                size = tf.cast(tf.shape(experience.observation)[0], tf.float32)
                total = tf.reduce_sum(experience.observation[..., 0])
                return tf_agent.LossInfo(total, size)

        strategy = tf.distribute.MirroredStrategy()
        assert strategy.num_replicas_in_sync == 2
        with strategy.scope():
            step = train_utils.create_train_step()
            # 15 frames: not one minibatch of ten and a rest, but 8 and 7, one for each replica.
            made, _ = test_ppo_learner.make(
                sys.argv[1], lengths=(15,), agent=Agent(step), step=step, strategy=strategy,
                minibatch_size=10, shuffle_buffer_size=1)
            for number in (1, 2, 3, 4):
                loss = made.run()
                assert loss.loss.numpy() == 15 * 100 * number + sum(range(15)), (number, loss)
                assert loss.extra.numpy() == 15, loss
                assert made.train_step_numpy == number
            made.close()
            lone, _ = test_ppo_learner.make(
                sys.argv[1] + "/lone", lengths=(1,), agent=Agent(step), step=step,
                strategy=strategy, minibatch_size=10, shuffle_buffer_size=1)
            try:
                lone.run()
            except ValueError as error:
                assert "across 2 replicas: it has 1 frames" in str(error), error
            else:
                raise AssertionError("one frame cannot be shared out")
        print("done")
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0 and process.stdout.endswith("done\n"), process.stdout[-4000:]


def test_a_round_that_is_not_finite_reaches_neither_normalizers_nor_weights(tmp_path):
    def spoiled(dataset_fn):
        def spoil(trajectory, info):
            reward = trajectory.reward * tf.constant(float("nan"))
            return trajectory._replace(reward=reward), info

        return lambda: dataset_fn().map(spoil)

    made, agent = make(tmp_path, normalization_dataset_fn=spoiled(rounds_of((10, 15))))
    with made:
        with pytest.raises(errors.NotFiniteError, match="reward of a round is not finite"):
            made.run()
        assert agent.normalized.numpy().size == 0 and agent.take_seen() == []


def test_minibatches_that_are_not_finite_are_skipped_if_asked_for(tmp_path):
    def spoiled(dataset_fn):
        def spoil(trajectory, info):
            # Each round's first frame; the normalizers are shown others.
            first = tf.equal(trajectory.observation % 100.0, 0.0)
            nan = tf.fill(tf.shape(first), float("nan"))
            return (
                trajectory._replace(observation=tf.where(first, nan, trajectory.observation)),
                info,
            )

        return lambda: dataset_fn().map(spoil)

    made, agent = make(
        tmp_path,
        lengths=(4,),
        experience_dataset_fn=spoiled(rounds_of((4,))),
        num_epochs=2,
        minibatch_size=1,
        shuffle_buffer_size=10,
        when_not_finite="skip",
    )
    with made:
        made.run()
        assert made.train_step_numpy == 6 and made.skipped_steps == 2
        assert sorted(agent.take_seen()) == [101.0, 101.0, 102.0, 102.0, 103.0, 103.0]
