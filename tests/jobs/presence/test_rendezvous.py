"""The replay job is reached by those who can find it: on this machine only, or from others."""

import pytest

from actor_learner import run_directory
from actor_learner.jobs import job
from actor_learner.jobs.presence import rendezvous
from actor_learner.naming import files, memory

OUTSIDE = "10.1.2.3"


@pytest.fixture(autouse=True)
def interface(monkeypatch):
    monkeypatch.setattr(rendezvous, "interface_address", lambda: OUTSIDE)


def replay(run_dir, names):
    return job.Job("replay", 0, "mine", names, run_dir=run_dir)


def test_jobs_that_meet_in_the_run_directory_are_on_this_machine(tmp_path):
    run_dir = run_directory.RunDirectory(tmp_path)
    own = files.FileRegistry(rendezvous.registry_in(run_dir))
    assert rendezvous.own_host(replay(run_dir, own)) == "localhost"


def test_any_other_registry_may_be_shared_with_other_machines(tmp_path):
    run_dir = run_directory.RunDirectory(tmp_path / "run")
    for names in (files.FileRegistry(tmp_path / "shared"), memory.MemoryRegistry("a server")):
        assert rendezvous.own_host(replay(run_dir, names)) == OUTSIDE
        assert rendezvous.own_host(replay(None, names)) == OUTSIDE


def test_a_run_directory_on_a_disk_in_common_may_be_shared_with_other_machines(
    tmp_path, monkeypatch
):
    run_dir = run_directory.RunDirectory(tmp_path)
    own = files.FileRegistry(rendezvous.registry_in(run_dir))
    monkeypatch.setattr(rendezvous, "file_system_of", lambda path: "nfs4")
    assert rendezvous.own_host(replay(run_dir, own)) == OUTSIDE


def test_without_a_network_interface_only_this_machine_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(rendezvous, "interface_address", lambda: None)
    assert rendezvous.own_host(replay(None, memory.MemoryRegistry("alone"))) == "localhost"


def test_the_file_system_is_that_of_the_innermost_place_where_one_is_mounted(tmp_path):
    outer, inner = tmp_path / "a b", tmp_path / "a b" / "inner"
    (inner / "run").mkdir(parents=True)
    blank = str(outer).replace(" ", "\\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"22 21 0:40 / {blank}/inner rw - nfs4 server:/disk rw\n"
        f"23 21 0:41 / {blank} rw shared:2 - xfs /dev/sdb1 rw\n"
    )
    assert rendezvous.file_system_of(inner / "run", str(mounts)) == "nfs4"
    assert rendezvous.file_system_of(outer, str(mounts)) == "xfs"
    assert rendezvous.file_system_of(tmp_path, str(mounts)) == "ext4"
    assert rendezvous.file_system_of(tmp_path, str(tmp_path / "none")) == ""
