"""Every line of metrics, with its evaluations and the parts of its losses, reaches loggers."""

import functools
import glob

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import actor_learner
from actor_learner.runs import python_run
from actor_learner.support import errors

CARTPOLE = functools.partial(actor_learner.GymnasiumEnvironment, "CartPole-v1", num_envs=4)
PENDULUM = functools.partial(actor_learner.GymnasiumEnvironment, "Pendulum-v1", num_envs=4)


class Rows:
    """Keeps what it is given."""

    def __init__(self):
        self.context, self.rows, self.closed = None, [], 0

    def open(self, context):
        self.context = context

    def write(self, row):
        assert not self.closed
        self.rows.append(dict(row))

    def close(self):
        self.closed += 1


class Dark(gymnasium.Wrapper):
    """Draws nothing."""

    def render(self):
        return None


def train(directory, environment, agent, *loggers, **changes):
    settings = dict(
        environment_steps=640,
        evaluation=actor_learner.Evaluation(interval=320, episodes=2),
        reporting=actor_learner.Reporting(loggers=loggers, steps=64),
    )
    return python_run.train(
        actor_learner.Experiment(environment, agent, **{**settings, **changes}), directory, seed=1
    )


def tags_of(directory):
    found = {}
    for path in glob.glob(f"{directory}/train/events.out.tfevents.*"):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append(event.step)
    return found


def test_a_bound_logger_gets_every_row_of_ppo_and_its_context(tmp_path):
    rows = Rows()
    agent = functools.partial(actor_learner.ppo, fc_layer_params=(8,))
    replay = actor_learner.UnrollQueue(unroll_length=16)
    result = train(tmp_path / "x", CARTPOLE, agent, rows, replay=replay)
    assert rows.rows == result.rows and rows.closed == 1
    assert rows.context.run_dir == tmp_path / "x" and rows.context.environment_steps == 0
    assert rows.context.description["seed"] == 1
    assert any(name.startswith("Learner.") for name in rows.context.settings)
    last = rows.rows[-1]
    for name in ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "gradient_norm"):
        assert np.isfinite(last[name]), name
    assert last["explained_variance"] <= 1.0 and last["gradient_norm"] > 0.0
    assert sum("eval_return" in row for row in rows.rows) >= 2
    # On the grid: there is a row behind each multiple of 64.
    assert {row["environment_steps"] // 64 for row in rows.rows} >= set(range(1, 10))

    tags = tags_of(tmp_path / "x")
    for tag in ("losses/policy_loss", "gauges/kl", "eval/return", "charts/train_steps"):
        assert tag in tags, sorted(tags)
    assert not [tag for tag in tags if tag.startswith(("Losses/", "Metrics/"))]
    for tag, steps in tags.items():  # One axis: environment steps.
        assert set(steps) <= {row["environment_steps"] for row in rows.rows}, tag


def test_sac_reports_alpha_its_targets_and_both_losses(tmp_path):
    agent = functools.partial(
        actor_learner.sac, actor_fc_layer_params=(8,), critic_fc_layer_params=(8,)
    )
    result = train(tmp_path / "x", PENDULUM, agent, initial_random_steps=100, updates_per_step=0.1)
    last = result.rows[-1]
    assert last["alpha"] > 0.0
    for name in ("actor_loss", "critic_loss", "alpha_loss", "value_target"):
        assert np.isfinite(last[name]), name
    for name in ("q_value", "td_error", "entropy", "actor_gradient_norm", "critic_gradient_norm"):
        assert np.isfinite(last[name]), name
    assert "gauges/critic_gradient_norm" in tags_of(tmp_path / "x")


def test_weights_and_biases_takes_the_rows_offline(tmp_path):
    logger = actor_learner.WandbLogger(project="tests", mode="offline")
    agent = functools.partial(actor_learner.dqn, fc_layer_params=(8,))
    train(tmp_path / "x", CARTPOLE, agent, logger, initial_random_steps=64, updates_per_step=0.1)
    (kept,) = glob.glob(f"{tmp_path}/x/wandb/offline-run-*/*.wandb")
    content = open(kept, "rb").read()
    assert b"eval_return" in content and b"value_target" in content


@pytest.mark.parametrize(
    "given, message",
    [
        (Rows, r"Reporting.loggers has Rows, which is not a logger.*write @Rows\(\)"),
        ("wandb", "Reporting.loggers has 'wandb', which is not a logger"),
    ],
)
def test_what_is_not_a_logger_is_refused(given, message):
    with pytest.raises(errors.ConfigError, match=message):
        actor_learner.Reporting(loggers=[given])


def test_a_wrong_mode_is_refused():
    with pytest.raises(errors.ConfigError, match="WandbLogger.mode is 'off'"):
        actor_learner.WandbLogger(mode="off")


def test_histograms_and_films_of_evaluations_are_written_where_they_are_asked_for(tmp_path):
    agent = functools.partial(actor_learner.dqn, fc_layer_params=(8,))
    reporting = actor_learner.Reporting(steps=64, histograms=True, videos=True)
    train(tmp_path / "x", CARTPOLE, agent, reporting=reporting, initial_random_steps=64)
    films = sorted((tmp_path / "x" / "videos").glob("step-*.mp4"))
    assert films and all(film.stat().st_size > 0 for film in films)
    pictures, weights = [], set()
    for path in glob.glob(f"{tmp_path}/x/train/events*"):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                if value.tag == "eval/episode":
                    pictures.append((event.step, value.image.encoded_image_string[:6]))
                weights |= {value.tag} if value.tag.startswith("weights/") else set()
    assert {f"step-{step}.mp4" for step, _ in pictures} == {film.name for film in films}
    assert {content for _, content in pictures} == {b"GIF89a"}
    assert len(weights) >= 4


def test_an_environment_that_draws_nothing_refuses_to_be_filmed(tmp_path):
    environment = functools.partial(
        actor_learner.GymnasiumEnvironment,
        "CartPole-v1",
        wrappers=[Dark],
        num_envs=2,
    )
    with pytest.raises(errors.ConfigError, match="Reporting.videos is set, but"):
        train(
            tmp_path / "x",
            environment,
            functools.partial(actor_learner.dqn, fc_layer_params=(8,)),
            reporting=actor_learner.Reporting(videos=True),
            initial_random_steps=64,
        )
    assert not (tmp_path / "x").exists()
