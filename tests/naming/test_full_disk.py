"""The registry in a directory whose disk is full: leases are renewed without taking room."""

import pytest

from actor_learner.naming import files, registry
from tests.small_disk import small_disk  # noqa: F401 - a fixture.


@pytest.fixture
def names(small_disk):  # noqa: F811
    with files.FileRegistry(small_disk.path / "registry", who="job") as made:
        yield made


def test_leases_are_renewed_and_values_changed_on_a_full_disk(names, small_disk):  # noqa: F811
    time = [0.0]
    names._clock = lambda: time[0]
    names.add("run/heartbeat", "me", ttl=10.0)
    names.add("run/status", "running", replace=True)
    small_disk.fill()
    for beat in range(20):
        time[0] += 5.0
        names.touch("run/heartbeat")
        names.add("run/status", f"running, {beat}", replace=True)
        small_disk.fill()  # Whatever becomes free is taken by others.
    assert names.find_subtree("run") == {"run/heartbeat": "me", "run/status": "running, 19"}
    with pytest.raises(registry.NotOwnerError):
        directory = small_disk.path / "registry"
        files.FileRegistry(directory, who="rival", clock=lambda: time[0]).touch("run/heartbeat")


def test_what_needs_more_room_than_is_set_aside_is_refused_and_leaves_no_trace(
    names,
    small_disk,  # noqa: F811
):
    names.add("a", "x")
    small_disk.fill()
    with pytest.raises(registry.RegistryUnavailableError, match="No space left"):
        names.add("a", 20_000 * "y", replace=True)
    assert names.get("a") == "x"
    names.add("a", "z", replace=True)
    assert names.get("a") == "z"
    left = sorted(path.name for path in (small_disk.path / "registry").iterdir())
    assert left == [".lock", ".spare", "a"]
    small_disk.free()
    names.add("a", 20_000 * "y", replace=True)
    assert names.get("a") == 20_000 * "y"
