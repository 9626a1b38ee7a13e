"""The order of the test files, long ones first, and what keeps long sessions from slowing down."""

import gc

import pytest

# From the longest on, by `make test ARGS=--durations=40`.
LONGEST = (
    "jobs/test_league_faults.py",
    "jobs/test_elastic_run.py",
    "launch/test_ray.py",
    "jobs/test_faults.py",
    "jobs/test_several_replays.py",
    "jobs/test_several_learners.py",
    "jobs/test_fault_points.py",
    "learning/test_tf_agents_contract.py",
    "commands/test_full_disk.py",
    "jobs/test_on_policy_jobs.py",
    "jobs/test_two_learners.py",
    "runs/test_deterministic.py",
    "commands/test_up_run.py",
    "test_benchmarks.py",
    "jobs/test_jobs.py",
    "runs/test_leaves.py",
    "runs/test_not_finite_table.py",
    "learning/test_not_finite_agents.py",
    "runs/test_eager_tensors.py",
    "test_distributed_script.py",
    "runs/test_one_process.py",
    "test_examples.py",
    "commands/test_train.py",
    "test_benchmark_memory.py",
    "jobs/exchange/test_outages.py",
    "replay/test_tf_agents_contract.py",
    "jobs/test_main.py",
    "jobs/workers/test_replay_job.py",
)

# Tests of real processes have a second try on a busy machine, and the summary names those that
# needed it: look at them, since a race of ours looks the same.
REAL_PROCESSES = ("jobs", "launch", "naming")


def pytest_collection_modifyitems(config, items):
    tests = config.rootpath / "tests"

    def rank(item):
        name = item.path.relative_to(tests).as_posix()
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=rank)  # Stable: all else stays as it is.
    for item in items:
        if item.path.relative_to(tests).parts[0] in REAL_PROCESSES:
            item.add_marker(pytest.mark.flaky(reruns=1))


_freezing = {"module": None}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Takes what outlives a file of tests, TensorFlow's graphs above all, out of Python's sight.

    Else each full collection looks at all that was ever traced: a second, late in a session.
    """
    if item.module is not _freezing["module"]:
        _freezing["module"] = item.module
        gc.collect()
        gc.freeze()
