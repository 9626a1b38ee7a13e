"""Training that is complete stays so, unless more is asked for."""

import json
import types

import pytest

from actor_learner.jobs.workers import run_files


def made(directory, environment_steps=100, target_return=475.0):
    settings = types.SimpleNamespace(
        environment_steps=environment_steps,
        evaluation=types.SimpleNamespace(target_return=target_return),
    )
    return run_files.DoneMarker(directory, settings)


def test_a_learner_that_is_started_again_finds_that_training_is_complete(tmp_path):
    assert made(tmp_path).of(70) is None
    made(tmp_path).note(70, "mean return 480")
    assert made(tmp_path).of(70) == "mean return 480"


def test_what_made_the_run_a_failure_is_found_again(tmp_path):
    made(tmp_path).note(70, "all steps are taken")
    assert made(tmp_path).failure_of(70) is None
    made(tmp_path).note(70, "all steps are taken", failure="it cannot be evaluated")
    assert made(tmp_path).of(70) == "all steps are taken"
    assert made(tmp_path).failure_of(70) == "it cannot be evaluated"
    assert made(tmp_path).failure_of(71) is None


@pytest.mark.parametrize("more", [{"environment_steps": 200}, {"target_return": None}])
def test_with_other_settings_training_is_not_complete(tmp_path, more):
    made(tmp_path).note(70, "mean return 480")
    assert made(tmp_path, **more).of(70) is None


def test_a_learner_that_restored_an_earlier_checkpoint_goes_on(tmp_path):
    made(tmp_path).note(70, "mean return 480")
    assert made(tmp_path).of(60) is None


def test_how_training_ended_stays_when_a_learner_notes_it_again(tmp_path):
    marker = made(tmp_path)
    marker.note(70, "mean return 480", status="target reached")
    marker.note(70, "mean return 480", failure="it cannot be evaluated")
    noted = json.loads((tmp_path / "complete.json").read_text())
    assert (noted["status"], noted["failure"]) == ("target reached", "it cannot be evaluated")
    marker.note(80, "all steps are taken")
    assert json.loads((tmp_path / "complete.json").read_text())["status"] == "completed"
