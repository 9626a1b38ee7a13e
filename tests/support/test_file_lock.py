"""The lock between processes; that it ends with its holder is tested with the file registry."""

import os
import threading

import pytest

from actor_learner.support import errors, file_lock


def test_one_holder_at_a_time_among_threads(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(20):
            with file_lock.locked(tmp_path / "lock", purpose="a test"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 80


def test_an_error_frees_the_lock(tmp_path):
    with pytest.raises(RuntimeError):
        with file_lock.locked(tmp_path / "lock", purpose="a test"):
            raise RuntimeError
    with file_lock.locked(tmp_path / "lock", purpose="a test", timeout=0):
        pass


def test_a_lock_that_stays_taken_says_who_waits_for_whom_and_what_for(tmp_path):
    with file_lock.locked(tmp_path / "lock", purpose="the first"):
        with pytest.raises(file_lock.LockTimeoutError) as caught:
            with file_lock.locked(tmp_path / "lock", purpose="the second", timeout=0.05):
                pass
    message = str(caught.value)
    assert message.startswith(f"process {os.getpid()} has waited 0.05 s for the lock {tmp_path}")
    assert f"for the second; process {os.getpid()} on " in message
    assert isinstance(caught.value, errors.ActorLearnerError)
    assert isinstance(caught.value, TimeoutError)


def test_a_child_forked_meanwhile_does_not_keep_the_lock(tmp_path):
    release_read, release_write = os.pipe()
    with file_lock.locked(tmp_path / "lock", purpose="a test"):
        child = os.fork()
        if child == 0:
            os.read(release_read, 1)
            os._exit(0)
    try:
        with file_lock.locked(tmp_path / "lock", purpose="a test", timeout=0):
            pass
    finally:
        os.write(release_write, b"x")
        os.waitpid(child, 0)
        os.close(release_read)
        os.close(release_write)
