"""Several want one name: exactly one gets it. Real processes, and threads for memory."""

import collections
import contextlib
import os
import signal
import sys
import threading

import pytest

from actor_learner.naming import registry
from tests.naming import eventually as eventually_lib
from tests.naming import rivals

eventually = eventually_lib.eventually

RIVALS = 4
FREE = [f"free/{i}" for i in range(60)]
EXPIRING = [f"expiring/{i}" for i in range(60)]


@pytest.mark.parametrize("backend", ["file", "redis"])
def test_of_processes_racing_for_a_name_exactly_one_wins_also_at_the_moment_it_runs_out(
    backend, make_url, open_registry
):
    url = make_url(backend)
    names = open_registry(url, who="referee")
    with rivals.started("race", url, names.owner, *FREE, *EXPIRING, count=RIVALS) as processes:
        for i, name in enumerate(EXPIRING):
            # They run out one after the other while the rivals keep asking.
            names.add(name, "x", ttl=0.3 + 0.01 * i)
        rivals.go(processes)
        won = [process.stdout.readline().split() for process in processes]

    assert [words[0] for words in won] == ["won"] * RIVALS
    wins = collections.Counter(name for words in won for name in words[1:])
    assert wins == dict.fromkeys(FREE + EXPIRING, 1)
    assert len(names.find_subtree()) == len(FREE + EXPIRING)


@pytest.fixture
def restless_threads():
    """Threads change places after a microsecond, in the middle of everything."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_of_threads_racing_for_a_name_in_memory_exactly_one_wins(
    make_url, open_registry, restless_threads
):
    url = make_url("memory")
    referee = open_registry(url)
    ends = [open_registry(url) for _ in range(RIVALS)]
    wins = collections.Counter()
    lock = threading.Lock()
    start = threading.Barrier(RIVALS + 1)

    def race(mine):
        start.wait(30)
        for name in FREE + EXPIRING:
            while True:
                try:
                    mine.add(name, "x", ttl=600)
                except registry.NameTakenError as error:
                    if error.holder in (referee.owner, None):
                        continue
                    break
                with lock:
                    wins[name] += 1
                break

    threads = [threading.Thread(target=race, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    for i, name in enumerate(EXPIRING):
        referee.add(name, "x", ttl=0.1 + 0.002 * i)
    start.wait(30)
    for thread in threads:
        thread.join(60)
    assert wins == dict.fromkeys(FREE + EXPIRING, 1)


def test_a_killed_owner_loses_its_name_and_a_living_one_does_not(make_url, open_registry):
    # Both backends at once, because this one has to let real time pass.
    urls = [make_url("file"), make_url("redis")]
    ends = [open_registry(url) for url in urls]
    with contextlib.ExitStack() as stack:
        owners = [
            stack.enter_context(rivals.started("hold", url, "run/learner", "5.0"))[0]
            for url in urls
        ]
        for names in ends:
            names.add("clock", "x", ttl=5.2)
        for names in ends:
            eventually(lambda names=names: not names.find_subtree("clock"), "their ttl has passed")
            with pytest.raises(registry.NameTakenError):
                names.add("run/learner", "mine")

        for owner in owners:
            os.kill(owner.pid, signal.SIGKILL)
            owner.wait()
        for names in ends:
            eventually(lambda names=names: added(names), "a killed process's name is free")
            assert names.get("run/learner") == "mine"


def added(names):
    try:
        names.add("run/learner", "mine")
    except registry.NameTakenError:
        return False
    return True
