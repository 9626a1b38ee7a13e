"""From the ticks of a world to the steps of each agent: for worlds in which agents take turns."""

from __future__ import annotations

from typing import Callable

import numpy as np
import tree
from tf_agents.trajectories import policy_step as policy_step_lib
from tf_agents.trajectories import time_step as ts

LAST = int(ts.StepType.LAST)

Transition = tuple[ts.TimeStep, policy_step_lib.PolicyStep, ts.TimeStep]


class TurnRows:
    """Puts each agent's step together, from its own turn to what it meets next.

    An actor sees all slots in every tick, those that wait among them. A step of a slot begins where
    the slot is present and acts, and ends where it is present again, be that ticks later; its
    reward is what the agent was given meanwhile. A transition observer of an actor:

    ```python
    rows = TurnRows(lambda: env.present, writer.add)
    Actor(env, policy, train_step, transition_observers=[rows])
    ```

    Args:
      present: Returns `[slots]`: who met something in the environment's latest step.
      add: Called with a transition, leaves `[slots, ...]`, and `[slots]`, whose rows are steps; the
        arrays are written again in the next tick.
    """

    observes_transitions = True

    def __init__(
        self,
        present: Callable[[], np.ndarray],
        add: Callable[[Transition, np.ndarray], None],
    ) -> None:
        self._present = present
        self._add = add
        # What each slot met and did at its latest turn, by leaf; and whether it had any.
        self._begun: list[np.ndarray] | None = None
        self._has_begun = np.zeros(0, np.bool_)
        self._was_present = np.zeros(0, np.bool_)

    def __call__(self, transition: Transition) -> None:
        time_step, policy_step, next_time_step = transition
        present = self._present()
        leaves = tree.flatten((time_step, policy_step))
        if self._begun is None:
            self._begun = [np.array(leaf) for leaf in leaves]
            # Nobody says who was present before the first tick; those that are out are LAST.
            self._has_begun = time_step.step_type != LAST
        else:
            before = self._was_present
            for kept, leaf in zip(self._begun, leaves):
                kept[before] = leaf[before]
            self._has_begun |= before
        self._was_present = present
        stepped = present & self._has_begun
        if stepped.any():
            begun, policy_step = tree.unflatten_as((time_step, policy_step), self._begun)
            self._add((begun, policy_step, next_time_step), stepped)
