"""`SelfPlay` gives what the learner's seat sees, and has opponents make all other moves."""

import numpy as np
import pytest
from tf_agents.environments import utils as environment_utils

from actor_learner.environments import opponents, self_play
from actor_learner.environments.games import kuhn_poker, tic_tac_toe
from actor_learner.support import errors

FIRST, MID, LAST = 0, 1, 2


class Lowest:
    """Moves to the lowest free cell, and keeps what it was told."""

    def __init__(self):
        self.calls = []

    def begin(self, lanes):
        self.calls.append(("begin", lanes.tolist()))

    def act(self, lanes, observation):
        self.calls.append(("act", lanes.tolist()))
        assert len(observation["action_mask"]) == len(lanes)
        return np.argmax(observation["action_mask"], axis=-1)

    def end(self, lanes, returns):
        self.calls.append(("end", lanes.tolist(), returns.tolist()))


def make(seats, num_envs=1, **more):
    env = self_play.SelfPlay(tic_tac_toe.TicTacToe, num_envs, seats=seats, seed=1, **more)
    others = Lowest()
    env.play_against(others)
    return env, others


def test_learner_wins_as_first_player():
    env, others = make(["player_0"])
    step = env.reset()
    assert step.step_type.tolist() == [FIRST]
    assert not step.observation["observation"].any()
    step = env.step([8])
    # It has 8, the opponent the lowest cell, 0, and it is the learner's turn again.
    assert np.flatnonzero(step.observation["observation"][0]).tolist() == [8, 9 + 0]
    assert np.flatnonzero(step.observation["action_mask"][0]).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert step.step_type.tolist() == [MID]
    env.step([5])
    step = env.step([2])
    assert (step.step_type, step.reward, step.discount) == ([LAST], [1.0], [0.0])
    assert others.calls == [("begin", [0]), ("act", [0]), ("act", [0]), ("end", [0], [1.0])]
    step = env.step([3])  # Its action is not used.
    assert (step.step_type, step.reward, step.discount) == ([FIRST], [0.0], [1.0])
    assert not step.observation["observation"].any()


def test_learner_loses_as_second_player_by_the_opponents_move():
    env, others = make(["player_1"])
    step = env.reset()
    assert np.flatnonzero(step.observation["observation"][0]).tolist() == [9 + 0]
    env.step([8])
    step = env.step([7])  # The opponent completes 0, 1, 2.
    assert (step.step_type, step.reward, step.discount) == ([LAST], [-1.0], [0.0])
    assert others.calls[-1] == ("end", [0], [-1.0])


def test_opponents_of_all_lanes_are_asked_together():
    env, others = make(["player_1"], num_envs=3)
    env.reset()
    assert others.calls == [("begin", [0, 1, 2]), ("act", [0, 1, 2])]
    env.step([8, 4, 8])
    env.step([7, 2, 7])  # Lane 1 has stopped the row.
    assert others.calls[-1] == ("end", [0, 2], [-1.0, -1.0])
    step = env.step([0, 6, 0])
    assert step.step_type.tolist() == [FIRST, LAST, FIRST]
    assert step.reward.tolist() == [0.0, 1.0, 0.0]


def test_seats_are_drawn_anew_for_each_episode():
    env = self_play.SelfPlay(kuhn_poker.KuhnPoker, 200, seed=3)
    seen = env.reset().observation["observation"]
    first = seen[:, 3 + kuhn_poker.HISTORIES.index("")].mean()
    assert 0.35 < first < 0.65


def test_same_seed_gives_the_same_games():
    def episodes(seed):
        env = self_play.SelfPlay(tic_tac_toe.TicTacToe, 4, seed=seed)
        random, found = np.random.default_rng(0), [env.reset()]
        for _ in range(20):
            found.append(env.step(opponents.uniform_player(found[-1].observation, random)))
        return np.concatenate([each.observation["observation"] for each in found])

    assert np.array_equal(episodes(1), episodes(1))
    assert not np.array_equal(episodes(1), episodes(2))


def test_random_policy_finds_steps_that_fit_the_specs():
    env = self_play.SelfPlay(kuhn_poker.KuhnPoker, 2, seed=3)
    environment_utils.validate_py_environment(env, episodes=5)


def test_optimal_opponent_is_not_beaten():
    env = self_play.SelfPlay(
        tic_tac_toe.TicTacToe, 16, opponent=tic_tac_toe.optimal_tic_tac_toe, seed=0
    )
    assert not env.needs_league
    random, step, last = np.random.default_rng(0), env.reset(), []
    for _ in range(40):
        step = env.step(opponents.uniform_player(step.observation, random))
        last += step.reward[step.step_type == LAST].tolist()
    assert len(last) > 50
    assert max(last) == 0.0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"game": None}, "SelfPlay.game"),
        ({"game": tic_tac_toe.TicTacToe, "seats": ["white"]}, "player_0"),
        ({"game": tic_tac_toe.TicTacToe, "num_envs": 0}, "num_envs"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(errors.ConfigError, match=message):
        self_play.SelfPlay(**arguments)


def test_wrong_number_of_actions_is_refused():
    env, _ = make(None, num_envs=2)
    env.reset()
    with pytest.raises(errors.SpecMismatchError, match="lanes"):
        env.step([1])


def test_illegal_move_is_refused():
    env, _ = make(["player_1"])
    env.reset()
    with pytest.raises(errors.EnvironmentError, match="not a legal move"):
        env.step([0])


def test_a_game_that_draws_nothing_says_so():
    env, _ = make(None)
    env.reset()
    with pytest.raises(errors.ConfigError, match="cannot be filmed"):
        env.render()
