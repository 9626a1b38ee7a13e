"""The actor against TF-Agents' driver and against environments that count."""

from unittest import mock

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import tree
from tf_agents.drivers import py_driver
from tf_agents.policies import random_py_policy, scripted_py_policy
from tf_agents.trajectories import time_step as ts

from actor_learner.acting import actor
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.environments import suite_gymnasium
from actor_learner.support import errors
from tests import contract, counting_environment

FIRST, MID, LAST = 0, 1, 2


def counting(num_envs, **kwargs):
    return gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID, num_envs, vectorization="sync", make_kwargs=kwargs
    )


def unbatched_counting(**kwargs):
    return suite_gymnasium.load(counting_environment.ENV_ID, gym_kwargs=kwargs)


def random_policy(env):
    return random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=0)


def make_actor(env, **kwargs):
    step = kwargs.pop("train_step", None)
    if step is None:
        step = tf.Variable(0, dtype=tf.int64)
    policy = kwargs.pop("policy", None) or random_policy(env)
    return actor.Actor(env, policy, step, **kwargs)


def assert_same_trajectories(ours, theirs):
    assert len(ours) == len(theirs)
    for mine, reference in zip(ours, theirs):
        for field in ("step_type", "next_step_type", "observation", "reward", "discount"):
            np.testing.assert_array_equal(getattr(mine, field), getattr(reference, field), field)
            assert np.shape(getattr(mine, field)) == np.shape(getattr(reference, field))


@pytest.mark.parametrize("ending", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("limit", [{"max_steps": 7}, {"max_episodes": 2}])
def test_one_lane_gives_the_steps_that_tf_agents_driver_gives(ending, limit):
    settings = dict(episode_lengths=(3, 1, 2), endings=(ending,))
    expected, got = [], []
    env = unbatched_counting(**settings)
    driver = py_driver.PyDriver(env, random_policy(env), [expected.append], **limit)
    time_step = env.reset()
    for _ in range(2):
        time_step, _ = driver.run(time_step)

    env = unbatched_counting(**settings)
    ours = make_actor(
        env,
        observers=[got.append],
        steps_per_run=limit.get("max_steps"),
        episodes_per_run=limit.get("max_episodes"),
    )
    for _ in range(2):
        ours.run()
    assert_same_trajectories(got, expected)


def test_many_lanes_align_state_action_and_reward():
    lanes, got = 3, []
    env = counting(lanes, episode_lengths=(2, 4), endings=("terminated", "truncated"))
    make_actor(env, observers=[got.append], steps_per_run=30).run()

    for lane in range(lanes):
        # Two episodes: 0 1 2(terminated), then 0 1 2 3 4(truncated), by hand.
        rows = [
            (
                int(t.step_type[lane]),
                int(t.observation[lane][1]),
                float(t.reward[lane]),
                float(t.discount[lane]),
                int(t.next_step_type[lane]),
            )
            for t in got[:9]
        ]
        assert rows == [
            (FIRST, 0, 1.0, 1.0, MID),
            (MID, 1, 2.0, 0.0, LAST),
            (LAST, 2, 0.0, 1.0, FIRST),
            (FIRST, 0, 1.0, 1.0, MID),
            (MID, 1, 2.0, 1.0, MID),
            (MID, 2, 3.0, 1.0, MID),
            (MID, 3, 4.0, 1.0, LAST),
            (LAST, 4, 0.0, 1.0, FIRST),
            (FIRST, 0, 1.0, 1.0, MID),
        ]


def test_steps_are_counted_over_lanes_without_boundary_steps():
    env = counting(4, episode_lengths=(3,))
    metrics = actor.collect_metrics(10)
    environment_step = tf.Variable(0, dtype=tf.int64)
    ours = make_actor(env, steps_per_run=24, metrics=metrics, environment_step=environment_step)
    ours.run()
    by_name = {metric.name: metric.result() for metric in metrics}
    assert by_name["EnvironmentSteps"] == 24 == environment_step.numpy()
    assert by_name["NumberOfEpisodes"] == 8
    assert by_name["AverageReturn"] == 1 + 2 + 3
    assert by_name["AverageEpisodeLength"] == 3
    assert (by_name["MinReturn"], by_name["MaxReturn"]) == (6, 6)


def test_observers_are_called_in_order_and_once_each():
    calls = []
    observers = [lambda t, i=i: calls.append(i) for i in range(5)]
    env = counting(2)
    listed = observers + observers[:2]
    make_actor(
        env,
        observers=listed,
        transition_observers=[lambda t: calls.append("transition")],
        info_observers=[lambda info: calls.append("info")],
        steps_per_run=1,
    ).run()
    assert calls == ["transition", 0, 1, 2, 3, 4, "info"]
    assert len(listed) == 7


def test_transition_observers_see_time_step_policy_step_and_next_time_step():
    seen = []
    env = counting(2)
    make_actor(env, transition_observers=[seen.append], steps_per_run=4).run()
    first, policy_step, second = seen[0]
    assert first.step_type.tolist() == [FIRST, FIRST]
    assert second.observation[:, 1].tolist() == [1, 1]
    assert policy_step.action.shape == (2,)


def test_observed_arrays_are_not_written_to_later():
    got = []
    env = counting(2, episode_lengths=(5,))
    ours = make_actor(env, observers=[got.append], steps_per_run=2)
    ours.run()
    before = tree.map_structure(np.copy, got[0])
    for _ in range(5):
        ours.run()
    tree.map_structure(np.testing.assert_array_equal, got[0], before)


def test_episodes_end_at_the_boundary_or_at_the_last_step():
    for on_boundary, expected in ((True, 4), (False, 3)):
        got = []
        make_actor(
            unbatched_counting(episode_lengths=(3,)),
            observers=[got.append],
            episodes_per_run=1,
            end_episode_on_boundary=on_boundary,
        ).run()
        assert len(got) == expected


def test_a_run_after_one_that_an_observer_ended_goes_on_with_the_next_step():
    got, environment_step = [], tf.Variable(0, dtype=tf.int64)

    def full_at_the_third(trajectory):
        if len(got) == 3:
            raise OSError("disk full")

    ours = make_actor(
        counting(2, episode_lengths=(4,)),
        observers=[got.append, full_at_the_third],
        environment_step=environment_step,
        steps_per_run=8,
    )
    with pytest.raises(OSError, match="disk full"):
        ours.run()
    assert environment_step.numpy() == 6
    ours.run()
    assert environment_step.numpy() == 6 + 8
    for lane in range(2):
        rows = [
            (int(t.step_type[lane]), int(t.observation[lane][1]), float(t.reward[lane]))
            for t in got
        ]
        first_episode = [(FIRST, 0, 1.0), (MID, 1, 2.0), (MID, 2, 3.0), (MID, 3, 4.0)]
        assert rows == [*first_episode, (LAST, 4, 0.0), *first_episode[:3]]


def test_random_initial_steps_are_taken_once_and_not_again_on_resume():
    env = counting(2, episode_lengths=(100,))

    class Counted:
        info_spec = ()

        def __init__(self):
            self.calls = 0

        def reset(self):
            pass

        def act(self, time_step):
            self.calls += 1
            from actor_learner.inference import protocol

            return protocol.Response(np.zeros(2, np.int64))

    environment_step = tf.Variable(0, dtype=tf.int64)
    options = dict(
        steps_per_run=10, environment_step=environment_step, initial_random_steps=20, seed=1
    )
    policy = Counted()
    ours = make_actor(env, policy=policy, **options)
    ours.run()
    ours.run()
    assert policy.calls == 0
    ours.run()
    assert policy.calls == 5

    resumed = Counted()
    make_actor(env, policy=resumed, **options).run()
    assert resumed.calls == 5


def test_random_initial_steps_need_a_counter():
    with pytest.raises(ValueError, match="environment_step"):
        make_actor(counting(1), steps_per_run=1, initial_random_steps=5)


def test_an_actor_needs_steps_or_episodes():
    with pytest.raises(ValueError, match="steps_per_run, episodes_per_run or group_steps_per_run"):
        make_actor(counting(1))


def test_a_raw_gymnasium_environment_is_refused_with_what_to_do():
    with pytest.raises(errors.SpecMismatchError, match="wrap_env"):
        make_actor(gymnasium.make("CartPole-v1"), policy=object(), steps_per_run=1)


def test_metric_summaries_carry_tf_agents_tags(tmp_path):
    env = counting(2)
    metrics = actor.collect_metrics(10)
    ours = make_actor(
        env,
        steps_per_run=8,
        metrics=metrics,
        reference_metrics=[metrics[1]],
        summary_dir=str(tmp_path),
        name="collect",
    )
    ours.run_and_log()
    ours.close()
    tags = set()
    for path in tmp_path.iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            tags.update(value.tag for value in event.summary.value)
    assert "Metrics/collect/AverageReturn" in tags
    assert "collect/Metrics/AverageReturn/EnvironmentSteps" in tags


def test_summaries_are_written_by_keyword_so_that_scripts_can_watch_them(tmp_path):
    metrics = actor.collect_metrics(10)
    ours = make_actor(
        counting(2),
        steps_per_run=8,
        metrics=metrics[:2],
        reference_metrics=[metrics[1]],
        summary_dir=str(tmp_path),
        name="eval_actor",
    )
    with mock.patch.object(tf.summary, "scalar", autospec=True) as scalar:
        ours.run()
    assert [call.args for call in scalar.call_args_list] == 4 * [()]
    assert [call.kwargs["name"] for call in scalar.call_args_list] == [
        "Metrics/eval_actor/NumberOfEpisodes",
        "eval_actor/Metrics/NumberOfEpisodes/EnvironmentSteps",
        "Metrics/eval_actor/EnvironmentSteps",
        "eval_actor/Metrics/EnvironmentSteps/EnvironmentSteps",
    ]
    assert scalar.call_args_list[1].kwargs["step"] == scalar.call_args_list[2].kwargs["data"] == 8


def test_a_metric_without_a_number_is_logged_and_the_others_are_written(tmp_path, caplog):
    class NoNumber:
        name = "Histogram"

        def __call__(self, trajectory):
            pass

        def result(self):
            return np.zeros([2])

    metrics = [NoNumber(), *actor.eval_metrics(3)]
    ours = make_actor(counting(1), steps_per_run=4, metrics=metrics, summary_dir=str(tmp_path))
    ours.run()
    ours.close()
    assert "No summary 'Metrics/Histogram' was written" in caplog.text
    (events,) = tmp_path.iterdir()
    tags = [
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    ]
    assert "Metrics/AverageReturn" in tags


def test_a_scripted_py_policy_runs_an_unbatched_environment():
    got = []
    env = unbatched_counting(episode_lengths=(2,))
    script = [(1, np.int64(1)), (1, np.int64(0)), (1, np.int64(1))]
    policy = scripted_py_policy.ScriptedPyPolicy(env.time_step_spec(), env.action_spec(), script)
    make_actor(env, policy=policy, observers=[got.append], steps_per_run=2).run()
    assert [int(t.action) for t in got] == [1, 0]
    assert isinstance(got[0].step_type, (np.ndarray, np.integer))
    assert got[0].step_type == ts.StepType.FIRST


# One of them counts what its observer has written without waiting for the server.
@pytest.mark.flaky(reruns=2)
def test_tf_agents_own_actor_tests_pass():
    result = contract.run_tf_agents_tests(
        "tf_agents.train.actor_test",
        {
            "tf_agents.train.actor": "actor_learner.acting.actor",
            "tf_agents.environments.suite_gym": "actor_learner.environments.suite_gymnasium",
        },
    )
    assert "ActorTest.testActorRun" in result.passed
