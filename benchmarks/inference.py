"""Inference in a policy job: answers per second to four actors, and what an answer takes there.

Ours: one server in a process of its own answers what has arrived by one call, for four actors in
processes of their own with 16 lanes in each of their groups, DQN 64x64 by a TensorFlow graph, whose
call costs the same for a few lanes as for many, as on a GPU. Peer: the same, one request at a time.
The note has the sizes of the batches.

Then one actor with one group: answers per second over loopback, beside a policy that is run inline
by TFLite. The note has the median time that an answer takes longer than inline.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from tf_agents.trajectories import time_step as ts

from actor_learner.inference import policy_service, remote, server, streams
from actor_learner.messaging import client as client_lib
from actor_learner.messaging import server as wire_server
from benchmarks import harness, processes, settings

LANES, ACTORS, RING = 16, 4, 4


def rows(config: settings.Settings) -> Iterator[harness.Row]:
    sizes: dict[str, Any] = {}

    def measure(max_batch: int) -> float:
        found = served(config, ACTORS, RING, max_batch, streams.GRAPH)
        sizes[str(max_batch)] = found["batch_sizes"]
        return found["requests_per_second"]

    results = harness.alternate(
        {"ours": lambda: measure(LANES * ACTORS * RING), "peer": lambda: measure(LANES)},
        config.few_repetitions,
        warm_up=False,
    )
    batches = ", ".join(
        f"{count:,} of {size}" for size, count in sizes[str(LANES * ACTORS * RING)].items() if count
    )
    yield harness.row(
        "inference",
        f"{ACTORS} actors, {RING} groups of {LANES} lanes each, requests per second",
        results,
        note=f"peer: ours, one request at a time; batches by lanes: {batches}",
    )
    found = [served(config, 1, 1, LANES, streams.LITE) for _ in range(config.few_repetitions)]
    inline = [inline_seconds(config) for _ in range(config.few_repetitions)]
    longer = statistics.median(each["median_seconds"] for each in found) - statistics.median(inline)
    yield harness.row(
        "inference",
        f"1 actor, 1 group of {LANES} lanes, requests per second, beside inline",
        {
            "ours": [each["requests_per_second"] for each in found],
            "limit": [1.0 / seconds for seconds in inline],
        },
        note=f"limit: inline; an answer takes {longer * 1e3:.2f} ms longer",
    )


def served(
    config: settings.Settings, actors: int, ring: int, max_batch: int, inference: str
) -> dict[str, Any]:
    """What a server in a process of its own and so many actors in theirs come to."""
    serving = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.inference", "serve", str(max_batch), inference],
        cwd=processes.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = serving.stdout.readline().strip()
        command = [sys.executable, "-m", "benchmarks.inference", "ask", address, str(ring)]
        asking = [
            subprocess.Popen(
                [*command, str(config.seconds)],
                cwd=processes.ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(actors)
        ]
        for process in asking:
            process.stdout.readline()  # It is ready:
        for process in asking:
            process.stdin.write("go\n")  # all begin together.
            process.stdin.flush()
        found = [json.loads(process.communicate(timeout=300)[0]) for process in asking]
        said, _ = serving.communicate("end\n", timeout=60)
    finally:
        serving.kill()
        serving.wait()
    return {
        "requests_per_second": sum(each["requests_per_second"] for each in found),
        "median_seconds": statistics.median(each["median_seconds"] for each in found),
        "batch_sizes": json.loads(said),
    }


def inline_seconds(config: settings.Settings) -> float:
    """The median time of a policy call in this process."""
    stream = streams.stream_for(
        settings.cartpole_dqn().agent.collect_policy, LANES, True, inference=streams.LITE, seed=0
    )
    time_step, times = _time_step(), []
    until = time.perf_counter() + config.seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        stream.act(time_step)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _serve(max_batch: int, inference: str) -> None:
    """Serves until a line comes in; prints where, and at the end the sizes of batches."""
    policy = settings.cartpole_dqn().agent.collect_policy
    service = policy_service.PolicyService(policy, max_batch, inference=inference, seed=0)
    with wire_server.Server({}) as wire:
        served_here = server.InferenceServer(wire, service, max_batch=max_batch)
        rows_now = LANES
        while rows_now <= max_batch:  # Conversions are not what is measured.
            zeros = {
                name: np.zeros([rows_now, *spec.shape[1:]], spec.dtype)
                for name, spec in service.request_spec.items()
            }
            service.answer(zeros, {})
            rows_now *= 2
        print(wire.address, flush=True)
        ended = _Line()
        while not ended.came:
            served_here.serve(0.05)
        print(json.dumps(served_here.histogram()), flush=True)


class _Line:
    """Knows whether a line has come in, without waiting for it."""

    def __init__(self) -> None:
        self.came = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        sys.stdin.readline()
        self.came = True


def _ask(address: str, ring: int, seconds: float) -> None:
    """Asks for the actions of so many groups, each again as soon as it is answered."""
    policy = settings.cartpole_dqn().agent.collect_policy
    stream = remote.RemoteInference(
        remote.OneServer(client_lib.Client(address, who="benchmark")), policy, ring, LANES, who="b"
    )
    time_step = _time_step()
    for group in range(ring):
        stream.result(stream.request(group, time_step), 60.0)
    print("ready", flush=True)
    sys.stdin.readline()
    began, times, requests = time.perf_counter(), [], 0
    asked_at = [0.0] * ring
    tickets = []
    for group in range(ring):
        asked_at[group] = time.perf_counter()
        tickets.append(stream.request(group, time_step))
    while time.perf_counter() < began + seconds:
        for group in range(ring):
            stream.result(tickets[group], 60.0)
            now = time.perf_counter()
            times.append(now - asked_at[group])
            requests += 1
            asked_at[group] = now
            tickets[group] = stream.request(group, time_step)
    took = time.perf_counter() - began
    for group in range(ring):
        stream.result(tickets[group], 60.0)
    stream.close()
    print(
        json.dumps(
            {"requests_per_second": requests / took, "median_seconds": statistics.median(times)}
        ),
        flush=True,
    )


def _time_step() -> ts.TimeStep:
    return ts.TimeStep(
        np.full(LANES, 1, np.int32),
        np.ones(LANES, np.float32),
        np.ones(LANES, np.float32),
        np.zeros((LANES, 4), np.float32),
    )


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "serve":
        _serve(int(arguments[0]), arguments[1])
    else:
        _ask(arguments[0], int(arguments[1]), float(arguments[2]))
