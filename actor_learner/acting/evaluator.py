"""Evaluates a policy over a fixed number of episodes, without favouring short ones."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, NamedTuple

import numpy as np
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import lanes as lanes_lib
from actor_learner.inference import streams
from actor_learner.support import configurable, errors

LAST, FIRST = int(ts.StepType.LAST), int(ts.StepType.FIRST)


class Episodes(NamedTuple):
    """Returns and lengths of evaluated episodes, `[episodes]` each, ordered by lane."""

    returns: np.ndarray
    lengths: np.ndarray


@configurable.register
class Evaluator:
    """Runs whole episodes in all lanes.

    Stopping a batch as soon as enough episodes have ended would count short episodes more often
    than long ones. Here every lane contributes a number of episodes fixed beforehand.

    Args:
      env: A TF-Agents `PyEnvironment`, batched or not, used by nobody else.
      policy: The policy to evaluate; its current variables are used in each evaluation.
      episodes: Episodes per evaluation, shared out over the lanes.
      seed: Each evaluation starts from this seed, unless it is given another, so that evaluations
        of one run are comparable; None, or an environment that cannot be seeded, lets its random
        streams run on.
      max_episode_steps: An episode longer than this is an error, not a hang.
      inference: How a TF policy is run, as of `Actor`: "auto", "lite" or "graph".
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        episodes: int,
        *,
        seed: int | None = None,
        max_episode_steps: int = 200_000,
        inference: str = streams.AUTO,
    ) -> None:
        if episodes < 1:
            raise ValueError(f"an evaluation needs at least one episode, got {episodes}")
        self._env = env
        self._lanes = lanes_lib.as_lanes(env)
        self._stream = streams.stream_for(
            policy, self._lanes.num_lanes, self._lanes.batched, inference=inference, seed=seed
        )
        num_lanes = self._lanes.num_lanes
        self._quota = np.full(num_lanes, episodes // num_lanes)
        self._quota[: episodes % num_lanes] += 1
        self._seed = seed
        self._max_episode_steps = max_episode_steps

    def run(
        self, on_step: Callable[[], None] | None = None, *, seed: int | None = None
    ) -> Episodes:
        """Evaluates once.

        Args:
          on_step: Called after each batched step and once before the first; for videos.
          seed: Starts from this seed instead of the usual one.

        Raises:
          errors.EnvironmentError: If an episode does not end.
        """
        seed = self._seed if seed is None else seed
        if seed is not None:
            # One that cannot be seeded goes on to episodes that it has not played yet.
            with contextlib.suppress(NotImplementedError):
                self._env.seed(seed)
        time_step = self._lanes.reset()
        self._stream.reset()
        # Streams of users need not know of versions.
        if (refresh := getattr(self._stream, "refresh", None)) is not None:
            refresh()
        num_lanes = self._lanes.num_lanes
        returns = np.zeros(num_lanes)
        lengths = np.zeros(num_lanes, np.int64)
        finished: list[list[tuple[float, int]]] = [[] for _ in range(num_lanes)]
        remaining = self._quota.copy()
        if on_step is not None:
            on_step()
        while remaining.any():
            response = self._stream.act(time_step)
            next_time_step = self._lanes.step(response.action)
            if on_step is not None:
                on_step()
            starting = time_step.step_type == FIRST
            returns[starting] = 0.0
            lengths[starting] = 0
            returns += next_time_step.reward
            lengths += 1
            for lane in np.flatnonzero(next_time_step.step_type == LAST):
                if remaining[lane]:
                    finished[lane].append((returns[lane], lengths[lane]))
                    remaining[lane] -= 1
            running_longest = lengths[remaining > 0].max(initial=0)
            if running_longest > self._max_episode_steps:
                raise errors.EnvironmentError(
                    f"an evaluation episode has not ended within {self._max_episode_steps} steps: "
                    "give the environment a time limit (GymnasiumEnvironment.max_episode_steps)"
                )
            time_step = next_time_step
        episodes = [episode for lane in finished for episode in lane]
        return Episodes(
            np.array([episode[0] for episode in episodes]),
            np.array([episode[1] for episode in episodes]),
        )

    def close(self) -> None:
        """Closes the environment."""
        self._lanes.close()
