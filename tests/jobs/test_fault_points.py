"""Whichever job dies or stops at whichever point, the run completes and each step counts once."""

import pytest

from actor_learner.support import fault_points
from tests.jobs import logged_run
from tests.launch import processes

pytestmark = pytest.mark.timeout(600)

STEPS = 3_000


@pytest.fixture
def run(tmp_path):
    made = logged_run.LoggedRun(tmp_path)
    yield made
    made.close()


def test_every_step_counts_once_though_a_process_dies_at_every_point(run, tmp_path):
    """One run, since starting processes is what takes the time."""
    markers = tmp_path / "markers"
    markers.mkdir()
    run.up(
        "--actors=1",
        "--evaluators=1",
        "--max_restarts=10",
        environment_steps=STEPS,
        **{fault_points.DIE_VARIABLE: f"{','.join(fault_points.POINTS)}@{markers}"},
    )
    assert run.require_exact_counts() >= STEPS
    assert sorted(path.name for path in markers.iterdir()) == sorted(fault_points.POINTS)
    processes.wait_until_gone(processes.with_word(str(run.run_dir)))
