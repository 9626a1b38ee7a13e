"""`actor-learner eval --video` films every ready-made configuration."""

import importlib.util

import gin
import imageio.v3 as imageio
import numpy as np
import pytest
from tf_agents.policies import random_py_policy

from actor_learner import config, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.commands import evaluate
from actor_learner.environments import filming
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.runs import rated_policy

SHORT = {
    "atari": (
        "evaluation/GymnasiumEnvironment.make_kwargs = {'repeat_action_probability': 0.0, "
        "'reward_clipping': False, 'noop_max': 0, 'max_num_frames_per_episode': 40}",
    ),
    "memory": (),
}
EXTRAS = {"atari": "ale_py", "lunarlander": "Box2D", "hopper": "mujoco", "halfcheetah": "mujoco"}


def load(leaf):
    """Loads a leaf with episodes of a few steps; skips it where its environment is missing."""
    world = leaf.split("_")[1]
    if world in EXTRAS and importlib.util.find_spec(EXTRAS[world]) is None:
        pytest.skip(f"{EXTRAS[world]} is not installed")
    bindings = SHORT.get(world, ("GymnasiumEnvironment.max_episode_steps = 6",))
    if leaf in ("bc_cartpole", "cql_pendulum"):
        # Where nothing was recorded there is nothing to learn from, but something to film.
        bindings += ("Experiment.replay = None", "Experiment.train_steps = None")
    config.load(config.ConfigSource((leaf,), bindings))


@pytest.fixture(autouse=True)
def cleared():
    yield
    gin.clear_config()


def untrained(experiment, env):
    # Of one copy of a world, one lane for each agent.
    assert env.batch_size == (1 if not hasattr(env, "groups") else 3)
    return random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=0)


# Games of few moves, which nobody draws.
NOT_DRAWN = ("ppo_kuhn_poker", "ppo_tic_tac_toe")


@pytest.mark.parametrize("leaf", [leaf for leaf in config.leaves() if leaf not in NOT_DRAWN])
def test_every_leaf_can_be_filmed(leaf, tmp_path, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    evaluate._prepare_to_film()
    load(leaf)
    path = tmp_path / "film.mp4"
    rated = rated_policy.RatedPolicy("untrained", untrained)
    returns = evaluate._evaluate(
        run_directory.RunDirectory(tmp_path), rated, 1, episodes=1, seed=0, video_path=str(path)
    )
    assert returns.shape == (1,) and np.isfinite(returns).all()
    frames = imageio.imread(path)
    assert len(frames) >= 5 and frames.shape[-1] == 3
    assert len({frame.tobytes() for frame in frames}) > 1, "nothing moves"


@pytest.mark.parametrize("leaf", ["ppo_atari", "r2d2_atari"])
@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_the_filmed_game_is_the_one_that_the_lanes_play(leaf, game):
    load(leaf)
    gin.bind_parameter("GymnasiumEnvironment.env_id", f"ALE/{game}-v5")
    experiment = experiment_lib.Experiment()
    lanes = experiment.make_evaluation_environment(5, num_envs=1)
    filmed = experiment.make_evaluation_environment(5, **filming.arguments(lanes.vector_env.spec))
    assert filmed.observation_spec() == lanes.observation_spec()
    assert filmed.action_spec() == lanes.action_spec()
    random = np.random.default_rng(0)
    steps = [env.reset() for env in (lanes, filmed)]
    for _ in range(8):
        np.testing.assert_array_equal(steps[0].observation, steps[1].observation)
        np.testing.assert_array_equal(steps[0].reward, steps[1].reward)
        action = random.integers(4, size=1)
        steps = [env.step(action) for env in (lanes, filmed)]
    lanes.close()
    filmed.close()


def test_what_lanes_are_told_of_rewards_and_frames_holds_for_the_filmed_game():
    pytest.importorskip("ale_py")
    lanes = gymnasium_environment.GymnasiumEnvironment(
        "ALE/Pong-v5",
        vectorization="native",
        make_kwargs={"stack_num": 2, "img_height": 50, "img_width": 60, "num_threads": 1},
    )
    arguments = filming.arguments(lanes.vector_env.spec)
    assert arguments["wrappers"][-1] == ("ClipReward", {"min_reward": -1.0, "max_reward": 1.0})
    filmed = gymnasium_environment.GymnasiumEnvironment("ALE/Pong-v5", **arguments)
    assert filmed.observation_spec() == lanes.observation_spec()
    assert filmed.observation_spec().shape == (2, 50, 60)
    filmed.close()
    lanes.close()


def test_other_environments_are_filmed_as_they_are():
    assert filming.arguments(None) == {
        "num_envs": 1,
        "vectorization": "sync",
        "render_mode": "rgb_array",
    }
