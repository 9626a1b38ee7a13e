"""Refreshes names in the background until they are let go of, and says when one is lost."""

from __future__ import annotations

import threading
import time
from typing import Callable

from absl import logging

from actor_learner.naming import entries, name_errors

_RENEWALS_PER_TTL = 3
# Of a registry that does not answer.
_RETRIES_PER_TTL = 10
_LONGEST_RETRY_SECONDS = 1.0


class _Kept:
    """A name being kept, from one `keep` to the next `forget`."""

    def __init__(self, ttl: float, now: float) -> None:
        self.ttl = ttl
        self.renewed = now
        self.due = now + ttl / _RENEWALS_PER_TTL


class KeepAlive:
    """A thread that refreshes names three times per time to live. It starts with the first name.

    A name that was lost is reported once: logged, handed to `on_lost`, raised by `check`. It is
    not added again: whoever has it now may have had a reason.

    Args:
      renew: Refreshes one name, called from the thread.
      on_lost: Called from the thread with each loss. It may use the registry, `add` included.
    """

    def __init__(
        self,
        renew: Callable[[str], entries.Outcome],
        on_lost: Callable[[name_errors.NameLostError], None] | None,
    ) -> None:
        self._renew = renew
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._kept: dict[str, _Kept] = {}
        self._lost: dict[str, name_errors.NameLostError] = {}
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False

    def keep(self, name: str, ttl: float) -> None:
        """Begins to refresh `name`, which has just been added."""
        with self._changed:
            self._lost.pop(name, None)
            self._kept[name] = _Kept(ttl, time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="keep-alive", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, name: str) -> None:
        """Lets go of `name`: from now on its loss is none."""
        with self._changed:
            self._kept.pop(name, None)
            self._lost.pop(name, None)

    def forget_subtree(self, prefix: str) -> None:
        """Lets go of every name beneath `prefix`."""
        with self._changed:
            for kept in (self._kept, self._lost):
                for name in [name for name in kept if entries.is_beneath(name, prefix)]:
                    del kept[name]

    def check(self) -> None:
        """Raises what has gone wrong in the thread, if anything has.

        Raises:
          name_errors.NameLostError: If a name was lost and not added or deleted since.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            for error in self._lost.values():
                raise error

    def stop(self, timeout: float) -> list[str]:
        """Ends the thread and returns the names it kept to the last.

        Waits up to `timeout` seconds for a request under way; the thread ends after it.
        """
        with self._changed:
            self._stopping = True
            kept = list(self._kept)
            self._kept.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        return kept

    def _run(self) -> None:
        try:
            while True:
                name, kept = self._next_due()
                if name is None:
                    return
                self._refresh(name, kept)
        except BaseException as error:  # noqa: BLE001 - kept for `check`.
            logging.exception("The thread that keeps names alive has failed.")
            with self._changed:
                self._failure = error

    def _next_due(self) -> tuple[str | None, _Kept | None]:
        """Waits for the next name to refresh; None when stopping."""
        with self._changed:
            while not self._stopping:
                if not self._kept:
                    self._changed.wait()
                    continue
                name = min(self._kept, key=lambda name: self._kept[name].due)
                left = self._kept[name].due - time.monotonic()
                if left <= 0:
                    return name, self._kept[name]
                self._changed.wait(left)
            return None, None

    def _refresh(self, name: str, kept: _Kept) -> None:
        started = time.monotonic()
        try:
            outcome = self._renew(name)
        except name_errors.RegistryUnavailableError as error:
            now = time.monotonic()
            if now - kept.renewed < kept.ttl:
                logging.warning("%s could not be refreshed and is tried again: %s", name, error)
                kept.due = now + min(kept.ttl / _RETRIES_PER_TTL, _LONGEST_RETRY_SECONDS)
                return
            problem = f"for {kept.ttl:g} s it could not be refreshed: {error}"
        else:
            if outcome is entries.Outcome.DONE:
                kept.renewed = started
                kept.due = started + kept.ttl / _RENEWALS_PER_TTL
                return
            if outcome is entries.Outcome.FOREIGN:
                problem = "somebody else has added it with replace=True or after it ran out"
            else:
                problem = (
                    f"it was cleared, or this process did not run for its ttl of {kept.ttl:g} s"
                )
        self._report(name, kept, problem)

    def _report(self, name: str, kept: _Kept, problem: str) -> None:
        error = name_errors.NameLostError(
            f"the name {name!r} is no longer ours: {problem}", name=name
        )
        with self._changed:
            if self._kept.get(name) is not kept:
                return  # It was deleted or added anew while the request was under way.
            del self._kept[name]
            self._lost[name] = error
        logging.error("%s", error)
        if self._on_lost is not None:
            self._on_lost(error)
