"""A learner that is started again after the end, and what its loggers know."""

import uuid

import pytest

from actor_learner import experiment as experiment_lib
from actor_learner import run_directory
from actor_learner.jobs.workers import learner, learner_ending, replay, run_files
from actor_learner.reporting import metric_files
from tests.jobs import jobs_in_process

BINDINGS = ("GymnasiumEnvironment.num_envs = 2", "dqn.fc_layer_params = (4,)")


@pytest.fixture
def run(tmp_path):
    made = run_directory.RunDirectory(tmp_path / jobs_in_process.RUN)
    made.path.mkdir()
    return made


def test_a_learner_restarted_after_the_end_gives_actors_time_to_find_it(run, monkeypatch):
    told = []
    opening = metric_files.open_metric_files

    def noting(run_dir, environment_step, *more):
        told.append(metric_files._context(run_dir, environment_step))
        return opening(run_dir, environment_step, *more)

    monkeypatch.setattr(metric_files, "open_metric_files", noting)
    space, started = uuid.uuid4().hex, []
    with jobs_in_process.configured("dqn_cartpole", *BINDINGS):
        run_files.DoneMarker(run.path, experiment_lib.Experiment()).note(0, "it was enough")
        try:
            for worker, kind in ((replay.ReplayJob(), "replay"), (learner.LearnerJob(), "learner")):
                started.append(jobs_in_process.configure(worker, kind, space, run_dir=run))
            trained = started[-1]
            # Loggers get the settings and description of a run of jobs as well.
            assert told[0].settings["dqn.fc_layer_params"] == "(4,)"
            assert told[0].description["name"] == jobs_in_process.RUN
            assert not trained.poll().done
            trained._ending._reports._began -= learner_ending._REJOIN_SECONDS
            assert trained.poll().done
        finally:
            for worker in reversed(started):
                worker.close()
                jobs_in_process.end(worker.job)
