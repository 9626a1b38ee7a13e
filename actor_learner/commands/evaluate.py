"""`actor-learner eval`: load the best policy of a run and rate it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING

from actor_learner import config, errors, import_path, run_directory
from actor_learner.commands import rated_policy
from actor_learner.reporting import process_output, video

if TYPE_CHECKING:
    import numpy as np

OK = 0
FRAMES_PER_SECOND = 30


def run(
    run_path: str, *, episodes: int, seed: int, video: str | None, record: str | None = None
) -> int:
    """Evaluates and prints mean ± std over `episodes` greedy episodes; may film or record them."""
    run_dir = run_directory.RunDirectory.existing(run_path)
    rated = rated_policy.find(run_dir)
    if video is not None and pathlib.Path(video).suffix != ".mp4":
        raise errors.ConfigError(f"--video={video}: the file's name must end in .mp4")
    import_path.extend(run_dir.read_description().get("import_path", []))
    import_path.extend([os.getcwd()])
    with (
        # Not in the run directory, which may be somebody else's.
        tempfile.TemporaryDirectory() as directory,
        process_output.capture_native_output(
            os.path.join(directory, "log"), capture_stdout=True
        ) as output,
        output.quiet_imports(),
    ):
        config.load(config.ConfigSource((str(run_dir.config),), ()))
        from actor_learner import tensorflow_threads

        tensorflow_threads.tensorflow_threads()
        returns = _evaluate(rated, episodes, seed, video)
        if record is not None:
            _record(rated, episodes, seed, record)
    print(
        f"{rated.what}: return {returns.mean():.2f} ± {returns.std():.2f} over {episodes} "
        f"episodes (min {returns.min():.2f}, max {returns.max():.2f})"
    )
    if video is not None:
        print(f"video: {video}")
    if record is not None:
        print(f"recorded experience: {record}")
    return OK


def _evaluate(
    rated: rated_policy.RatedPolicy, episodes: int, seed: int, video_path: str | None
) -> np.ndarray:
    from actor_learner import experiment as experiment_lib
    from actor_learner.acting import evaluator

    experiment = experiment_lib.Experiment()
    num_lanes = min(episodes, experiment.evaluation_lanes)
    with contextlib.ExitStack() as stack:
        on_step = None
        make = {"num_envs": num_lanes}
        if video_path is not None:
            # Native vector environments draw nothing; one lane is what the video shows.
            make = {"num_envs": 1, "vectorization": "sync", "render_mode": "rgb_array"}
        env = experiment.make_evaluation_environment(seed, **make)
        stack.callback(env.close)
        if video_path is not None:
            writer = stack.enter_context(video.VideoWriter(video_path, FRAMES_PER_SECOND))
            on_step = lambda: writer.append(env.render())  # noqa: E731
        policy = rated.load(experiment, env)
        evaluation_seed = seed + experiment_lib.EVALUATION_SEED_OFFSET
        result = evaluator.Evaluator(env, policy, episodes, seed=evaluation_seed).run(on_step)
    return result.returns


def _record(rated: rated_policy.RatedPolicy, episodes: int, seed: int, directory: str) -> None:
    from actor_learner import experiment as experiment_lib
    from actor_learner.jobs import demonstration

    experiment = experiment_lib.Experiment()
    env = experiment.make_evaluation_environment(seed, num_envs=episodes)
    with contextlib.closing(env):
        policy = rated.load(experiment, env)
        demonstration.record_episodes(env, policy, directory, episodes)
