"""A world with two trained policies as separate jobs: each has a learner, and either may die."""

import os
import pathlib
import random
import re

import pytest

from actor_learner.jobs import states
from actor_learner.reporting import jsonl
from actor_learner.runs import further_policy
from tests.jobs import fault_run
from tests.launch import processes

GIN_FILE = pathlib.Path(__file__).with_name("two_policies.gin")
STEPS, LANES = 24_000, 4
LEARNER = "learner-others"


@pytest.fixture
def run(tmp_path):
    made = fault_run.Run(tmp_path, GIN_FILE, (), "--evaluators=1")
    yield made
    made.close()


def counts(run_dir):
    """Environment and train steps in the last line of metrics that is not an evaluation's."""
    rows = [row for row in jsonl.read_rows(run_dir.metrics_jsonl) if "eval_return" not in row]
    for column in ("environment_steps", "train_steps"):
        values = [row[column] for row in rows]
        assert values == sorted(values), column
    return rows[-1]["environment_steps"], rows[-1]["train_steps"]


@pytest.mark.timeout(900)
def test_each_policy_is_trained_by_a_job_of_its_own_whoever_dies(run):
    seed = int(os.environ.get("FAULT_SEED", random.randrange(2**32)))
    print("to repeat the moments: FAULT_SEED =", seed)
    chance = random.Random(seed)
    others = further_policy.directory_of(run.run_dir, "others")
    saved = others.tensorboard / "checkpoints"
    done = 1_000
    for kind in (LEARNER, "actor", "learner"):
        moment = done + chance.randrange(500, 2_000)
        run.wait(lambda m=moment: run.environment_steps() >= m, f"step {moment}")
        run.wait(lambda: run.checkpoints() and list(saved.glob("*.index")), "both have saved")
        kept = run.incarnations("learner", LEARNER, "actor")
        before, after = run.kill(kind)
        assert after.restarts == before.restarts + 1
        now = run.incarnations("learner", LEARNER, "actor")
        assert {job for job in kept if now[job] != kept[job]} == {(before.kind, before.index)}
        done = run.environment_steps()
    assert re.search(r"Restored \S+/agents/others/train/checkpoints/ckpt-\d+", run.log(LEARNER))

    run.process.wait(fault_run.DEADLINE)
    assert run.process.returncode == 0, run.text()
    for kind in ("learner", LEARNER, "evaluator"):
        assert run.status(kind).state == states.COMPLETED, run.log(kind)[-3_000:]
    steps, trained = counts(run.run_dir)
    assert STEPS <= steps <= STEPS + 2 * 2 * 2 * 64
    assert STEPS * 0.1 * 0.9 <= trained <= steps * 0.1
    # Each step of each agent counts once; in the one that a killed actor was just taking, the
    # others may have been counted already.
    other_steps, other_trained = counts(others)
    assert 0 <= other_steps - 2 * steps <= 2 * LANES
    assert other_steps * 0.05 * 0.9 <= other_trained <= other_steps * 0.05
    # Epochs of its own: it was started twice, as the other learner was.
    assert [(directory.path / "epoch").read_text() for directory in (run.run_dir, others)] == [
        "2\n",
        "2\n",
    ]
    status = run.status(LEARNER)
    assert (status.details["policy"], status.version) == ("others", other_trained)
    assert max(int(path.stem[5:]) for path in saved.glob("*.index")) == other_trained
    assert (others.policies / "greedy_policy" / "saved_model.pb").exists()
    # The final version of `main` was evaluated beside the other policy.
    assert run.status("evaluator").version == trained
    processes.wait_until_gone(processes.with_word(str(run.run_dir)))
