"""Writes each lane's steps to a stream of its own, for lanes that do not step together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tree
from tf_agents.trajectories import policy_step as policy_step_lib
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

Transition = tuple[ts.TimeStep, policy_step_lib.PolicyStep, ts.TimeStep]


class LanesApart:
    """One observer per lane, each of which sees the steps that its lane has taken and no others.

    Args:
      observers: For each lane one that takes a single lane, leaves `[1, ...]`.
    """

    def __init__(self, observers: Sequence[Any]) -> None:
        self._observers = list(observers)
        self._takes_transitions = getattr(observers[0], "observes_transitions", False)

    observes_transitions = True

    def __call__(self, transition: Transition) -> None:
        """Takes in a step of all lanes."""
        self.add(transition, np.ones(len(self._observers), np.bool_))

    @property
    def items_written(self) -> int:
        """Items of all lanes written so far, of streams that count them."""
        return sum(observer.items_written for observer in self._observers)

    def also_into(self, tables: Sequence[str]) -> None:
        """Makes every item in these tables too; call it before the first step."""
        for observer in self._observers:
            observer.also_into(tables)

    def add(self, transition: Transition, stepped: np.ndarray) -> None:
        """Takes in the steps of some lanes.

        Args:
          transition: Leaves `[lanes, ...]`.
          stepped: `[lanes]`, whose rows are steps; the others are not looked at.
        """
        leaves = tree.flatten(transition)
        for lane in np.flatnonzero(stepped):
            one = tree.unflatten_as(transition, [leaf[lane : lane + 1] for leaf in leaves])
            observer = self._observers[lane]
            observer(one if self._takes_transitions else trajectory_lib.from_transition(*one))

    def flush(self) -> None:
        """Waits until the server has confirmed every item of every lane."""
        for observer in self._observers:
            observer.flush()

    def close(self) -> None:
        """Closes every lane's observer, those behind one that fails too."""
        error: Exception | None = None
        for observer in self._observers:
            try:
                observer.close()
            except Exception as failure:  # noqa: BLE001 - raised below.
                error = error or failure
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Releases all connections at once, instead of `close`."""
        for observer in self._observers:
            observer.abandon()
