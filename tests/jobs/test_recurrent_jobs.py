"""A run of recurrent jobs, whose actors explore each in their own way."""

from actor_learner.reporting import jsonl
from tests import forked

STEPS = 2_000
BINDINGS = (
    f"Experiment.environment_steps = {STEPS}",
    "Experiment.learn_from = 200",
    "Experiment.initial_random_steps = 0",
    "Experiment.updates_per_step = 0.01",
    "Experiment.batch_size = 4",
    "SequenceReplay.capacity = 500",
    "Evaluation.interval = 0",
    "Evaluation.target_return = None",
    "Evaluation.episodes = 2",
    "GymnasiumEnvironment.num_envs = 4",
)


def test_r2d2_trains_as_jobs_with_two_actors(tmp_path):
    run = tmp_path / "run"
    ended = forked.run(
        "actor_learner.cli",
        *("up", "--gin_file=r2d2_memory", "--actors=2", "--evaluators=0", "--seed=1"),
        *(f"--gin_param={binding}" for binding in BINDINGS),
        f"--run_dir={run}",
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    last = jsonl.read_rows(run / "metrics.jsonl")[-1]
    assert last["environment_steps"] >= STEPS
    assert last["train_steps"] > 0
