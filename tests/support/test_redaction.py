"""Passwords of URLs are neither shown nor kept; all else stays as it was."""

import json

import pytest

from actor_learner import run_directory
from actor_learner.naming import connect
from actor_learner.support import errors, redaction


@pytest.mark.parametrize(
    "text, shown",
    [
        ("redis://:secret@host:6379/0", "redis://host:6379/0"),
        ("--registry=rediss://user:se:cr@et@host/0", "--registry=rediss://host/0"),
        ("redis://:sec#r?et@host:6379/0", "redis://host:6379/0"),
        ("unix:///run/redis?db=1&password=secret", "unix:///run/redis?db=1&password=***"),
        ("a redis://u:secret@h and redis://v:secret@k", "a redis://h and redis://k"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("--warm_start=runs/earlier@12", "--warm_start=runs/earlier@12"),
        ("--warm_start=gs://bucket/earlier@12", "--warm_start=gs://bucket/earlier@12"),
    ],
)
def test_only_passwords_are_left_out(text, shown):
    assert redaction.redacted(text) == shown


def test_a_run_keeps_its_command_line_without_passwords(tmp_path):
    run_dir = run_directory.RunDirectory(tmp_path)
    argv = ["actor-learner", "up", "--registry=redis://:secret@host:6379/0"]
    run_dir.describe(seed=1, argv=argv)
    run_dir.describe_resumption(argv)
    text = run_dir.description.read_text()
    assert "secret" not in text
    content = json.loads(text)
    kept = ["actor-learner", "up", "--registry=redis://host:6379/0"]
    assert content["argv"] == content["resumed"][0]["argv"] == kept


def test_an_address_that_is_no_registrys_is_named_without_its_password():
    with pytest.raises(errors.ConfigError, match="reddis://host is not a registry") as caught:
        connect.connect("reddis://:secret@host")
    assert "secret" not in str(caught.value)
