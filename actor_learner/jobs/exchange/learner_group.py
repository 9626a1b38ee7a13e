"""Adds up gradients over the learners of a run, any of which may die and come back.

Each learner takes the same train steps, on its own part of every batch. Where a train step needs
something of the whole batch, such as its gradient, every learner sends its part to the first one,
the chief, which answers all of them with the sum. All then hold the same numbers, and change their
variables alike.

A learner joins between two train steps of the chief, which hands it all its variables. One whose
part does not come in time is left out from then on, and joins again. One whose chief has died waits
for the next chief, and joins that.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent import futures
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.checkpoint import trackable_view

from actor_learner.messaging import messages, protocol
from actor_learner.parameters import packing
from actor_learner.support import errors, replicas

JOIN, PART, LEAVE = "learner joins", "learner part", "learner leaves"
"""Requests to the chief: for its variables, with a part of a sum, and that none will follow."""

DRAWING = "learner draws"
"""Tells the chief that a learner waits for experience, and will send its part later."""

_JOIN_SECONDS = 24 * 3600.0  # Whoever waits looks whether the chief is alive.
_GLANCE_SECONDS = 0.5
_DRAWING_SECONDS = 1.0


class LeftGroupError(errors.JobError):
    """This learner is not part of the group any more: it has to join again."""


def state_variables(agent: Any, *more: tf.Variable) -> list[tf.Variable]:
    """All that learners must have alike, in an order that all processes share.

    Variables without a fixed shape are not among them: those belong to the lanes of one learner's
    part of the batch.

    Args:
      agent: Built, its optimizers having their variables.
      *more: Further variables.
    """
    found = {id(variable): variable for variable in more}
    optimizers = []
    for item in trackable_view.TrackableView(agent).descendants():
        if isinstance(item, tf.Variable):
            if not item.shape.is_fully_defined():
                continue
            found[id(item)] = item
        elif isinstance(item, tf.keras.optimizers.legacy.Optimizer):
            optimizers.append(item)
    in_order = sorted(found.values(), key=replicas.order_of_creation)
    slots: list[tf.Variable] = []
    # What optimizers keep of variables is no child of anything.
    for optimizer in optimizers:
        for name in sorted(optimizer.get_slot_names()):
            for variable in in_order:
                with contextlib.suppress(KeyError):  # Of another optimizer, or none.
                    slots.append(optimizer.get_slot(variable, name))
    return in_order + slots


class ChiefGroup:
    """The first learner's side: collects parts, adds them up, answers.

    Args:
      wire: The learner's own.
      epoch: Of this learner.
      part_seconds: How long to wait for the parts of the others before going on without them.
    """

    def __init__(self, wire: protocol.Server, *, epoch: int, part_seconds: float) -> None:
        self._epoch = epoch
        self._part_seconds = part_seconds
        self._changed = threading.Condition()
        self._members: set[str] = set()
        self._parts: dict[str, protocol.Request] = {}
        self._joining: dict[str, protocol.Request] = {}
        self._drawing: dict[str, float] = {}  # When who last said so.
        self._session = 0
        self._number = 0  # Of the next sum.
        wire.handle(JOIN, self._take_joining)
        wire.handle(PART, self._take_part)
        wire.handle(LEAVE, self._take_leaving)
        wire.handle(DRAWING, self._take_drawing)

    @property
    def size(self) -> int:
        """How many learners train together, this one included."""
        return 1 + len(self._members)

    @property
    def members(self) -> frozenset[str]:
        """The names of the others that train with this learner."""
        with self._changed:
            return frozenset(self._members)

    def admit(self, variables: Callable[[], packing.Packing]) -> None:
        """Lets those in that have asked; to be called between two train steps.

        Args:
          variables: Returns where all variables are; asked for only if somebody joins.
        """
        with self._changed:
            joining, self._joining = self._joining, {}
        if not joining:
            return
        state = variables().pack()
        for who, request in joining.items():
            if request.body.get("bytes") != state.nbytes:
                request.answer({"bytes": state.nbytes})
                continue
            with self._changed:
                self._members.add(who)
                self._parts.pop(who, None)
                body = {"session": self._name(), "number": self._number}
            logging.info("%s trains with this learner, on its part of every batch.", who)
            request.answer(body, {"state": state})

    def sum(self, part: np.ndarray) -> tuple[np.ndarray, int]:
        with self._changed:
            self._wait_for_parts()
            requests, self._parts = self._parts, {}
            self._number += 1
        total = np.array(part, np.float32)
        added = []
        for who, request in requests.items():
            other = request.message.arrays["part"]
            if other.shape != total.shape:
                self._send_away(who, request, f"a part of {other.size} numbers, not {total.size}")
                continue
            total += other
            added.append(request)
        for request in added:
            request.answer({"members": 1 + len(added)}, {"sum": total})
        return total, 1 + len(added)

    def begin(self, part: np.ndarray) -> tuple[np.ndarray, int]:
        """As `sum`, for the first of a train step."""
        return self.sum(part)

    def abandon(self) -> None:
        """Sends all others away, whose next parts would be added to those of another sum."""
        with self._changed:
            self._session += 1
            parts, self._parts = self._parts, {}
            self._members.clear()
        for request in parts.values():
            request.refuse("the train step has failed: join again")

    def _send_away(self, who: str, request: protocol.Request, why: str) -> None:
        with self._changed:
            self._members.discard(who)
        logging.error("%s has sent %s: it is left out.", who, why)
        request.refuse(why)

    def _wait_for_parts(self) -> None:
        begun = time.monotonic()
        while missing := self._members - self._parts.keys():
            # One that waits for experience, as this one did until now, is not late.
            left = {
                who: max(begun, self._drawing.get(who, begun))
                + self._part_seconds
                - time.monotonic()
                for who in missing
            }
            for who in missing:
                if left[who] <= 0:
                    self._members.discard(who)
                    logging.warning(
                        "%s has not sent its part of a train step for %g s (Jobs.part_seconds): "
                        "training continues without it until it joins again.",
                        who,
                        self._part_seconds,
                    )
            if min(left.values()) > 0:
                self._changed.wait(min(left.values()))

    def _name(self) -> str:
        return f"{self._epoch}.{self._session}"

    def _take_joining(self, request: protocol.Request) -> None:
        with self._changed:
            # What it was, it is no more; nobody need wait for its part.
            self._members.discard(request.who)
            self._joining[request.who] = request
            self._changed.notify_all()

    def _take_part(self, request: protocol.Request) -> None:
        body, part = request.body, request.message.arrays.get("part")
        with self._changed:
            fits = body.get("session") == self._name() and body.get("number") == self._number
            if request.who in self._members and fits and _is_part(part):
                self._parts[request.who] = request
                self._changed.notify_all()
                return
        request.refuse("training has continued without it: join again")

    def _take_drawing(self, request: protocol.Request) -> None:
        with self._changed:
            self._drawing[request.who] = time.monotonic()
            self._changed.notify_all()
        request.answer()

    def _take_leaving(self, request: protocol.Request) -> None:
        with self._changed:
            self._members.discard(request.who)
            self._parts.pop(request.who, None)
            self._changed.notify_all()
        request.answer()


class MemberGroup:
    """Any other learner's side: joins, sends parts, gets sums.

    Args:
      chief: The wire to the first learner.
      variables: Returns where all variables are.
    """

    def __init__(self, chief: protocol.Client, variables: Callable[[], packing.Packing]) -> None:
        self._chief = chief
        self._variables = variables
        self._session: str | None = None
        self._number = 0
        self._asked: futures.Future[messages.Message] | None = None
        self._is_drawing = False  # Between the beginning of a train step and its next sum.
        self._told_at = 0.0

    @property
    def is_joined(self) -> bool:
        """Whether this learner takes part in the next train step."""
        return self._session is not None

    def join(self, timeout_seconds: float) -> bool:
        """Asks to take part, and takes over the chief's variables.

        Returns:
          Whether it takes part; the chief answers between two train steps. If not, call again.

        Raises:
          errors.SpecMismatchError: If its variables are others.
        """
        variables = self._variables()
        if self._asked is None:
            body = {"bytes": variables.size}
            self._asked = self._chief.submit(JOIN, body, timeout_seconds=_JOIN_SECONDS)
        try:
            answer = self._asked.result(timeout_seconds)
        except futures.TimeoutError:
            return False
        except (protocol.NoAnswerError, protocol.RefusedError):
            # The chief has died, and the wire to it was closed; or it has only just been started.
            self._asked = None
            return False
        self._asked = None
        if "state" not in answer.arrays:
            raise errors.SpecMismatchError(
                f"the variables of this learner have {variables.size} bytes, those of the first "
                f"one {answer.body.get('bytes')}: they were started with other configurations"
            )
        variables.assign(answer.arrays["state"])
        self._number = answer.body["number"]
        self._session = answer.body["session"]
        return True

    def sum(self, part: np.ndarray) -> tuple[np.ndarray, int]:
        if self._session is None:
            raise LeftGroupError("this learner has not joined the others")
        body = {"session": self._session, "number": self._number}
        try:
            self._is_drawing = False
            sent = self._chief.submit(PART, body, {"part": part}, timeout_seconds=_JOIN_SECONDS)
            # The chief may wait for experience, for as long as it likes; if it dies, the wire is
            # closed by whoever finds its successor.
            answer = sent.result()
        except (protocol.NoAnswerError, protocol.RefusedError) as error:
            self._session = None
            raise LeftGroupError(str(error)) from error
        self._number += 1
        return answer.arrays["sum"], answer.body["members"]

    def begin(self, part: np.ndarray) -> tuple[np.ndarray, int]:
        """As `sum`, for the first of a train step; what follows it may wait for experience."""
        begun = self.sum(part)
        self._is_drawing = True
        return begun

    def tell_drawing(self) -> None:
        """Tells the chief, every second, that this learner waits for its part of the batch.

        Does nothing unless it may: between `begin` and the next sum.
        """
        now = time.monotonic()
        if not self._is_drawing or now - self._told_at < _DRAWING_SECONDS:
            return
        self._told_at = now
        self._chief.submit(DRAWING, timeout_seconds=_GLANCE_SECONDS)

    def abandon(self) -> None:
        """Tells the chief that a train step has failed here, so that it need not wait."""
        self._session = None
        self._is_drawing = False
        # Nobody waits for the answer: if it is lost, the chief waits for a part in vain, once.
        self._chief.submit(LEAVE, timeout_seconds=_GLANCE_SECONDS)


def _is_part(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == np.float32 and part.ndim == 1
