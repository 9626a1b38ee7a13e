"""`check-env` for worlds with many agents: says what is wrong, and nothing of good ones."""

import gymnasium
import numpy as np
import pytest

from actor_learner.environments import checks, spread
from tests import counting_world


class Bad(spread.Spread):
    """Breaks one rule, named by `fault`."""

    fault = ""

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = super().step(actions)
        agent = self.possible_agents[0]
        if self.fault == "far":
            observations[agent] = observations[agent] + 100.0
        if self.fault == "nan":
            rewards[agent] = float("nan")
        if self.fault == "leaves":
            self.agents = [each for each in self.agents if each != agent]
        if self.fault == "raises":
            raise KeyError("no such landmark")
        if self.fault == "random":
            rewards[agent] = np.random.random()
        if self.fault == "alias":
            for each in observations:
                self.buffer[each][:] = observations[each]
            observations = dict(self.buffer)
        return observations, rewards, terminations, truncations, infos

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed=seed)
        self.buffer = {agent: np.zeros(12, np.float32) for agent in observations}
        return observations, infos


@pytest.mark.parametrize(
    "world",
    [spread.Spread, counting_world.CountingParallelWorld, counting_world.CountingTurnWorld],
)
def test_good_worlds_have_no_violations(world):
    assert checks.check_environment(world, num_steps=100) == []


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("far", "agent_0: an observation is not in its space"),
        ("nan", "agent_0: the reward is nan"),
        ("leaves", "agent_0 left `agents`, but was neither terminated nor truncated"),
        ("raises", "KeyError"),
        ("random", "gave something else the second time"),
        ("alias", "written again"),
    ],
)
def test_every_fault_is_told(fault, says):
    made = type("Made", (Bad,), {"fault": fault})
    found = checks.check_environment(made, num_steps=100)
    assert any(says in line for line in found), found


def test_spaces_without_a_shape_are_told():
    class Talking(spread.Spread):
        def observation_space(self, agent):
            return gymnasium.spaces.Text(10)

    found = checks.check_environment(Talking, num_steps=10)
    assert len(found) == 3
    assert "agent_0: observation" in found[0]
    assert "Text" in found[0]


def test_a_world_is_found_by_name():
    name = "actor_learner.environments.spread:Spread"
    assert checks.check_environment(name, num_steps=30) == []


def test_worlds_of_pettingzoo():
    pytest.importorskip("pettingzoo")
    name = "tests.environments.pettingzoo_worlds"
    assert checks.check_environment(f"{name}:parallel", num_steps=60) == []
    assert checks.check_environment(f"{name}:turns", num_steps=60) == []
