"""`actor-learner eval`: load the best policy of a run and rate it."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import sys
import tempfile
from typing import TYPE_CHECKING

from actor_learner import config, import_path, run_directory
from actor_learner.reporting import process_output, video
from actor_learner.runs import rated_policy
from actor_learner.support import errors

if TYPE_CHECKING:
    import numpy as np

OK, FAILED = 0, 1
FRAMES_PER_SECOND = 30


def run(
    run_path: str, *, episodes: int, seed: int, video: str | None, record: str | None = None
) -> int:
    """Evaluates and prints mean ± std over `episodes` greedy episodes; may film or record them.

    The episodes are others than those that the policy was trained, chosen or confirmed on,
    whatever `seed` is: it tells evaluations by this command apart.

    Returns:
      The exit code: 1 if a return is not finite.
    """
    run_dir = run_directory.RunDirectory.existing(run_path)
    run_dir.require_config()
    rated = rated_policy.find(run_dir)
    if video is not None and pathlib.Path(video).suffix != ".mp4":
        raise errors.ConfigError(f"--video={video}: the file's name must end in .mp4")
    description = run_dir.read_description()
    import_path.extend(description.get("import_path", []))
    import_path.extend([os.getcwd()])
    source = config.ConfigSource((str(run_dir.config),), ())
    config.check(source)
    if video is not None:
        _prepare_to_film()
    with (
        # Not in the run directory, which may be somebody else's.
        tempfile.TemporaryDirectory() as directory,
        process_output.capture_native_output(
            os.path.join(directory, "log"), capture_stdout=True
        ) as output,
        output.quiet_imports(),
    ):
        config.load(source)
        from actor_learner.support import tensorflow_threads

        tensorflow_threads.tensorflow_threads()
        returns = _evaluate(run_dir, rated, description["seed"], episodes, seed, video)
        if record is not None:
            _record(run_dir, rated, description["seed"], episodes, seed, record)
    if not all(map(math.isfinite, returns)):
        print(
            f"error: {rated.what} cannot be evaluated: its returns are {returns.tolist()}",
            file=sys.stderr,
        )
        return FAILED
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
    run_dir: run_directory.RunDirectory,
    rated: rated_policy.RatedPolicy,
    run_seed: int,
    episodes: int,
    seed: int,
    video_path: str | None,
) -> np.ndarray:
    from actor_learner import experiment as experiment_lib
    from actor_learner.acting import evaluator
    from actor_learner.environments import filming
    from actor_learner.inference import streams
    from actor_learner.runs import frozen_policy
    from actor_learner.support import seeds

    experiment = experiment_lib.Experiment()
    num_lanes = min(episodes, experiment.evaluation.lanes)
    # Those of training, choosing and confirming are for other purposes.
    fresh = seeds.of(run_seed, "eval", seed)
    with contextlib.ExitStack() as stack:
        on_step = None
        env = experiment.make_evaluation_environment(fresh, num_envs=num_lanes)
        stack.callback(env.close)
        if video_path is not None:
            # Native lanes draw nothing; one lane is what the video shows.
            lanes = getattr(env, "vector_env", None)
            filmed = filming.arguments(getattr(lanes, "spec", None))
            env = experiment.make_evaluation_environment(fresh, **filmed)
            stack.callback(env.close)
            writer = stack.enter_context(video.VideoWriter(video_path, FRAMES_PER_SECOND))
            on_step = lambda: writer.append(env.render())  # noqa: E731
        frozen_policy.furnish(env, run_dir)
        policy = rated.load(experiment, env)
        # Whatever the run's config binds: an exported policy is not one that can be converted.
        result = evaluator.Evaluator(env, policy, episodes, seed=fresh, inference=streams.AUTO).run(
            on_step
        )
    return result.returns


def _record(
    run_dir: run_directory.RunDirectory,
    rated: rated_policy.RatedPolicy,
    run_seed: int,
    episodes: int,
    seed: int,
    directory: str,
) -> None:
    """Records in the environment that policies are trained in: what is recorded is trained on."""
    from actor_learner import experiment as experiment_lib
    from actor_learner.runs import demonstration, frozen_policy
    from actor_learner.support import seeds

    experiment = experiment_lib.Experiment()
    env = experiment.make_environment(seeds.of(run_seed, "record", seed), num_envs=episodes)
    with contextlib.closing(env):
        frozen_policy.furnish(env, run_dir)
        policy = rated.load(experiment, env)
        demonstration.record_episodes(env, policy, directory, episodes)


def _prepare_to_film() -> None:
    """Has MuJoCo draw without a screen where there is none; it looks at this when it is loaded."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("MUJOCO_GL", "egl")
