"""A run of on-policy jobs: old unrolls are dropped, a learner that is away is waited for.

One story, because starting the jobs is what takes the time.
"""

import subprocess
import sys
import time
import types

import pytest

from actor_learner import run_directory
from actor_learner.jobs import controller, states
from actor_learner.jobs.presence import rendezvous
from actor_learner.naming import connect
from actor_learner.replay.recording import experience_recorder
from actor_learner.reporting import jsonl
from tests.jobs import job_processes

pytestmark = pytest.mark.timeout(400)

# Without any lag allowed, of several unrolls that wait for the learner all but one are too old.
STEPS, MOST_LAG, QUEUE_SECONDS = 24_000, 0, 1.0
DEADLINE = 240.0
STATUS_SECONDS = 5.0  # So often a worker tells how far it is.
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    f"Staleness.max_version_lag = {MOST_LAG}",
    "Staleness.when_lagging = 'drop'",
    "Experiment.record = True",
    "Evaluation.target_return = None",
    "Evaluation.interval = 0",
    "Evaluation.episodes = 2",
    "Reporting.seconds = 0.1",
    "GymnasiumEnvironment.num_envs = 8",
    f"UnrollQueue.timeout_seconds = {QUEUE_SECONDS}",
    "impala.fc_layer_params = (8,)",
)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    directory = tmp_path_factory.mktemp("story")
    run_dir = run_directory.RunDirectory(directory / "mine")
    command = [sys.executable, "-m", "actor_learner.cli", "up", "--gin_file=impala_cartpole"]
    command += [f"--gin_param={binding}" for binding in BINDINGS]
    output = directory / "output"
    with open(output, "w") as file:
        process = subprocess.Popen(
            [*command, f"--run_dir={run_dir}", "--actors=2", "--evaluators=0", "--seed=1"],
            cwd=job_processes.ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    names = connect.connect(str(rendezvous.registry_in(run_dir)), who="test")
    watching = controller.Controller(names, "mine")

    def wait(condition, what):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert process.poll() is None, f"it ended before {what}:\n{output.read_text()}"
            assert time.monotonic() < deadline, f"waited in vain until {what}"
            time.sleep(0.05)

    def steps():
        return [status.steps for status in watching.workers("actor")]

    try:
        wait(lambda: run_dir.metrics_jsonl.exists(), "there are metrics")
        watching.wait_for(states.RUNNING, ["learner-0", "actor-0", "actor-1"], timeout=DEADLINE)
        before = {status.index: status for status in watching.workers("actor")}
        watching.send(states.PAUSE, kind="learner")
        # For longer than a queue may be full: actors go as far as they may, and wait.
        at_rest = None
        while at_rest != (at_rest := steps()):
            time.sleep(STATUS_SECONDS + QUEUE_SECONDS)
        watching.send(states.RESUME, kind="learner")
        code = process.wait(DEADLINE)
    finally:
        process.kill()
        process.wait(30)
    told = types.SimpleNamespace(
        code=code,
        said=output.read_text(),
        rows=jsonl.read_rows(run_dir.metrics_jsonl),
        before=before,
        after={status.index: status for status in watching.workers("actor")},
        run_dir=run_dir,
    )
    names.close()
    return told


def test_unrolls_that_are_too_old_are_dropped_and_training_completes(story):
    assert story.code == 0, story.said[-4_000:]
    lags = [row["version_lag"] for row in story.rows if "version_lag" in row]
    assert lags and max(lags) <= MOST_LAG
    last = story.rows[-1]
    assert last["environment_steps"] >= STEPS and last["dropped_items"] > 0
    # Every unroll of 16 steps of 8 lanes was either learned from, dropped, or left at the end.
    used = last["train_steps"] + last["dropped_items"]
    assert 0.9 * STEPS <= used * 16 * 8 <= 1.1 * last["environment_steps"]


def test_actors_wait_for_a_learner_that_is_away_instead_of_giving_up(story):
    assert story.before.keys() == story.after.keys() == {0, 1}
    for index, status in story.after.items():
        assert status.state == states.COMPLETED
        assert status.incarnation == story.before[index].incarnation


def test_every_actor_records_what_it_meets(story):
    time_step_spec, action_spec = experience_recorder.read_specs(story.run_dir.experience)
    assert time_step_spec.observation.shape == (4,) and action_spec.maximum == 1
    shards = story.run_dir.experience.glob("shard-*.npz")
    recorders = {path.name.rpartition("-")[0] for path in shards}
    assert len(recorders) == 2, sorted(recorders)
