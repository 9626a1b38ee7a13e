import pytest

from actor_learner.reporting import summary
from actor_learner.support import errors

BEST = {
    "best_return": 487.25,
    "best_return_std": 12.14,
    "best_episodes": 20,
    "best_environment_steps": 24_000,
}


def lines(**changes):
    arguments = {
        "run_dir": "runs/dqn",
        "best": BEST,
        "environment_steps": 60_000,
        "train_steps": 30_000,
        "seconds": 72.0,
        "status": "completed",
        "reason": None,
    }
    return summary.closing_lines(**{**arguments, **changes})


def test_a_completed_run_ends_with_its_best_return_and_the_next_commands():
    assert lines() == [
        "Finished at 60,000 environment steps, 30,000 train steps, after 1:12",
        "Best return:  487.2 ± 12.1 over 20 episodes, at environment step 24,000",
        "Best policy:  runs/dqn/best",
        "Evaluate:     actor-learner eval runs/dqn",
        "Resume:       actor-learner train --resume runs/dqn",
        "View:         tensorboard --logdir runs/dqn",
    ]


def test_a_reached_target_is_said_with_its_reason():
    assert lines(status="target reached", reason="487.2 ≥ 475")[0] == (
        "Target reached at 60,000 environment steps, 30,000 train steps, after 1:12: 487.2 ≥ 475"
    )


def test_an_interrupted_run_says_first_how_to_resume():
    assert lines(status="interrupted", reason="Ctrl-C", best=None) == [
        "Stopped at 60,000 environment steps, 30,000 train steps, after 1:12: Ctrl-C",
        "Resume with:  actor-learner train --resume runs/dqn",
        "Best return:  none, no evaluation has rated a policy",
        "Policies:     runs/dqn/policies",
        "Evaluate:     actor-learner eval runs/dqn",
        "View:         tensorboard --logdir runs/dqn",
    ]


def test_a_failed_run_without_evaluation_promises_no_policy():
    assert lines(
        status="failed",
        reason="trigger Pager raised",
        best=None,
        log_path="runs/dqn/log",
        has_policies=False,
    ) == [
        "Failed at 60,000 environment steps, 30,000 train steps, after 1:12: trigger Pager raised",
        "Log:          runs/dqn/log",
        "Best return:  none, no evaluation has rated a policy",
        "Resume:       actor-learner train --resume runs/dqn",
        "View:         tensorboard --logdir runs/dqn",
    ]


def test_paths_with_spaces_are_quoted_in_commands():
    shown = lines(run_dir="my runs/it's")
    quoted = "'my runs/it'\"'\"'s'"
    assert shown[2] == "Best policy:  my runs/it's/best"
    assert shown[3:] == [
        f"Evaluate:     actor-learner eval {quoted}",
        f"Resume:       actor-learner train --resume {quoted}",
        f"View:         tensorboard --logdir {quoted}",
    ]


def test_one_episode_without_spread_reads_well():
    shown = lines(best={"best_return": 0.5, "best_episodes": 1})
    assert shown[1] == "Best return:  0.50 over 1 episode"


def test_an_unknown_status_is_refused():
    with pytest.raises(errors.ActorLearnerError, match="status 'done' of run 'runs/dqn'"):
        lines(status="done")


def test_programs_outside_the_shells_path_are_shown_with_their_directory():
    shown = lines(next_steps=summary.NextSteps.commands("runs/dqn", ".venv/bin/"))
    assert shown[3] == "Evaluate:     .venv/bin/actor-learner eval runs/dqn"
    assert shown[5] == "View:         .venv/bin/tensorboard --logdir runs/dqn"


def test_a_run_ended_by_a_users_trigger_says_so():
    assert lines(status="stopped", reason="budget spent")[0].startswith("Stopped by a trigger at")
