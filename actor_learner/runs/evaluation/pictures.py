"""Writes histograms of the policy's weights, and videos of its episodes, at each evaluation."""

from __future__ import annotations

import io
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner.acting import evaluator
from actor_learner.environments import filming
from actor_learner.learning import evaluation
from actor_learner.reporting import summaries, video
from actor_learner.support import disk_space, errors, unsaved

FRAMES_PER_SECOND = 30
_GIF_FRAMES = 150  # At most, in TensorBoard; the video file has all of them.
_GIF_SIDE = 240
_ROOM_BYTES = 64 * 2**20


class EvaluationPictures:
    """Writes histograms and videos of an evaluation to TensorBoard, against environment steps.

    Args:
      experiment: `Reporting.histograms` and `Reporting.videos` say which to write.
      policy: The greedy policy that is evaluated.
      env: The environment that it is evaluated in. The caller closes it.
      directory: The run directory. Videos also go to `videos/` in it.
      seed: Seed of the filmed episodes, which are the same each time.

    Raises:
      errors.ConfigError: If videos are wanted, and the environment cannot be drawn.
    """

    def __init__(
        self,
        experiment: experiment_lib.Experiment,
        policy: Any,
        env: Any,
        directory: pathlib.Path,
        seed: int,
    ) -> None:
        self._settings = experiment.reporting
        self._policy = policy
        self._videos = directory / "videos"
        self._seed = seed
        self._filmed: Any = None
        if self._settings.videos:
            spec = getattr(getattr(env, "vector_env", None), "spec", None)
            self._filmed = _filmed_environment(experiment, spec, seed)
            self._evaluator = evaluator.Evaluator(self._filmed, policy, 1, seed=seed)
        self._summaries = summaries.Summaries(str(directory / "train"), "evaluations")

    def write(self, result: evaluation.EvaluationResult) -> None:
        """Writes the pictures of one evaluation; on a full disk they are counted as lost."""
        if not self._summaries.have_room():
            return
        step = result.environment_step
        try:
            with self._summaries.writer.as_default(step=step), tf.summary.record_if(True):
                if self._settings.histograms:
                    for variable in self._policy.variables():
                        if variable.dtype.is_floating:
                            tf.summary.histogram(f"weights/{variable.name}", variable)
                if self._filmed is not None:
                    self._film(step)
            self._summaries.writer.flush()
        except tf.errors.OpError as error:
            if not self._summaries.are_cause_of(error):
                raise

    def close(self) -> None:
        """Closes what is open; safe to call twice."""
        if self._filmed is not None:
            self._filmed.close()
            self._filmed = None
        self._summaries.close()

    def _film(self, step: int) -> None:
        frames: list[np.ndarray] = []
        self._evaluator.run(lambda: frames.append(np.array(self._filmed.render())), seed=self._seed)
        picture = tf.compat.v1.Summary.Image(
            height=frames[0].shape[0],
            width=frames[0].shape[1],
            colorspace=3,
            encoded_image_string=_gif(frames),
        )
        value = tf.compat.v1.Summary.Value(tag="eval/episode", image=picture)
        tf.summary.experimental.write_raw_pb(
            tf.compat.v1.Summary(value=[value]).SerializeToString(), step=step
        )
        if not disk_space.has_room(self._videos.parent, _ROOM_BYTES):
            unsaved.ledger().lose("films of episodes", 1)
            return
        with video.VideoWriter(self._videos / f"step-{step}.mp4", FRAMES_PER_SECOND) as writer:
            for frame in frames:
                writer.append(frame)


def _filmed_environment(experiment: experiment_lib.Experiment, spec: Any, seed: int) -> Any:
    env = experiment.make_evaluation_environment(seed, **filming.arguments(spec))
    try:
        env.reset()
        frame = env.render()
    except Exception as error:  # Whatever the user's environment raises.
        env.close()
        raise errors.ConfigError(
            f"Reporting.videos is set, but the environment cannot be drawn: {error}"
        ) from error
    if getattr(frame, "ndim", 0) != 3:
        env.close()
        raise errors.ConfigError(
            "Reporting.videos is set, but render() of the environment gives "
            f"{type(frame).__name__} rather than a picture: it needs render_mode='rgb_array'"
        )
    return env


def _gif(frames: list[np.ndarray]) -> bytes:
    """Encodes the video for TensorBoard: scaled down, with fewer frames."""
    from imageio import v2 as imageio

    every = -(-len(frames) // _GIF_FRAMES)
    side = max(1, -(-max(frames[0].shape[:2]) // _GIF_SIDE))
    small = [frame[::side, ::side] for frame in frames[::every]]
    content = io.BytesIO()
    imageio.mimwrite(
        content, small, format="GIF", duration=1000.0 * every / FRAMES_PER_SECOND, loop=0
    )
    return content.getvalue()
