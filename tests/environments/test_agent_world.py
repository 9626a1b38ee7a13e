"""`AgentWorld` and `AgentSpec`: who is a lane, what it observes, and where its episodes end."""

import functools

import gymnasium
import numpy as np
import pytest
from tf_agents.trajectories import time_step as ts

from actor_learner import AgentSpec, AgentWorld, agent_spec
from actor_learner.environments import seeding, spread
from actor_learner.support import errors
from tests import counting_world
from tests.counting_world import CountingParallelWorld, CountingTurnWorld

FIRST, MID, LAST = 0, 1, 2


class MaskedSpread(spread.Spread):
    """Says in the info that staying, action 0, is illegal."""

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed=seed)
        return observations, self._masks(infos)

    def step(self, actions):
        assert 0 not in actions.values()
        *met, infos = super().step(actions)
        return (*met, self._masks(infos))

    def _masks(self, infos):
        return {agent: {"action_mask": np.array([0, 1, 1, 1, 1])} for agent in infos}


def actions(time_step):
    return counting_world.choose(time_step.observation["observation"])


def still(env):
    return np.zeros(env.batch_size, np.int64)


def test_the_first_spec_that_matches_the_whole_name_counts():
    first, second, rest = AgentSpec("walker_0"), AgentSpec("walker_.*", "b"), AgentSpec(policy="c")
    assigned = agent_spec.assign(["walker_0", "walker_01", "runner_0"], [first, second, rest])
    assert assigned == {
        "main": [("walker_0", first)],
        "b": [("walker_01", second)],
        "c": [("runner_0", rest)],
    }


def test_an_agent_that_nothing_matches_is_an_error():
    with pytest.raises(errors.ConfigError, match="agent 'runner_0' matches none"):
        AgentWorld(CountingParallelWorld, agents=[AgentSpec("walker_.*")])


def test_somebody_must_be_left_for_the_policy_that_is_trained():
    with pytest.raises(errors.ConfigError, match="no agent of counting_world"):
        AgentWorld(CountingParallelWorld, agents=[AgentSpec(policy="x", frozen=lambda *_: None)])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(agents="("), "not a regular expression"),
        (dict(policy="a b"), "letters, digits"),
        (dict(frozen=print), "which Experiment.agent trains"),
        (dict(agent=print), "which Experiment.agent trains"),
        (dict(policy="x", agent=print, frozen=print), "either frozen or trained"),
        (dict(policy="x", batch_size=3), "nobody reads it without AgentSpec.agent"),
        (dict(frame_stack=0), "frame_stack must be 1 or more"),
        (dict(max_num_steps=1.5), "max_num_steps must be 1 or more"),
    ],
)
def test_specs_that_make_no_sense_are_refused(arguments, says):
    with pytest.raises(errors.ConfigError, match=says):
        AgentSpec(**arguments)


def test_agents_that_share_a_policy_need_the_same_spaces():
    class Uneven(spread.Spread):
        def action_space(self, agent):
            return gymnasium.spaces.Discrete(5 if agent == "agent_0" else 4)

    with pytest.raises(errors.SpecMismatchError, match="'agent_0' and 'agent_1' share the policy"):
        AgentWorld(Uneven)


def test_slots_without_an_agent_stay_last():
    env = AgentWorld(CountingParallelWorld, 1, seed=0)
    # The schedule of the seed's first episode decides who is there.
    (seed,) = seeding.lane_seeds(0, 1)
    schedule = counting_world.SCHEDULES[seed % 1000 % 3]
    time_step = env.reset()
    for step in range(6):
        for slot, agent in enumerate(counting_world.AGENTS):
            joins, ends, _ = schedule[agent]
            if step == joins:
                expected = FIRST
            elif joins < step < ends:
                expected = MID
            else:
                expected = LAST
            if step > max(ends for _, ends, _ in schedule.values()):
                continue  # The next episode.
            assert time_step.step_type[slot] == expected, (step, agent)
        time_step = env.step(actions(time_step))


def test_slots_that_wait_for_their_turn_are_mid_and_not_present():
    env = AgentWorld(CountingTurnWorld, 1, seed=0)
    time_step = env.reset()
    assert env.present.tolist() == [True, False, False]
    assert env.num_waiting == 0
    before = time_step.observation["observation"][0]
    time_step = env.step(actions(time_step))
    assert env.present[0] == (time_step.step_type[0] == LAST)
    if not env.present[0]:
        assert env.num_waiting == 1
        assert time_step.step_type[0] == MID
        assert time_step.reward[0] == 0.0
        np.testing.assert_array_equal(time_step.observation["observation"][0], before)


def test_the_latest_frames_are_stacked_within_an_agent_s_episode():
    env = AgentWorld(
        functools.partial(spread.Spread, max_steps=3), agents=[AgentSpec(frame_stack=2)]
    )
    plain = AgentWorld(functools.partial(spread.Spread, max_steps=3))
    env.seed(1), plain.seed(1)
    assert env.observation_spec().shape == (2, 12)
    stacked, single = env.reset(), plain.reset()
    for _ in range(8):
        before = single.observation
        np.testing.assert_array_equal(stacked.observation[:, 1], single.observation)
        stacked, single = env.step(still(env)), plain.step(still(plain))
        first = single.step_type == FIRST
        older = np.where(first[:, None], single.observation, before)
        np.testing.assert_array_equal(stacked.observation[:, 0], older)
        np.testing.assert_array_equal(stacked.observation[:, 1], single.observation)


def test_an_agent_s_episode_is_cut_after_its_own_steps_and_bootstraps():
    specs = [AgentSpec("agent_0", max_num_steps=3), AgentSpec()]
    env = AgentWorld(functools.partial(spread.Spread, max_steps=10), agents=specs, seed=0)
    types, discounts = [], []
    time_step = env.reset()
    for _ in range(8):
        types.append(time_step.step_type[:2].tolist())
        discounts.append(float(time_step.discount[0]))
        time_step = env.step(np.ones(3, np.int64))
    assert [kinds[0] for kinds in types] == [FIRST, MID, MID, LAST, FIRST, MID, MID, LAST]
    assert [kinds[1] for kinds in types] == [FIRST] + 7 * [MID]
    assert discounts == 8 * [1.0]  # Not 0: there is a value to bootstrap from.


def test_a_mask_in_the_info_becomes_part_of_observations():
    env = AgentWorld(MaskedSpread, mask_from_info=True)
    time_step = env.reset()
    assert time_step.observation["action_mask"].tolist() == 3 * [[0, 1, 1, 1, 1]]
    time_step = env.step(np.full(3, 2))
    assert time_step.observation["action_mask"].tolist() == 3 * [[0, 1, 1, 1, 1]]


def test_values_that_are_not_finite_are_refused():
    class Broken(spread.Spread):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return (observations, {**rewards, "agent_1": float("nan")}, *rest)

    env = AgentWorld(Broken)
    env.reset()
    with pytest.raises(errors.NotFiniteError, match=r"reward of lane 1 is nan"):
        env.step(still(env))


def test_an_agent_that_leaves_without_an_end_is_an_error():
    class Leaving(spread.Spread):
        def step(self, actions):
            met = super().step(actions)
            self.agents = self.agents[1:]
            return met

    env = AgentWorld(Leaving)
    env.reset()
    with pytest.raises(errors.EnvironmentError, match="'agent_0' left `agents`"):
        env.step(still(env))


@pytest.mark.parametrize("name", ["parallel", "turns"])
def test_worlds_of_pettingzoo_play(name):
    pytest.importorskip("pettingzoo")
    env = AgentWorld(f"tests.environments.pettingzoo_worlds:{name}", 2, seed=0)
    assert env.turn_based == (name == "turns")
    time_step = env.reset()
    returns, ends = np.zeros(6), np.zeros(6, int)
    for _ in range(60):
        time_step = env.step(still(env))
        returns += time_step.reward
        ends += (time_step.step_type == LAST) & env.present
    assert (ends >= 2).all()
    assert (returns < 0).all()


def test_a_text_that_names_no_world_is_refused():
    with pytest.raises(errors.ConfigError, match='write "module:name"'):
        AgentWorld("spread")
    with pytest.raises(errors.ConfigError, match="cannot be imported"):
        AgentWorld("actor_learner.environments.spread:Nothing")


def test_seeds_repeat_and_differ_by_copy():
    def begin(seed):
        env = AgentWorld(spread.Spread, 2, seed=seed)
        return env.reset().observation

    np.testing.assert_array_equal(begin(3), begin(3))
    assert not np.array_equal(begin(3), begin(4))
    assert not np.array_equal(begin(3)[:3], begin(3)[3:])


def test_the_specs_are_those_of_one_slot():
    env = AgentWorld(spread.Spread, 2)
    assert (env.batched, env.batch_size) == (True, 6)
    assert env.time_step_spec() == ts.time_step_spec(env.observation_spec())
    assert env.action_spec().maximum == 4
