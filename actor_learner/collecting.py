"""`Collecting`: how a policy acts while it collects, and what is sent of what it meets."""

from __future__ import annotations

from actor_learner.support import configurable


@configurable.register
class Collecting:
    """Says how a trained policy collects: that of `Experiment.agent`, of one agent or of many.

    A further policy of a world has the same settings in its `AgentSpec`.

    Args:
      deterministic_action: Act greedily while collecting, once the random steps are taken: as in
        evaluations. For agents that learn from any policy's experience.
    """

    def __init__(self, *, deterministic_action: bool = False) -> None:
        self.deterministic_action = deterministic_action
