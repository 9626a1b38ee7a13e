"""Runs with two replay servers as real processes: either may be killed, and training goes on."""

import os
import random
import signal

import pytest

from actor_learner.jobs import states
from actor_learner.reporting import jsonl
from tests.jobs import fault_run
from tests.launch import processes

STEPS = 24_000
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    "Evaluation.target_return = None",
    "Evaluation.interval = 0",
    "Checkpoints.replay_seconds = 1.0",
    "Experiment.sample_timeout_seconds = 200.0",  # A busy machine may need as long for a restart.
)


class Run(fault_run.Run):
    def __init__(self, directory, gin_file, bindings, *more):
        more = ("--replays=2", "--evaluators=0", *more)
        super().__init__(directory, gin_file, (*BINDINGS, *bindings), *more)

    def sizes(self):
        """Items of each server, as their statuses say."""
        found = [self.status("replay", index) for index in range(2)]
        return [int(s.message.split(" items")[0].replace(",", "")) if s else 0 for s in found]

    def kill_replay(self, index):
        """Kills one server, and waits until everybody goes on with its successor."""
        others = self.incarnations("learner", "actor")
        before = self.status("replay", index)
        os.kill(before.pid, signal.SIGKILL)
        self.wait(lambda: not processes.is_alive(before.pid), f"replay-{index} is gone")

        def is_back():
            now = self.status("replay", index)
            return now.incarnation != before.incarnation and now.state == states.RUNNING

        self.wait(is_back, f"replay-{index} is back")
        assert self.status("replay", index).restarts == before.restarts + 1
        further = self.environment_steps() + 1_000
        self.wait(lambda: self.environment_steps() >= further, "both sides go on")
        assert self.incarnations("learner", "actor") == others, "they have only waited"

    def end(self):
        """Waits for the end, and checks that every step was counted once; returns the rows."""
        self.process.wait(fault_run.DEADLINE)
        assert self.process.returncode == 0, self.text()
        rows = jsonl.read_rows(self.run_dir.metrics_jsonl)
        steps = [row["environment_steps"] for row in rows]
        assert steps == sorted(steps) and steps[-1] >= STEPS
        taken = [status.steps for status in self.controller.workers("actor")]
        assert len(taken) == 2 and sum(taken) == steps[-1]
        trained = [row["train_steps"] for row in rows]
        assert trained == sorted(trained) and trained[-1] == self.status("learner").steps
        processes.wait_until_gone(processes.with_word(str(self.run_dir)))
        return rows


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stream, updates", [("LaneReplay", 1.0), ("PrioritizedReplay", 0.25)])
def test_training_goes_on_whichever_replay_server_is_killed(tmp_path, stream, updates):
    seed = int(os.environ.get("FAULT_SEED", random.randrange(2**32)))
    print("to repeat the moments: FAULT_SEED =", seed)
    chance = random.Random(seed)
    bindings = (
        f"Experiment.replay = @{stream}()",
        f"Experiment.updates_per_step = {updates}",
    )
    run = Run(tmp_path, "dqn_cartpole", bindings)
    try:
        for index in chance.sample([0, 1], 2):
            moment = run.environment_steps() + chance.randrange(2_000, 4_000)
            run.wait(lambda m=moment: run.environment_steps() >= m, f"step {moment}")
            run.wait(lambda i=index: any(run.saved_items(str(i)).values()), "it has saved")
            run.kill_replay(index)
            assert "Restored " in run.log("replay", index)
        rows = run.end()
        # So many for each step but the first ones, and while a replay that was lost filled up.
        assert rows[-1]["train_steps"] > 0.7 * updates * STEPS
        assert min(run.sizes()) > 0.25 * sum(run.sizes())  # Both were written to alike.
    finally:
        run.close()


@pytest.mark.timeout(900)
def test_unrolls_pass_through_two_servers_of_which_one_is_killed(tmp_path):
    bindings = (
        "GymnasiumEnvironment.num_envs = 8",
        "impala.fc_layer_params = (8,)",
        "Reporting.seconds = 0.1",
    )
    run = Run(tmp_path, "impala_cartpole", bindings)
    try:
        moment = random.randrange(1_000, 6_000)
        run.wait(lambda: run.environment_steps() >= moment, f"step {moment}")
        run.kill_replay(random.randrange(2))
        last = run.end()[-1]
        # Every unroll of 16 steps of 8 lanes was learned from once, but those that were on the
        # killed server or under way at the end. Rows between episodes do not count as steps.
        used = last["train_steps"] * 16 * 8
        assert 0.9 * STEPS <= used <= 1.1 * last["environment_steps"]
    finally:
        run.close()
