"""Whatever somebody else has put where entries belong is skipped, warned of once, and replaced."""

import pytest
import redis

from actor_learner.naming import entries, name_errors
from actor_learner.naming import redis as redis_registry

GARBAGE = [
    b"",
    b"\xff\xfe\x00",
    b"nonsense",
    b"[]",
    b"{",
    b'{"value": 5, "owner": "x", "ttl": null, "boot": null, "renewed": 1}',
    b'{"value": "x", "owner": "x", "ttl": "long", "boot": null, "renewed": 1}',
    b'{"value": "x", "owner": "x", "ttl": 5, "boot": null, "renewed": "now"}',
    b'{"value": "x", "owner": "x"}',
    b"[" * 100_000,
    b"owner\nno number\nstamp\nvalue",
    b"owner\n12",
]


@pytest.fixture(params=["file", "redis", "redis list"])
def damage(request, make_url, open_registry):
    """An end of a registry, and what puts bytes under a name of it."""
    kind, *other_type = request.param.split()
    url = make_url(kind)
    names = open_registry(url, who="one", poll_seconds=0.02)
    if kind == "file":
        return names, lambda name, data: names.directory.joinpath(
            name.replace("/", "#")
        ).write_bytes(data)
    client = redis.Redis.from_url(url)
    request.addfinalizer(client.close)

    def put(name, data):
        key = redis_registry.KEY_PREFIX + name
        client.delete(key)
        (client.rpush if other_type else client.set)(key, data)

    return names, put


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda data: repr(data[:40]))
def test_what_is_not_an_entry_counts_as_absent(damage, garbage, caplog):
    names, put = damage
    names.add("run/there", "x")
    put("run/bad", garbage)
    for _ in range(3):
        assert names.find_subtree("run") == {"run/there": "x"}
    assert len([r for r in caplog.records if "run/bad" in r.getMessage().replace("#", "/")]) <= 1
    with pytest.raises(name_errors.NameNotFoundError):
        names.get("run/bad")
    with pytest.raises(name_errors.NameNotFoundError):
        names.touch("run/bad")
    with pytest.raises(name_errors.NameNotFoundError):
        names.take("run/bad")
    assert names.touch_all(["run/there", "run/bad"]) == {
        "run/there": entries.Outcome.DONE, "run/bad": entries.Outcome.ABSENT
    }  # fmt: skip
    with pytest.raises(name_errors.NameWaitTimeoutError):
        names.wait("run/bad", 0.05)
    names.add("run/bad", "good", ttl=30)  # It is free for whoever adds it.
    assert names.get("run/bad") == "good"
    names.touch("run/bad")


def test_an_entry_of_ours_that_somebody_damages_can_be_added_again(damage):
    names, put = damage
    names.add("lease", "mine", ttl=30)
    put("lease", b"nonsense")
    assert names.touch_all(["lease"]) == {"lease": entries.Outcome.ABSENT}
    names.add("lease", "mine", ttl=30)
    assert names.touch_all(["lease"]) == {"lease": entries.Outcome.DONE}
    assert names.clear_subtree() == 1
