import gymnasium
import numpy as np
import pytest

from tests import counting_environment


def test_it_counts_episodes_and_steps_and_ends_as_told():
    env = gymnasium.make("CountingEnv-v0", episode_lengths=(1, 2), endings=("both", "truncated"))

    observation, info = env.reset()
    assert (observation.tolist(), observation.dtype) == ([0.0, 0.0], np.float32)
    assert info == {"episode": 0, "step": 0}
    observation, *rest = env.step(1)
    assert (observation.tolist(), rest[:3]) == ([0.0, 1.0], [1.0, True, True])
    env.reset()
    env.step(0)
    observation, *rest = env.step(0)
    assert (observation.tolist(), rest[:3]) == ([1.0, 2.0], [2.0, False, True])
    assert env.reset(seed=0)[0].tolist() == [0.0, 0.0]
    assert env.unwrapped.actions == [1, 0, 0]


def test_it_refuses_steps_outside_an_episode_and_actions_outside_its_space():
    env = counting_environment.CountingEnv(episode_lengths=(1,))

    with pytest.raises(RuntimeError, match="without reset"):
        env.step(0)
    env.reset()
    with pytest.raises(ValueError, match="action 2 is not in"):
        env.step(2)
    env.step(0)
    with pytest.raises(RuntimeError, match="episode 0 is over"):
        env.step(0)


@pytest.mark.parametrize("kwargs", [{"episode_lengths": (0,)}, {"endings": ("never",)}])
def test_it_refuses_bad_arguments(kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))):
        counting_environment.CountingEnv(**kwargs)
