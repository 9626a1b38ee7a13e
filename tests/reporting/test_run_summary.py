"""The last lines of a run as separate jobs are those of a run in one process."""

import json

from actor_learner import run_directory
from actor_learner.reporting import run_summary, summary

ROWS = (
    {"seconds": 30.0, "environment_steps": 1_000, "train_steps": 10, "best_return": 9.0},
    {"seconds": 61.0, "environment_steps": 2_000, "train_steps": 20, "best_return": 12.5},
    {"seconds": 62.0, "environment_steps": 2_100, "train_steps": 21},
)


def test_the_lines_are_those_of_the_last_rows_and_resume_as_jobs(tmp_path):
    run = run_directory.RunDirectory(tmp_path / "x")
    then = summary.NextSteps.commands(run.path, resume="up")
    assert run_summary.closing_lines(run, "completed", then) == []
    run.path.mkdir()
    run.metrics_jsonl.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    lines = run_summary.closing_lines(run, "completed", then)
    assert lines[0] == "Finished at 2,100 environment steps, 21 train steps, after 1:02"
    assert lines[1].startswith("Best return:  12.5")
    run.completion.write_text('{"status": "target reached", "reason": "mean return 12"}')
    first, *rest = run_summary.closing_lines(run, "completed", then)
    assert first == f"{lines[0].replace('Finished', 'Target reached')}: mean return 12"
    assert rest == lines[1:]
    assert run_summary.closing_lines(run, "failed", then)[0].startswith("Failed at")
    assert f"Resume:       actor-learner up --resume {run.path}" in lines
