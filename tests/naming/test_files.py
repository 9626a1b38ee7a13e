"""What is particular to names in a directory: clocks, locks and damage."""

import json
import os
import signal

import pytest

from actor_learner.naming import files, registry
from tests.naming import rivals


class Clock:
    """Stands still unless told otherwise."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def names(tmp_path, clock):
    with files.FileRegistry(tmp_path, clock=clock, who="one") as made:
        yield made


def edit(path, **changes):
    """Rewrites fields of an entry's file and keeps its time of modification."""
    times = path.stat()
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_ages_follow_the_machines_clock_to_the_last_moment(names, clock):
    names.add("a", "x", ttl=10)
    clock.now += 9.99
    assert names.get("a") == "x"
    names.touch("a")
    clock.now += 9.99
    names.update("a", "y")
    clock.now += 9.99
    assert names.get("a") == "y"
    clock.now += 0.01
    assert names.find_subtree() == {}


def test_the_time_of_day_does_not_matter_on_one_machine(names, tmp_path):
    names.add("a", "x", ttl=10)
    for days in (-1, 1):
        moved = (tmp_path / "a").stat().st_mtime + days * 86_400
        os.utime(tmp_path / "a", (moved, moved))
        assert names.get("a") == "x"


@pytest.mark.parametrize("boot", ["another machine", None])
def test_ages_of_other_machines_names_follow_the_file_system(names, clock, tmp_path, boot):
    names.add("a", "x", ttl=1000)
    edit(tmp_path / "a", boot=boot, renewed=-1e9)
    assert names.get("a") == "x"

    before = (tmp_path / "a").stat().st_mtime
    os.utime(tmp_path / "a", (before - 900, before - 900))
    assert names.get("a") == "x"
    os.utime(tmp_path / "a", (before - 2000, before - 2000))
    assert names.find_subtree() == {}
    # As if the clock had been a year ahead when it was written.
    os.utime(tmp_path / "a", (before + 3e7, before + 3e7))
    assert names.find_subtree() == {}


def test_a_damaged_entry_counts_as_free(names, tmp_path):
    for name, content in {"a": "", "b": '{"value": "x', "c": "{}", "d": "[1]"}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(registry.NameNotFoundError):
            names.get(name)
        names.add(name, "new")
        assert names.get(name) == "new"


def test_what_a_writer_killed_midway_leaves_does_no_harm(names, tmp_path):
    (tmp_path / ".incoming").write_text('{"value": "ha')
    assert names.find_subtree() == {}
    names.add("a", "x")
    assert names.find_subtree() == {"a": "x"}
    assert sorted(os.listdir(tmp_path)) == [".lock", ".spare", "a"]


def test_opening_the_directory_sweeps_out_what_has_run_out(names, clock, tmp_path):
    names.add("run/dead", "x", ttl=10)
    names.add("run/stays", "x")
    clock.now += 11
    with files.FileRegistry(tmp_path, clock=clock):
        assert sorted(os.listdir(tmp_path)) == [".lock", ".spare", "run#stays"]


def test_a_lock_that_is_not_freed_is_an_error_that_names_its_holder(tmp_path):
    with files.FileRegistry(tmp_path, who="one", lock_timeout=0.1) as names:
        names.add("a", "x")
        with rivals.started("lock", str(tmp_path)) as (holder,):
            with pytest.raises(registry.RegistryUnavailableError) as caught:
                names.add("b", "x")
            assert f"process {holder.pid} on " in str(caught.value)
            assert "adding the name 'b'" in str(caught.value)
            assert names.get("a") == "x"  # Readers need no lock.

            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()
            names.add("b", "x")
    assert sorted(os.listdir(tmp_path)) == [".lock", ".spare", "a", "b"]


def test_a_directory_that_cannot_be_used_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(registry.RegistryUnavailableError, match="file/registry cannot be used"):
        files.FileRegistry(tmp_path / "file" / "registry")


def test_a_directory_that_vanished_is_an_error(tmp_path):
    with files.FileRegistry(tmp_path / "registry") as names:
        (tmp_path / "registry").rmdir()
        with pytest.raises(registry.RegistryUnavailableError, match="does the directory exist"):
            names.add("a", "x")
        with pytest.raises(registry.RegistryUnavailableError):
            names.find_subtree()
        with pytest.raises(registry.NameWaitTimeoutError):
            names.wait("a", 0.05)
