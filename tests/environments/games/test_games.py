"""The games follow PettingZoo's protocol and their rules, and the theory of both is right."""

import numpy as np
import pytest

from actor_learner.environments.games import kuhn_poker, tic_tac_toe
from actor_learner.support import errors


def play(game, choose, seed):
    """Plays one game by PettingZoo's loop; returns what each player was paid in all."""
    game.reset(seed=seed)
    paid = dict.fromkeys(game.possible_agents, 0.0)
    while game.agents:
        agent = game.agent_selection
        observation, reward, terminated, truncated, _ = game.last()
        paid[agent] += reward
        assert game.observation_space(agent).contains(observation)
        over = terminated or truncated
        game.step(None if over else choose(agent, observation))
    return paid


@pytest.mark.parametrize("make", [tic_tac_toe.TicTacToe, kuhn_poker.KuhnPoker])
def test_random_games_end_and_sum_to_zero(make):
    game, random = make(), np.random.default_rng(0)
    for seed in range(30):
        paid = play(
            game,
            lambda agent, seen: int(random.choice(np.flatnonzero(seen["action_mask"]))),
            seed,
        )
        assert sum(paid.values()) == 0.0


def test_row_wins_and_observation_is_seen_from_each_side():
    game = tic_tac_toe.TicTacToe()
    moves = iter([0, 3, 1, 4, 2])
    paid = play(game, lambda agent, seen: next(moves), 0)
    assert paid == {"player_0": 1.0, "player_1": -1.0}
    game.reset()
    game.step(4)
    seen = game.observe("player_1")
    assert np.flatnonzero(seen["observation"]).tolist() == [9 + 4]
    assert np.flatnonzero(seen["action_mask"] == 0).tolist() == [4]
    assert not game.observe("player_0")["action_mask"].any()  # Not its turn.


def test_illegal_moves_are_refused():
    game = tic_tac_toe.TicTacToe()
    game.reset()
    game.step(4)
    with pytest.raises(errors.EnvironmentError, match="4 is not a legal move of player_1"):
        game.step(4)
    with pytest.raises(errors.EnvironmentError, match="legal"):
        game.step(9)


def test_tic_tac_toe_is_a_draw_and_has_the_known_number_of_positions():
    tic_tac_toe.value.cache_clear()
    assert tic_tac_toe.value(0, 0) == 0
    # 5,478 positions can be reached; those where the one who moved has won are not looked into.
    assert tic_tac_toe.value.cache_info().currsize == 5_478


def test_optimal_player_never_loses_and_punishes_random_play():
    game, random = tic_tac_toe.TicTacToe(), np.random.default_rng(0)

    def choose(agent, seen):
        if agent == optimal:
            batch = {key: leaf[None] for key, leaf in seen.items()}
            return int(tic_tac_toe.optimal_tic_tac_toe(batch, random)[0])
        return int(random.choice(np.flatnonzero(seen["action_mask"])))

    results = []
    for seed in range(60):
        optimal = game.possible_agents[seed % 2]
        results.append(play(game, choose, seed)[optimal])
    assert min(results) >= 0.0
    assert np.mean(np.equal(results, 1.0)) > 0.7


@pytest.mark.parametrize("bluff", [0.0, 0.1, 1 / 3])
def test_equilibria_of_kuhn_poker_have_the_known_value_and_cannot_be_exploited(bluff):
    strategy = kuhn_poker.equilibrium(bluff)
    assert kuhn_poker.expected_value(strategy, strategy) == pytest.approx(-1 / 18)
    assert kuhn_poker.exploitability(strategy) == pytest.approx(0.0, abs=1e-12)


def test_other_strategies_of_kuhn_poker_can_be_exploited_by_known_amounts():
    always_pass = dict.fromkeys(kuhn_poker.INFORMATION_SETS, 0.0)
    # Whoever bets against it wins one chip every game, in either seat.
    assert kuhn_poker.exploitability(always_pass) == pytest.approx(1.0)
    uniform = dict.fromkeys(kuhn_poker.INFORMATION_SETS, 0.5)
    assert kuhn_poker.best_response_value(uniform, 0) == pytest.approx(0.5)
    assert kuhn_poker.exploitability(uniform) == pytest.approx(11 / 24)
    outside = kuhn_poker.equilibrium(0.5)
    assert kuhn_poker.equilibrium(0.5)[2, ""] == 1.5
    with pytest.raises(errors.SpecMismatchError, match="probability to bet"):
        kuhn_poker.exploitability(outside)


def test_payoffs_of_kuhn_poker_agree_with_the_game_itself():
    game, random = kuhn_poker.KuhnPoker(), np.random.default_rng(1)
    strategy = {known: 0.3 + 0.05 * i for i, known in enumerate(kuhn_poker.INFORMATION_SETS)}

    def choose(agent, seen):
        (known,) = [
            each
            for each in kuhn_poker.INFORMATION_SETS
            if np.array_equal(kuhn_poker.observation_of(each), seen["observation"])
        ]
        return int(random.random() < strategy[known])

    paid = [play(game, choose, seed)["player_0"] for seed in range(4_000)]
    expected = kuhn_poker.expected_value(strategy, strategy)
    assert np.mean(paid) == pytest.approx(expected, abs=4 * np.std(paid) / np.sqrt(len(paid)))


def test_average_of_strategies_earns_the_average():
    one, other = kuhn_poker.equilibrium(0.0), dict.fromkeys(kuhn_poker.INFORMATION_SETS, 0.9)
    against = dict.fromkeys(kuhn_poker.INFORMATION_SETS, 0.5)
    averaged = kuhn_poker.average([one, other, other])
    expected = np.mean([kuhn_poker.expected_value(each, against) for each in (one, other, other)])
    assert kuhn_poker.expected_value(averaged, against) == pytest.approx(expected)
