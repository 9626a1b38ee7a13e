"""Atari games with TF-Agents' wrappers, on the real ALE."""

import inspect
import sys

import gymnasium
import numpy as np
import pytest
from tf_agents.environments import suite_atari as theirs
from tf_agents.environments import wrappers

from actor_learner.environments import (
    atari_preprocessing,
    atari_wrappers,
    suite_atari,
    suite_gymnasium,
)
from actor_learner.support import errors

F, M, L = 0, 1, 2
PONG = "PongNoFrameskip-v4"


def types(time_steps):
    return [int(time_step.step_type) for time_step in time_steps]


@pytest.mark.parametrize("name", ["load", "game"])
def test_arguments_are_those_of_suite_atari(name):
    ours = inspect.signature(getattr(suite_atari, name)).parameters
    reference = inspect.signature(getattr(theirs, name)).parameters

    assert list(ours) == list(reference)
    for parameter in set(ours) - {"gym_env_wrappers"}:
        assert ours[parameter].default == reference[parameter].default
    for constant in ("DEFAULT_ATARI_GYM_WRAPPERS", "DEFAULT_ATARI_GYM_WRAPPERS_WITH_STACKING"):
        assert [wrapper.__name__ for wrapper in getattr(suite_atari, constant)] == [
            wrapper.__name__ for wrapper in getattr(theirs, constant)
        ]


def test_games_have_the_ids_of_suite_atari():
    assert suite_atari.game() == theirs.game() == "PongNoFrameskip-v0"
    assert suite_atari.game("Breakout", "ram", "", "v4") == theirs.game("Breakout", "ram", "", "v4")
    with pytest.raises(errors.ConfigError, match="game.version is 'v5'; it must be 'v0' or 'v4'"):
        suite_atari.game(version="v5")


@pytest.mark.parametrize("frame_skip", [1, 2, 4])
def test_frames_are_those_of_gymnasiums_own_preprocessing(frame_skip):
    def run(wrap):
        env = wrap(suite_gymnasium.make_gym_env("BreakoutNoFrameskip-v4")[0])
        seen = [env.reset(seed=3)[0]]
        for action in [1, 2, 2, 3, 0, 3, 3, 2] * 4:
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append((observation, reward, terminated, truncated))
        env.close()
        return seen

    ours = run(lambda env: atari_preprocessing.AtariPreprocessing(env, frame_skip=frame_skip))
    reference = run(
        lambda env: gymnasium.wrappers.AtariPreprocessing(
            env, noop_max=0, frame_skip=frame_skip, grayscale_newaxis=True
        )
    )
    np.testing.assert_array_equal(ours[0], reference[0])
    for (frame, *rest), (expected, *expected_rest) in zip(ours[1:], reference[1:]):
        np.testing.assert_array_equal(frame, expected)
        assert rest == expected_rest
    assert len({frame.tobytes() for frame, *_ in ours[1:]}) > 5


def test_a_game_is_loaded_with_four_frames_stacked():
    env = suite_atari.load(
        PONG, gym_env_wrappers=suite_atari.DEFAULT_ATARI_GYM_WRAPPERS_WITH_STACKING
    )
    assert env.observation_spec().shape == (84, 84, 4)
    assert env.observation_spec().dtype == np.uint8
    assert (int(env.action_spec().minimum), int(env.action_spec().maximum)) == (0, 5)
    first = env.reset().observation
    second = env.step(np.int64(2)).observation
    assert first.shape == (84, 84, 4) and first.dtype == np.uint8
    for index in range(1, 4):
        np.testing.assert_array_equal(first[..., index], first[..., 0])
    np.testing.assert_array_equal(second[..., :3], first[..., 1:])
    assert (second[..., 3] != first[..., 3]).any()
    env.close()


def test_the_default_wrappers_leave_one_frame():
    env = suite_atari.load(PONG, env_wrappers=[lambda env: wrappers.ActionRepeat(env, 2)])
    assert isinstance(env, wrappers.ActionRepeat)
    assert env.reset().observation.shape == (84, 84, 1)
    env.close()


def test_a_time_limit_truncates_the_game_and_the_next_step_begins_another():
    env = suite_atari.load(PONG, max_episode_steps=3)
    time_steps = [env.reset(), *(env.step(np.int64(0)) for _ in range(5))]
    assert types(time_steps) == [F, M, M, L, F, M]
    assert float(time_steps[3].discount) == 1.0
    env.close()


def breakout_until_a_life_is_lost(**kwargs):
    """Steps of a game in which nobody catches the ball, up to and with the first LAST."""
    env = suite_atari.load("BreakoutNoFrameskip-v4", **kwargs)
    time_steps = [env.reset()]
    while not time_steps[-1].is_last():
        time_steps.append(env.step(np.int64(1)))
        assert len(time_steps) < 400
    return env, time_steps


def losing_lives(env):
    return atari_preprocessing.AtariPreprocessing(env, terminal_on_life_loss=True)


def test_after_a_lost_life_the_game_goes_on_and_a_new_episode_begins():
    env, time_steps = breakout_until_a_life_is_lost(gym_env_wrappers=[losing_lives])
    assert float(time_steps[-1].discount) == 0.0
    assert (env.lives, env.game_over) == (4, False)
    following = [env.step(np.int64(1)) for _ in range(3)]
    assert types(following) == [F, M, M]
    assert (float(following[0].reward), float(following[0].discount)) == (0.0, 1.0)
    assert env.lives == 4
    env.reset()
    assert env.lives == 5
    env.close()


def test_without_the_flag_an_episode_is_a_whole_game():
    env, time_steps = breakout_until_a_life_is_lost()
    assert (env.lives, env.game_over) == (0, True)
    assert float(time_steps[-1].discount) == 0.0
    assert types([env.step(np.int64(1))]) == [F]
    assert env.lives == 5
    env.close()


def test_fire_and_one_more_action_begin_an_episode():
    taken = []

    class Recording(gymnasium.Wrapper):
        def step(self, action):
            taken.append(int(action))
            return self.env.step(action)

    preprocessing = atari_preprocessing.AtariPreprocessing
    env = suite_atari.load(
        "BreakoutNoFrameskip-v4",
        gym_env_wrappers=[Recording, preprocessing, atari_wrappers.FireOnReset],
    )
    env.reset()
    assert taken == [1, 1, 1, 1, 2, 2, 2, 2]  # Four frames each.
    env.close()


def test_an_unknown_game_is_reported_with_the_nearest():
    with pytest.raises(errors.ConfigError, match="did you mean .*PongNoFrameskip-v4"):
        suite_atari.load("PongNoFramskip-v4")


def test_other_environments_cannot_be_preprocessed():
    with pytest.raises(errors.ConfigError, match="games of ale_py"):
        suite_atari.load("CartPole-v1")


def test_without_ale_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(errors.MissingExtraError, match=r"\.\[atari\]"):
        suite_atari.load(PONG)
