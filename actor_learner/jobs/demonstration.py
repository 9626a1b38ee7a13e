"""Records what a trained policy does, for other agents to learn from."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner.acting import actor
from actor_learner.environments import lanes as lanes_lib
from actor_learner.replay import recording


def record_episodes(
    env: py_environment.PyEnvironment,
    policy: Any,
    directory: str | os.PathLike,
    episodes: int,
) -> float:
    """Runs a policy and records every step, until so many episodes have ended.

    With many lanes the first to end may be the shortest ones; with as many lanes as episodes, and
    episodes of one length, each lane contributes one.

    Args:
      env: Where to act; the caller's.
      policy: A TF policy, a Python policy such as `saved_model.load` returns, or an inference
        stream.
      directory: Where the recording goes (`recording.ExperienceRecorder`).
      episodes: How many, over all lanes.

    Returns:
      The mean return of the episodes that ended.
    """
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
    metrics = actor.eval_metrics(buffer_size=episodes)
    num_lanes = lanes_lib.as_lanes(env).num_lanes
    with recording.ExperienceRecorder(directory, data_spec, num_lanes) as recorder:
        demonstrator = actor.Actor(
            env,
            policy,
            tf.Variable(0, dtype=tf.int64),
            episodes_per_run=episodes,
            observers=[recorder],
            metrics=metrics,
        )
        demonstrator.run()
        demonstrator.close()
    return float(metrics[0].result())
