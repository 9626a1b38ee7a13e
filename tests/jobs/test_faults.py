"""A run as separate jobs, with real processes: any of them may die, and training goes on.

One run, in which every kind of job is killed once at a random moment, because starting the jobs is
what takes the time.
"""

import ast
import os
import random
import re

import pytest

from actor_learner.jobs import states
from actor_learner.reporting import jsonl
from tests.jobs import fault_run
from tests.launch import processes

CHECKPOINT_INTERVAL = 500
STEPS = 48_000
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    "Evaluation.target_return = None",
    "Evaluation.interval = 2_000",
    "Evaluation.episodes = 5",
    "Checkpoints.replay_seconds = 1.0",
    f"Learner.checkpoint_interval = {CHECKPOINT_INTERVAL}",
)
# Not the experiment's target, which would end the run before everybody was killed.
TARGET_RETURN = 195.0


@pytest.fixture
def run(tmp_path):
    made = fault_run.Run(tmp_path, "dqn_cartpole", BINDINGS)
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_training_goes_on_whichever_job_is_killed(run):
    seed = int(os.environ.get("FAULT_SEED", random.randrange(2**32)))
    print("to repeat the moments: FAULT_SEED =", seed)
    chance = random.Random(seed)
    done = 1_000
    for kind in chance.sample(["actor", "evaluator", "learner", "replay"], 4):
        moment = done + chance.randrange(500, 2_000)
        run.wait(lambda m=moment: run.environment_steps() >= m, f"step {moment}")
        saved, others = {}, {}
        if kind == "learner":
            run.wait(lambda: run.checkpoints(), "the learner has saved")
        if kind == "replay":
            others = run.incarnations("learner", "actor")
            run.wait(run.saved_items, "the replay is saved")
            saved = run.saved_items()
        run.stop_and_continue(kind)
        before, after = run.kill(kind)
        assert after.restarts == before.restarts + 1
        if kind == "learner":
            (restored,) = re.findall(r"Restored \S+/ckpt-(\d+)", run.log("learner"))
            assert int(restored) == run.saved_at_kill[-1] > 0
            # Two, since it may have been killed while it saved, a few train steps after its time.
            assert before.steps - int(restored) < 2 * CHECKPOINT_INTERVAL
        if kind == "replay":
            restored = ast.literal_eval(
                re.findall(r"Restored (\{.+\}) items", run.log("replay"))[-1]
            )
            # A later checkpoint may have been the last. Experience is all there is in it.
            (table,) = saved
            assert restored[table] >= saved[table] > 0
            further = run.environment_steps() + 300
            run.wait(lambda m=further: run.environment_steps() >= m, "both sides have reconnected")
            assert run.incarnations("learner", "actor") == others
        done = moment

    run.process.wait(fault_run.DEADLINE)
    assert run.process.returncode == 0, run.text()
    rows = jsonl.read_rows(run.run_dir.metrics_jsonl)
    steps = [row["environment_steps"] for row in rows if "eval_return" not in row]
    # Whoever died, every step was counted once: actors are two turns of 256 ahead at most.
    assert steps == sorted(steps) and STEPS <= steps[-1] <= STEPS + 2 * 2 * 2 * 256
    trained = [row["train_steps"] for row in rows if "eval_return" not in row]
    assert trained == sorted(trained)
    # The final version was evaluated, and training has reached its target.
    final = run.status("evaluator")
    assert final.state == states.COMPLETED and final.version == trained[-1]
    assert max(row["eval_return"] for row in rows if "eval_return" in row) >= TARGET_RETURN
    assert (run.run_dir.best / "policy" / "saved_model.pb").exists()
    assert (run.run_dir.policies / "greedy_policy" / "saved_model.pb").exists()
    processes.wait_until_gone(processes.with_word(str(run.run_dir)))
