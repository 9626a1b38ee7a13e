"""A process that wants names, run by the tests as a script. It must not need TensorFlow.

    rival.py race URL REFEREE NAME...   adds each name once; as long as it belongs to REFEREE, again
    rival.py hold URL NAME TTL          keeps a name alive until it is killed
    rival.py lock DIRECTORY             holds a file registry's lock until it is killed

Prints `ready`, then waits for a line; `race` prints the names it won in the end.
"""

import sys
import threading
import time

from actor_learner.naming import connect, registry
from actor_learner.support import file_lock

LOST_AFTER_SECONDS = 60.0


def race(url, referee, *names):
    with connect.connect(url) as mine:
        won = []
        print("ready", flush=True)
        sys.stdin.readline()
        for name in names:
            deadline = time.monotonic() + LOST_AFTER_SECONDS
            while time.monotonic() < deadline:
                try:
                    mine.add(name, "x", ttl=600)
                    won.append(name)
                    break
                except registry.NameTakenError as error:
                    if error.holder not in (referee, None):
                        break
                    time.sleep(0.0005)
        print("won", *won, flush=True)


def hold(url, name, ttl):
    with connect.connect(url) as mine:
        mine.add(name, "held", ttl=float(ttl))

        def touch():
            while True:
                mine.touch(name)
                time.sleep(float(ttl) / 20)  # So that a busy machine does not let it run out.

        threading.Thread(target=touch, daemon=True).start()
        print("ready", flush=True)
        sys.stdin.readline()


def lock(directory):
    with file_lock.locked(f"{directory}/.lock", purpose="a test"):
        print("ready", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    {"race": race, "hold": hold, "lock": lock}[sys.argv[1]](*sys.argv[2:])
    assert "tensorflow" not in sys.modules
