"""The learner calls its triggers in order, saves before it gives up, and stops them all."""

from __future__ import annotations

import glob
import os

import gin
import pytest

from actor_learner.learning import interval_trigger, triggers
from actor_learner.support import configurable, errors
from tests.learning import tiny_agent
from tests.learning.tiny_learner import Recorder, make, recorded


def test_triggers_are_called_in_order_and_hooks_once(tmp_path):
    log = []
    step = tiny_agent.train_step(100)
    with make(tmp_path, step=step, triggers=[Recorder(log, "a"), Recorder(log, "b")]) as trained:
        assert log == [("a", "set_start", 100), ("b", "set_start", 100)]
        del log[:]
        trained.run(5)
        assert log == [
            ("a", "on_start", 100),
            ("b", "on_start", 100),
            ("a", "call", 105),
            ("b", "call", 105),
        ]
        del log[:]
        trained.run(1)
        assert log == [("a", "call", 106), ("b", "call", 106)]
        del log[:]
        trained.close()
        trained.close()
        assert log == [("a", "on_stop", 106), ("b", "on_stop", 106)]
    assert len(log) == 2, "leaving the context closes only once"
    with pytest.raises(errors.ActorLearnerError, match="closed"):
        trained.run()


def test_a_trigger_added_later_is_started_and_runs_before_the_checkpoint(tmp_path):
    log = []
    with make(tmp_path, checkpoint_interval=10) as trained:
        trained.run(3)
        trained.add_trigger(Recorder(log))
        assert isinstance(trained.triggers[-1], interval_trigger.IntervalTrigger)
        trained.run(1)
        assert log == [("recorder", "set_start", 3), ("recorder", "on_start", 3)] + [
            ("recorder", "call", 4)
        ]


def test_a_trigger_that_raises_stops_training_after_a_checkpoint_and_is_named(tmp_path):
    log = []
    cause = KeyError("boom")
    with make(
        tmp_path,
        triggers=[Recorder(log, "first"), Recorder(log, fail={"call": cause}), Recorder(log, "no")],
    ) as trained:
        with pytest.raises(
            errors.TriggerError, match=r"trigger 1 \(Recorder\) raised KeyError"
        ) as e:
            trained.run(7)
        assert e.value.__cause__ is cause
        assert "ckpt-7" in str(e.value)
    assert os.path.exists(tmp_path / "train/checkpoints/ckpt-7.index")
    assert ("first", "call", 7) in log and ("no", "call", 7) not in log


def test_a_failed_trigger_saves_nothing_where_checkpoints_are_disabled(tmp_path):
    def fails(step):
        raise RuntimeError("no")

    with make(tmp_path, triggers=[fails], checkpoint_interval=-1) as trained:
        with pytest.raises(
            errors.TriggerError, match=r"fails\) raised.*\n.*no checkpoint was saved"
        ):
            trained.run()
    assert not glob.glob(str(tmp_path / "train/checkpoints/*"))


def test_a_request_to_stop_is_no_error_and_the_other_triggers_still_run(tmp_path):
    log = []
    with make(
        tmp_path,
        triggers=[
            Recorder(log, "a", fail={"call": triggers.StopTraining("solved")}),
            Recorder(log, "b", fail={"call": triggers.StopTraining("also solved")}),
            Recorder(log, "c"),
        ],
    ) as trained:
        assert trained.stop_reason is None
        loss = trained.run(2)
        assert loss.loss.numpy() >= 0
        assert trained.stop_reason == "solved"
        assert [entry for entry in log if entry[1] == "call"] == [
            ("a", "call", 2),
            ("b", "call", 2),
            ("c", "call", 2),
        ]


def test_all_triggers_are_stopped_even_if_one_of_them_raises(tmp_path):
    log = []
    trained = make(
        tmp_path,
        triggers=[Recorder(log, "a", fail={"on_stop": OSError("disk")}), Recorder(log, "b")],
    )
    trained.run()
    with pytest.raises(errors.TriggerError, match="raised OSError in on_stop"):
        trained.close()
    assert ("b", "on_stop", 1) in log


def test_triggers_write_to_the_learners_summaries(tmp_path):
    step = tiny_agent.train_step()
    log_speed = triggers.StepPerSecondLogTrigger(step, interval=5)
    with make(tmp_path, step=step, triggers=[log_speed], summary_interval=1000) as trained:
        trained.run(4)
        trained.run(4)
    assert ("RunTime/train_steps_per_sec", 8) in recorded(tmp_path)


@configurable.register
def step_of_learner_test():
    return tiny_agent.train_step(3)


def test_triggers_come_from_gin(tmp_path):
    gin.parse_config(
        """
        Learner.triggers = [@StepPerSecondLogTrigger()]
        StepPerSecondLogTrigger.train_step = @step_of_learner_test()
        StepPerSecondLogTrigger.interval = None
        StepPerSecondLogTrigger.seconds = 30
        """
    )
    try:
        with make(tmp_path) as trained:
            assert type(trained.triggers[0]) is triggers.StepPerSecondLogTrigger
            assert trained.triggers[0]._train_step.numpy() == 3
    finally:
        gin.clear_config()
