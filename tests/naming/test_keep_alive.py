"""Names that are kept alive, and what happens when they are lost."""

import threading

import pytest

from actor_learner.naming import entries, keep_alive, memory, name_errors, registry
from tests.naming import eventually as eventually_lib

eventually = eventually_lib.eventually


@pytest.fixture
def eager(monkeypatch):
    """Names that live a minute are refreshed every tenth of a second: no stall can matter."""
    monkeypatch.setattr(keep_alive, "_RENEWALS_PER_TTL", 600)
    monkeypatch.setattr(keep_alive, "_RETRIES_PER_TTL", 600)


def test_a_kept_name_outlives_its_ttl():
    # Of processes, `test_races` shows the same.
    now = [1000.0]
    with memory.MemoryRegistry("kept", clock=lambda: now[0]) as names:
        names.add("a", "x", ttl=0.2, keep_alive=True)
        for _ in range(5):
            now[0] += 0.15
            eventually(lambda: names._space.entries["a"][1] == now[0] + 0.2, "it is refreshed")
        assert names.get("a") == "x"
        names.check()
        names.add("b", "x", ttl=0.2)
        now[0] += 0.2
        assert names.find_subtree("b") == {}


def test_closing_frees_kept_names_and_leaves_the_others(names, others):
    names.add("kept", "x", ttl=60, keep_alive=True)
    names.add("leased", "x", ttl=60)
    names.add("for_ever", "x")
    names.close()
    assert set(others.find_subtree()) == {"leased", "for_ever"}


def test_closing_does_not_free_what_has_become_anothers(names, others):
    names.add("a", "mine", ttl=60, keep_alive=True)
    others.add("a", "yours", replace=True)
    names.close()
    assert others.get("a") == "yours"


@pytest.mark.parametrize(
    "lose, problem",
    [
        (lambda others: others.add("a", "yours", replace=True), "somebody else has added it"),
        (lambda others: others.clear_subtree(""), "it was cleared"),
    ],
    ids=["replaced", "cleared"],
)
def test_a_lost_name_is_reported_once_and_until_it_is_added_again(
    url, open_registry, others, lose, problem, eager
):
    losses = []
    told = threading.Event()

    def on_lost(error):
        losses.append(error)
        told.set()

    names = open_registry(url, who="one", on_lost=on_lost)
    names.add("a", "mine", ttl=60, keep_alive=True)
    names.check()
    lose(others)
    assert told.wait(60)

    assert [error.name for error in losses] == ["a"]
    for _ in range(2):
        with pytest.raises(registry.NameLostError, match=f"'a' is no longer ours: {problem}"):
            names.check()
    names.add("a", "mine again", ttl=60, replace=True, keep_alive=True)
    names.check()
    assert others.get("a") == "mine again"


def test_the_callback_may_add_the_name_again(url, open_registry, others, eager):
    added = threading.Event()

    def on_lost(error):
        names.add(error.name, "back", ttl=60, keep_alive=True)
        added.set()

    names = open_registry(url, on_lost=on_lost)
    names.add("a", "mine", ttl=60, keep_alive=True)
    others.clear_subtree()
    assert added.wait(60)
    assert others.get("a") == "back"
    names.check()


def test_what_one_removes_oneself_is_not_lost():
    """Removals that fall exactly between the request to refresh and its answer."""
    asked, answer = threading.Event(), threading.Event()
    losses = []

    def renew(name):
        asked.set()
        assert answer.wait(30)
        return entries.Outcome.ABSENT

    for forget in (lambda kept: kept.forget("a"), lambda kept: kept.forget_subtree("")):
        asked.clear()
        answer.clear()
        kept = keep_alive.KeepAlive(renew, losses.append)
        kept.keep("a", ttl=0.03)
        assert asked.wait(30)
        forget(kept)
        answer.set()
        assert kept.stop(30) == []
        kept.check()
    assert losses == []


def test_an_unavailable_registry_is_tried_again_until_the_ttl_has_passed(eager):
    outcomes = [entries.Outcome.DONE] + [name_errors.RegistryUnavailableError("away")] * 2
    recovered = threading.Event()

    def renew(name):
        outcome = outcomes.pop(0) if outcomes else entries.Outcome.DONE
        if isinstance(outcome, Exception):
            raise outcome
        if not outcomes:
            recovered.set()
        return outcome

    kept = keep_alive.KeepAlive(renew, None)
    kept.keep("a", ttl=60)
    assert recovered.wait(30)
    kept.check()
    assert kept.stop(30) == ["a"]


def test_a_registry_away_for_longer_than_the_ttl_loses_the_name():
    def renew(name):
        raise name_errors.RegistryUnavailableError("the server is away")

    lost = threading.Event()
    kept = keep_alive.KeepAlive(renew, lambda error: lost.set())
    kept.keep("a", ttl=0.05)
    assert lost.wait(30)
    with pytest.raises(name_errors.NameLostError, match="0.05 s it could not .* server is away"):
        kept.check()
    kept.stop(30)


def test_a_failure_of_the_callback_reaches_check():
    def on_lost(error):
        raise RuntimeError("cannot go on")

    kept = keep_alive.KeepAlive(lambda name: entries.Outcome.FOREIGN, on_lost)
    kept.keep("a", ttl=0.03)

    def failed():
        try:
            kept.check()
        except RuntimeError as error:
            return str(error)
        except name_errors.NameLostError:
            return None

    assert eventually(failed, "the failure is seen") == "cannot go on"
    kept.stop(30)
