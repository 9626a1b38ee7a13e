"""The settings of a run that are not of the experiment itself: saving, reporting, staleness."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from actor_learner.support import configurable, errors

WAIT, DROP = "wait", "drop"


@configurable.register
class Checkpoints:
    """Says what is saved on the way, and how often.

    Args:
      seconds: Seconds between two checkpoints of the learner at most, whatever their interval in
        train steps (`Learner.checkpoint_interval`); 0 leaves it at that. Looked at between train
        calls.
      save_replay: Save the replay's contents with the final checkpoint, so that a resumed run
        starts with them. Costs disk space of about the replay's size, and seconds per gigabyte. As
        separate jobs the replay server always saves its contents, when it is told to end.
      replay_seconds: Separate jobs only: seconds between two savings of the replay's contents,
        which survive the death of its server; 0 saves at the end only. Reading and writing wait
        meanwhile.
    """

    def __init__(
        self, seconds: float = 60.0, save_replay: bool = False, replay_seconds: float = 300.0
    ) -> None:
        _at_least("Checkpoints.seconds", seconds, 0)
        _at_least("Checkpoints.replay_seconds", replay_seconds, 0)
        self.seconds = seconds
        self.save_replay = save_replay
        self.replay_seconds = replay_seconds


@configurable.register
class Reporting:
    """Says how often a run tells how it goes.

    Args:
      seconds: Seconds between lines of metrics.
      window: Episodes that the reported return is the mean of.
      loggers: Take every line of metrics, those of evaluations included, beside the run's own
        files: `[@WandbLogger()]`, or anything with `write(row)` and `close()`.
      steps: Environment steps between lines of metrics instead of seconds, so that the lines of
        several runs stand at about the same steps, multiples of this one.
      histograms: With each evaluation, write histograms of the policy's weights to TensorBoard.
      videos: With each evaluation, film one episode more: `videos/step-<steps>.mp4`, and smaller in
        TensorBoard. Costs that episode's time; the environment must draw (`rgb_array`).
    """

    def __init__(
        self,
        seconds: float = 1.0,
        window: int = 20,
        loggers: Sequence[Any] = (),
        steps: int | None = None,
        histograms: bool = False,
        videos: bool = False,
    ) -> None:
        if seconds <= 0:
            raise errors.ConfigError(f"Reporting.seconds must be above 0, got {seconds}")
        _at_least("Reporting.window", window, 1)
        _at_least("Reporting.steps", steps, 1)
        for logger in loggers:
            is_logger = hasattr(logger, "write") and hasattr(logger, "close")
            if inspect.isclass(logger) or not is_logger:
                name = getattr(logger, "__name__", None)
                hint = f": write @{name}()" if name else ""
                raise errors.ConfigError(
                    f"Reporting.loggers has {name or repr(logger)}, which is not a logger, with "
                    f"write(row) and close(){hint}"
                )
        self.seconds = seconds
        self.window = window
        self.loggers = tuple(loggers)
        self.steps = steps
        self.histograms = histograms
        self.videos = videos


@configurable.register
class Staleness:
    """Says how old the policy may be that acts, where actors are jobs of their own.

    In one process, where it is a turn or two behind at most, it has no effect; a limit is warned
    of.

    Args:
      publish_seconds: Least seconds between two publications of the policy. None: 0.5 for replay;
        0.125 for algorithms that use every step once, whose actors should be as little behind as
        they can.
      max_version_lag: How many train steps the learner may be ahead of the policy that acts; None
        for no limit.
      when_lagging: What happens beyond `max_version_lag`. `wait`: actors wait for a newer policy,
        but what they had on its way may have become older by the time it is learned from. `drop`:
        actors act on, and the learner drops unrolls that are older than that when their turn comes,
        so that it never learns from one. Dropping is for algorithms that use every step once.
    """

    def __init__(
        self,
        publish_seconds: float | None = None,
        max_version_lag: int | None = None,
        when_lagging: str = WAIT,
    ) -> None:
        _at_least("Staleness.publish_seconds", publish_seconds, 0)
        _at_least("Staleness.max_version_lag", max_version_lag, 0)
        if when_lagging not in (WAIT, DROP):
            raise errors.ConfigError(
                f"Staleness.when_lagging must be '{WAIT}' or '{DROP}', got {when_lagging!r}"
            )
        if when_lagging == DROP and max_version_lag is None:
            raise errors.ConfigError(
                f"Staleness.when_lagging is '{DROP}', but Staleness.max_version_lag, beyond which "
                "to drop, is not set"
            )
        self.publish_seconds = publish_seconds
        self.max_version_lag = max_version_lag
        self.when_lagging = when_lagging


@configurable.register
class Devices:
    """Says where a process that collects and learns at once does so (Sebulba).

    Each actor is a thread with lanes, an environment and a copy of the policy of its own, on its
    device; the learner trains on another meanwhile. For algorithms that use every step once, with
    `UnrollQueue.in_process`. Results do not depend on which thread is quicker: a train step takes
    an unroll of every actor, and each acts with a policy that is exactly `lag` train steps old.

    Args:
      actors: The device of each actor, such as `('GPU:1', 'GPU:2')` or `('CPU:0', 'CPU:0')`; empty
        for none of this. Every one has `num_envs` lanes.
      learner: The device that trains; None leaves it to TensorFlow.
      lag: Train steps that the learner may take while actors collect the next unrolls: so many
        batches wait in the queue at most. 0 has actors and learner take turns.
      logical_cpus: Into how many devices, `CPU:0`, `CPU:1`, ..., TensorFlow divides the CPU; None
        leaves it at one.
    """

    def __init__(
        self,
        actors: Sequence[str] = (),
        learner: str | None = None,
        lag: int = 1,
        logical_cpus: int | None = None,
    ) -> None:
        if isinstance(actors, str):
            raise errors.ConfigError(
                f"Devices.actors is the text {actors!r}: it must be a list, one device per actor"
            )
        _at_least("Devices.lag", lag, 0)
        _at_least("Devices.logical_cpus", logical_cpus, 1)
        self.actors = tuple(actors)
        self.learner = learner
        self.lag = lag
        self.logical_cpus = logical_cpus
        if not self.actors and learner is not None:
            raise errors.ConfigError(
                f"Devices.learner is {learner!r}, but has no effect without Devices.actors: set "
                "that too, or leave learner out"
            )


def _at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and value < least:
        raise errors.ConfigError(f"{name} must be at least {least}, got {value}")
