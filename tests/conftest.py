"""The order of the test files: long ones first, so that no worker is left with one at the end."""

# From the longest on, by `make test ARGS=--durations=40`.
LONGEST = (
    "learning/test_tf_agents_contract.py",
    "commands/test_full_disk.py",
    "jobs/test_on_policy_jobs.py",
    "jobs/test_faults.py",
    "runs/test_deterministic.py",
    "launch/test_ray.py",
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


def pytest_collection_modifyitems(config, items):
    tests = config.rootpath / "tests"

    def rank(item):
        name = item.path.relative_to(tests).as_posix()
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=rank)  # Stable: all else stays as it is.
