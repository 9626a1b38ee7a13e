"""`SelfPlay`: a turn-based game as an environment of one agent, whose opponents are inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import gymnasium
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import nests, opponents, seeding, specs
from actor_learner.support import configurable, errors

_FIRST, _MID, _LAST = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))
_MAX_MOVES = 100_000
_MAX_EMPTY_GAMES = 1_000


@configurable.register
class SelfPlay(py_environment.PyEnvironment):
    """Plays one seat of a game in each lane; opponents make all moves of the other seats.

    A step is the learner's move and whatever the others do until it is the learner's turn again,
    or the game is over. To an actor this is an environment like any other: agents, replay, jobs and
    evaluation need to know nothing of it. The opponents of all lanes are asked together.

    A TimeStep is NumPy with leading `[num_envs]`, as of `GymnasiumEnvironment`: a game that ends
    gives LAST, the step after that begins another one.

    Args:
      game: Makes a game with PettingZoo's turn-based (AEC) protocol: `@TicTacToe`, `@KuhnPoker`, or
        a callable that returns one of PettingZoo's, whose observations have an `action_mask` where
        not every move is legal. All seats have the same spaces.
      num_envs: Number of lanes.
      opponent: Who plays the other seats: a `Player`, such as `@optimal_tic_tac_toe`. None: where
        experience is collected, the league of the run (`League`); elsewhere, as in evaluations, a
        player who moves at random.
      seats: Names of the seats that the learner plays; each episode has one of them, drawn at
        random. None is any.
      seed: Of all that is drawn at random.

    Attributes:
      game: As given.
    """

    def __init__(
        self,
        game: Callable[[], Any] | None = None,
        num_envs: int = 1,
        *,
        opponent: opponents.Player | None = None,
        seats: Sequence[str] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if game is None or not callable(game):
            raise errors.ConfigError(
                f"SelfPlay.game is {game!r}: it must make a game, such as @TicTacToe"
            )
        if num_envs < 1:
            raise errors.ConfigError(f"num_envs is {num_envs}: there must be at least one lane")
        self.game = game
        self._games = [game() for _ in range(num_envs)]
        first = self._games[0]
        self._name = str(getattr(first, "metadata", {}).get("name", type(first).__name__))
        self._agents = list(first.possible_agents)
        self._seats = self._check_seats(seats)
        observation_space, action_space = self._check_spaces(first)
        self._observation_spec = specs.space_to_spec(observation_space, "observation")
        self._action_spec = specs.space_to_spec(action_space, "action", zero_based=True)
        self._time_step_spec = ts.time_step_spec(self._observation_spec, self.reward_spec())
        self._start = int(action_space.start)
        self._stack = _compile_stack(self._observation_spec)
        self._is_fixed = opponent is not None
        self._random: np.random.Generator
        self._opponents: opponents.Opponents
        self._player: opponents.Player | None = opponent or _random_player(observation_space)
        self._pending_seed: int | None = None
        self.seed(int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed)
        self._seat = [self._seats[0]] * num_envs  # The learner's, by lane.
        self._ended = np.zeros(num_envs, np.bool_)
        self._returns = np.zeros(num_envs)

    @property
    def name(self) -> str:
        """The game's name."""
        return self._name

    @property
    def needs_league(self) -> bool:
        """Whether no opponent was given, so that those of a league may play."""
        return not self._is_fixed

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return len(self._games)

    def observation_spec(self) -> specs.SpecNest:
        return self._observation_spec

    def action_spec(self) -> specs.SpecNest:
        return self._action_spec

    def time_step_spec(self) -> ts.TimeStep:
        return self._time_step_spec

    def play_against(self, others: opponents.Opponents) -> None:
        """Has others play the other seats, from the next `reset` on; `seed` leaves them alone."""
        self._is_fixed = True
        self._opponents = others
        self._player = None

    def seed(self, seed: int) -> int:
        """Seeds games, seats and players of our own at the next `reset()`; returns `seed`."""
        self._pending_seed = seeding.checked_seed(seed)
        return seed

    def get_info(self) -> dict[str, Any]:
        """Nothing more is known."""
        return {}

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """The picture that the game of lane 0 draws of itself.

        Raises:
          errors.ConfigError: If it draws none.
        """
        frame = self._games[0].render() if mode == "rgb_array" else None
        if frame is None:
            raise errors.ConfigError(
                f"the game {self._name!r} has no picture (render_mode 'rgb_array'), and cannot be "
                "filmed"
            )
        return np.asarray(frame)

    def close(self) -> None:
        """Closes the games."""
        for game in self._games:
            game.close()

    def _reset(self) -> ts.TimeStep:
        seed, self._pending_seed = self._pending_seed, None
        seeds: Sequence[int | None] = [None] * len(self._games)
        if seed is not None:
            *seeds, own, player = seeding.lane_seeds(seed, len(self._games) + 2)
            self._random = np.random.default_rng(own)
            if self._player is not None:
                self._opponents = opponents.OnePlayer(self._player, player)
        everywhere = np.arange(len(self._games))
        self._begin(everywhere, seeds)
        return self._time_step(everywhere, np.zeros(0, np.int64), np.zeros(len(self._games)))

    def _step(self, action: Any) -> ts.TimeStep:
        action = np.asarray(action)
        if action.shape != (len(self._games),):
            raise errors.SpecMismatchError(
                f"actions have shape {action.shape}; {len(self._games)} lanes of {self._name!r} "
                f"need ({len(self._games)},)"
            )
        began, going = np.flatnonzero(self._ended), np.flatnonzero(~self._ended)
        rewards = np.zeros(len(self._games))
        for lane in going:
            self._move(lane, int(action[lane]), rewards)
        self._let_others_move(going, rewards)
        self._returns += rewards
        if began.size:
            self._begin(began, [None] * began.size)
        over = np.array([lane for lane in going if self._is_over(lane)], np.int64)
        if over.size:
            self._opponents.end(over, self._returns[over])
        return self._time_step(began, over, rewards)

    def _begin(self, lanes: np.ndarray, seeds: Sequence[int | None]) -> None:
        """Starts games; those that end before the learner's first move are none, and start over."""
        for lane, seed in zip(lanes, seeds):
            self._reset_game(lane, seed)
        for _ in range(_MAX_EMPTY_GAMES):
            self._opponents.begin(lanes)
            for lane in lanes:
                self._seat[lane] = self._seats[self._random.integers(len(self._seats))]
            self._let_others_move(lanes, np.zeros(len(self._games)))
            lanes = np.array([lane for lane in lanes if self._is_over(lane)], np.int64)
            if not lanes.size:
                return
            for lane in lanes:
                self._reset_game(lane, None)
        raise errors.EnvironmentError(
            f"the game {self._name!r} ended {_MAX_EMPTY_GAMES} times before the learner's seat, "
            f"{self._seat[lanes[0]]!r}, had a move: choose others by SelfPlay.seats"
        )

    def _reset_game(self, lane: int, seed: int | None) -> None:
        self._games[lane].reset(seed=seed)
        self._returns[lane] = 0.0

    def _let_others_move(self, lanes: np.ndarray, rewards: np.ndarray) -> None:
        """Has others move in those lanes until each waits for the learner, or is over."""
        for _ in range(_MAX_MOVES):
            waiting = [lane for lane in lanes if self._waits_for_others(lane)]
            if not waiting:
                return
            lanes = np.array(waiting, np.int64)
            seen = [self._games[lane].observe(self._games[lane].agent_selection) for lane in lanes]
            moves = self._opponents.act(lanes, self._stack(seen))
            for lane, move in zip(lanes, moves):
                self._move(lane, int(move), rewards)
        raise errors.EnvironmentError(
            f"the game {self._name!r} went on for {_MAX_MOVES} moves without a turn of the learner"
        )

    def _waits_for_others(self, lane: int) -> bool:
        game = self._games[lane]
        while game.agents and not self._is_over(lane):
            agent = game.agent_selection
            if not (game.terminations[agent] or game.truncations[agent]):
                return agent != self._seat[lane]
            game.step(None)  # A player who is out while others go on.
        return False

    def _is_over(self, lane: int) -> bool:
        """Whether the learner's seat is out of the game, or nobody is left in it."""
        game, seat = self._games[lane], self._seat[lane]
        return seat not in game.agents or game.terminations[seat] or game.truncations[seat]

    def _move(self, lane: int, action: int, rewards: np.ndarray) -> None:
        game = self._games[lane]
        game.step(action + self._start)
        rewards[lane] += game.rewards.get(self._seat[lane], 0.0)

    def _time_step(self, began: np.ndarray, over: np.ndarray, rewards: np.ndarray) -> ts.TimeStep:
        step_type = np.full(len(self._games), _MID, np.int32)
        step_type[began] = _FIRST
        step_type[over] = _LAST
        discount = np.ones(len(self._games), np.float32)
        for lane in over:
            if not self._games[lane].truncations.get(self._seat[lane], False):
                discount[lane] = 0.0
        self._ended = np.zeros(len(self._games), np.bool_)
        self._ended[over] = True
        seen = [game.observe(seat) for game, seat in zip(self._games, self._seat)]
        return ts.TimeStep(step_type, rewards.astype(np.float32), discount, self._stack(seen))

    def _check_seats(self, seats: Sequence[str] | None) -> list[str]:
        seats = list(self._agents if seats is None else seats)
        unknown = [seat for seat in seats if seat not in self._agents]
        if unknown or not seats:
            raise errors.ConfigError(
                f"SelfPlay.seats is {seats}: the seats of {self._name!r} are {self._agents}"
            )
        return seats

    def _check_spaces(self, game: Any) -> tuple[gymnasium.Space, gymnasium.Space]:
        observation = game.observation_space(self._agents[0])
        action = game.action_space(self._agents[0])
        for agent in self._agents[1:]:
            if (game.observation_space(agent), game.action_space(agent)) != (observation, action):
                raise errors.SpecMismatchError(
                    f"the seats {self._agents[0]!r} and {agent!r} of {self._name!r} observe or do "
                    "different things: one policy cannot play both"
                )
        if not isinstance(action, gymnasium.spaces.Discrete):
            raise errors.SpecMismatchError(
                f"moves of {self._name!r} are {action}: SelfPlay needs Discrete ones"
            )
        return observation, action


def _random_player(space: gymnasium.Space) -> opponents.Player:
    if isinstance(space, gymnasium.spaces.Dict) and opponents.MASK in space.spaces:
        return opponents.uniform_player
    raise errors.SpecMismatchError(
        f"observations of the game are {space}, without {opponents.MASK!r}: nobody can say which "
        "moves are legal. Add it, or give SelfPlay.opponent"
    )


def _compile_stack(spec: specs.SpecNest) -> Callable[[Sequence[Any]], Any]:
    """A function from observations of single games to one with leaves `[games, ...]`."""
    children = nests.children(spec)
    if children is None:
        return lambda seen: np.array(seen, spec.dtype)
    stacks = [(key, _compile_stack(child)) for key, child in children]
    if isinstance(spec, dict):
        return lambda seen: {key: stack([each[key] for each in seen]) for key, stack in stacks}
    return lambda seen: tuple(stack([each[i] for each in seen]) for i, stack in stacks)
