"""MP4 files that browsers play, written frame by frame."""

from __future__ import annotations

import contextlib
import os
import pathlib

import numpy as np

from actor_learner.support import atomic, errors


class VideoWriter:
    """Encodes frames as H.264 (yuv420p) into `path`, which appears when `close` returns.

    The format needs even sides: an odd one gains a row or column that repeats the edge. Without a
    frame no file is left. Frames go to an ffmpeg process, started by the first `append`; `append`
    blocks while it is behind. The frame is not kept.

        with VideoWriter("episode.mp4", fps=30) as video:
            video.append(environment.render())
    """

    def __init__(self, path: str | os.PathLike, fps: float):
        self._path = pathlib.Path(path)
        if self._path.suffix.lower() != ".mp4":
            raise errors.ConfigError(
                f"video file '{path}' must end in .mp4: it is the one format written"
            )
        if not fps > 0:
            raise errors.ConfigError(f"fps of video '{path}' is {fps!r}; it must be positive")
        self._fps = fps
        self._shape: tuple[int, ...] | None = None
        self._writer = None
        self._closed = False

    def append(self, frame: np.ndarray) -> None:
        """Adds one frame: uint8 [height, width, 3], red-green-blue, as large as the first one.

        Raises:
          errors.SpecMismatchError: If shape or type are different.
        """
        if self._closed:
            raise errors.ActorLearnerError(f"video '{self._path}' is closed: open a new one")
        self._check(frame)
        if self._writer is None:
            self._open()
        height, width = frame.shape[:2]
        if height % 2 or width % 2:
            frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        self._writer.append_data(np.ascontiguousarray(frame))

    def close(self) -> None:
        """Waits for the encoder to finish and puts the file in place."""
        if self._closed:
            return
        self._closed = True
        if self._writer is None:
            return
        temporary = atomic.temporary_sibling(self._path)
        try:
            self._writer.close()
            os.replace(temporary, self._path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *unused_error: object) -> None:
        self.close()

    def _open(self) -> None:
        from imageio import v2 as imageio

        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = imageio.get_writer(
            atomic.temporary_sibling(self._path),
            format="FFMPEG",
            mode="I",
            fps=self._fps,
            codec="libx264",
            pixelformat="yuv420p",
            quality=7,
            macro_block_size=2,
            ffmpeg_log_level="error",
            # The index first, so that a browser can start before it has the whole file.
            output_params=["-movflags", "+faststart"],
        )

    def _check(self, frame: np.ndarray) -> None:
        shape = getattr(frame, "shape", None)
        dtype = getattr(frame, "dtype", None)
        if dtype != np.uint8 or shape is None or len(shape) != 3 or shape[2] != 3 or 0 in shape:
            what = f"{dtype} {list(shape)}" if shape is not None else repr(type(frame).__name__)
            raise errors.SpecMismatchError(
                f"video '{self._path}' takes uint8 frames [height, width, 3] and got {what}; "
                "make the environment with render_mode='rgb_array' and pass what render() returns"
            )
        if self._shape is None:
            self._shape = shape
        elif shape != self._shape:
            raise errors.SpecMismatchError(
                f"video '{self._path}' began with frames {list(self._shape)} and now got "
                f"{list(shape)}; all frames of one file have one size: open a new file"
            )
