"""Every agent that meets NaN and infinity, in one process and as jobs: it stops and goes on.

The whole table takes long: `make slow ARGS=tests/runs/test_not_finite_table.py`.
"""

import pathlib
import subprocess
import sys

import pytest

from tests.runs import faults

SECONDS = 600.0
ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(SECONDS + 60.0)

# Each agent once, each fault at least once.
SOME = {
    "dqn": "reward nan",
    "c51": "observation nan",
    "sac": "weights nan",
    "td3": "observation inf",
    "ddpg": "reward inf",
    "ppo": "reward inf",
    "impala": "observation nan",
    "r2d2": "reward nan",
    "bc": "observation inf",
    "cql_sac": f"loss {faults.HUGE}",
}
SOME_AS_JOBS = {"dqn": "reward inf", "ppo": "observation nan", "sac": "weights inf"}


def _fault(name):
    (fault,) = (fault for fault in faults.FAULTS if str(fault) == name)
    return (fault,)


@pytest.mark.parametrize("agent, fault", SOME.items())
def test_a_run_stops_and_goes_on_from_a_good_state(tmp_path, agent, fault):
    faults.endure(faults.OneProcessRun(tmp_path, agent), agent, _fault(fault))


@pytest.mark.parametrize("agent, fault", SOME_AS_JOBS.items())
def test_a_learner_job_stops_and_goes_on_from_a_good_state(tmp_path, agent, fault):
    faults.endure(faults.JobsRun(tmp_path, agent), agent, _fault(fault))


@pytest.mark.slow
@pytest.mark.parametrize("runner", faults.RUNNERS)
@pytest.mark.parametrize("agent", faults.AGENTS)
def test_every_agent_endures_every_fault(tmp_path, agent, runner):
    # In a process of its own: jobs leave threads behind, which end with their process.
    command = [sys.executable, "-m", "tests.runs.faults", agent, runner, str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        timeout=SECONDS,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout[-6_000:]
