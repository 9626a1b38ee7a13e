"""The ring writes what one group would write; nobody takes a group for an actor."""

import threading
import types

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.metrics import py_metrics
from tf_agents.trajectories import time_step as ts

from actor_learner.acting import actor, ring, rotation
from actor_learner.agents import r2d2_policy
from actor_learner.environments.tensor import cartpole, environment
from actor_learner.inference import protocol, threaded
from actor_learner.support import errors
from tests.acting import same_items

PLAIN = {}


def plain(kind):
    """What the actor of one group writes; it is the same for all."""
    if kind not in PLAIN:
        PLAIN[kind] = same_items.Written(kind, ring_size=1)
    return PLAIN[kind]


@pytest.mark.parametrize("kind", same_items.KINDS)
@pytest.mark.parametrize(("ring_size", "where"), [(2, "inline"), (2, "threaded"), (1, "threaded")])
def test_a_ring_writes_the_items_of_the_plain_actor(kind, ring_size, where):
    written = same_items.Written(kind, ring_size, inference_stream=where)
    assert written.actor.inference_stream == where
    assert written.actor.inference == "lite"
    assert len(plain(kind).rows) >= 8
    assert written.rows == plain(kind).rows
    assert written.results() == plain(kind).results()
    assert written.actor.steps_taken == plain(kind).actor.steps_taken
    assert written.actor.num_lanes == same_items.LANES == written.plan.num_lanes
    assert written.plan.lanes_per_group == same_items.LANES // ring_size


class Lanes:
    """Two lanes whose episodes end after so many steps; an observation counts all steps."""

    def __init__(self, name, log, length=100):
        self.name, self.log, self.length = name, log, length
        self.env = same_items.make_lanes(2)
        self.count = 0

    def make(self):
        self.env.step = self.step
        self.env.reset = self.reset
        return self.env

    def reset(self):
        self.count = 0
        return self._time_step(ts.StepType.FIRST)

    def step(self, action):
        self.log.append(("step", self.name, int(action[0])))
        self.count += 1
        kind = ts.StepType.LAST if self.count % self.length == 0 else ts.StepType.MID
        return self._time_step(kind)

    def _time_step(self, kind):
        observation = np.full((2, 4), self.count, np.float32)
        return ts.TimeStep(
            np.full(2, kind, np.int32), np.ones(2, np.float32), np.ones(2, np.float32), observation
        )


class Stream:
    """Answers with the number of the request; notes what it is asked, and when it is waited for."""

    def __init__(self, log):
        self.log, self.requests, self.version = log, 0, 0
        self.broken = None
        self.closed = False

    def reset(self, group):
        self.log.append(("reset", group))

    def refresh(self, version=None, epoch=0, *, certain=False):
        self.version = version

    def request(self, group, time_step):
        self.requests += 1
        self.log.append(("request", group))
        return group, self.requests, self.version

    def result(self, ticket, timeout_seconds=None):
        if self.broken is not None:
            broken, self.broken = self.broken, None
            raise broken
        group, number, version = ticket
        return protocol.Response(np.full(2, number % 2), (), (), "fake", version)

    def close(self):
        self.closed = True


def make_ring(size, log, **options):
    return ring.EnvironmentRing([Lanes(number, log, **options).make() for number in range(size)])


def make_actor(log, size=3, *, stream=None, length=100, **options):
    options = {"group_steps_per_run": size, **options}
    return actor.Actor(
        make_ring(size, log, length=length),
        stream or Stream(log),
        tf.Variable(0, dtype=tf.int64),
        **options,
    )


def test_all_groups_ask_before_the_first_is_waited_for_and_the_head_rotates():
    log = []
    acting = make_actor(log, size=3)
    log.clear()
    acting.run()
    acting.run()
    steps = [entry[1] for entry in log if entry[0] == "step"]
    assert steps == [0, 1, 2, 0, 1, 2]
    assert [entry[0] for entry in log[:5]] == ["request"] * 3 + ["step", "request"]
    assert sum(entry[0] == "request" for entry in log) == 9  # Three are under way.


def test_what_was_asked_for_before_a_run_has_the_version_that_it_was_asked_of():
    log, seen = [], []
    train_step = tf.Variable(7, dtype=tf.int64)
    stream = Stream(log)
    acting = actor.Actor(
        make_ring(2, log),
        stream,
        train_step,
        group_steps_per_run=4,
        observers=[lambda trajectory: seen.append(acting.policy_version)],
    )
    acting.run()
    train_step.assign(8)
    acting.run()
    assert seen == [7, 7, 7, 7, 7, 7, 8, 8]


def test_steps_and_episodes_are_counted_in_lanes_of_groups():
    log = []
    environment_step = tf.Variable(0, dtype=tf.int64)
    acting = make_actor(
        log, 2, length=3, group_steps_per_run=None, steps_per_run=13,
        environment_step=environment_step,
    )  # fmt: skip
    acting.run()
    # 2 lanes a step; the fourth of each group is a reset and does not count.
    assert acting.steps_taken == 14 == environment_step.numpy()
    assert [entry[1] for entry in log if entry[0] == "step"] == [0, 1] * 4 + [0]
    ends = make_actor([], 2, length=3, group_steps_per_run=None, episodes_per_run=3)
    ends.run()
    assert ends.steps_taken == 12  # Two lanes of each group end at their boundary step.


def test_random_steps_ask_nobody_and_the_policy_follows():
    log = []
    environment_step = tf.Variable(0, dtype=tf.int64)
    acting = make_actor(
        log, 2, environment_step=environment_step, initial_random_steps=5, group_steps_per_run=2
    )
    acting.run()
    acting.run()
    assert not [entry for entry in log if entry[0] == "request"]
    acting.run()
    assert [entry for entry in log if entry[0] == "request"][:2] == [("request", 0), ("request", 1)]


def test_a_deadline_leaves_the_request_open_and_an_error_asks_again():
    log = []
    stream = Stream(log)
    acting = make_actor(log, 2, stream=stream)
    stream.broken = errors.InferenceTimeoutError("nobody answers")
    with pytest.raises(errors.InferenceTimeoutError):
        acting.run()
    asked = stream.requests
    acting.run()
    assert stream.requests == asked + 2  # One after each step; none again for the head.
    stream.broken = ZeroDivisionError("of the policy")
    with pytest.raises(ZeroDivisionError):
        acting.run()
    asked = stream.requests
    acting.run()
    assert stream.requests == asked + 3


def test_what_an_observer_raises_loses_no_step_of_any_group():
    log, seen = [], []

    def observe(trajectory):
        seen.append(int(trajectory.observation[0, 0]))
        if len(seen) == 2:
            raise ValueError("once")

    acting = make_actor(log, 2, observers=[observe], group_steps_per_run=6)
    with pytest.raises(ValueError, match="once"):
        acting.run()
    assert acting.steps_taken == 4
    acting.run()
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_reset_takes_what_is_under_way_and_begins_with_the_first_group():
    log = []
    acting = make_actor(log, 2, group_steps_per_run=3)
    acting.run()
    log.clear()
    acting.reset()
    assert log == [("reset", 0), ("reset", 1)]
    acting.run()
    assert [entry[1] for entry in log if entry[0] == "step"] == [0, 1, 0]


def test_a_stream_that_was_given_is_the_callers_to_close():
    stream = Stream([])
    make_actor([], 2, stream=stream).close()
    assert not stream.closed


def test_per_group_observers_see_their_group():
    class Observer:
        def __init__(self):
            self.seen = []

        def __call__(self, trajectory):
            self.seen.append(int(trajectory.observation[0, 0]))

    each = [Observer(), Observer()]
    acting = make_actor([], 2, observers=[rotation.for_groups(each)], group_steps_per_run=4)
    acting.run()
    assert [observer.seen for observer in each] == [[0, 1], [0, 1]]


def test_a_metric_that_would_mix_groups_is_refused():
    with pytest.raises(errors.SpecMismatchError, match="'AverageReturn'.* one group of lanes"):
        make_actor([], 2, metrics=[py_metrics.AverageReturnMetric()])


def test_groups_must_be_alike():
    with pytest.raises(errors.SpecMismatchError, match="group 1 of the ring has 3 lanes"):
        ring.EnvironmentRing([same_items.make_lanes(2), same_items.make_lanes(3)])


def test_a_ring_of_one_inline_is_the_plain_actor():
    env = same_items.make_lanes(2)
    policy = same_items.Written("transitions", 1).algorithm.agent.collect_policy
    acting = actor.Actor(
        ring.EnvironmentRing([env]), policy, tf.Variable(0, dtype=tf.int64), steps_per_run=4
    )
    assert acting._rotation is None and acting.inference_stream == "inline"


def test_a_graph_call_has_nothing_to_overlap():
    env = environment.TensorEnvironment(cartpole.CartPoleDynamics(), 2)
    policy = same_items.Written("transitions", 1).algorithm.agent.collect_policy
    with pytest.raises(errors.ConfigError, match="one graph call"):
        actor.Actor(
            env, policy, tf.Variable(0, dtype=tf.int64), group_steps_per_run=4,
            inference_stream="threaded",
        )  # fmt: skip


def test_an_unknown_stream_is_refused():
    with pytest.raises(errors.ConfigError, match="'inline', 'threaded', 'remote', got 'cloud'"):
        make_actor([], 2, inference_stream="cloud")


def test_remote_without_policy_jobs_is_inline():
    acting = same_items.Written("transitions", 1, inference_stream="remote").actor
    assert acting.inference_stream == "inline"


def test_epsilons_are_those_of_the_lanes_of_each_group():
    written = same_items.Written("sequences", 2)
    policy = written.algorithm.agent.collect_policy
    assert policy.lane_values.tolist() == r2d2_policy.lane_epsilons(0, 4, 4).tolist()
    groups = [group._own for group in written.actor._stream._groups]
    assert np.concatenate([group.lane_values for group in groups]).tolist() == (
        policy.lane_values.tolist()
    )
    written.algorithm.share_lanes(4, 8)  # Another actor has come, and is the first.
    for group in written.actor._stream._groups:
        group.refresh(1)
    assert np.concatenate([group.lane_values for group in groups]).tolist() == (
        r2d2_policy.lane_epsilons(4, 4, 8).tolist()
    )


def test_the_thread_computes_one_group_while_another_is_stepped():
    """Both must be under way at once: each waits for the other."""
    stepping, acting_now = threading.Event(), threading.Event()

    class Policy:
        """Its second answer, the first of group 1, is not given before group 0 is stepped."""

        kind = "fake"
        calls = 0

        def reset(self):
            pass

        def refresh(self, version=None, epoch=0, *, certain=False):
            pass

        def act(self, time_step):
            Policy.calls += 1
            if Policy.calls == 2:
                acting_now.set()
                assert stepping.wait(30)
            return protocol.Response(np.zeros(2, np.int64))

    def step(action):
        assert acting_now.wait(30)
        stepping.set()
        return first_step(action)

    circle = make_ring(2, [])
    stream = threaded.ThreadedInference([Policy(), Policy()])
    first_step = circle.groups[0].step
    circle.groups[0].step = step
    acting = actor.Actor(circle, stream, tf.Variable(0, dtype=tf.int64), group_steps_per_run=2)
    acting.run()
    stream.close()
    assert acting.steps_taken == 4


@pytest.mark.parametrize("attribute, said", [("turn_based", "several"), ("needs_league", "league")])
def test_what_a_ring_cannot_hold_is_refused(attribute, said):
    odd = types.SimpleNamespace(**{attribute: True})
    with pytest.raises(errors.ConfigError, match=said):
        ring.EnvironmentRing([odd, odd])


def test_the_time_of_a_turn_of_a_ring_is_taken_down():
    spent = []

    class Times:
        is_timed = True

        def around(self, kind, call):
            def timed(*arguments):
                spent.append(kind)
                return call(*arguments)

            return timed

    acting = make_actor([], steps_per_run=2 * 3, observers=[lambda _: None])
    acting.times = Times()
    acting.run()
    assert spent == ["inferring", "stepping", "writing"] * 3
