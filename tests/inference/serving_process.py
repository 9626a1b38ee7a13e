"""Serves sums on a socket in a process of its own, and prints where; to be killed by a test."""

import sys

from actor_learner.inference import server
from actor_learner.messaging import server as wire_server
from tests.inference import serving


def main():
    with wire_server.Server({}) as wire:
        served = server.InferenceServer(wire, serving.Adding(), max_batch=64)
        print(wire.address, flush=True)
        while True:
            served.serve(1.0)


if __name__ == "__main__":
    sys.exit(main())
