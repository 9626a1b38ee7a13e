"""What an experiment comes to for an algorithm: streams, ratios, and what does not fit."""

import pytest
import tensorflow as tf

from actor_learner import experience as experience_lib
from actor_learner import experiment, run_settings
from actor_learner.agents import dqn, ppo, r2d2
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.replay.recording import experience_recorder
from actor_learner.replay.streams import (
    lane_replay,
    recorded_replay,
    seeded_replay,
    sequence_replay,
    unroll_queue,
)
from actor_learner.support import errors


def cartpole(seed, num_envs=4):
    return gymnasium_environment.GymnasiumEnvironment(
        "CartPole-v1", num_envs, vectorization="sync", seed=seed
    )


BUILDERS = {
    experience_lib.TRANSITIONS: lambda world: dqn.dqn(world, fc_layer_params=(4,), n_step=3),
    experience_lib.UNROLLS: lambda world: ppo.ppo(world, fc_layer_params=(4,)),
    experience_lib.SEQUENCES: lambda world: r2d2.r2d2(world, fc_layer_params=(4,), lstm_size=4),
}


@pytest.fixture(scope="module")
def algorithms():
    env = cartpole(0)
    made = {}
    for kind, builder in BUILDERS.items():
        counters = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)
        made[kind] = experiment.Experiment(cartpole, builder).make_algorithm(env, *counters)
    env.close()
    return made


def make(**settings):
    return experiment.Experiment(cartpole, BUILDERS[experience_lib.TRANSITIONS], **settings)


@pytest.mark.parametrize(
    "kind, stream",
    [
        (experience_lib.TRANSITIONS, lane_replay.LaneReplay),
        (experience_lib.UNROLLS, unroll_queue.UnrollQueue),
        (experience_lib.SEQUENCES, sequence_replay.SequenceReplay),
    ],
)
def test_the_algorithm_chooses_its_stream(algorithms, kind, stream):
    plan = make().plan(algorithms[kind], 4)
    assert isinstance(plan.stream, stream)
    assert plan.num_lanes == 4
    assert plan.initial_random_steps == (1_000 if kind == experience_lib.TRANSITIONS else 0)


def test_replay_follows_the_configured_ratio(algorithms):
    plan = make(updates_per_step=0.25, collect_steps=100).plan(
        algorithms[experience_lib.TRANSITIONS], 4
    )
    assert plan.updates_per_step == 0.25 and plan.group_steps is None
    assert plan.steps_per_turn == 100 and plan.experience.n_step == 3
    pace = plan.pace(environment_step=0, train_step=0, replay_is_empty=True)
    assert pace.updates_due(1_000) == 0 and pace.updates_due(1_400) == 100
    assert pace.steps_until(100) == 1_400


def test_unrolls_are_used_once_each(algorithms):
    plan = make(replay=unroll_queue.UnrollQueue(8)).plan(algorithms[experience_lib.UNROLLS], 4)
    assert plan.group_steps == 8 and plan.steps_per_turn == 32
    assert plan.updates_per_step == 1 / 32


def test_settings_that_do_not_fit_the_algorithm_are_refused(algorithms):
    unrolls = algorithms[experience_lib.UNROLLS]
    with pytest.raises(errors.ConfigError, match="learns from each step once"):
        make(updates_per_step=1.0).plan(unrolls, 4)
    with pytest.raises(errors.ConfigError, match="how its own policy acted"):
        make(initial_random_steps=10).plan(unrolls, 4)
    with pytest.raises(errors.ConfigError, match="collect_steps is 100, .*unroll_length"):
        make(collect_steps=100).plan(unrolls, 4)
    with pytest.raises(errors.ConfigError, match="batch_size is 32, .*unrolls_per_batch: set"):
        make(batch_size=32).plan(unrolls, 4)
    with pytest.raises(errors.ConfigError, match="but PPOAgent learns from unrolls"):
        make(replay=lane_replay.LaneReplay()).plan(unrolls, 4)
    short = sequence_replay.SequenceReplay(sequence_length=40, period=20)
    with pytest.raises(errors.ConfigError, match="burn_in is 20, SequenceReplay.sequence_length"):
        make(replay=short).plan(algorithms[experience_lib.SEQUENCES], 4)
    with pytest.raises(errors.ConfigError, match="leaves nothing of the 50"):
        make(environment_steps=50, learn_from=50)


@pytest.mark.parametrize(
    "settings, match",
    [
        ({}, "train_steps is not set"),
        ({"train_steps": 5, "overlap": True}, "for runs that collect"),
        ({"train_steps": 5, "updates_per_step": 2.0}, "Experiment.updates_per_step: for runs that"),
        ({"train_steps": 5, "learn_from": 9, "collect_steps": 9}, "learn_from, collect_steps: for"),
    ],
)
def test_what_has_no_effect_on_recorded_experience_is_refused(settings, match, tmp_path):
    (tmp_path / experience_recorder.DESCRIPTION).write_text("{}")  # Not read before it is needed.
    recorded = recorded_replay.RecordedReplay(str(tmp_path))
    with pytest.raises(errors.ConfigError, match=match):
        make(replay=recorded, **settings)


def test_a_deterministic_experiment_draws_its_own_samples(algorithms):
    plan = make(deterministic=True).plan(algorithms[experience_lib.TRANSITIONS], 4)
    assert isinstance(plan.stream, seeded_replay.SeededReplay)
    assert make(deterministic=True).plan(algorithms[experience_lib.UNROLLS], 4).stream.repeatable
    with pytest.raises(errors.ConfigError, match="cannot be seeded"):
        make(deterministic=True).plan(algorithms[experience_lib.SEQUENCES], 4)
    with pytest.raises(errors.ConfigError, match="no effect on SeededReplay"):
        make(deterministic=True, checkpoints=run_settings.Checkpoints(save_replay=True)).plan(
            algorithms[experience_lib.TRANSITIONS], 4
        )


def test_learning_waits_for_the_first_window_of_what_the_learner_draws_itself(algorithms):
    algorithm = algorithms[experience_lib.TRANSITIONS]  # n-step 3: windows of 4 rows.
    at_once = {"initial_random_steps": 0, "deterministic": True}
    assert make(**at_once).plan(algorithm, 8).learn_from == 32
    assert make(learn_from=100, **at_once).plan(algorithm, 8).learn_from == 100
    assert make(initial_random_steps=0).plan(algorithm, 8).learn_from == 0  # Its table knows.
    with pytest.raises(errors.ConfigError, match="first sample after 32 steps"):
        make(environment_steps=32, **at_once).plan(algorithm, 8)


def test_dropping_needs_a_limit_and_experience_that_is_used_once(algorithms):
    with pytest.raises(errors.ConfigError, match="max_version_lag, beyond which to drop, is not"):
        run_settings.Staleness(when_lagging="drop")
    with pytest.raises(errors.ConfigError, match="when_lagging must be 'wait' or 'drop'"):
        run_settings.Staleness(when_lagging="skip", max_version_lag=1)
    dropping = make(staleness=run_settings.Staleness(when_lagging="drop", max_version_lag=1))
    assert dropping.plan(algorithms[experience_lib.UNROLLS], 4).group_steps
    for kind in (experience_lib.TRANSITIONS, experience_lib.SEQUENCES):
        with pytest.raises(errors.ConfigError, match="old by nature: use 'wait'"):
            dropping.plan(algorithms[kind], 4)


def test_queues_publish_more_often_than_replay_unless_told_otherwise(algorithms):
    kinds = (experience_lib.TRANSITIONS, experience_lib.UNROLLS)
    assert [make().plan(algorithms[kind], 4).publish_seconds for kind in kinds] == [0.5, 0.125]
    told = make(staleness=run_settings.Staleness(publish_seconds=2.0))
    assert [told.plan(algorithms[kind], 4).publish_seconds for kind in kinds] == [2.0, 2.0]
