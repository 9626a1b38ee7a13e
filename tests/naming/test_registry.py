"""What every registry promises, asked of each backend."""

import threading

import pytest

from actor_learner.naming import entries, registry
from actor_learner.support import errors
from tests.naming import eventually as eventually_lib

eventually = eventually_lib.eventually


def test_what_one_adds_the_other_finds(names, others):
    names.add("run/replay/0", "10.0.0.7:8008")
    assert others.get("run/replay/0") == "10.0.0.7:8008"


@pytest.mark.parametrize("value", ["", "two\nlines", '{"state": "läuft", "n": [1, 2]}', "\n\n\n"])
def test_values_come_back_as_they_were(names, others, value):
    names.add("a", value, ttl=60)
    assert others.get("a") == value
    names.update("a", value + value)
    assert others.get("a") == value + value


def test_subtree_is_the_name_itself_and_all_beneath_it_but_no_sibling(names, others):
    for name in ("run", "run/b", "run/a/1", "run2/a", "ru"):
        names.add(name, f"value of {name}")

    assert others.find_subtree("run") == {
        "run": "value of run",
        "run/a/1": "value of run/a/1",
        "run/b": "value of run/b",
    }
    assert list(others.find_subtree("run")) == ["run", "run/a/1", "run/b"]
    assert set(others.find_subtree()) == {"run", "run/b", "run/a/1", "run2/a", "ru"}
    assert others.find_subtree("none") == {}


def test_clearing_a_subtree_removes_what_others_added_and_leaves_the_rest(names, others):
    for name in ("run", "run/a", "run2"):
        names.add(name, "x")

    assert others.clear_subtree("run") == 2
    assert names.find_subtree() == {"run2": "x"}
    assert others.clear_subtree("run") == 0


def test_a_taken_name_is_refused_and_the_error_says_by_whom(names, others):
    names.add("run/learner", "first")
    with pytest.raises(registry.NameTakenError, match="other cannot add .*'run/learner'") as caught:
        others.add("run/learner", "second")

    assert caught.value.name == "run/learner"
    assert caught.value.holder == names.owner
    assert names.owner in str(caught.value) and "'first'" in str(caught.value)
    assert isinstance(caught.value, errors.ActorLearnerError)
    assert names.get("run/learner") == "first"


def test_ones_own_name_is_taken_too(names):
    names.add("a", "1")
    with pytest.raises(registry.NameTakenError):
        names.add("a", "2")
    names.add("a", "3", replace=True)
    assert names.get("a") == "3"


def test_replacing_takes_a_name_away_from_its_owner(names, others):
    names.add("a", "first", ttl=60)
    others.add("a", "second", ttl=60, replace=True)

    assert names.get("a") == "second"
    for request in (
        lambda: names.touch("a"),
        lambda: names.update("a", "third"),
        lambda: names.delete("a"),
    ):
        with pytest.raises(registry.NotOwnerError, match="belongs to other@"):
            request()
    assert others.get("a") == "second"
    others.touch("a")
    others.update("a", "fourth")
    assert names.get("a") == "fourth"


def test_only_the_owner_deletes(names, others):
    names.add("a", "x")
    with pytest.raises(registry.NotOwnerError, match="cannot delete the name 'a'"):
        others.delete("a")
    names.delete("a")
    with pytest.raises(registry.NameNotFoundError, match="cannot delete the name 'a'"):
        names.delete("a")
    others.add("a", "y")
    assert names.get("a") == "y"


def test_absent_names_can_be_neither_read_nor_refreshed_nor_changed(names):
    for request in (
        lambda: names.get("run/a"),
        lambda: names.touch("run/a"),
        lambda: names.update("run/a", "x"),
        lambda: names.take("run/a"),
    ):
        with pytest.raises(registry.NameNotFoundError, match="run/a"):
            request()
    assert names.find_subtree() == {}


def test_a_missing_name_is_reported_with_its_nearest_neighbours(names):
    with pytest.raises(registry.NameNotFoundError, match="the registry is empty"):
        names.get("run/actor/7")
    names.add("run/replay/0", "x")
    names.add("run2/actor/7", "x")
    with pytest.raises(registry.NameNotFoundError, match="beneath 'run' there are run/replay/0$"):
        names.get("run/actor/7")
    names.add("run/actor/1", "x")
    with pytest.raises(registry.NameNotFoundError, match="'run/actor' there are run/actor/1$"):
        names.get("run/actor/7")


def test_of_several_takers_one_gets_the_letter(names, others, url, open_registry):
    ends = [names, others, open_registry(url), open_registry(url)]
    for letter in range(10):
        others.add("box", f"letter {letter}")
        start = threading.Barrier(len(ends))
        got = []

        def take(end, start=start, got=got):
            start.wait(30)
            try:
                got.append(end.take("box"))
            except registry.NameNotFoundError:
                got.append(None)

        threads = [threading.Thread(target=take, args=(end,)) for end in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(got, key=str) == [None, None, None, f"letter {letter}"]


def test_waiting_ends_when_the_name_is_added(names, others):
    waiting = threading.Event()
    got = []

    def wait():
        waiting.set()
        got.append(names.wait("run/replay/0", timeout=60))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(30)
    others.add("run/replay/0", "here")
    thread.join(60)
    assert got == ["here"]


def test_waiting_in_vain_says_who_waited_for_what_and_what_there_is(names, others):
    others.add("run/replay/1", "x")
    others.add("other_run/replay/0", "x")
    with pytest.raises(registry.NameWaitTimeoutError) as caught:
        names.wait("run/replay/0", timeout=0.05)

    message = str(caught.value)
    assert message.startswith("one has waited 0.05 s for the name 'run/replay/0' in ")
    assert "beneath 'run/replay' there are run/replay/1." in message
    assert isinstance(caught.value, TimeoutError)


def test_waiting_ends_with_an_error_when_the_registry_is_closed(names):
    failures = []
    waiting = threading.Event()

    def wait():
        waiting.set()
        try:
            names.wait("never", timeout=60)
        except registry.NamingError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(30)
    names.close()
    thread.join(30)
    assert "was closed" in str(failures[0])
    assert not isinstance(failures[0], TimeoutError)


def test_a_name_runs_out_and_is_anybodys(names, others):
    names.add("a", "first", ttl=0.05)
    names.add("b", "stays")
    eventually(lambda: not others.find_subtree("a"), "the name runs out")

    with pytest.raises(registry.NameNotFoundError):
        others.get("a")
    with pytest.raises(registry.NameNotFoundError):
        names.touch("a")
    others.add("a", "second", ttl=60)
    with pytest.raises(registry.NotOwnerError):
        names.touch("a")
    assert names.find_subtree() == {"a": "second", "b": "stays"}


def test_a_name_added_anew_without_ttl_does_not_run_out(names, others):
    names.add("a", "short", ttl=0.05)
    names.add("a", "long", replace=True)
    names.add("b", "short", ttl=0.1)
    eventually(lambda: not others.find_subtree("b"), "the later name runs out")
    assert others.get("a") == "long"


def test_after_closing_nothing_can_be_asked(names, others):
    names.add("a", "x")
    names.close()
    names.close()
    for request in (
        lambda: names.get("a"),
        lambda: names.add("b", "x"),
        lambda: names.find_subtree(),
        lambda: names.wait("a", 0),
        lambda: names.clear_subtree("a"),
    ):
        with pytest.raises(registry.NamingError, match="was closed by one"):
            request()
    assert others.get("a") == "x"


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", ".", "a/..", "a b", "a/.hidden", "a*", "a\n", "ä", "a" * 241]
)
def test_names_that_are_no_paths_are_refused(names, name):
    with pytest.raises(registry.InvalidNameError):
        names.add(name, "x")
    with pytest.raises(registry.InvalidNameError):
        names.get(name)
    if name:
        with pytest.raises(registry.InvalidNameError):
            names.find_subtree(name)
    assert names.find_subtree() == {}


def test_the_longest_name_and_value_are_accepted(names, others):
    name = "/".join(["a" * 29] * 8)
    assert len(name) == 239
    names.add(name, "v" * 65_536)
    assert others.get(name) == "v" * 65_536


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"value": 7}, "values are strings"),
        ({"value": "x" * 65_537}, "at most 65,536 are allowed"),
        ({"value": "\ud800"}, "UTF-8"),
        ({"value": "x", "ttl": 0}, "ttl of 'a' is 0"),
        ({"value": "x", "ttl": -1}, "ttl of 'a' is -1"),
        ({"value": "x", "ttl": float("inf")}, "ttl of 'a' is inf"),
    ],
)
def test_values_and_times_to_live_are_checked(names, arguments, message):
    with pytest.raises(registry.InvalidNameError, match=message):
        names.add("a", **arguments)
    assert names.find_subtree() == {}


def test_several_names_are_refreshed_at_once_and_of_each_is_said_how_it_went(names, others):
    names.add("a", "x", ttl=30)
    names.add("b", "y")
    others.add("c", "z")
    assert names.touch_all(["a", "b", "c", "d"]) == {
        "a": entries.Outcome.DONE,
        "b": entries.Outcome.DONE,
        "c": entries.Outcome.FOREIGN,
        "d": entries.Outcome.ABSENT,
    }
    with pytest.raises(registry.InvalidNameError):
        names.touch_all(["a", "not a name"])
