import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import checks, suite_gymnasium
from actor_learner.environments.gymnasium import GymnasiumEnvironment
from actor_learner.support import errors
from tests.environments import sample_environments


class GoodEnv(gymnasium.Env):
    """Keeps every rule; subclasses break one each."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {"x": spaces.Box(-1.0, 1.0, (2,), dtype=np.float32), "n": spaces.Discrete(3)}
        )
        self.action_space = spaces.Discrete(2)
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self.observe(), {}

    def step(self, action):
        self._steps += 1
        return self.observe(), self.reward(), *self.flags(), {}

    def observe(self):
        return {"x": self.x(), "n": int(self.np_random.integers(3))}

    def x(self):
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def reward(self):
        return 1.0

    def flags(self):
        return self._steps == 7, False


class WrongDtype(GoodEnv):
    def x(self):
        return self.np_random.uniform(-1.0, 1.0, 2)


class WrongShape(GoodEnv):
    def x(self):
        return np.zeros(3, np.float32)


class OutOfBounds(GoodEnv):
    def x(self):
        return np.full(2, 1.5, np.float32)


class NanObservation(GoodEnv):
    def x(self):
        return np.array([0.0, np.nan], np.float32)


class ListObservation(GoodEnv):
    def x(self):
        return [0.0, 0.0]


class MissingKey(GoodEnv):
    def observe(self):
        return {"x": self.x()}


class NotADict(GoodEnv):
    def observe(self):
        return self.x()


class DiscreteOutOfRange(GoodEnv):
    def observe(self):
        return {"x": self.x(), "n": 3}


class NanReward(GoodEnv):
    def reward(self):
        return float("nan")


class InfiniteReward(GoodEnv):
    def reward(self):
        return np.float32(np.inf)


class ArrayReward(GoodEnv):
    def reward(self):
        return np.ones(1)


class NoReward(GoodEnv):
    def reward(self):
        return "much"


class IntegerFlags(GoodEnv):
    def flags(self):
        return int(self._steps == 7), 0


class ReusedBuffer(GoodEnv):
    def __init__(self):
        super().__init__()
        self._buffer = np.zeros(2, np.float32)

    def x(self):
        self._buffer[:] = super().x()
        return self._buffer


class NeedsTwoResets(GoodEnv):
    _resets = 0

    def reset(self, *, seed=None, options=None):
        self._resets += 1
        return super().reset(seed=seed)

    def step(self, action):
        if self._resets < 2:
            raise gymnasium.error.ResetNeeded("again, please")
        result = super().step(action)
        if result[2]:
            self._resets = 0
        return result


class Raises(GoodEnv):
    def step(self, action):
        if self._steps == 3:
            raise KeyError("lost")
        return super().step(action)


class RaisesOnReset(GoodEnv):
    def reset(self, *, seed=None, options=None):
        raise OSError("no display")


class IgnoresSeed(GoodEnv):
    def x(self):
        return np.random.uniform(-1.0, 1.0, 2).astype(np.float32)


class SameSeedForAll(GoodEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if seed is None else 0)


class OldReset(GoodEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(GoodEnv):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class NoSeedArgument(GoodEnv):
    def reset(self):
        return super().reset()


class NoInfo(GoodEnv):
    def step(self, action):
        return *super().step(action)[:4], None


class WritesIntoAction(GoodEnv):
    def __init__(self):
        super().__init__()
        self.action_space = spaces.Box(-1.0, 1.0, (2,))

    def step(self, action):
        action *= 0.5
        return super().step(action)


class TextObservation(GoodEnv):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Text(5)

    def observe(self):
        return "abc"


@pytest.mark.parametrize("env", [GoodEnv, sample_environments.AllSpacesEnv])
def test_environments_that_keep_the_rules_have_no_violations(env):
    assert checks.check_environment(env()) == []


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_gymnasiums_own_environments_have_no_violations(env_id):
    assert checks.check_environment(env_id, num_steps=300) == []


@pytest.mark.parametrize(
    "env, message",
    [
        (WrongDtype, "observation['x'] has dtype float64, its space says float32"),
        (WrongShape, "observation['x'] has shape (3,), its space says (2,)"),
        (OutOfBounds, "observation['x'] contains 1.5, outside its bounds [-1.0, 1.0]"),
        (NanObservation, "observation['x'] contains nan"),
        (ListObservation, "observation['x'] is a list, not a NumPy array"),
        (MissingKey, "observation has keys ['x'], the space has ['n', 'x']"),
        (NotADict, "observation is a ndarray, not a dict"),
        (DiscreteOutOfRange, "observation['n'] contains 3, outside its bounds [0, 2]"),
        (NanReward, "reward is nan (step 1)"),
        (InfiniteReward, "reward is inf (step 1)"),
        (ArrayReward, "reward has shape (1,), it must be a single number"),
        (NoReward, "reward is 'much', not a number"),
        (IntegerFlags, "terminated is 0, a int, not bool"),
        (ReusedBuffer, "the arrays of an observation are written again"),
        (NeedsTwoResets, "worked after a second reset()"),
        (Raises, "step() raised KeyError: 'lost' (step 4"),
        (RaisesOnReset, "reset(seed=0) raised OSError: no display"),
        (IgnoresSeed, "gave something else the second time, from the first observation on"),
        (SameSeedForAll, "note: 2 lanes with distinct seeds began with the same observation"),
        (OldReset, "reset() returned a dict, not (observation, info dict)"),
        (OldStep, "step() returned a tuple of 4 values"),
        (NoSeedArgument, "reset(seed=0) raised TypeError"),
        (NoInfo, "info is a NoneType, not a dict"),
        (WritesIntoAction, "step() writes into the action it is given"),
        (TextObservation, "Text spaces have no fixed shape"),
    ],
)
def test_each_planted_violation_is_reported_once(env, message):
    violations = checks.check_environment(env(), num_steps=100)

    assert len([line for line in violations if message in line]) == 1, violations


@pytest.mark.parametrize(
    "env", [WrongDtype, OutOfBounds, NanReward, ReusedBuffer, IgnoresSeed, NeedsTwoResets]
)
def test_one_mistake_gives_one_line(env):
    assert len(checks.check_environment(env(), num_steps=100)) == 1


def test_repeated_violations_are_counted():
    (line,) = checks.check_environment(NanReward(), num_steps=100)

    assert line == "reward is nan (step 1) (seen 100 times)"


def test_lanes_with_different_spaces_are_reported():
    sizes = iter([2, 3])

    class Growing(GoodEnv):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.Discrete(next(sizes))

    gymnasium.register("Growing-v0", entry_point=Growing)
    try:
        violations = checks.check_environment("Growing-v0", num_steps=10)
    finally:
        del gymnasium.registry["Growing-v0"]

    assert violations == [
        "lane 1 has action_space Discrete(3), lane 0 has Discrete(2): all lanes must have the same"
    ]


def test_unknown_ids_raise_with_the_nearest():
    with pytest.raises(errors.ConfigError, match="CartPol-v1: did you mean CartPole-v1"):
        checks.check_environment("CartPol-v1")


def test_other_things_cannot_be_checked():
    with pytest.raises(errors.ConfigError, match="cannot check a int"):
        checks.check_environment(3)


class GoodPyEnvironment(py_environment.PyEnvironment):
    def __init__(self):
        super().__init__()
        self._steps = 0

    def observation_spec(self):
        return array_spec.BoundedArraySpec((1,), np.float32, 0.0, 5.0)

    def action_spec(self):
        return array_spec.BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self):
        self._steps = 0
        return ts.restart(self.observe())

    def _step(self, action):
        if self._steps == 5:
            return self.reset()
        self._steps += 1
        if self._steps == 5:
            return ts.termination(self.observe(), 1.0)
        return ts.transition(self.observe(), 1.0)

    def observe(self):
        return np.array([self._steps], np.float32)


class NoAutoReset(GoodPyEnvironment):
    def _step(self, action):
        return ts.termination(self.observe(), 1.0)


class StartsInTheMiddle(GoodPyEnvironment):
    def _reset(self):
        return ts.transition(self.observe(), 1.0)


class SuddenFirst(GoodPyEnvironment):
    def _step(self, action):
        return ts.restart(self.observe())


class PyDtype(GoodPyEnvironment):
    def observe(self):
        return np.array([self._steps])


class PyBuffer(GoodPyEnvironment):
    buffer = np.zeros(1, np.float32)

    def observe(self):
        self.buffer[0] = self._steps
        return self.buffer


class PyRaises(GoodPyEnvironment):
    def _step(self, action):
        raise KeyError("lost")


class PyTuple(GoodPyEnvironment):
    def _step(self, action):
        return (1, 2)


class PySeeds(GoodPyEnvironment):
    def seed(self, seed):
        pass

    def observe(self):
        return np.random.uniform(0.0, 5.0, 1).astype(np.float32)


def test_py_environments_that_keep_the_rules_have_no_violations():
    assert checks.check_environment(GoodPyEnvironment()) == []
    assert checks.check_environment(suite_gymnasium.load("CartPole-v1"), num_steps=100) == []
    with GymnasiumEnvironment("CartPole-v1", 3) as env:
        assert checks.check_environment(env, num_steps=100) == []


@pytest.mark.parametrize(
    "env, message",
    [
        (NoAutoReset, "the step after LAST gave step type 2"),
        (StartsInTheMiddle, "reset() gave step type 1, not FIRST"),
        (SuddenFirst, "an episode began though the one before had not ended"),
        (PyDtype, "observation has dtype int64, its space says float32"),
        (PyBuffer, "the arrays of a TimeStep are written again"),
        (PyRaises, "step 1 raised KeyError: 'lost'"),
        (PyTuple, "step 1 returned a tuple, not a TimeStep"),
        (PySeeds, "gave something else the second time"),
    ],
)
def test_each_planted_violation_of_a_py_environment_is_reported_once(env, message):
    violations = checks.check_environment(env(), num_steps=50)

    assert len([line for line in violations if message in line]) == 1, violations


def test_the_report_numbers_violations_and_lists_notes():
    assert checks.format_report("CartPole-v1", []) == "CartPole-v1: no violations"
    assert checks.format_report("X-v0", ["a is b", "note: c"]) == (
        "X-v0: 1 violation\n  1. a is b\n  note: c"
    )
    assert checks.format_report("X-v0", ["a", "b"]).splitlines()[0] == "X-v0: 2 violations"
