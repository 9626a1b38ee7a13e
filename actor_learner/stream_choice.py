"""Chooses the sample stream of an experiment, and refuses one that does not fit the algorithm."""

from __future__ import annotations

from typing import Callable

from actor_learner import collecting, experience
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.replay.streams import (
    lane_replay,
    sample_stream,
    seeded_replay,
    sequence_replay,
    unroll_queue,
)
from actor_learner.support import errors

STREAMS: dict[str, Callable[[], sample_stream.SampleStream]] = {
    experience.TRANSITIONS: lane_replay.LaneReplay,
    experience.UNROLLS: unroll_queue.UnrollQueue,
    experience.SEQUENCES: sequence_replay.SequenceReplay,
}
"""The stream that each kind of experience flows through unless another one is bound."""


def choose(
    algorithm: algorithm_lib.Algorithm,
    bound: sample_stream.SampleStream | None,
    *,
    deterministic: bool,
    save_replay: bool,
) -> sample_stream.SampleStream:
    """Returns the stream that is bound, or the one for the algorithm's kind of experience.

    Args:
      algorithm: What learns from the stream.
      bound: `Experiment.replay`; None if it was left out.
      deterministic: Whether samples must be the same in every run with one seed.
      save_replay: Whether the contents are to be saved.

    Raises:
      errors.ConfigError: If the stream does not fit the algorithm or the other settings.
    """
    stream = bound
    if stream is None:
        seeded = deterministic and algorithm.kind == experience.TRANSITIONS
        stream = seeded_replay.SeededReplay() if seeded else STREAMS[algorithm.kind]()
    name = type(stream).__name__
    if stream.kind != algorithm.kind:
        raise errors.ConfigError(
            f"Experiment.replay is a {name}, which makes {stream.kind}, but {algorithm.name} "
            f"learns from {algorithm.kind}: leave the binding out, or use "
            f"@{STREAMS[algorithm.kind].__name__}()"
        )
    if stream.weighted and algorithm.priorities is None:
        raise errors.ConfigError(
            f"Experiment.replay is a {name}, which samples by priority, but {algorithm.name} gives "
            "no priorities (Algorithm.priorities)"
        )
    if save_replay and isinstance(stream, seeded_replay.SeededReplay):
        raise errors.ConfigError(
            "Checkpoints.save_replay has no effect on SeededReplay, whose contents are in the "
            "learner: leave it out, or use @LaneReplay()"
        )
    if deterministic and not stream.repeatable:
        raise errors.ConfigError(
            f"Experiment.deterministic is set, but {name} lets the Reverb server draw the samples, "
            "which cannot be seeded: leave Experiment.replay out, or use @SeededReplay()"
        )
    return stream


def with_table(stream: sample_stream.SampleStream, name: str) -> sample_stream.SampleStream:
    """Returns the stream with another table.

    Raises:
      errors.ConfigError: If nobody writes to it.
    """
    if not stream.collects:
        raise errors.ConfigError(
            f"tables is set, but all experience of this run is recorded: {type(stream).__name__}."
            "table_name is the name of its table"
        )
    return stream.with_table(name)


def with_window(
    stream: sample_stream.SampleStream,
    algorithm: algorithm_lib.Algorithm,
    setting: collecting.Collecting,
) -> sample_stream.SampleStream:
    """Returns the stream with the items of `Collecting`, or as it is if nothing is said of them.

    Raises:
      errors.ConfigError: If they do not fit the stream or the algorithm.
    """
    if setting.send_full_trajectory:
        stream = stream.with_whole_episodes(setting.pad_trajectory)
    if setting.sample_steps is None:
        return stream
    burn_in, bootstrap = setting.burn_in_steps, setting.bootstrap_steps
    if burn_in is None:
        burn_in = algorithm.burn_in
    if bootstrap is None:
        bootstrap = 1 if algorithm.kind == experience.UNROLLS else algorithm.n_step
    if algorithm.kind == experience.SEQUENCES and burn_in != algorithm.burn_in:
        raise errors.ConfigError(
            f"burn_in_steps is {burn_in}, but {algorithm.name} does not learn from the first "
            f"{algorithm.burn_in} steps of a sequence: leave it out, or set the agent's, such as "
            "r2d2.burn_in, to the same"
        )
    return stream.with_window(burn_in, setting.sample_steps, bootstrap)


def refuse_what_unrolls_ignore(
    stream: sample_stream.SampleStream,
    agent: str,
    *,
    collect_steps: int | None,
    batch_size: int | None,
) -> None:
    """Refuses settings that a stream which uses every step once would not follow.

    Args:
      stream: The stream.
      agent: The algorithm's name.
      collect_steps: `Experiment.collect_steps`; None if it was left out.
      batch_size: `Experiment.batch_size`; None if it was left out.

    Raises:
      errors.ConfigError: If one of them was set.
    """
    if collect_steps is not None:
        raise errors.ConfigError(
            f"Experiment.collect_steps is {collect_steps}, but {agent} learns from each step once, "
            "and collects what one train step uses: leave the binding out. "
            "UnrollQueue.unroll_length and UnrollQueue.unrolls_per_batch say how much that is"
        )
    if batch_size is not None and isinstance(stream, unroll_queue.UnrollQueue):
        raise errors.ConfigError(
            f"Experiment.batch_size is {batch_size}, but {agent} learns from unrolls, whose number "
            "per train step is UnrollQueue.unrolls_per_batch: set that, and leave batch_size out"
        )
