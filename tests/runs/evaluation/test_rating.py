"""Policies are rated where, how often and on the episodes that they should be."""

import collections
import json

import gin
import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from actor_learner import cli, config, evaluation_settings, frozen_config, run_directory
from actor_learner import experiment as experiment_lib
from actor_learner.learning import best_policy_trigger
from actor_learner.runs import one_process
from actor_learner.runs.evaluation import rating
from actor_learner.support import errors
from tests import evaluation_environments
from tests.runs import test_one_process

SEED = 3


def evaluating(scale=1.0, size=2):
    """An environment for evaluation."""

    def make(seed, num_envs):
        return evaluation_environments.noting(seed, num_envs, "evaluation", scale, size)

    return make


def make_experiment(**settings):
    settings = {"environment": evaluating(), **settings}
    return test_one_process.make_experiment(
        environment=lambda seed, num_envs=2: evaluation_environments.noting(seed, num_envs),
        evaluation=evaluation_settings.Evaluation(interval=100, episodes=4, lanes=2, **settings),
    )


@pytest.fixture
def noted():
    """Seeds of evaluations, as they are used."""
    evaluation_environments.NOTED.clear()
    return evaluation_environments.NOTED


@pytest.fixture
def make_rating(tmp_path):
    """Makes a rating whose policy never changes."""
    made = []

    def make(life=0, directory="best", **settings):
        experiment = make_experiment(**settings)
        env = experiment.make_environment(0)
        steps = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
        agent = experiment.make_algorithm(env, *steps).agent
        made.append(
            rating.Rating(
                experiment,
                agent.policy,
                best_policy_trigger.BestPolicyTrigger(
                    experiment_lib.greedy(agent.policy),
                    str(tmp_path / directory),
                    train_step=steps[0],
                    target_return=experiment.evaluation.target_return,
                ),
                seed=SEED,
                life=life,
                specs=(env.time_step_spec(), env.action_spec()),
                train_step=steps[0],
                environment_step=steps[1],
            )
        )
        return made[-1]

    yield make
    for rated in made:
        rated.close()


def played(noted):
    """The seeds of the episodes that were evaluated since the last call."""
    found = [seed for who, seed in noted if who == "evaluation"]
    noted.clear()
    return found


def test_every_evaluation_plays_the_same_episodes_and_confirms_on_others(make_rating, noted):
    rated = make_rating(target_return=0.0)  # Whatever it does: each one is confirmed.
    results, seeds = [], []
    for _ in range(3):
        results.append(rated.evaluate())
        seeds.append(played(noted))
    choosing = seeds[0][:2]
    assert all(len(found) == 4 and found[:2] == choosing for found in seeds)
    confirming = [seed for found in seeds for seed in found[2:]]
    assert len(set(confirming + choosing)) == 8
    assert len({result.mean for result in results}) == 1
    assert len({result.confirmed.mean for result in results}) == 3


def test_only_what_would_be_the_best_is_rated_twice(make_rating, noted):
    rated = make_rating()
    first = rated.evaluate()
    rated.note(first)
    assert first.confirmed is not None and len(played(noted)) == 4
    assert rated.best.best["mean"] == first.confirmed.mean != first.mean
    assert rated.best.best["chosen_by"]["mean"] == first.mean
    again = rated.evaluate()  # As good as the best, and no better.
    assert again.confirmed is None and len(played(noted)) == 2


def test_another_process_confirms_on_other_episodes(make_rating, noted):
    seeds = []
    for life in (0, 1, "5f3e"):
        make_rating(life, directory=f"best-{life}").evaluate()
        seeds.append(played(noted))
    assert len({tuple(found[:2]) for found in seeds}) == 1
    assert len({seed for found in seeds for seed in found[2:]}) == 6


@pytest.fixture
def log(caplog):
    """What is logged; saving a model sets absl's verbosity back to what it was."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)
    yield caplog
    logging.set_verbosity(before)


def test_a_target_that_is_reached_by_luck_does_not_end_training(make_rating, log):
    lucky = make_rating().evaluate()
    target = (lucky.mean + lucky.confirmed.mean) / 2
    rated = make_rating(target_return=target, directory="other")
    result = rated.evaluate()
    rated.note(result)
    # With these seeds the first evaluation is the higher one.
    assert result.mean > target > result.confirmed.mean
    assert rated.target_reached is None
    assert "does not confirm it: the target is not reached, and training goes on" in log.text


def test_scores_are_those_of_the_evaluation_environment(make_rating):
    clipped = make_rating().evaluate()
    true = make_rating(environment=evaluating(scale=100.0), directory="other").evaluate()
    assert true.mean == pytest.approx(100 * clipped.mean, rel=1e-5)
    assert true.confirmed.mean == pytest.approx(100 * clipped.confirmed.mean, rel=1e-5)


def test_an_evaluation_environment_with_other_observations_is_refused(tmp_path):
    experiment = make_experiment(environment=evaluating(size=3))
    run = run_directory.RunDirectory(tmp_path / "run")
    with pytest.raises(errors.SpecMismatchError) as raised:
        one_process.OneProcess(experiment, run, seed=1)
    assert "observation: float32 of shape (3,) instead of float32 of shape (2,)" in str(
        raised.value
    )
    assert "Evaluation.environment" in str(raised.value)


def not_finite(first):
    return lambda seed, num_envs: evaluation_environments.not_finite(seed, num_envs, first)


def test_what_is_not_finite_is_not_kept_and_the_run_is_no_success(make_rating, caplog):
    rated = make_rating(environment=not_finite(first=1), target_return=-1.0)
    rated.require_finite()
    result = rated.evaluate()
    rated.note(result)
    assert np.isnan(result.mean) and result.confirmed is None
    assert rated.best_row is None and rated.target_reached is None
    assert "is not finite: mean return nan over 4 episodes" in caplog.text
    with pytest.raises(errors.EvaluationError, match="policy of train step 0 cannot be evaluated"):
        rated.require_finite()


def test_a_confirmation_that_is_not_finite_counts_for_nothing(make_rating):
    rated = make_rating(environment=not_finite(first=2), target_return=-1.0)
    result = rated.evaluate()
    rated.note(result)
    assert result.is_finite and not result.confirmed.is_finite
    assert rated.best_row is None and rated.target_reached is None


def test_a_run_whose_last_policy_cannot_be_evaluated_fails_after_saving(tmp_path):
    rows = []
    # Two evaluations of two lanes are well, one of them confirmed; then come NaNs.
    experiment = make_experiment(environment=not_finite(first=4))
    run = run_directory.RunDirectory(tmp_path / "run")
    with (
        one_process.OneProcess(experiment, run, seed=1, on_row=rows.append) as training,
        pytest.raises(errors.EvaluationError, match="cannot be evaluated"),
    ):
        training.run()
    means = [row["eval_return"] for row in rows if "eval_return" in row]
    assert np.isfinite(means[0]) and np.isnan(means[-1])
    assert list((run.path / "train" / "checkpoints").glob("ckpt-*.index"))
    kept = json.loads((run.best / "score.json").read_text())
    assert np.isfinite(kept["mean"]) and kept["chosen_by"]["mean"] == max(
        mean for mean in means if np.isfinite(mean)
    )


BINDINGS = (
    "import tests.evaluation_environments",
    "Experiment.environment = @tests.noting",
    "Evaluation.environment = @evaluation/tests.noting",
    "evaluation/tests.noting.who = 'evaluation'",
    "Experiment.agent = @dqn",
    "Experiment.environment_steps = 300",
    "Experiment.initial_random_steps = 100",
    "Experiment.updates_per_step = 0.1",
    "Experiment.collect_steps = 50",
    "Experiment.batch_size = 4",
    "Evaluation.interval = 50",
    "Evaluation.episodes = 6",
    "Evaluation.lanes = 3",
    "dqn.fc_layer_params = (4,)",
)


def test_no_seed_is_used_twice_but_those_that_choose(tmp_path, noted, capsys):
    path = tmp_path / "noting.gin"
    path.write_text("\n".join(BINDINGS))
    run = run_directory.RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.describe(seed=SEED, argv=[])
    frozen_config.write(run, config.ConfigSource((str(path),), ()))
    trained = []
    for environment_steps in (300, 500):
        config.load(
            config.ConfigSource(
                (str(path),), (f"Experiment.environment_steps = {environment_steps}",)
            )
        )
        experiment = experiment_lib.Experiment()
        with one_process.OneProcess(experiment, run, seed=SEED) as training:
            training.run()
        trained.append({seed for who, seed in noted if who == "training"})
    first_life, both_lives = trained
    assert len(first_life) == 2 and len(both_lives) == 4
    choosing = set([seed for who, seed in noted if who == "evaluation"][:3])
    by_training = len(noted)
    for seed in (0, 1):
        assert cli.main(["eval", str(run), "--episodes=3", f"--seed={seed}"]) == 0
    gin.clear_config()
    assert len(noted) == by_training + 6
    counts = collections.Counter(seed for _, seed in noted)
    assert {seed for seed, count in counts.items() if count > 1} == choosing
    assert len(counts) > 4 + 3 + 6  # Some that confirmed, besides.
