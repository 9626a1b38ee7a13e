"""Runs with two learners as real processes: either may be killed, and training goes on."""

import os
import re
import signal

import pytest

from actor_learner.jobs import states
from actor_learner.reporting import jsonl
from tests.jobs import fault_run
from tests.launch import processes

STEPS = 12_000
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    "Evaluation.target_return = None",
    "Evaluation.interval = 0",
    "Evaluation.episodes = 5",
    "Checkpoints.replay_seconds = 1.0",
    "Jobs.part_seconds = 5.0",
    "Learner.checkpoint_interval = 100",
)


# Unrolls of 4 lanes, of which each learner takes one item for a train step.
LANES, LENGTH = 4, 8
ON_POLICY = (
    f"GymnasiumEnvironment.num_envs = {LANES}",
    f"UnrollQueue.unroll_length = {LENGTH}",
    f"UnrollQueue.unrolls_per_batch = {2 * LANES}",
    "UnrollQueue.prefetch = 4",  # No learner takes anything in advance.
    "Reporting.seconds = 0.1",
    "Learner.checkpoint_interval = 50",
    "Experiment.environment_steps = 24_000",
)
MOST_LAG = 1
SMALL = {
    "impala_cartpole": (
        "impala.fc_layer_params = (8,)",
        "impala.normalize_observations = True",
        f"Staleness.max_version_lag = {MOST_LAG}",
        "Staleness.when_lagging = 'drop'",
    ),
    "ppo_cartpole": (
        "ppo.fc_layer_params = (8,)",
        "ppo.minibatch_size = 16",
        "ppo.epochs = 2",
        "ppo.normalize_observations = True",
        "ppo.normalize_rewards = True",
    ),
}


class Run(fault_run.Run):
    def learner(self, index):
        return self.status("learner", index)

    def is_shared(self):
        """Whether both learners train together."""
        chief = self.learner(0)
        return chief is not None and chief.details.get("learners") == 2

    def kill_learner(self, index):
        """Kills one learner and waits until its successor trains with the other."""
        before = self.learner(index)
        os.kill(before.pid, signal.SIGKILL)
        self.wait(lambda: not processes.is_alive(before.pid), f"learner-{index} is gone")
        self.saved_at_kill = self.saved_steps()  # Its successor needs seconds to start.
        if index:
            further = self.learner(0).steps + 100
            self.wait(lambda: self.learner(0).steps >= further, "there is life without it")
            # A process needs longer to start than the rest of the training would take.
            self.controller.send(states.PAUSE, kind="learner", index=0)

        def is_back():
            now = self.learner(index)
            return now.incarnation != before.incarnation and now.state == states.RUNNING

        self.wait(is_back, f"learner-{index} is back")
        if index:
            self.controller.send(states.RESUME, kind="learner", index=0)
        self.wait(self.is_shared, "both train together again")
        return before, self.learner(index)


@pytest.mark.timeout(900)
def test_training_goes_on_whichever_learner_is_killed(tmp_path):
    run = Run(
        tmp_path,
        "dqn_cartpole",
        BINDINGS,
        "--learners=2",
        "--evaluators=0",
        actors=1,
    )
    try:
        run.wait(run.is_shared, "both learners train together")
        run.wait(run.checkpoints, "the chief has saved")
        chief = run.learner(0).incarnation
        before, after = run.kill_learner(1)
        assert after.restarts == before.restarts + 1
        assert run.learner(0).incarnation == chief, "the chief goes on when another dies"
        member = run.learner(1)
        before, after = run.kill_learner(0)
        assert after.restarts == before.restarts + 1
        assert run.learner(1).incarnation == member.incarnation, "it joins the next chief"
        (restored,) = re.findall(r"Restored \S+/ckpt-(\d+)", run.log("learner"))
        # Not `before.steps`: the learner may have saved between its status and its end.
        assert int(restored) == run.saved_at_kill[-1] > 0

        run.process.wait(fault_run.DEADLINE)
        assert run.process.returncode == 0, run.text()
        rows = jsonl.read_rows(run.run_dir.metrics_jsonl)
        steps = [row["environment_steps"] for row in rows]
        assert steps == sorted(steps) and STEPS <= steps[-1] <= STEPS + 2 * 2 * 256
        trained = [row["train_steps"] for row in rows]
        assert trained == sorted(trained)
        # One checkpoint, the chief's, with as many train steps as it has counted.
        assert run.saved_steps()[-1] == trained[-1]
        assert not list(run.run_dir.path.glob("jobs/learner-1/**/ckpt-*"))
        processes.wait_until_gone(processes.with_word(str(run.run_dir)))
    finally:
        run.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("gin_file", SMALL)
def test_learners_share_unrolls_and_either_may_be_killed(tmp_path, gin_file):
    run = Run(
        tmp_path,
        gin_file,
        (*BINDINGS, *ON_POLICY, *SMALL[gin_file]),
        "--learners=2",
        "--evaluators=0",
        actors=2,
    )
    try:
        run.wait(run.is_shared, "both learners train together")
        run.wait(run.checkpoints, "the chief has saved")
        run.kill_learner(1)
        member = run.learner(1)
        # What a learner takes out for one train step, whenever it was left out of one.
        lost, log = run.learner(0).details["lost_items"], run.log("learner")
        assert lost <= log.count("training continues without it")
        assert "has sent a part of" not in log, "all add up the same, in the same order"
        run.kill_learner(0)
        assert run.learner(1).incarnation == member.incarnation, "it joins the next chief"

        run.process.wait(fault_run.DEADLINE)
        assert run.process.returncode == 0, run.text()
        rows = jsonl.read_rows(run.run_dir.metrics_jsonl)
        steps = [row["environment_steps"] for row in rows]
        assert steps == sorted(steps) and steps[-1] >= 24_000
        trained = [row["train_steps"] for row in rows]
        assert trained == sorted(trained)
        assert run.saved_steps()[-1] == trained[-1]
        if gin_file == "impala_cartpole":
            lags = [row["version_lag"] for row in rows if "version_lag" in row]
            assert lags and max(lags) <= MOST_LAG
        else:  # Where unrolls are dropped, others are collected in their place, also at the end.
            # Actors are two turns ahead at most, each of a whole batch.
            assert steps[-1] <= 24_000 + 2 * 2 * (2 * LANES * LENGTH)
        processes.wait_until_gone(processes.with_word(str(run.run_dir)))
    finally:
        run.close()
