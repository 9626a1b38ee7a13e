"""Jobs without which a run goes on, with processes that end as the test says."""

import io

import pytest

from actor_learner import run_directory
from actor_learner.launch import job_spec, restarts, run_jobs

ONCE = restarts.RestartPolicy(max_restarts=1, first_delay=0.0)


class Process:
    """Ends with `code` when `ends()`; None is never, and then it ends only when asked to."""

    incarnation, note = "now", ""

    def __init__(self, code, ends):
        self._code, self._ends = code, ends
        self._asked = False

    def poll(self):
        if self._code is not None and self._ends():
            return self._code
        return 143 if self._asked else None

    def terminate(self):
        self._asked = True

    kill = terminate


class Launcher:
    """Starts processes that fail at once, a learner that completes when all failures are final."""

    def __init__(self, codes, starts_needed):
        self._codes, self._starts_needed = codes, starts_needed
        self.started = []

    def launch(self, spec, restarts, log):
        self.started.append(spec.name)
        code = self._codes.get(spec.name)
        if code == 0:
            return Process(0, lambda: len(self.started) >= self._starts_needed)
        return Process(code, lambda: True)


def run(tmp_path, *tolerated, starts_needed, **codes):
    """Runs a learner, two actors and an evaluator; returns exit code, words and starts."""
    names = ["replay-0", "learner-0", "actor-0", "actor-1", "evaluator-0"]
    specs = [
        job_spec.JobSpec(kind, int(index), ["job"], ONCE, tolerated=kind in tolerated)
        for kind, _, index in (name.partition("-") for name in names)
    ]
    codes = {name.replace("_", "-"): code for name, code in codes.items()}
    launcher = Launcher({"evaluator-0": 0, "learner-0": 0, **codes}, starts_needed)
    terminal = io.StringIO()
    code = run_jobs.run_jobs(
        specs,
        launcher,
        run="run",
        run_dir=run_directory.RunDirectory(tmp_path / "run"),
        registry=str(tmp_path / "registry"),
        terminal=terminal,
        final_seconds=60.0,
    )
    return code, terminal.getvalue(), launcher.started


def test_a_run_goes_on_without_what_is_tolerated_and_says_so_in_the_end(tmp_path):
    # Five jobs, and one restart of each that fails.
    code, said, started = run(
        tmp_path, "actor", "evaluator", starts_needed=7, actor_1=1, evaluator_0=9
    )
    assert code == run_jobs.LACKING == 4, said
    assert started.count("actor-1") == started.count("evaluator-0") == 2
    assert "training is complete" in said
    assert "actor-1 failed for good: exit code 1" in said
    assert "evaluator-0 failed for good: exit code 9" in said
    assert said.splitlines()[-1] == f"completed without actor-1, evaluator-0: {tmp_path / 'run'}"


@pytest.mark.parametrize("code, last", [(1, "{}"), (2, "the configuration is wrong")])
def test_a_run_without_any_actor_left_has_failed(tmp_path, code, last):
    found, said, _ = run(tmp_path, "actor", starts_needed=100, actor_0=code, actor_1=code)
    assert found == code, said
    assert "actor-0 failed for good" in said and "actor-1 failed for good" in said
    assert said.splitlines()[-1] == f"failed: {last.format(tmp_path / 'run')}"


def test_a_failure_that_is_not_tolerated_ends_the_run(tmp_path):
    # That of the evaluator is, and its wrong configuration not what the run has failed of.
    code, said, _ = run(tmp_path, "evaluator", starts_needed=100, actor_1=1, evaluator_0=2)
    assert code == 1, said
    assert said.splitlines()[-1] == f"failed: {tmp_path / 'run'}"
