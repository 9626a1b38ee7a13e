"""Imports every room, so that all that gin files may name is registered. Imports TensorFlow."""

from actor_learner import experiment, parts
from actor_learner.acting import actor
from actor_learner.agents import c51, ddpg, dqn, sac, td3
from actor_learner.environments import gymnasium, suite_gymnasium
from actor_learner.learning import evaluation, learner, ppo_learner, triggers
from actor_learner.parameters import reverb_variable_container
from actor_learner.replay import (
    lane_replay,
    observers,
    reverb_replay_buffer,
    server,
    tables,
    window_replay,
)

ROOMS = (
    actor,
    c51,
    ddpg,
    dqn,
    evaluation,
    experiment,
    gymnasium,
    lane_replay,
    learner,
    observers,
    parts,
    ppo_learner,
    reverb_replay_buffer,
    reverb_variable_container,
    sac,
    server,
    suite_gymnasium,
    tables,
    td3,
    triggers,
    window_replay,
)
