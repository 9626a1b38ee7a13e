"""Jobs whose partners die at bad moments: nobody waits for what will never come."""

import contextlib
import signal
import time

import pytest

from actor_learner import run_directory
from actor_learner.jobs import states
from tests.jobs import job_processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

FLAGS = [
    "--gin_file=dqn_cartpole",
    *(
        f"--gin_param={binding}"
        for binding in (
            "Experiment.environment_steps = 1_000_000_000",
            "Experiment.initial_random_steps = 200",
            "Staleness.max_version_lag = 0",
            "Experiment.updates_per_step = 0.5",
            "Experiment.sample_timeout_seconds = 5.0",
            "dqn.fc_layer_params = (16,)",
            "Learner.checkpoint_interval = 100",
        )
    ),
]


def test_actors_and_learner_find_together_again_and_a_learner_without_a_server_saves(tmp_path):
    machine = job_processes.Machine(tmp_path / "machine")
    run_dir = run_directory.RunDirectory(machine.directory / "mine")
    flags = [*FLAGS, f"--run={run_dir}"]
    watch = job_processes.Watch(str(run_dir.path / "registry"), "mine")
    with contextlib.ExitStack() as closing:
        closing.callback(watch.names.close)

        def start(*command):
            process = machine.start(*command, *flags)
            closing.callback(process.kill)
            return process

        def environment_steps():
            status = watch.status("learner")
            running = status is not None and status.state == states.RUNNING
            return status.details.get("environment_steps", 0) if running else 0

        replay, learner, actor = start("replay"), start("learner"), start("actor")
        everybody = [replay, learner, actor]
        # Actors that must have the very latest policy get it, also when the learner has nothing to
        # do: neither waits for the other.
        watch.wait(lambda: environment_steps() >= 2_000, "both work", everybody)

        # The actor waits for the learner, which dies with all the reports it has had.
        watch.controller.send(states.PAUSE, kind="learner")
        before = watch.status("actor").steps
        while True:
            time.sleep(3.0)  # Several heartbeats, with the status of that moment.
            if before == (before := watch.status("actor").steps):
                break
        learner.kill()
        learner = start("learner")
        everybody[1] = learner
        watch.wait(lambda: environment_steps() >= before + 1_000, "they go on", everybody)

        # The replay server dies for good.
        replay.kill()
        watch.wait(lambda: "actor-0 of run mine waits: " in actor.said, "it is missed", [actor])
        actor.process.send_signal(signal.SIGTERM)
        # Sooner than a launcher loses its patience, with whatever it had under way.
        assert actor.process.wait(60) == 143, actor.said
        learner.process.send_signal(signal.SIGTERM)
        assert learner.exit_code() == 143, learner.said
        saved = [path.stem for path in (run_dir.tensorboard / "checkpoints").glob("*.index")]
        assert f"ckpt-{watch.status('learner').steps}" in saved
