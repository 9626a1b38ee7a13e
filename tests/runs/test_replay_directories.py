"""A run is resumed by as many replay servers as have saved its contents."""

import pytest

from actor_learner.runs import replay_directories
from actor_learner.support import errors


def save(directory):
    (directory / "checkpoint-00000001").mkdir(parents=True)


def test_one_server_has_the_directory_of_the_run_and_each_of_several_one_in_it(tmp_path):
    assert replay_directories.of_server(tmp_path / "replay", 0, 1) == tmp_path / "replay"
    assert replay_directories.of_server(tmp_path / "replay", 1, 2) == tmp_path / "replay" / "1"


def test_the_number_may_change_until_something_is_saved(tmp_path):
    for count in (3, 1, 2):
        directory = replay_directories.of_server(tmp_path, count - 1, count)
    save(directory)
    assert replay_directories.saved_by(tmp_path) == 2
    assert replay_directories.of_server(tmp_path, 0, 2) == tmp_path / "0"


def test_fewer_or_more_servers_than_have_saved_are_refused(tmp_path):
    save(replay_directories.of_server(tmp_path, 1, 2))
    for count in (1, 3):
        with pytest.raises(errors.ConfigError, match="contents of 2 replay .*--replays=2"):
            replay_directories.of_server(tmp_path, 0, count)


def test_several_servers_do_not_take_over_from_one(tmp_path):
    save(tmp_path)
    with pytest.raises(errors.ConfigError, match="one replay server, .* with 2 .* --replays"):
        replay_directories.of_server(tmp_path, 0, 2)
