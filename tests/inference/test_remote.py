"""Remote inference acts as the policy would here, with memory, and whatever is lost on the way."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tree

from actor_learner.agents import dqn, r2d2
from actor_learner.inference import policy_service, remote, streams
from actor_learner.messaging import client as client_lib
from actor_learner.support import errors
from tests.acting import same_items
from tests.inference import serving

SECONDS = 60.0


def greedy_dqn(world):
    return dqn.dqn(world, fc_layer_params=(8,), epsilon_start=0.0, epsilon_end=0.0)


def greedy_r2d2(world):
    return r2d2.r2d2(
        world, fc_layer_params=(4,), lstm_size=4, head_layer_params=(4,), burn_in=2, n_step=2,
        epsilon_base=0.0,
    )  # fmt: skip


GREEDY = {"transitions": greedy_dqn, "sequences": greedy_r2d2}


def remote_of(address, state=remote.CARRIED, losing=False):
    """What an actor is given to make its stream."""

    def make(ring, policy):
        wire = client_lib.Client(address, who="actor-0")
        if losing:
            wire.close()
            wire = serving.Losing(address, share=0.1)
        return remote.RemoteInference(
            remote.OneServer(wire),
            policy,
            len(ring),
            ring.lanes_per_group,
            who="actor-0",
            state=state,
            resend_seconds=0.05 if losing else 2.0,
        )

    return make


@pytest.mark.parametrize("kind", GREEDY)
@pytest.mark.parametrize(
    ("ring_size", "state", "losing"),
    [(1, "carried", False), (2, "carried", True), (2, "held", True)],
)
def test_remote_actors_write_the_items_of_the_plain_one(
    monkeypatch, kind, ring_size, state, losing
):
    monkeypatch.setitem(same_items.KINDS, kind, (GREEDY[kind], same_items.KINDS[kind][1]))
    plain = same_items.Written(kind, 1)
    # The same weights, in another process as it were.
    service = policy_service.PolicyService(plain.algorithm.agent.collect_policy, 8)
    service.refresh(5, 1)
    with serving.serving(service) as served:
        written = same_items.Written(
            kind,
            ring_size,
            inference_stream="remote",
            remote=remote_of(served.address, state, losing),
        )
    assert written.actor.inference_stream == written.actor.inference == "remote"
    assert written.actor.policy_version == 5
    assert len(plain.rows) >= 4
    assert written.rows == plain.rows
    assert written.results() == plain.results()


def test_lanes_that_differ_do_so_over_the_wire():
    """With epsilon 1 a lane acts at random, with 0 as the policy says, whoever shares its batch."""
    written = same_items.Written("sequences", 1)
    policy = written.algorithm.agent.collect_policy
    policy.lane_values = np.array([0.0, 1.0, 0.0, 1.0], np.float32)
    service = policy_service.PolicyService(policy, 16, seed=1)
    env = same_items.make_lanes(4)
    time_step = env.reset()
    here = streams.stream_for(policy, 4, True, seed=0)
    policy_says = None
    with serving.serving(service) as served:
        stream = remote.RemoteInference(
            remote.OneServer(client_lib.Client(served.address, who="a")), policy, 1, 4, who="a"
        )
        differ = np.zeros(4)
        for _ in range(40):
            here.reset()
            stream.reset(0)
            policy_says = here.act(time_step).action
            answer = stream.result(stream.request(0, time_step), SECONDS)
            differ += answer.action != policy_says
        stream.close()
    assert differ[0] == differ[2] == 0
    assert differ[1] > 5 and differ[3] > 5
    env.close()


def test_memory_is_reset_where_an_episode_begins_and_kept_elsewhere():
    written = same_items.Written("sequences", 1)
    policy = written.algorithm.agent.collect_policy
    policy.lane_values = np.zeros(4, np.float32)
    here = streams.stream_for(policy, 4, True, seed=0)
    here.refresh(0)
    service = policy_service.PolicyService(policy, 16)
    env = same_items.make_lanes(4)
    with serving.serving(service) as served:
        streams_there = [
            remote.RemoteInference(
                remote.OneServer(client_lib.Client(served.address, who="a")),
                policy, 1, 4, who="a", state=state,
            )
            for state in (remote.CARRIED, remote.HELD)
        ]  # fmt: skip
        time_step = env.reset()
        for _ in range(30):
            expected = here.act(time_step)
            for stream in streams_there:
                answer = stream.result(stream.request(0, time_step), SECONDS)
                tree.map_structure(
                    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
                    (answer.action, answer.policy_info),
                    (expected.action, expected.policy_info),
                )
                assert (answer.policy, answer.version, answer.epoch) == (expected.policy, -1, 0)
            carried = streams_there[0]._previous[0]
            tree.map_structure(
                functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
                tree.flatten(carried), tree.flatten(expected.previous_state),
            )  # fmt: skip
            time_step = env.step(expected.action)
        for stream in streams_there:
            stream.close()
    env.close()


def test_new_weights_take_effect_with_their_version(monkeypatch):
    monkeypatch.setitem(
        same_items.KINDS, "transitions", (greedy_dqn, same_items.KINDS["transitions"][1])
    )
    written = same_items.Written("transitions", 1)
    policy = written.algorithm.agent.collect_policy
    service = policy_service.PolicyService(policy, 4)
    env = same_items.make_lanes(4)
    time_step = env.reset()
    with serving.serving(service) as served:
        stream = remote_of(served.address)(_Ring(), policy)
        before = stream.result(stream.request(0, time_step), SECONDS)
        for variable in policy.variables():
            variable.assign(tf.zeros_like(variable))
        service.refresh(9, 3)
        after = stream.result(stream.request(0, time_step), SECONDS)
        stream.close()
    assert (before.version, before.epoch) == (-1, 0)
    assert after.action.tolist() == [0] * 4  # All values are equal: the first action.
    assert (after.version, after.epoch) == (9, 3) == (stream.version, stream.epoch)
    env.close()


class _Ring:
    lanes_per_group = 4

    def __len__(self):
        return 1


def test_a_python_policy_is_not_served():
    with pytest.raises(errors.SpecMismatchError, match="runs TF policies"):
        policy_service.Layout.of(object())


def test_an_unknown_place_of_the_state_is_refused():
    with pytest.raises(errors.ConfigError, match="'carried' or 'held', got 'cloud'"):
        remote.RemoteInference(None, None, 1, 1, who="a", state="cloud")


def test_graphs_keep_their_state_elsewhere_too():
    written = same_items.Written("sequences", 1)
    policy = written.algorithm.agent.collect_policy
    graph = streams.stream_for(policy, 2, True, inference="graph")
    lite = streams.stream_for(policy, 2, True, inference="lite", seed=0)
    leaves = [np.full(leaf.shape, 0.5, np.float32) for leaf in graph.state]
    graph.state = lite.state = leaves
    for given, kept in zip(leaves, graph.state):
        np.testing.assert_array_equal(given, kept)
    for one, other in zip(graph.state, lite.state):
        np.testing.assert_array_equal(one, other)
    assert tf.nest.flatten(policy.policy_state_spec)[0].shape[-1] == leaves[0].shape[-1]
