"""Calls a learner's triggers, and turns what they raise into a stop or an error that names them."""

from __future__ import annotations

import collections
import contextlib
import operator
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.learning import interval_trigger
from actor_learner.support import disk_space, errors, unsaved

Trigger = Callable[[Any], None]


class StopTraining(Exception):
    """Raised by a trigger to ask for the end of training; not a failure."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def states(triggers: Iterable[Trigger]) -> dict[str, Any]:
    """The triggers that have a state to be saved with a checkpoint, by a name for each.

    Those are `tf.train.experimental.PythonState`s and `tf.Module`s. The name is made of the class,
    and of a number where there are several of one.
    """
    found: dict[str, Any] = {}
    counts: collections.Counter[str] = collections.Counter()
    for trigger in triggers:
        if isinstance(trigger, (tf.train.experimental.PythonState, tf.Module)):
            name = f"trigger_{type(trigger).__name__}"
            counts[name] += 1
            found[f"{name}_{counts[name]}" if counts[name] > 1 else name] = trigger
    return found


class TriggerRunner:
    """Calls triggers in the order of the list, and their optional hooks once each.

    A trigger that a full disk has stopped does not stop training: an `IntervalTrigger` fires again
    once there is room, of others the user is told that what they wrote is lost. One that finds a
    number which is not finite, such as a weight it was to save, ends training with
    `errors.NotFiniteError` rather than `errors.TriggerError`.

    Attributes:
      triggers: The triggers, in the order of their calls.
      stop_reason: Why the first `StopTraining` was raised; None as long as none was.
    """

    def __init__(
        self,
        triggers: Iterable[Trigger],
        save: Callable[[], str],
        context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    ):
        """Copies the list.

        Args:
          triggers: Called as `trigger(train_step)`.
          save: Called when a trigger raised, before the error goes on; saves what it can and
            returns a clause that says what it did.
          context: Makes what triggers and their hooks expect around them; entered only to call
            one that may do something.
        """
        self.triggers = list(triggers)
        self.stop_reason: str | None = None
        self._save = save
        self._context = context
        self._started: list[Trigger] = []
        self._all_started: list[Trigger] = []  # The triggers when none was left to start.
        self._stopped = False

    def start(self, train_step: Callable[[], int]) -> None:
        """Calls `on_start` of each trigger that has it and was not started before.

        Args:
          train_step: Returns the train step; called if there is any to start.
        """
        if self._are(self._all_started):
            return
        new = [t for t in self.triggers if not any(t is other for other in self._started)]
        self._started.extend(new)
        self._all_started = list(self.triggers)
        if new:
            self._call_hook("on_start", new, np.int64(train_step()))

    def call(self, train_step: int) -> None:
        """Calls each trigger; stops at the first that raises anything but `StopTraining`.

        Those that fire at intervals are not even called as long as none of all is due. Then tries
        again to save what a full disk has kept from being saved.
        """
        if unsaved.ledger().is_settled and all(
            interval_trigger.is_idle(trigger, train_step) for trigger in self.triggers
        ):
            return
        with self._context():
            for trigger in list(self.triggers):
                self._call(trigger, trigger, np.int64(train_step))
            unsaved.ledger().retry_due()

    def stop(self, train_step: Any) -> None:
        """Calls `on_stop` of each trigger that has it; later calls do nothing."""
        if not self._stopped:
            self._stopped = True
            self._call_hook("on_stop", list(self.triggers), train_step)

    def _call_hook(self, hook: str, triggers: list[Trigger], train_step: Any) -> None:
        """Calls all of them, even if one raises; then raises the first failure."""
        failure = None
        with self._context():
            for trigger in triggers:
                if hasattr(trigger, hook):
                    try:
                        self._call(trigger, getattr(trigger, hook), train_step, f" in {hook}")
                    except (errors.TriggerError, errors.NotFiniteError) as error:
                        failure = failure or error
        if failure is not None:
            raise failure

    def _are(self, others: list[Trigger]) -> bool:
        """Whether the triggers are these; the list is the caller's to change between two calls."""
        return len(self.triggers) == len(others) and all(map(operator.is_, self.triggers, others))

    def _call(
        self, trigger: Trigger, call: Callable[[Any], None], train_step: Any, where: str = ""
    ) -> None:
        try:
            call(train_step)
        except StopTraining as stop:
            self._note_stop(trigger, stop)
        except Exception as error:
            if disk_space.is_out_of_space(error):
                self._note_unsaved(trigger, error)
                return
            # What a trigger finds not to be finite is no mistake of the trigger, and starting again
            # does not mend it.
            diverged = isinstance(error, errors.NotFiniteError)
            index = next(i for i, other in enumerate(self.triggers) if other is trigger)
            raise (errors.NotFiniteError if diverged else errors.TriggerError)(
                f"trigger {index} ({_name(trigger)}) raised {type(error).__name__}{where} at train "
                f"step {train_step}: {error}\nTraining stopped; {self._save()}."
            ) from error

    def _note_stop(self, trigger: Trigger, stop: StopTraining) -> None:
        self.stop_reason = self.stop_reason or stop.reason
        logging.info("%s asks to stop training: %s", _name(trigger), stop.reason)

    def _note_unsaved(self, trigger: Trigger, error: Exception) -> None:
        product = f"what the trigger {_name(trigger)} writes"
        if not hasattr(trigger, "fire"):
            unsaved.ledger().lose(f"times {product}", 1)
            return

        def fire_again() -> None:
            try:
                trigger.fire()
            except StopTraining as stop:
                self._note_stop(trigger, stop)

        unsaved.ledger().note(product, error, retry=fire_again)


def _name(trigger: Trigger) -> str:
    trigger = getattr(trigger, "func", trigger)  # What a functools.partial calls.
    return getattr(trigger, "__qualname__", None) or type(trigger).__name__
