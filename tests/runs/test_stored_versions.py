"""How often the learner stores its policy, and how many versions stay."""

import types

import gin
import pytest
import tensorflow as tf

from actor_learner import config
from actor_learner.parameters import store as store_lib
from actor_learner.runs import stored_versions
from actor_learner.support import errors


@pytest.fixture(autouse=True)
def no_bindings():
    gin.clear_config()
    yield
    gin.clear_config()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def made(directory, clock):
    policy = types.SimpleNamespace(variables=lambda: [tf.Variable([1.0], name="weight")])
    model = types.SimpleNamespace(
        agent=types.SimpleNamespace(policy=policy),
        train_step=tf.Variable(0, dtype=tf.int64),
        environment_step=tf.Variable(0, dtype=tf.int64),
    )
    store = store_lib.ParameterStore(directory)
    return stored_versions.StoredVersions(store, model, clock=clock), model, store


def run(directory, seconds):
    """Trains a step every second, and looks each time; returns the versions that are stored."""
    clock = Clock()
    stored, model, store = made(directory, clock)
    for _ in range(seconds):
        clock.now += 1.0
        model.train_step.assign_add(1)
        stored.push_if_due()
    return [held.version for held in store.list("policy")]


def test_by_default_one_per_minute_is_stored_and_five_are_kept(tmp_path):
    assert sorted(run(tmp_path, 430)) == [180, 240, 300, 360, 420]


def test_interval_and_number_are_bindings_that_every_command_knows(tmp_path):
    source = config.ConfigSource(
        ("dqn_cartpole",), ("stored_versions.interval_seconds = 10", "stored_versions.kept = 2")
    )
    config.check(source)
    config.load(source)
    assert sorted(run(tmp_path, 45)) == [30, 40]


@pytest.mark.parametrize(
    "bound, words",
    [
        ({"interval_seconds": -1.0}, "interval_seconds must be at least 0"),
        ({"interval_seconds": float("nan")}, "interval_seconds must be at least 0"),
        ({"kept": 0}, "kept must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(bound, words):
    with pytest.raises(errors.ConfigError, match=words):
        stored_versions.stored_versions(**bound)
