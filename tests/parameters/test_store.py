"""Versions, tags, collection and damage, within one process."""

import os
import subprocess
import sys

import numpy as np
import pytest

from actor_learner.parameters import store as store_lib
from actor_learner.support import errors, file_lock, finite


@pytest.fixture
def store(tmp_path):
    return store_lib.ParameterStore(tmp_path / "parameters")


def values(number):
    return {"kernel": np.full([2, 3], number, np.float32), "steps": np.int64(number)}


def push(store, *versions, name="policy", **options):
    for version in versions:
        store.push(name, values(version), version, **options)


def versions(store, name="policy"):
    return [stored.version for stored in store.list(name)]


def damage(store, version, name="policy"):
    """Flips a bit in the middle of the arrays, where `list` does not look."""
    (path,) = [stored.path for stored in store.list(name) if stored.version == version]
    content = bytearray(path.read_bytes())
    content[content.index(b"kernel.npy") + 160] ^= 1
    path.write_bytes(content)
    return path


def test_what_is_pushed_is_got(store):
    pushed = store.push(
        "policy", values(3), 1000, tags=["best", "mine"], metadata={"mean_return": 480.5}
    )
    got = store.get("policy")

    np.testing.assert_array_equal(got.values["kernel"], np.full([2, 3], 3, np.float32))
    assert got.values["kernel"].dtype == np.float32
    assert got.values["steps"] == 3 and got.values["steps"].dtype == np.int64
    assert (got.version, got.tags, got.metadata) == (1000, ("best", "mine"), {"mean_return": 480.5})
    assert store.list("policy") == (pushed,)
    assert pushed.size == os.path.getsize(pushed.path)
    assert pushed.created == got.created


def test_arrays_that_were_got_may_be_changed(store):
    push(store, 1)
    got = store.get("policy").values["kernel"]
    got += 1
    np.testing.assert_array_equal(store.get("policy").values["kernel"], values(1)["kernel"])


def test_versions_and_tags_are_found_by_any_identifier(store):
    push(store, 10, 20, 30)
    store.tag("policy", 20, "best")

    for identifier, version in {
        "latest": 30,
        10: 10,
        "10": 10,
        np.int64(20): 20,
        "best": 20,
    }.items():
        assert store.get("policy", identifier).version == version
    assert store.get("policy", "best").tags == ("best",)
    assert versions(store) == [30, 20, 10]


def test_names_are_apart(store):
    push(store, 1, name="policy")
    push(store, 2, name="exploiter_1")
    assert store.names() == ("exploiter_1", "policy")
    assert versions(store, "exploiter_1") == [2]


def test_a_tag_moves_and_goes_and_a_version_may_have_several(store):
    push(store, 1, 2)
    store.tag("policy", 1, "best")
    store.tag("policy", 1, "mine")
    assert [stored.tags for stored in store.list("policy")] == [(), ("best", "mine")]
    store.tag("policy", 2, "best")
    assert [stored.tags for stored in store.list("policy")] == [("best",), ("mine",)]
    push(store, 3, tags=["best"])
    assert store.get("policy", "best").version == 3
    store.untag("policy", "best")
    with pytest.raises(store_lib.ParametersNotFoundError, match="no tag 'best'.* tags: mine"):
        store.get("policy", "best")
    with pytest.raises(store_lib.ParametersNotFoundError, match="no tag 'best'"):
        store.untag("policy", "best")


def test_a_learner_that_resumed_earlier_pushes_what_is_latest_then(store):
    push(store, 900, 1000)
    store.tag("policy", 1000, "best")
    push(store, 950)
    assert store.get("policy").version == 950
    store.push("policy", values(-1), 1000)

    assert store.get("policy", 1000).values["steps"] == -1
    assert store.get("policy", "best").values["steps"] == 1000
    assert versions(store) == [1000, 950, 1000, 900]
    assert store.gc("policy", keep=1) == (950, 900)
    assert store.get("policy", "best").values["steps"] == 1000


def test_collection_keeps_the_last_ones_and_spares_tags(store):
    push(store, *range(10))
    store.tag("policy", 2, "best")
    store.tag("policy", 8, "mine")

    assert store.gc("policy", keep=3) == (5, 4, 3, 1, 0)
    assert versions(store) == [9, 8, 7, 6, 2]  # Three, and those with tags.
    assert store.gc("policy", keep=3) == ()
    store.untag("policy", "best")
    assert store.gc("policy", keep=1) == (7, 6, 2)
    assert versions(store) == [9, 8]


def test_collection_always_keeps_the_latest(store):
    push(store, 1)
    with pytest.raises(store_lib.ParameterError, match="cannot keep 0 versions"):
        store.gc("policy", keep=0)
    assert versions(store) == [1]


def test_a_damaged_version_is_an_error_that_names_it(store):
    push(store, 1, 2, 3)
    store.tag("policy", 2, "best")
    path = damage(store, 2)
    for identifier in (2, "best"):
        with pytest.raises(store_lib.DamagedParametersError) as caught:
            store.get("policy", identifier)
        assert str(path) in str(caught.value)
        assert f"{identifier!r} of 'policy' cannot be read" in str(caught.value)
    assert store.get("policy", 3).version == 3


def test_instead_of_a_damaged_latest_the_newest_sound_one_is_got_with_a_warning(store, caplog):
    push(store, 1, 2, 3)
    paths = [damage(store, 3), damage(store, 2)]
    with caplog.at_level("WARNING", logger="absl"):
        assert store.get("policy").version == 1
    for path in paths:
        assert str(path) in caplog.text

    damage(store, 1)
    with pytest.raises(
        store_lib.DamagedParametersError, match="no version of 'policy'.*"
    ) as caught:
        store.get("policy")
    assert str(caught.value).count(".npz is damaged") == 3


def test_collection_does_not_count_or_remove_what_it_sees_to_be_damaged(store):
    push(store, 1, 2, 3)
    (broken,) = [stored.path for stored in store.list("policy") if stored.version == 3]
    broken.write_bytes(broken.read_bytes()[:-10])

    assert [stored.damage is None for stored in store.list("policy")] == [False, True, True]
    assert store.gc("policy", keep=1) == (1,)
    assert versions(store) == [3, 2]
    assert store.get("policy").version == 2


def test_a_renamed_file_is_not_taken_for_another_version(store):
    pushed = store.push("policy", values(1), 1)
    pushed.path.rename(pushed.path.with_name("000000001-v2.npz"))
    with pytest.raises(store_lib.DamagedParametersError, match="holds version 1"):
        store.get("policy", 2)


def test_a_tag_whose_version_was_removed_by_hand_is_an_error(store):
    push(store, 1, 2)
    store.tag("policy", 1, "best")
    store.list("policy")[1].path.unlink()
    with pytest.raises(store_lib.ParametersNotFoundError, match="removed by hand"):
        store.get("policy", "best")


def test_a_reader_whose_choice_was_collected_chooses_again(store, monkeypatch):
    push(store, 1, 2)
    load = store._load

    def collect_first(path):
        monkeypatch.setattr(store, "_load", load)
        push(store, 3)
        store.gc("policy", keep=1)
        return load(path)

    monkeypatch.setattr(store, "_load", collect_first)
    assert store.get("policy").version == 3


def test_what_is_missing_is_reported_with_what_is_there(store, tmp_path):
    with pytest.raises(store_lib.ParametersNotFoundError, match="directory does not exist"):
        store.get("policy")
    push(store, *range(12), name="other")
    with pytest.raises(store_lib.ParametersNotFoundError, match="'policy': there are other$"):
        store.list("policy")
    for request in (lambda: store.get("other", 99), lambda: store.tag("other", 99, "best")):
        with pytest.raises(
            store_lib.ParametersNotFoundError,
            match="no version 99; versions: 11, 10, .* 2, ...; tags: none",
        ):
            request()
    assert isinstance(store_lib.ParametersNotFoundError("x"), errors.ActorLearnerError)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "x" * 101, None])
def test_impossible_names_are_refused(store, name):
    with pytest.raises(store_lib.ParameterError, match="cannot be a name"):
        push(store, 1, name=name)
    with pytest.raises(store_lib.ParameterError, match="cannot be a name"):
        store.get(name)
    assert not store.directory.exists()


@pytest.mark.parametrize("tag", ["latest", "12", "", "a/b"])
def test_impossible_tags_are_refused(store, tag):
    push(store, 1)
    with pytest.raises(store_lib.ParameterError, match="cannot be a tag"):
        push(store, 2, tags=[tag])
    with pytest.raises(store_lib.ParameterError, match="cannot be a tag"):
        store.tag("policy", 1, tag)
    assert versions(store) == [1]


@pytest.mark.parametrize("version", [-1, 1.5, float("nan"), "x", None])
def test_impossible_versions_are_refused(store, version):
    with pytest.raises(store_lib.ParameterError, match="a version is a train step"):
        store.push("policy", values(1), version)
    assert store.names() == ()


def test_damaged_tags_are_an_error_that_names_the_file(store):
    push(store, 1, tags=["best"])
    (store.directory / "policy" / "tags.json").write_text('{"best"')
    with pytest.raises(store_lib.ParameterError, match="policy/tags.json is damaged"):
        store.get("policy", "best")


def test_a_failed_push_leaves_nothing(store, monkeypatch):
    push(store, 1)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(store_lib.ParameterError, match="version 2 of 'policy' .* No space left"):
        push(store, 2)
    assert sorted(os.listdir(store.directory / "policy")) == ["000000001-v1.npz", "lock"]


def test_a_lock_that_is_not_freed_is_an_error(tmp_path):
    store = store_lib.ParameterStore(tmp_path, lock_timeout=0.05)
    push(store, 1)
    with file_lock.locked(tmp_path / "policy" / "lock", purpose="a test"):
        with pytest.raises(store_lib.ParameterError, match=f"blocked.*process {os.getpid()}"):
            store.tag("policy", 1, "best")
        assert store.get("policy").version == 1  # Readers need no lock.


def test_the_store_of_a_run_lies_in_its_directory(tmp_path):
    assert store_lib.locate(tmp_path) == tmp_path
    (tmp_path / "run.json").write_text("{}")
    assert store_lib.locate(tmp_path) == tmp_path / "parameters"
    (tmp_path / "run.json").unlink()
    (tmp_path / "parameters").mkdir()
    assert store_lib.locate(str(tmp_path)) == tmp_path / "parameters"


def test_no_tensorflow_is_needed():
    program = (
        "import sys; from actor_learner.parameters import store, sources; "
        "from actor_learner.commands import params; assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_and_an_older_version_used(store, monkeypatch, number):
    push(store, 1)
    broken = {"kernel": np.array([1.0, number], np.float32)}
    with pytest.raises(errors.NotFiniteError, match="kernel .*1 of 2"):
        store.push("policy", broken, 2)
    with monkeypatch.context() as earlier_release:
        earlier_release.setattr(finite, "is_finite", lambda array: True)
        store.push("policy", broken, 2)
    assert store.get("policy").version == 1
    with pytest.raises(store_lib.DamagedParametersError, match="not finite"):
        store.get("policy", 2)
