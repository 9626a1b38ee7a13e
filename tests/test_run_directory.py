"""A run directory is removed again only by the process that made it, and only while unused."""

import os
import pathlib

import pytest

from actor_learner import run_directory
from actor_learner.support import errors


def refuse(run):
    """What a command does that finds a mistake once it has the lock."""
    with pytest.raises(errors.ConfigError, match="a mistake"):
        with run.locked(), run.discarded_if_refused():
            raise errors.ConfigError("a mistake")


def test_a_refused_run_leaves_nothing_that_was_not_there(tmp_path):
    refuse(run_directory.RunDirectory.create(tmp_path / "a" / "b" / "run", "x"))
    assert list(tmp_path.iterdir()) == []


def test_parents_that_others_use_stay(tmp_path):
    run = run_directory.RunDirectory.create(tmp_path / "a" / "run", "x")
    (tmp_path / "a" / "other").mkdir()
    refuse(run)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


def test_a_directory_that_another_process_makes_at_the_same_time_stays(tmp_path, monkeypatch):
    place, mkdir = tmp_path / "run", pathlib.Path.mkdir

    def beaten(path, *arguments, **settings):
        if path == place:
            os.mkdir(path)
        mkdir(path, *arguments, **settings)

    monkeypatch.setattr(pathlib.Path, "mkdir", beaten)
    run = run_directory.RunDirectory.create(place, "x")
    monkeypatch.undo()
    refuse(run)
    assert place.is_dir()


def test_one_with_checkpoints_stays(tmp_path):
    run = run_directory.RunDirectory.create(tmp_path / "run", "x")
    checkpoints = run.tensorboard / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "ckpt-1.index").touch()
    refuse(run)
    assert run.has_checkpoints


def test_one_that_another_process_trains_in_stays(tmp_path):
    run = run_directory.RunDirectory.create(tmp_path / "run", "x")
    with run_directory.RunDirectory(tmp_path / "run").locked():
        with pytest.raises(errors.ConfigError, match="is being trained by process"):
            with run.locked(), run.discarded_if_refused():
                raise AssertionError("it has the lock")
    assert run.path.is_dir()


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(errors.ConfigError, match="cannot be written to"):
        run_directory.RunDirectory.create(tmp_path / "run", "x")
