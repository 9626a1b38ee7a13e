"""Separate jobs: environment steps per second by the number of actors, and what the policy costs.

`actors`: an environment that sleeps 20 ms per step, one lane per actor, so that cores do not
matter; the peer is one actor, the limit the environment itself. `publishing` and `pulling`: the
processor time that the learner, or an actor, spends on it, ZeroMQ's threads included, in per cent
of one core: less is better, 2 is the most. Both at the default intervals of publication, that of
replay and that of algorithms that use every step once, with one actor; `wire` has more of them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Callable

from benchmarks import harness, partner, settings, sleeping_environment, wire_learner

ROOT = pathlib.Path(__file__).resolve().parents[1]
START_SECONDS = 300.0
_LEAST_SHARE = 0.01
_BINDINGS = (
    "GymnasiumEnvironment.env_id = 'benchmarks.sleeping_environment:Sleeping-v0'",
    "GymnasiumEnvironment.num_envs = 1",
    "Experiment.environment_steps = 1_000_000_000",
    "Experiment.initial_random_steps = 0",
    "Experiment.collect_steps = 64",
    "Experiment.updates_per_step = 0.05",
    "Evaluation.target_return = None",
)


def rows(config: settings.Settings) -> list[harness.Row]:
    quick = config.repetitions == 1
    return [
        *actor_rows((1, 2) if quick else (1, 2, 8), 10 * config.seconds, config.repetitions),
        *cost_rows(2 * config.seconds, config.repetitions),
    ]


def actor_rows(counts: Sequence[int], seconds: float, repetitions: int) -> list[harness.Row]:
    """Steps per second of 1, 2, ... actors of one run, by turns."""
    found: dict[int, list[float]] = {count: [] for count in counts}
    with _Run.started(max(counts)) as run:
        run.only(max(counts))
        run.steps_per_second(max(counts), min(seconds, 5.0))  # First steps are slow: not counted.
        for _ in range(min(repetitions, 3)):
            for count in counts:
                run.only(count)
                found[count].append(run.steps_per_second(count, seconds))
    one = statistics.median(found[1])
    return [
        harness.Row(
            "jobs",
            f"{count} actor{'s' if count > 1 else ''}",
            statistics.median(rates),
            peer=one,
            limit=count / sleeping_environment.STEP_SECONDS,
            spread=max(rates) / min(rates),
        )
        for count, rates in found.items()
    ]


def cost_rows(seconds: float, repetitions: int) -> list[harness.Row]:
    """Per cent of a core that publishing and pulling take, at both default intervals."""
    from actor_learner import experiment

    found: dict[str, list[float]] = {}
    for interval in (experiment.PUBLISH_SECONDS, experiment.PUBLISH_SECONDS_QUEUED):
        every = f"every {interval:g} s, % of a core"
        found[f"publishing {every}"] = _publishing(interval, seconds, repetitions)
        found[f"pulling {every}"] = _pulling(interval, seconds, repetitions)
    return [
        harness.Row("jobs", case, statistics.median(shares), spread=max(shares) / min(shares))
        for case, shares in found.items()
    ]


def _publishing(interval: float, seconds: float, repetitions: int) -> list[float]:
    learner = wire_learner.WireLearner(interval, wire_learner.variables())
    # Polling, with nobody there, is no part of it.
    idle = _share(lambda: learner.run(seconds))
    with _meanwhile(
        learner.poll,
        # An actor whose turns are as long as that: it pulls every version, and reports as often.
        lambda: partner.Partner("benchmarks.wire_actors", learner.address, 0, 1, interval),
    ):
        learner.run(min(1.0, seconds))
        shares = [_share(lambda: learner.run(seconds)) for _ in range(repetitions)]
    learner.close()
    return [max(_LEAST_SHARE, share - idle) for share in shares]


def _pulling(interval: float, seconds: float, repetitions: int) -> list[float]:
    from actor_learner.jobs.exchange import follower as follower_lib
    from actor_learner.messaging import client

    with (
        partner.Partner("benchmarks.wire_learner", interval) as learner,
        client.Client(learner.line, who="actor-0") as wire,
    ):
        follower = follower_lib.Follower(wire, wire_learner.variables())
        deadline = time.monotonic() + partner.START_SECONDS
        while follower.version < 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no policy has come for {partner.START_SECONDS:g} s")
            _follow(follower, sleeping_environment.STEP_SECONDS)
        _follow(follower, min(1.0, seconds))
        shares = [_share(lambda: _follow(follower, seconds)) for _ in range(repetitions)]
    # The steps themselves, which do nothing but sleep, are no part of it.
    idle = _share(lambda: _sleep(seconds))
    return [max(_LEAST_SHARE, share - idle) for share in shares]


@contextlib.contextmanager
def _meanwhile(poll: Callable[[], None], start: Callable[[], partner.Partner]) -> Iterator[None]:
    """Has a partner that cannot start unless it is talked to: polls until it has."""
    with futures.ThreadPoolExecutor(1) as thread:
        starting = thread.submit(start)
        while not starting.done():
            poll()
        with starting.result():
            yield


def _follow(follower, seconds: float) -> None:
    """Applies what is new between steps of 20 ms, as an actor does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        follower.apply()
        follower.pull()
        time.sleep(sleeping_environment.STEP_SECONDS)


def _sleep(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        time.sleep(sleeping_environment.STEP_SECONDS)


def _share(work) -> float:
    """Processor time of this process while `work` runs, in per cent of the time it takes."""
    began, spent = time.perf_counter(), time.process_time()
    work()
    return 100.0 * (time.process_time() - spent) / (time.perf_counter() - began)


class _Run:
    """Jobs of one run, with actors that act only when they are told to."""

    def __init__(self, directory: str, num_actors: int) -> None:
        from actor_learner.jobs import controller
        from actor_learner.naming import connect

        self._started: set[int] = set()
        self._acting: set[int] = set()
        self._num_actors = num_actors
        self._processes = []
        shared = [f"--run={directory}/run", "--gin_file=dqn_cartpole"]
        shared += [f"--gin_param={binding}" for binding in _BINDINGS]
        self._start("replay", *shared)
        self._start("learner", *shared)
        for index in range(num_actors):
            self._start("actor", f"--index={index}", "--hold", *shared)
        self._names = connect.connect(f"{directory}/run/registry", who="benchmark")
        self._controller = controller.Controller(self._names, "run")

    @classmethod
    @contextlib.contextmanager
    def started(cls, num_actors: int) -> Iterator[_Run]:
        from actor_learner.jobs import states

        with tempfile.TemporaryDirectory() as directory:
            made = cls(directory, num_actors)
            try:
                actors = [f"actor-{index}" for index in range(num_actors)]
                made._controller.wait_for(states.READY, actors, timeout=START_SECONDS)
                yield made
            finally:
                made.close()

    def only(self, count: int) -> None:
        """Has the first `count` actors act, and no others."""
        from actor_learner.jobs import states

        for index in range(self._num_actors):
            if index < count and index not in self._acting:
                command = states.RESUME if index in self._started else states.START
                self._started.add(index)
                self._acting.add(index)
            elif index >= count and index in self._acting:
                command = states.PAUSE
                self._acting.discard(index)
            else:
                continue
            self._controller.send(command, kind="actor", index=index)

    def steps_per_second(self, count: int, seconds: float) -> float:
        """The sum of the actors' own rates, each between two changes of its count."""
        first = {index: self._change(index) for index in range(count)}
        time.sleep(seconds)
        rate = 0.0
        for index, (then, steps) in first.items():
            now, later = self._change(index)
            rate += (later - steps) / (now - then)
        return rate

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._controller.close()
        self._names.close()

    def _start(self, job: str, *arguments: str) -> None:
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "actor_learner.jobs.main", job, *arguments],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
        )

    def _change(self, index: int) -> tuple[float, int]:
        """Waits until an actor says something new: when that was, and its steps by then."""
        before = self._controller.worker("actor", index).steps
        deadline = time.perf_counter() + 60.0
        while time.perf_counter() < deadline:
            now = self._controller.worker("actor", index)
            if now.steps is not None and now.steps != before:
                return time.perf_counter(), now.steps
            time.sleep(0.05)
        raise RuntimeError(f"{now.describe()}: no steps for a minute")
