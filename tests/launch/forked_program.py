"""A program to be forked: `python -m tests.launch.forked_program WHAT`."""

import json
import os
import random
import signal
import sys
import time


def describe():
    """What a job may see of how it was started."""
    import numpy as np

    print(
        json.dumps(
            {
                "argv": sys.argv[1:],
                "main": sys.modules["__main__"].__spec__.name,
                "variables": {k: v for k, v in os.environ.items() if k.startswith("ACTOR_")},
                "path": sys.path,
                "parent": os.getppid(),
                "group": os.getpgid(0) == os.getpid(),
                "stdin": sys.stdin.read(),
                "files": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
                "random": [random.random(), float(np.random.random())],
            }
        )
    )


def draw():
    """Sends random numbers of TensorFlow through a Reverb server, each with threads of its own."""
    import reverb
    import tensorflow as tf

    assert sys.modules["tensorflow"] is tf
    table = reverb.Table.queue("numbers", max_size=1)
    server = reverb.Server([table], port=None)
    client = reverb.Client(f"localhost:{server.port}")
    with client.writer(max_sequence_length=1) as writer:
        writer.append([tf.random.uniform([4]).numpy()])
        writer.create_item("numbers", num_timesteps=1, priority=1.0)
    (sample,) = next(iter(client.sample("numbers", num_samples=1)))
    server.stop()
    print(json.dumps([float(number) for number in sample.data[0]]))


def wait():
    """Ends in order when it is asked to."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    print("up", os.getpid(), flush=True)
    while not asked:
        time.sleep(0.01)
    print("saved", flush=True)
    sys.exit(5)


if __name__ == "__main__":
    what = sys.argv[1]
    if what.startswith("exit"):
        sys.exit(int(what[4:]))
    elif what.startswith("signal"):
        os.kill(os.getpid(), int(what[6:]))
    else:
        {"describe": describe, "draw": draw, "wait": wait}[what]()
