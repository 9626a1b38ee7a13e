"""Tests of `actor_learner.learning.checkpoints`."""

import glob
import os

import pytest
import tensorflow as tf
from tf_agents.utils import common

from actor_learner.learning import checkpoints
from actor_learner.support import errors


def variables(value=0.0):
    return dict(step=tf.Variable(0, dtype=tf.int64), table=tf.Variable(tf.fill([50], value)))


def save(directory, *steps, max_to_keep=20):
    """Saves checkpoints whose `table` is full of the step's number."""
    items = variables()
    checkpointer = checkpoints.Checkpointer(directory, max_to_keep=max_to_keep, **items)
    checkpointer.initialize_or_restore()
    for step in steps:
        items["step"].assign(step)
        items["table"].assign(tf.fill([50], float(step)))
        checkpointer.save(items["step"])
    return checkpointer


def restore(directory, **kwargs):
    items = variables(-1.0)
    checkpointer = checkpoints.Checkpointer(directory, **kwargs, **items)
    checkpointer.initialize_or_restore()
    return checkpointer, items


def files(directory, pattern="*"):
    return sorted(os.path.basename(path) for path in glob.glob(os.path.join(directory, pattern)))


def data_file(directory, step):
    return os.path.join(directory, f"ckpt-{step}.data-00000-of-00001")


def flip_a_bit_in_the_data(directory, step):
    path = data_file(directory, step)
    content = bytearray(open(path, "rb").read())
    content[len(content) // 2] ^= 1
    open(path, "wb").write(content)


def truncate_the_index(directory, step):
    path = os.path.join(directory, f"ckpt-{step}.index")
    content = open(path, "rb").read()
    open(path, "wb").write(content[: len(content) // 2])


def empty_the_index(directory, step):
    open(os.path.join(directory, f"ckpt-{step}.index"), "wb").close()


def truncate_the_data(directory, step):
    path = data_file(directory, step)
    content = open(path, "rb").read()
    open(path, "wb").write(content[:10])


def remove_the_data(directory, step):
    os.remove(data_file(directory, step))


def remove_the_index(directory, step):
    """As if the process had been killed while it was saving."""
    os.remove(os.path.join(directory, f"ckpt-{step}.index"))


DAMAGES = [
    flip_a_bit_in_the_data,
    truncate_the_index,
    empty_the_index,
    truncate_the_data,
    remove_the_data,
    remove_the_index,
]


def test_a_fresh_directory_starts_afresh(tmp_path):
    directory = tmp_path / "a" / "checkpoints"
    checkpointer, items = restore(directory)
    assert not checkpointer.checkpoint_exists
    assert checkpointer.restored_from is None
    assert items["table"].numpy()[0] == -1.0
    assert os.path.isdir(directory)


def test_restores_the_newest(tmp_path):
    save(tmp_path, 5, 10, 100)
    checkpointer, items = restore(tmp_path)
    assert checkpointer.restored_from == str(tmp_path / "ckpt-100")
    assert checkpointer.checkpoint_exists
    assert items["step"].numpy() == 100
    assert items["table"].numpy().tolist() == [100.0] * 50


@pytest.mark.parametrize("damage", DAMAGES)
def test_falls_back_to_an_older_one_and_sets_the_bad_one_aside(tmp_path, damage):
    save(tmp_path, 5, 10)
    damage(tmp_path, 10)
    left = files(tmp_path, "ckpt-10*")
    checkpointer, items = restore(tmp_path)
    assert checkpointer.restored_from == str(tmp_path / "ckpt-5")
    assert items["table"].numpy().tolist() == [5.0] * 50
    assert files(tmp_path, "ckpt-10*") == []
    assert files(tmp_path / "corrupt") == left


@pytest.mark.parametrize("damage", DAMAGES)
def test_refuses_to_start_if_none_can_be_read_and_does_so_again(tmp_path, damage):
    save(tmp_path, 5, 10)
    damage(tmp_path, 5)
    damage(tmp_path, 10)
    before = files(tmp_path)
    for _ in range(2):
        with pytest.raises(errors.CheckpointError, match="start afresh") as raised:
            restore(tmp_path)
        assert "ckpt-5" in str(raised.value) and "ckpt-10" in str(raised.value)
        assert files(tmp_path) == before


@pytest.mark.parametrize("index", ["garbage {", "", 'model_checkpoint_path: "ckpt-77"\n'])
def test_the_index_file_is_not_believed(tmp_path, index):
    save(tmp_path, 5, 10)
    (tmp_path / "checkpoint").write_text(index)
    checkpointer, items = restore(tmp_path)
    assert items["step"].numpy() == 10
    assert checkpointer.manager.latest_checkpoint == str(tmp_path / "ckpt-10")
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-10")


def test_an_index_file_alone_is_refused(tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-77"\n')
    with pytest.raises(errors.CheckpointError, match="only the index file"):
        restore(tmp_path)


def test_leftovers_of_an_unfinished_first_save_are_no_checkpoint(tmp_path):
    (tmp_path / "ckpt-3.data-00000-of-00001.tempstate123").write_text("half")
    (tmp_path / "ckpt-3_temp").mkdir()
    checkpointer, _ = restore(tmp_path)
    assert checkpointer.restored_from is None


def test_rotation_counts_the_restored_ones(tmp_path):
    save(tmp_path, 5, 10, 15, max_to_keep=3)
    flip_a_bit_in_the_data(tmp_path, 15)
    (tmp_path / "checkpoint").write_text("garbage {")
    checkpointer, items = restore(tmp_path, max_to_keep=3)
    for step in (12, 15):
        items["step"].assign(step)
        checkpointer.save(items["step"])
    assert files(tmp_path, "*.index") == ["ckpt-10.index", "ckpt-12.index", "ckpt-15.index"]
    assert [os.path.basename(path) for path in checkpointer.manager.checkpoints] == [
        "ckpt-10",
        "ckpt-12",
        "ckpt-15",
    ]
    _, items = restore(tmp_path, max_to_keep=3)
    assert items["step"].numpy() == 15


def test_a_directory_that_was_moved_is_restored_and_stays_readable_for_tf_agents(tmp_path):
    save(tmp_path / "a", 5)
    os.rename(tmp_path / "a", tmp_path / "b")
    _, items = restore(tmp_path / "b")
    assert items["step"].numpy() == 5
    theirs = variables()
    common.Checkpointer(str(tmp_path / "b"), **theirs).initialize_or_restore()
    assert theirs["step"].numpy() == 5


def test_a_relative_directory_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("here", 5, 10)
    _, items = restore("here")
    assert items["step"].numpy() == 10


def test_a_checkpoint_of_something_else_is_refused_and_stays_where_it_is(tmp_path):
    save(tmp_path, 5)
    other = dict(step=tf.Variable(0, dtype=tf.int64), table=tf.Variable(tf.zeros([7])))
    with pytest.raises(errors.CheckpointError, match="does not fit"):
        checkpoints.Checkpointer(tmp_path, **other).initialize_or_restore()
    assert files(tmp_path, "ckpt-*") == ["ckpt-5.data-00000-of-00001", "ckpt-5.index"]


def test_a_variable_that_the_checkpoint_lacks_inside_an_item_is_refused(tmp_path):
    module = tf.Module()
    module.kept = tf.Variable(1.0)
    checkpoints.Checkpointer(tmp_path, module=module).save(1)
    module.extra = tf.Variable(2.0)
    with pytest.raises(errors.CheckpointError, match="does not fit"):
        checkpoints.Checkpointer(tmp_path, module=module).initialize_or_restore()


def test_an_item_that_the_checkpoint_lacks_altogether_is_kept(tmp_path):
    save(tmp_path, 5)
    items = dict(variables(), more=tf.Variable(3.0))
    checkpoints.Checkpointer(tmp_path, **items).initialize_or_restore()
    assert items["step"].numpy() == 5
    assert items["more"].numpy() == 3.0


def test_saving_the_same_step_again_replaces_it(tmp_path):
    checkpointer = save(tmp_path, 5, 5)
    assert len(checkpointer.manager.checkpoints) == 1
    _, items = restore(tmp_path)
    assert items["step"].numpy() == 5


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_an_agent_that_is_not_finite_is_not_saved_and_counts_as_damaged(tmp_path, number):
    def make():
        agent = tf.Module()
        agent.weight = tf.Variable(1.0, name="weight")
        best = tf.Variable(float("-inf"))  # Of the caller, which may be what it likes.
        return checkpoints.Checkpointer(str(tmp_path), agent=agent, best=best), agent

    checkpointer, agent = make()
    checkpointer.save(1)
    agent.weight.assign(number)
    with pytest.raises(errors.NotFiniteError, match="weight"):
        checkpointer.save(2)
    checkpointer.manager.save(checkpoint_number=2)  # As an earlier release would have.
    resumed, agent = make()
    assert resumed.initialize_or_restore().endswith("ckpt-1")
    assert agent.weight.numpy() == 1.0
    assert "ckpt-2.index" in files(os.path.join(tmp_path, checkpoints.CORRUPT_DIR))
