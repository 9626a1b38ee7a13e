"""Watches of each backend, and what they make of two looks."""

import threading

import pytest

from actor_learner.naming import entries, registry, watch


def test_changes_between_two_looks_come_removals_first_and_by_name():
    def entry(value, owner="me"):
        return entries.Entry(value, owner, None)

    before = {"same": entry("1"), "value": entry("1"), "owner": entry("1"), "gone": entry("1")}
    after = {
        "value": entry("2"),
        "same": entry("1"),
        "owner": entry("1", "you"),
        "new": entry("3"),
    }
    assert watch.changes(before, after) == [
        ("removed", "gone", "1"),
        ("added", "new", "3"),
        ("changed", "owner", "1"),
        ("changed", "value", "2"),
    ]


def test_a_watch_sees_what_is_there_and_what_happens_then(names, others):
    others.add("run/a", "1")
    others.add("elsewhere", "1")
    with names.watch("run") as watching:
        assert watching.events(30) == [(registry.ADDED, "run/a", "1")]
        assert watching.poll() == []
        others.update("run/a", "2")
        assert watching.events(30) == [(registry.CHANGED, "run/a", "2")]
        others.touch("run/a")
        others.add("run/b", "3")
        assert watching.events(30) == [(registry.ADDED, "run/b", "3")]
        others.delete("run/a")
        assert watching.events(30) == [(registry.REMOVED, "run/a", "2")]
        others.add("elsewhere/too", "1")
        assert watching.events(0.05) == []


def test_a_name_that_runs_out_is_seen_as_removed(names, others):
    with names.watch("a") as watching:
        others.add("a", "1")
        assert watching.events(30) == [(registry.ADDED, "a", "1")]
        others.add("a", "1", ttl=0.1, replace=True)
        assert watching.events(30) == [(registry.REMOVED, "a", "1")]


def test_the_same_value_of_another_owner_is_a_change(names, others):
    others.add("a", "1")
    with names.watch("a") as watching:
        watching.events(30)
        names.add("a", "1", replace=True)
        assert watching.events(30) == [(registry.CHANGED, "a", "1")]


def test_single_names_can_be_watched(names, others):
    others.add("run/a/beneath", "1")
    others.add("run/c", "1")
    with names.watch(["run/a", "run/b"]) as watching:
        assert watching.poll() == []
        others.add("run/b", "2")
        assert watching.events(30) == [(registry.ADDED, "run/b", "2")]
        others.add("run/a", "3")
        assert watching.events(30) == [(registry.ADDED, "run/a", "3")]


def test_an_iterator_yields_events_until_the_registry_is_closed(names, others):
    others.add("a", "1")
    seen = []
    first = threading.Event()

    def follow():
        for event in names.watch():
            seen.append(event)
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(30)
    names.close()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == [(registry.ADDED, "a", "1")]


def test_a_callback_gets_every_event_until_the_watch_is_closed(names, others):
    events = []
    arrived = threading.Semaphore(0)

    def callback(event):
        events.append(event)
        arrived.release()

    watching = names.watch("run", callback)
    others.add("run/a", "1")
    assert arrived.acquire(timeout=30)
    others.delete("run/a")
    assert arrived.acquire(timeout=30)
    watching.close()
    others.add("run/b", "2")
    assert events == [(registry.ADDED, "run/a", "1"), (registry.REMOVED, "run/a", "1")]


def test_an_exception_of_the_callback_reaches_whoever_closes_the_watch(names, others):
    called = threading.Event()

    def callback(event):
        called.set()
        raise RuntimeError(f"cannot bear {event.name}")

    watching = names.watch("a", callback)
    others.add("a", "1")
    assert called.wait(30)
    with pytest.raises(RuntimeError, match="cannot bear a"):
        watching.close()
    with pytest.raises(RuntimeError, match="cannot bear a"):
        watching.check()
