import pytest

from actor_learner.support import atomic


def test_a_finished_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with atomic.replacing(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
        assert temporary.suffix == ".txt"
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_keeps_the_old_file_and_removes_the_new(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError):
        with atomic.replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content, kept",
    [
        (b"", b""),
        (b"one\ntwo\n", b"one\ntwo\n"),
        (b"one\ntw", b"one\n"),
        (b"torn", b""),
        (b"one\n" + b"x" * 20_000, b"one\n"),
        (b"y" * 20_000 + b"\n" + b"x" * 20_000, b"y" * 20_000 + b"\n"),
    ],
)
def test_a_torn_last_line_is_cut_off(tmp_path, content, kept):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert atomic.drop_torn_line(path) == len(content) - len(kept)
    assert path.read_bytes() == kept


def test_a_missing_file_has_no_torn_line(tmp_path):
    assert atomic.drop_torn_line(tmp_path / "none") == 0
    assert list(tmp_path.iterdir()) == []
