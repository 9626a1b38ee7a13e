"""Records episodes of a trained policy, for other agents to learn from."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.environments import py_environment
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.acting import actor
from actor_learner.environments import lanes as lanes_lib
from actor_learner.inference import streams
from actor_learner.replay.recording import experience_recorder
from actor_learner.support import errors

FIRST, LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)


def record_episodes(
    env: py_environment.PyEnvironment,
    policy: Any,
    directory: str | os.PathLike,
    episodes: int,
    *,
    max_episode_steps: int = 200_000,
) -> float:
    """Runs a policy and records whole episodes, as if one lane had gone through them in turn.

    The number of episodes from each lane is fixed beforehand: the first to end over all lanes would
    be the short ones. The episode under way in each lane is kept in memory.

    Args:
      env: The environment to act in. The caller closes it.
      policy: A TF policy, a Python policy such as `saved_model.load` returns, or an inference
        stream.
      directory: Where the recording goes (`experience_recorder.ExperienceRecorder`).
      episodes: How many, divided among the lanes.
      max_episode_steps: An episode longer than this is an error, not a hang.

    Returns:
      The mean return of the episodes.

    Raises:
      ValueError: If `episodes` is less than 1.
      errors.EnvironmentError: If an episode does not end.
    """
    if episodes < 1:
        raise ValueError(f"a recording needs at least one episode, got {episodes}")
    time_step_spec = tensor_spec.from_spec(env.time_step_spec())
    data_spec = trajectory_lib.Trajectory(
        step_type=time_step_spec.step_type,
        observation=time_step_spec.observation,
        action=tensor_spec.from_spec(env.action_spec()),
        policy_info=tensor_spec.from_spec(getattr(policy, "info_spec", ())),
        next_step_type=time_step_spec.step_type,
        reward=time_step_spec.reward,
        discount=time_step_spec.discount,
    )
    num_lanes = lanes_lib.as_lanes(env).num_lanes
    with experience_recorder.ExperienceRecorder(directory, data_spec, num_lanes=1) as recorder:
        chosen = _WholeEpisodes(recorder, num_lanes, episodes, max_episode_steps)
        demonstrator = actor.Actor(
            env,
            policy,
            tf.Variable(0, dtype=tf.int64),
            steps_per_run=num_lanes,
            observers=[chosen],
            # Overrides what a config binds: exported policies cannot be converted.
            inference=streams.AUTO,
        )
        try:
            while not chosen.complete:
                demonstrator.run()
        finally:
            demonstrator.close()
    return float(np.mean(chosen.returns))


class _WholeEpisodes:
    """Passes a fixed number of whole episodes of each lane to a recorder.

    Args:
      recorder: Receives the steps of one episode after another, including boundary steps.
      num_lanes: Lanes per step.
      episodes: How many, over all lanes.
      max_episode_steps: Maximum steps of an episode.
    """

    accepts_lanes = True

    def __init__(
        self,
        recorder: experience_recorder.ExperienceRecorder,
        num_lanes: int,
        episodes: int,
        max_episode_steps: int,
    ) -> None:
        self._recorder = recorder
        self._max_episode_steps = max_episode_steps
        self._missing = [
            episodes // num_lanes + (lane < episodes % num_lanes) for lane in range(num_lanes)
        ]
        self._unfinished: list[list[trajectory_lib.Trajectory]] = [[] for _ in range(num_lanes)]
        self.returns: list[float] = []

    @property
    def complete(self) -> bool:
        """Whether every lane has contributed its episodes."""
        return not any(self._missing)

    def __call__(self, trajectory: trajectory_lib.Trajectory) -> None:
        """Takes one step with leaves `[lanes, ...]`; a single lane may come without that axis."""
        if np.ndim(trajectory.step_type) == 0:
            trajectory = tree.map_structure(lambda leaf: np.asarray(leaf)[None], trajectory)
        for lane, missing in enumerate(self._missing):
            if missing:
                step = tree.map_structure(lambda leaf: np.array(leaf[lane]), trajectory)  # noqa: B023
                self._add(lane, step)

    def _add(self, lane: int, step: trajectory_lib.Trajectory) -> None:
        episode = self._unfinished[lane]
        if step.step_type == FIRST:
            episode.clear()
        episode.append(step)
        if step.step_type == LAST:
            for each in episode:
                self._recorder(each)
            self.returns.append(sum(float(each.reward) for each in episode[:-1]))
            self._missing[lane] -= 1
            episode.clear()
        elif len(episode) > self._max_episode_steps:
            raise errors.EnvironmentError(
                f"an episode to be recorded has not ended within {self._max_episode_steps} steps: "
                "give the environment a time limit (GymnasiumEnvironment.max_episode_steps)"
            )
