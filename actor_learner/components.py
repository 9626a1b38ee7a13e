"""Imports every room, so that all that gin files may name is registered. Imports TensorFlow."""

from actor_learner import evaluation_settings, experiment, parts, ray_settings, run_settings
from actor_learner.acting import actor
from actor_learner.agents import bc, c51, cql_sac, ddpg, dqn, impala, ppo, r2d2, sac, td3
from actor_learner.environments import (
    gymnasium,
    memory,
    suite_atari,
    suite_gymnasium,
    suite_mujoco,
    suite_pybullet,
)
from actor_learner.jobs import extra_jobs
from actor_learner.learning import evaluation, learner, ppo_learner, triggers
from actor_learner.parameters import reverb_variable_container
from actor_learner.replay import observers, reverb_replay_buffer
from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import (
    lane_replay,
    mixed_replay,
    prioritized_replay,
    recorded_replay,
    recorded_sequences,
    seeded_replay,
    sequence_replay,
    unroll_queue,
    window_replay,
)
from actor_learner.reporting import log_limit, row_limit
from actor_learner.runs import stored_versions, warm_start
from actor_learner.support import tensorflow_threads, unsaved

ROOMS = (
    actor,
    bc,
    c51,
    cql_sac,
    ddpg,
    dqn,
    evaluation,
    evaluation_settings,
    experiment,
    extra_jobs,
    gymnasium,
    impala,
    lane_replay,
    learner,
    log_limit,
    memory,
    mixed_replay,
    observers,
    recorded_replay,
    parts,
    ppo,
    ppo_learner,
    prioritized_replay,
    r2d2,
    ray_settings,
    recorded_sequences,
    reverb_replay_buffer,
    reverb_variable_container,
    row_limit,
    run_settings,
    sac,
    seeded_replay,
    sequence_replay,
    server,
    stored_versions,
    suite_atari,
    suite_gymnasium,
    suite_mujoco,
    suite_pybullet,
    tables,
    td3,
    tensorflow_threads,
    triggers,
    unroll_queue,
    unsaved,
    warm_start,
    window_replay,
)
