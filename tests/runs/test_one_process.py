"""A whole run in one process: pacing, evaluation, stopping, resuming."""

import dataclasses
import json
import threading

import numpy as np
import pytest
import reverb
import tensorflow as tf

from actor_learner import evaluation_settings, experiment, parts, plan, run_directory, run_settings
from actor_learner.agents import dqn
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.learning import best_policy_trigger, checkpoints
from actor_learner.replay.server import tables
from actor_learner.replay.streams import (
    lane_replay,
    mixed_replay,
    prioritized_replay,
    recorded_replay,
    window_replay,
)
from actor_learner.runs import one_process
from actor_learner.support import errors
from tests import counting_environment


def small_dqn(world):
    return dqn.dqn(world, fc_layer_params=(8,), epsilon_decay_steps=500)


def counting(seed, num_envs=4, episode_length=5):
    return gymnasium_environment.GymnasiumEnvironment(
        counting_environment.ENV_ID,
        num_envs,
        vectorization="sync",
        make_kwargs={"episode_lengths": (episode_length,)},
        seed=seed,
    )


def make_experiment(**changes):
    settings = dict(
        environment=counting,
        agent=small_dqn,
        environment_steps=600,
        initial_random_steps=100,
        updates_per_step=0.5,
        collect_steps=50,
        batch_size=16,
        evaluation=rated(),
        reporting=run_settings.Reporting(seconds=1e-6),
    )
    settings.update(changes)
    return experiment.Experiment(**settings)


def rated(interval=200, **changes):
    return evaluation_settings.Evaluation(interval, episodes=3, **changes)


def train(tmp_path, rows=None, **changes):
    with one_process.OneProcess(
        make_experiment(**changes),
        run_directory.RunDirectory(tmp_path / "run"),
        seed=1,
        on_row=(rows if rows is not None else []).append,
    ) as training:
        status = training.run()
        return status, training.environment_step, training.train_step


def test_updates_follow_environment_steps_at_the_configured_ratio(tmp_path):
    rows = []
    status, environment_steps, train_steps = train(tmp_path, rows)
    assert status == one_process.COMPLETED
    assert environment_steps >= 600
    assert train_steps == (environment_steps - 100) // 2
    for row in rows:
        due = max(0, row["environment_steps"] - 100) // 2
        assert row["train_steps"] <= due
    final = rows[-1]
    assert final["return"] == 1 + 2 + 3 + 4 + 5
    assert final["episode_length"] == 5
    assert final["replay_size"] > 0 and final["samples_per_insert"] > 0
    assert np.isfinite(final["loss"])


def test_evaluations_come_at_their_interval_and_the_last_policy_is_rated(tmp_path):
    rows = []
    train(tmp_path, rows)
    evaluated = [row["environment_steps"] for row in rows if "eval_return" in row]
    assert len(evaluated) == 3  # At 100 and 200 train steps, and at the end.
    assert evaluated[-1] == rows[-1]["environment_steps"]
    score = json.loads((tmp_path / "run" / "best" / "score.json").read_text())
    assert score["mean"] == 15.0 and score["episodes"] == 3
    assert (tmp_path / "run" / "best" / "policy" / "saved_model.pb").exists()


def test_an_agent_that_does_not_count_its_train_steps_ends_the_run(tmp_path):
    def counting_elsewhere(world):
        return small_dqn(dataclasses.replace(world, train_step=tf.Variable(0, dtype=tf.int64)))

    with pytest.raises(errors.ConfigError, match="train_step_counter=world.train_step"):
        train(tmp_path, agent=counting_elsewhere)


def test_training_stops_at_the_target_return(tmp_path):
    status, environment_steps, _ = train(tmp_path, evaluation=rated(target_return=15.0))
    assert status == one_process.TARGET_REACHED
    assert environment_steps < 600


def test_a_target_reached_by_the_last_evaluation_alone_counts(tmp_path):
    only_at_the_end = rated(interval=0, target_return=15.0)
    status, _, _ = train(tmp_path, environment_steps=300, evaluation=only_at_the_end)
    assert status == one_process.TARGET_REACHED


def test_a_stop_request_ends_training_after_the_turn_with_a_checkpoint(tmp_path):
    stop = threading.Event()
    run = run_directory.RunDirectory(tmp_path / "run")
    with one_process.OneProcess(
        make_experiment(), run, seed=1, on_row=lambda row: stop.set(), stop=stop
    ) as training:
        assert training.run() == one_process.INTERRUPTED
        assert training.environment_step < 600
        stopped_at = training.environment_step
    with one_process.OneProcess(make_experiment(), run, seed=1) as resumed:
        assert resumed.restored_from is not None
        assert resumed.environment_step == stopped_at


def test_a_resumed_run_goes_on_with_steps_metrics_exploration_and_clock(tmp_path):
    rows, more = [], []
    _, steps, updates = train(tmp_path, rows)
    with one_process.OneProcess(
        make_experiment(environment_steps=1_000),
        run_directory.RunDirectory(tmp_path / "run"),
        seed=1,
        on_row=more.append,
    ) as training:
        assert (training.environment_step, training.train_step) == (steps, updates)
        assert training.best["best_return"] == 15.0
        training.run()
        assert training.environment_step >= 1_000
    assert more[0]["episodes"] > rows[-1]["episodes"]
    assert more[0]["seconds"] >= rows[-1]["seconds"]
    assert more[0]["epsilon"] <= rows[-1]["epsilon"] == pytest.approx(0.05)
    # The replay is empty again, so learning waits for 100 steps, which the policy takes.
    learning = [row for row in more if row["train_steps"] > updates]
    assert learning[0]["environment_steps"] > steps + 100
    final = more[-1]
    assert final["train_steps"] == updates + (final["environment_steps"] - steps - 100) // 2


def test_replay_contents_are_kept_when_asked_for(tmp_path):
    rows, more = [], []
    train(tmp_path, rows, checkpoints=run_settings.Checkpoints(save_replay=True))
    with one_process.OneProcess(
        make_experiment(
            environment_steps=700, checkpoints=run_settings.Checkpoints(save_replay=True)
        ),
        run_directory.RunDirectory(tmp_path / "run"),
        seed=1,
        on_row=more.append,
    ) as training:
        training.run()
    assert more[0]["replay_size"] > rows[-1]["replay_size"]


def test_a_limit_on_samples_per_insert_is_refused_because_it_would_deadlock(tmp_path):
    def limited(**kwargs):
        return tables.uniform_table(**kwargs, rate_limiter=tables.sample_to_insert_ratio(1.0, 10))

    with pytest.raises(errors.ConfigError, match="and one process for itself"):
        train(tmp_path, replay=lane_replay.LaneReplay(1000, table=limited))


def test_a_table_whose_priorities_nobody_updates_is_refused(tmp_path):
    replay = window_replay.WindowReplay(1000, table=tables.prioritized_table)
    with pytest.raises(errors.ConfigError, match="@PrioritizedReplay"):
        train(tmp_path, replay=replay)


def test_a_prioritized_replay_with_a_rate_limiter_of_its_own_trains(tmp_path):
    replay = prioritized_replay.PrioritizedReplay(
        1000, rate_limiter=lambda: tables.min_size(20), importance_start=1.0
    )
    status, environment_steps, train_steps = train(tmp_path, environment_steps=200, replay=replay)
    assert status == one_process.COMPLETED
    assert train_steps == (environment_steps - 100) // 2


def test_a_changed_ratio_counts_from_the_resumption_on():
    pace = plan.Pace(learn_from=5_000, train_step=2_500, updates_per_step=2.0)
    assert pace.steps_until(2_520) == 5_010
    assert pace.updates_due(5_000) == 2_500
    assert pace.updates_due(5_010) == 2_520


def hungry(min_size):
    """Makes tables that give no sample before they hold `min_size` items."""

    def table(**kwargs):
        return tables.uniform_table(**kwargs, rate_limiter=tables.min_size(min_size))

    return table


def test_learning_waits_until_the_table_can_be_sampled(tmp_path):
    rows = []
    status, environment_steps, train_steps = train(
        tmp_path,
        rows,
        environment_steps=1_000,
        replay=lane_replay.LaneReplay(4_000, rows_per_item=1, table=hungry(100)),
        sample_timeout_seconds=10.0,
    )
    assert status == one_process.COMPLETED
    # 100 items of four lanes, in which every sixth step is a boundary, which is no step.
    begins_at = 100 * 4 * 5 / 6
    assert not any(row["train_steps"] for row in rows if row["environment_steps"] < begins_at)
    # From the last turn on, at whose end there were too few; two rows are with the observer.
    counted_from = environment_steps - 2 * train_steps
    assert begins_at - 53 <= counted_from <= begins_at + 2 * 4


def test_a_table_that_all_steps_do_not_fill_is_an_error_and_no_complete_run(tmp_path):
    replay = lane_replay.LaneReplay(4_000, rows_per_item=1, table=hungry(900))
    with pytest.raises(errors.ReplayError, match="not taken one train step.* of the 900 items"):
        train(tmp_path, replay=replay)


def test_a_table_that_can_never_be_sampled_is_refused(tmp_path):
    def unreachable(name, max_size, signature):
        return reverb.Table(
            name,
            reverb.selectors.Uniform(),
            reverb.selectors.Fifo(),
            max_size,
            reverb.rate_limiters.MinSize(max_size + 1),
            signature=signature,
        )

    with pytest.raises(errors.ConfigError, match="never be sampled: .* 251 items .* 250 at most"):
        train(tmp_path, replay=lane_replay.LaneReplay(1_000, rows_per_item=1, table=unreachable))


@pytest.mark.parametrize("times", [1, 50])
def test_a_table_that_would_run_dry_is_refused(tmp_path, times):
    def drying(**kwargs):
        return tables.uniform_table(**kwargs, max_times_sampled=times)

    with pytest.raises(errors.ConfigError, match=f"after {times} samples .* would run dry"):
        train(tmp_path, replay=lane_replay.LaneReplay(1_000, table=drying))


def test_a_learner_without_samples_gives_up_and_says_why(tmp_path):
    experiment_ = make_experiment(
        # More items than one turn writes: the next one does not fill an emptied table.
        replay=lane_replay.LaneReplay(1_000, rows_per_item=1, table=hungry(25)),
        environment_steps=100_000,
        sample_timeout_seconds=0.5,
    )
    run = run_directory.RunDirectory(tmp_path / "run")
    with one_process.OneProcess(experiment_, run, seed=1) as training:
        client, table = training._replay.client, training._plan.stream.table_name
        training._learning.trainer.learner.add_trigger(lambda _: client.reset(table))
        with pytest.raises(
            errors.ReplayTimeoutError,
            match="for a sample: table 'experience.*': .* of the 25 items needed",
        ):
            training.run()


@pytest.mark.parametrize(
    "settings, warned",
    [({"staleness": run_settings.Staleness(max_version_lag=3)}, True), ({}, False)],
)
def test_a_limit_for_separate_jobs_is_named_as_having_no_effect(
    tmp_path, monkeypatch, settings, warned
):
    said = []
    monkeypatch.setattr(one_process.logging, "warning", lambda text, *_: said.append(text))
    run = run_directory.RunDirectory(tmp_path / "run")
    one_process.OneProcess(make_experiment(**settings), run, seed=1).close()
    assert any("Staleness.max_version_lag" in text for text in said) == warned


@pytest.mark.parametrize("seconds, several", [(1e-6, True), (0.0, False)])
def test_checkpoints_are_saved_by_time_too(tmp_path, monkeypatch, seconds, several):
    saved = []
    save = checkpoints.Checkpointer.save
    monkeypatch.setattr(
        checkpoints.Checkpointer,
        "save",
        lambda self, step, *more: saved.append(int(step.numpy())) or save(self, step, *more),
    )
    _, _, train_steps = train(tmp_path, checkpoints=run_settings.Checkpoints(seconds=seconds))
    # By its interval in train steps none is due: without the time there is only the last one.
    assert saved[-1] == train_steps and (len(set(saved)) > 1) == several


def test_a_failing_trigger_ends_training_naming_it_and_keeps_a_checkpoint(tmp_path, monkeypatch):
    def fail(self, result):
        raise RuntimeError("disk full")

    monkeypatch.setattr(best_policy_trigger.BestPolicyTrigger, "__call__", fail)
    with pytest.raises(errors.TriggerError, match="EvaluationTrigger"):
        train(tmp_path)
    assert list((tmp_path / "run" / "train" / "checkpoints").glob("ckpt-*.index"))


def test_settings_that_cannot_work_are_refused():
    for changes, match in (
        ({"initial_random_steps": 600}, "leaves nothing"),
        ({"updates_per_step": 0.0}, "updates_per_step must be above 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ):
        with pytest.raises(errors.ConfigError, match=match):
            make_experiment(**changes)


def test_recorded_experience_trains_another_agent_without_an_environment(tmp_path):
    train(tmp_path / "expert", record=True)
    recorded = str(tmp_path / "expert" / "run")
    rows = []
    offline_run = experiment.Experiment(
        agent=small_dqn,
        replay=recorded_replay.RecordedReplay(recorded),
        train_steps=50,
        batch_size=16,
        reporting=run_settings.Reporting(seconds=1e-6),
    )
    with one_process.OneProcess(
        offline_run,
        run_directory.RunDirectory(tmp_path / "offline"),
        seed=1,
        on_row=rows.append,
    ) as training:
        assert training.run() == one_process.COMPLETED
        assert (training.train_step, training.environment_step) == (50, 0)
        training.export_policies()
    assert np.isfinite(rows[-1]["loss"]) and rows[-1]["replay_size"] >= 600
    assert (tmp_path / "offline" / "policies" / "greedy_policy" / "saved_model.pb").exists()


def test_recorded_experience_is_rated_where_an_environment_is_given(tmp_path):
    train(tmp_path / "expert", record=True)
    rows = []
    status, environment_steps, train_steps = train(
        tmp_path,
        rows,
        replay=recorded_replay.RecordedReplay(str(tmp_path / "expert" / "run")),
        train_steps=60,
        evaluation=rated(20),
        initial_random_steps=None,
        updates_per_step=None,
        collect_steps=None,
    )
    assert (status, environment_steps, train_steps) == (one_process.COMPLETED, 0, 60)
    assert [row["train_steps"] for row in rows if "eval_return" in row] == [20, 40, 60]


def test_priorities_in_the_table_follow_what_was_learned(tmp_path):
    rows = []
    with one_process.OneProcess(
        make_experiment(replay=prioritized_replay.PrioritizedReplay(5_000)),
        run_directory.RunDirectory(tmp_path / "run"),
        seed=1,
        on_row=rows.append,
    ) as training:
        assert training.run() == one_process.COMPLETED
        samples = parts.replay_client().sample(
            training._plan.stream.table_name, num_samples=500, emit_timesteps=False
        )
        drawn = {sample.info.key: sample.info for sample in samples}
    priorities = np.array([info.priority for info in drawn.values()])
    probabilities = np.array([info.probability for info in drawn.values()])
    # A new transition has 1, or the highest seen: fewer different ones than transitions.
    assert len(np.unique(priorities)) > len(priorities) / 2
    ratios = probabilities / priorities**0.6
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)
    assert np.isfinite(rows[-1]["loss"])


def test_what_recorded_experience_cannot_do_is_refused(tmp_path):
    with pytest.raises(errors.ConfigError, match="Experiment.environment is not set"):
        experiment.Experiment(agent=small_dqn)
    with pytest.raises(errors.ConfigError, match="train_steps is for recorded experience"):
        make_experiment(train_steps=10)


def test_every_batch_mixes_recorded_and_new_experience(tmp_path):
    train(tmp_path / "expert", record=True)
    recorded = str(tmp_path / "expert" / "run")
    for stream in (lane_replay.LaneReplay, prioritized_replay.PrioritizedReplay):
        replay = mixed_replay.MixedReplay(
            [stream(1_000), recorded_replay.RecordedReplay(recorded)], weights=[0.5, 0.5]
        )
        status, environment_steps, _ = train(tmp_path / stream.__name__, replay=replay)
        assert status == one_process.COMPLETED and environment_steps >= 600
