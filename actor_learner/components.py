"""Imports every room, so that all that gin files may name is registered. Imports TensorFlow."""

from actor_learner import (
    agent_spec,
    collecting,
    evaluation_settings,
    experiment,
    jobs_settings,
    parts,
    ray_settings,
    run_settings,
)
from actor_learner.acting import actor, evaluator
from actor_learner.agents import bc, c51, cql_sac, ddpg, dqn, impala, ppo, r2d2, sac, td3
from actor_learner.environments import (
    agent_world,
    gymnasium,
    memory,
    self_play,
    spread,
    suite_atari,
    suite_gymnasium,
    suite_mujoco,
    suite_pybullet,
)
from actor_learner.environments.games import kuhn_poker, tic_tac_toe
from actor_learner.environments.tensor import (
    acrobot,
    bricks,
    cartpole,
    crossing,
    gathering,
    memory_corridor,
    mountain_car,
    pendulum,
)
from actor_learner.environments.tensor import environment as tensor_environment
from actor_learner.inference import policy_service, remote
from actor_learner.league import settings as league_settings
from actor_learner.learning import (
    best_policy_trigger,
    evaluation,
    kuhn_exploitability,
    learner,
    ppo_learner,
    triggers,
)
from actor_learner.parameters import reverb_variable_container
from actor_learner.replay import observers, postprocessors, reverb_replay_buffer
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
from actor_learner.reporting import log_limit, row_limit, wandb_logger
from actor_learner.runs import frozen_policy, stored_versions, warm_start
from actor_learner.support import tensorflow_threads, unsaved

ROOMS = (
    acrobot,
    actor,
    agent_spec,
    agent_world,
    bc,
    best_policy_trigger,
    bricks,
    c51,
    cartpole,
    collecting,
    cql_sac,
    crossing,
    ddpg,
    dqn,
    evaluation,
    evaluation_settings,
    evaluator,
    experiment,
    frozen_policy,
    gathering,
    gymnasium,
    impala,
    kuhn_exploitability,
    kuhn_poker,
    lane_replay,
    league_settings,
    learner,
    log_limit,
    memory,
    memory_corridor,
    mixed_replay,
    mountain_car,
    observers,
    recorded_replay,
    parts,
    pendulum,
    policy_service,
    postprocessors,
    ppo,
    ppo_learner,
    prioritized_replay,
    r2d2,
    ray_settings,
    recorded_sequences,
    remote,
    reverb_replay_buffer,
    reverb_variable_container,
    row_limit,
    run_settings,
    sac,
    seeded_replay,
    self_play,
    sequence_replay,
    server,
    jobs_settings,
    spread,
    stored_versions,
    suite_atari,
    suite_gymnasium,
    suite_mujoco,
    suite_pybullet,
    tables,
    td3,
    tensor_environment,
    tensorflow_threads,
    tic_tac_toe,
    triggers,
    unroll_queue,
    unsaved,
    wandb_logger,
    warm_start,
    window_replay,
)
