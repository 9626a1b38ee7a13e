"""`actor-learner params`, through an argument parser as the command line has it."""

import argparse
import os
import re

import numpy as np
import pytest

from actor_learner.commands import params
from actor_learner.parameters import store as store_lib
from actor_learner.support import errors


@pytest.fixture
def run(tmp_path):
    """A run directory with versions 100, 200 (best) and 300 of one name."""
    (tmp_path / "run.json").write_text("{}")
    held = store_lib.ParameterStore(tmp_path / "parameters")
    for version, mean in ((100, 21.5), (200, 480.25), (300, None)):
        metadata = {} if mean is None else {"mean_return": mean, "episodes": 20}
        held.push(
            "policy", {"kernel": np.full(500, version, np.float32)}, version, metadata=metadata
        )
    held.tag("policy", 200, "best")
    return tmp_path


def execute(*arguments):
    parser = argparse.ArgumentParser(prog="actor-learner")
    params.add_parser(parser.add_subparsers(required=True))
    parsed = parser.parse_args(["params", *map(str, arguments)])
    return parsed.command(parsed)


def test_list_shows_versions_tags_age_size_and_metadata(run, capsys):
    assert execute("list", run) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == f"policy: 3, 1 of them tagged, in {run}/parameters"
    assert [line.split() for line in lines[1:2]] == [
        ["version", "tags", "age", "size", "mean_return", "episodes"]
    ]
    rows = [re.sub(r"\d+:\d+", "AGE", line).split() for line in lines[2:]]
    assert rows == [
        ["300", "-", "AGE", "2.5", "kB", "-", "-"],
        ["200", "best", "AGE", "2.5", "kB", "480.2", "20"],
        ["100", "-", "AGE", "2.5", "kB", "21.50", "20"],
    ]
    assert len({line.index("kB") for line in lines[2:]}) == 1


def test_list_shows_every_name_and_what_is_damaged(run, capsys):
    held = store_lib.ParameterStore(run / "parameters")
    pushed = held.push("rival", {"a": 1.0}, 7)
    pushed.path.write_bytes(b"nothing")
    assert execute("list", run / "parameters") == 0
    output = capsys.readouterr().out
    assert f"\n\nrival: 1, 0 of them tagged, in {run}/parameters\n" in output
    assert re.search(r"^7 +- +\? +7 B +.*rival/000000001-v7.npz is damaged", output, re.MULTILINE)

    assert execute("list", run, "--name=rival") == 0
    assert "policy" not in capsys.readouterr().out


def test_tag_and_untag(run, capsys):
    held = store_lib.ParameterStore(run / "parameters")
    assert execute("tag", run, 100, "mine") == 0
    assert held.get("policy", "mine").version == 100
    assert execute("tag", run, 300, "mine") == 0
    assert held.get("policy", "mine").version == 300
    assert execute("untag", run, "mine") == 0
    assert [stored.tags for stored in held.list("policy")] == [(), ("best",), ()]
    assert capsys.readouterr().out.splitlines() == [
        "policy: version 100 is 'mine' now",
        "policy: version 300 is 'mine' now",
        "policy: no version is 'mine' any more",
    ]


@pytest.mark.parametrize("identifier, version", [([], 300), (["best"], 200), (["100"], 100)])
def test_get_writes_a_file_that_numpy_reads(run, tmp_path, identifier, version):
    out = tmp_path / "copy.npz"
    assert execute("get", run, *identifier, "--out", out) == 0
    with np.load(out, allow_pickle=False) as loaded:
        np.testing.assert_array_equal(loaded["kernel"], np.full(500, version, np.float32))


def test_get_replaces_no_file_and_wants_the_right_ending(run, tmp_path):
    (tmp_path / "there.npz").write_text("precious")
    with pytest.raises(errors.ActorLearnerError, match="there.npz exists already"):
        execute("get", run, "--out", tmp_path / "there.npz")
    assert (tmp_path / "there.npz").read_text() == "precious"
    with pytest.raises(errors.ConfigError, match="must end in .npz"):
        execute("get", run, "--out", tmp_path / "policy")


def test_gc_says_what_it_removed_and_spares_tags(run, capsys):
    assert execute("gc", run, "--keep=1") == 0
    assert capsys.readouterr().out == "policy: 1 removed: 100; 2 left\n"
    assert execute("gc", run, "--keep=1") == 0
    assert capsys.readouterr().out == "policy: 0 removed; 2 left\n"
    with pytest.raises(errors.ConfigError, match="--keep=0"):
        execute("gc", run, "--keep=0")


def test_of_several_names_one_must_be_chosen(run):
    held = store_lib.ParameterStore(run / "parameters")
    held.push("rival", {"a": 1.0}, 7)
    with pytest.raises(errors.ConfigError, match=re.escape("--name=policy|rival")):
        execute("tag", run, 7, "best")
    assert execute("tag", run, 7, "best", "--name=rival") == 0
    assert held.get("rival", "best").version == 7


def test_places_without_parameters_are_errors(tmp_path):
    with pytest.raises(errors.ConfigError, match="nowhere does not exist"):
        execute("list", tmp_path / "nowhere")
    with pytest.raises(errors.ConfigError, match="separate jobs store versions"):
        execute("list", tmp_path)
    assert os.listdir(tmp_path) == []


def test_unknown_versions_and_tags_are_errors_that_say_what_there_is(run, tmp_path):
    for arguments in (("tag", run, 5, "mine"), ("get", run, "5", "--out", tmp_path / "a.npz")):
        with pytest.raises(store_lib.ParametersNotFoundError, match="versions: 300, 200, 100"):
            execute(*arguments)
    with pytest.raises(store_lib.ParametersNotFoundError, match="tags: best"):
        execute("untag", run, "mine")
    with pytest.raises(store_lib.ParametersNotFoundError, match="there are policy"):
        execute("list", run, "--name=rival")
