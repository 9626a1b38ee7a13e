"""What the logger for Weights & Biases does when the service does not do what it should."""

import sys
import threading
import types

import pytest

from actor_learner import run_directory
from actor_learner.reporting import logger, metric_files, wandb_logger
from actor_learner.support import errors

wandb_errors = pytest.importorskip("wandb.errors")


class Run:
    """A run that wandb has begun."""

    def __init__(self, finish=lambda: None):
        self.finish = finish

    def define_metric(self, *_, **__):
        pass


@pytest.fixture
def begun(monkeypatch):
    """The modes in which runs were begun; `answers` says, by mode, what becomes of each."""
    noted = types.SimpleNamespace(modes=[], answers={})

    def init(*, mode, **_):
        noted.modes.append(mode)
        answer = noted.answers[mode]
        if isinstance(answer, Exception):
            raise answer
        return answer

    stand_in = types.SimpleNamespace(init=init, errors=wandb_errors, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return noted


@pytest.fixture
def context(tmp_path):
    return logger.RunContext(tmp_path, "0" * 32, 0, {}, {})


@pytest.mark.parametrize("kind", ["AuthenticationError", "UsageError"])
def test_one_whom_the_service_does_not_know_is_told_how_to_log_in(begun, context, kind):
    begun.answers[None] = getattr(wandb_errors, kind)("no API key")
    with pytest.raises(errors.ConfigError, match="no API key.*wandb login"):
        wandb_logger.WandbLogger().open(context)


def test_a_service_that_is_not_reached_is_done_without(begun, context, caplog):
    begun.answers.update({None: wandb_errors.CommError("no network"), "offline": Run()})
    wandb_logger.WandbLogger().open(context)
    assert begun.modes == [None, "offline"]
    assert "no network" in caplog.text and "wandb sync" in caplog.text


def test_a_service_that_takes_for_ever_does_not_keep_a_run_from_ending(
    begun, context, caplog, monkeypatch
):
    monkeypatch.setattr(wandb_logger, "_FINISH_SECONDS", 0.01)
    never = threading.Event()
    begun.answers[None] = Run(never.wait)
    made = wandb_logger.WandbLogger()
    made.open(context)
    made.close()
    never.set()
    assert "has not taken all rows" in caplog.text


def test_what_goes_wrong_at_the_end_is_raised(begun, context):
    def fail():
        raise RuntimeError("lost")

    begun.answers[None] = Run(fail)
    made = wandb_logger.WandbLogger()
    made.open(context)
    with pytest.raises(RuntimeError, match="lost"):
        made.close()


def test_loggers_opened_before_one_that_cannot_be_are_closed(tmp_path):
    done = []

    class Logger:
        def __init__(self, name, failure=None):
            self.name, self.failure = name, failure

        def open(self, context):
            done.append(f"open {self.name}")
            if self.failure:
                raise self.failure

        def close(self):
            done.append(f"close {self.name}")

    with pytest.raises(errors.ConfigError, match="not known"):
        metric_files.open_metric_files(
            run_directory.RunDirectory(tmp_path),
            0,
            [Logger("a"), Logger("b", errors.ConfigError("not known"))],
        )
    assert done == ["open a", "open b", "close a"]
