"""How often the learner stores its policy, and how many versions stay."""

import errno
import types

import gin
import numpy as np
import pytest
import tensorflow as tf

from actor_learner import config, run_directory
from actor_learner.parameters import store as store_lib
from actor_learner.runs import epoch, stored_versions
from actor_learner.support import errors, unsaved


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
    store = store_lib.ParameterStore(directory / "parameters")
    began = epoch.Epoch.begin(run_directory.RunDirectory(directory))
    return stored_versions.StoredVersions(store, model, began, clock=clock), model, store


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


def test_a_version_says_of_which_epoch_it_is_and_is_stored_once(tmp_path):
    epoch.Epoch.begin(run_directory.RunDirectory(tmp_path))  # Of an earlier learner.
    stored, model, store = made(tmp_path, Clock())
    model.train_step.assign(7)
    model.environment_step.assign(70)
    stored.push()
    (held,) = store.list("policy")
    assert held.version == 7
    assert held.metadata == {"environment_steps": 70, "epoch": 1}
    saved = store.get("policy").values["weight"]
    np.testing.assert_array_equal(saved, [1.0])
    pushes = []
    store.push = lambda *arguments, **named: pushes.append(arguments)
    stored.push()
    assert pushes == []


def test_a_superseded_learner_stores_nothing(tmp_path):
    stored, model, store = made(tmp_path, Clock())
    stored.push()
    epoch.Epoch.begin(run_directory.RunDirectory(tmp_path))
    model.train_step.assign(9)
    with pytest.raises(errors.SupersededError):
        stored.push()
    assert [held.version for held in store.list("policy")] == [0]


def test_on_a_full_disk_the_version_of_a_later_time_is_stored(tmp_path, monkeypatch):
    stored, model, store = made(tmp_path, Clock())

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with unsaved.scope() as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(store, "push", full)
            model.train_step.assign(3)
            stored.push()
        assert "the stored version of the policy" in ledger.summary()
        model.train_step.assign(5)
        assert ledger.settle()
    assert [held.version for held in store.list("policy")] == [5]
