"""What a ring brings: batched steps per second of an actor whose actions are a while in coming.

Ours: a ring of 16 groups, whose environments wait 1 ms in every step, with inference that answers
15 ms after it was asked, as one far away does. Peer: one group. Limit: the environment alone.

Then double buffering: inference on a second thread that takes as long as a step, which waits and
so leaves the processor to others, with two groups against one that asks inline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from actor_learner.acting import actor, ring
from actor_learner.environments import suite_gymnasium
from actor_learner.inference import inline, protocol, threaded
from benchmarks import harness, settings, sleeping_environment

STEP_SECONDS, LATENCY_SECONDS, RING_SIZE = 0.001, 0.015, 16
BUFFERED_SECONDS = 0.004


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    steps = config.ring_steps
    results = harness.alternate(
        {
            "ours": lambda: rate(FarAway(LATENCY_SECONDS), RING_SIZE, STEP_SECONDS, steps),
            "peer": lambda: rate(FarAway(LATENCY_SECONDS), 1, STEP_SECONDS, steps // 4),
            "limit": lambda: environment_rate(STEP_SECONDS, steps),
        },
        config.few_repetitions,
    )
    yield harness.row(
        "ring",
        f"{RING_SIZE} groups, steps of {STEP_SECONDS * 1e3:g} ms, "
        f"answers after {LATENCY_SECONDS * 1e3:g} ms",
        results,
        note="peer: ours with one group; limit: the environment alone",
    )
    results = harness.alternate(
        {
            "ours": lambda: double_buffered(steps // 4),
            "peer": lambda: rate(
                inline.InlineInference([Slow(BUFFERED_SECONDS)]), 1, BUFFERED_SECONDS, steps // 4
            ),
            "limit": lambda: environment_rate(BUFFERED_SECONDS, steps // 4),
        },
        config.few_repetitions,
    )
    yield harness.row(
        "ring",
        f"2 groups and a thread, steps and inference of {BUFFERED_SECONDS * 1e3:g} ms each",
        results,
        note="peer: ours with one group, inline; limit: the environment alone",
    )


def rate(stream: Any, ring_size: int, step_seconds: float, steps: int) -> float:
    """Batched steps per second of an actor."""
    circle = ring.EnvironmentRing([_environment(step_seconds) for _ in range(ring_size)])
    acting = actor.Actor(
        circle, stream, tf.Variable(0, dtype=tf.int64), group_steps_per_run=max(1, steps)
    )
    acting.run()  # From here on all that is asked ahead is under way.
    began = time.perf_counter()
    acting.run()
    seconds = time.perf_counter() - began
    circle.close()
    return steps / seconds


def double_buffered(steps: int) -> float:
    """The same, of two groups whose actions a thread computes in turn."""
    stream = threaded.ThreadedInference([Slow(BUFFERED_SECONDS) for _ in range(2)])
    try:
        return rate(stream, 2, BUFFERED_SECONDS, steps)
    finally:
        stream.close()


def environment_rate(step_seconds: float, steps: int) -> float:
    """Steps per second of the environment alone."""
    env = _environment(step_seconds)
    env.reset()
    began = time.perf_counter()
    for _ in range(steps):
        env.step(np.array(0))
    return steps / (time.perf_counter() - began)


def _environment(step_seconds: float) -> Any:
    return suite_gymnasium.wrap_env(sleeping_environment.SleepingEnvironment(step_seconds))


class Slow:
    """Waits before it answers, as a processor of another kind would make it."""

    kind = "slow"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def reset(self) -> None:
        """Nothing to forget."""

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Nothing to take over."""

    def act(self, time_step: Any) -> protocol.Response:
        time.sleep(self._seconds)
        return protocol.Response(np.zeros(1, np.int64))


class FarAway:
    """Answers so many seconds after it was asked, any number of groups at a time."""

    def __init__(self, latency_seconds: float) -> None:
        self._latency_seconds = latency_seconds

    def reset(self, group: int) -> None:
        """Nothing to forget."""

    def refresh(self, version: int | None = None, epoch: int = 0, *, certain: bool = False) -> None:
        """Nothing to take over."""

    def request(self, group: int, time_step: Any) -> float:
        return time.perf_counter() + self._latency_seconds

    def result(self, ticket: float, timeout_seconds: float | None = None) -> protocol.Response:
        if (left := ticket - time.perf_counter()) > 0:
            time.sleep(left)
        return protocol.Response(np.zeros(1, np.int64))

    def close(self) -> None:
        """Nothing is left open."""
