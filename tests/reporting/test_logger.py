import numpy as np
import pytest

from actor_learner.reporting import logger
from actor_learner.support import errors


class Recorder:
    def __init__(self, error=None):
        self.rows = []
        self.closed = 0
        self._error = error

    def write(self, row):
        self.rows.append(dict(row))
        if self._error is not None:
            raise self._error

    def close(self):
        self.closed += 1
        if self._error is not None:
            raise self._error


class FullDisk(Recorder):
    pass


def test_every_logger_gets_every_row_and_is_closed_once():
    first, second = Recorder(), Recorder()
    loggers = logger.Loggers([first, second])
    loggers.write({"return": 1.0})
    loggers.write({"return": 2.0})
    loggers.close()
    assert first.rows == second.rows == [{"return": 1.0}, {"return": 2.0}]
    assert (first.closed, second.closed) == (1, 1)


def test_an_error_names_its_logger_after_the_others_got_the_row():
    cause = OSError("No space left on device")
    broken, working = FullDisk(cause), Recorder()
    with pytest.raises(errors.ActorLearnerError) as raised:
        logger.Loggers([broken, working]).write({"return": 3.0})
    assert str(raised.value) == "FullDisk.write failed with OSError: No space left on device"
    assert raised.value.__cause__ is cause
    assert working.rows == [{"return": 3.0}]


def test_a_failing_close_closes_the_others_and_counts_the_failures():
    cause = OSError("gone")
    broken, working, also_broken = FullDisk(cause), Recorder(), FullDisk(cause)
    with pytest.raises(errors.ActorLearnerError, match=r"FullDisk.close .* \(1 more failed"):
        logger.Loggers([broken, working, also_broken]).close()
    assert (working.closed, also_broken.closed) == (1, 1)


def test_an_interrupt_is_not_turned_into_an_error_of_the_logger():
    with pytest.raises(KeyboardInterrupt):
        logger.Loggers([Recorder(KeyboardInterrupt())]).write({})


def test_numpy_scalars_become_python_numbers():
    row = logger.plain_row(
        {"a": np.float32(0.5), "b": np.int64(7), "c": np.array(2.0), "d": True, "e": "text"}
    )
    assert row == {"a": 0.5, "b": 7, "c": 2.0, "d": 1, "e": "text"}
    assert [type(value) for value in row.values()] == [float, int, float, int, str]


@pytest.mark.parametrize("value", [None, [1.0], np.zeros(3), {"x": 1}])
def test_a_value_that_is_no_scalar_is_refused_by_name(value):
    with pytest.raises(errors.ActorLearnerError, match="metric 'loss' is "):
        logger.plain_row({"loss": value})


def test_rows_beyond_a_step_are_left_out_together_with_what_follows_them():
    rows = [
        {"note": "start"},
        {"environment_steps": 10},
        {"environment_steps": 20},
        {"note": "after 20"},
        {"environment_steps": 15},
    ]
    assert logger.rows_up_to(rows, 15) == [
        {"note": "start"},
        {"environment_steps": 10},
        {"environment_steps": 15},
    ]
