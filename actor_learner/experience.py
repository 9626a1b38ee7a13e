"""What flows from actors to the learner: its kinds, and the types that both sides share."""

from __future__ import annotations

from typing import Any, NamedTuple

TRANSITIONS = "transitions"
"""Batches are `Trajectory` with leaves `[batch, 2, ...]`, in any order: off-policy replay."""

UNROLLS = "unrolls"
"""Batches are `Unroll`, each used once, in the order of collection: on-policy learning."""

SEQUENCES = "sequences"
"""Batches are `Sequence`: replay for agents with memory."""

STATE = "state"
"""Key of a collect policy's info, a dictionary, under which an agent with memory puts the policy
state that the action was computed from. It is stored once per unroll or sequence."""

LOG_PROBABILITY = "log_probability"
"""Key of a collect policy's info for the logarithm of the probability (density) of the action."""


class Unroll(NamedTuple):
    """T consecutive steps of each lane, and the observation they led to.

    Attributes:
      trajectory: `Trajectory`, leaves `[batch, T + 1, ...]`. In row T only `observation` and
        `step_type` count, for values to bootstrap from; its other fields are zero. Rows whose
        `step_type` is LAST are boundary steps (to the next episode's FIRST): their action, reward
        and discount mean nothing. `policy_info` is without `STATE`.
      state: The policy state that row 0 was computed from, leaves `[batch, ...]`; `()` for none.
    """

    trajectory: Any
    state: Any = ()


class UnrollTensors(NamedTuple):
    """T consecutive steps of all lanes as a graph has made them.

    Attributes:
      time_step: `TimeStep` that each action was chosen for, leaves `[T, lanes, ...]`; like them
      action: what the policy chose, and
      policy_info: what else it said.
      last: `TimeStep` that the last action led to, leaves `[lanes, ...]`.
    """

    time_step: Any
    action: Any
    policy_info: Any
    last: Any


class Sequence(NamedTuple):
    """Up to L consecutive steps of one episode.

    Attributes:
      trajectory: `Trajectory`, leaves `[batch, L, ...]`; `policy_info` is without `STATE`. The
        LAST step of an episode, if it lies within, is a row with the true final observation.
      state: The policy state that row 0 was computed from, leaves `[batch, ...]`; `()` for none.
      mask: `[batch, L]` float32: 1 for real rows, 0 for those that fill up after an episode's end.
    """

    trajectory: Any
    state: Any
    mask: Any


class SampleInfo(NamedTuple):
    """Where the rows of a batch come from.

    Attributes:
      key: `[batch]` uint64, keys of the items in the table.
      probability: `[batch]` float64, the probability with which each was drawn.
      table_size: `[batch]` int64, items in the table when each was drawn.
      priority: `[batch]` float64, the item's priority then.
      version: `[batch]` int64, the train step of the policy that acted (in the first row).
      weight: `[batch]` float64, the importance weights before they are scaled to at most 1 within
        the batch, by which batches of several tables are compared; `()` for streams without.
      shard: `[batch]` int64, which of several replay servers each was drawn from; `()` if there is
        one.
    """

    key: Any
    probability: Any
    table_size: Any
    priority: Any
    version: Any
    weight: Any = ()
    shard: Any = ()
