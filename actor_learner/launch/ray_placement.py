"""Reserves room for jobs on a Ray cluster, and explains what is missing while there is none."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from absl import logging

from actor_learner.launch import job_spec, ray_cluster


class Placement:
    """Reserves room for all jobs of a run together, in one placement group.

    A job that is started again gets its own part of the group again; when a node dies, Ray moves
    the parts that were on it. Jobs that are added later are placed outside the group.

    Args:
      ray: The module.
      specs: The jobs to make room for.
      strategy: Of the group; None for no group.
      say: Takes a line for the user.
    """

    def __init__(
        self,
        ray: Any,
        specs: Sequence[job_spec.JobSpec],
        strategy: str | None,
        say: Callable[[str], None],
    ) -> None:
        self._ray = ray
        self._strategy = strategy
        self._say = say
        # Ray has no parts of a group for those that need nothing.
        needing = [spec for spec in specs if any(spec.resources.values())] if strategy else []
        self._parts = {spec.name: index for index, spec in enumerate(needing)}
        self._bundles = [
            {name: amount for name, amount in spec.resources.items() if amount} for spec in needing
        ]
        self._group: Any = None
        self._explained: set[str] = set()

    def options(self, spec: job_spec.JobSpec) -> dict[str, Any]:
        """Returns how Ray is to place a job; makes the group when first called.

        Raises:
          Whatever Ray raises when it cannot be reached.
        """
        others = {
            name: amount
            for name, amount in spec.resources.items()
            if name not in ("CPU", "GPU", "memory")
        }
        found = {
            "num_cpus": spec.resources.get("CPU", 0),
            "num_gpus": spec.resources.get("GPU", 0),
            "memory": spec.resources.get("memory") or None,
            "resources": others or None,
        }
        if spec.name in self._parts:
            from ray.util import scheduling_strategies

            if self._group is None:
                self._group = self._ray.util.placement_group(self._bundles, strategy=self._strategy)
            found["scheduling_strategy"] = scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=self._parts[spec.name]
            )
        return found

    def explain(self, spec: job_spec.JobSpec, waited_seconds: float) -> None:
        """Says what a job waits for: what it asks for, and what the cluster has.

        Says the same thing once. Asks the cluster in a thread: one that does not answer must not
        hold up the supervision of the jobs that run.
        """
        asked = ray_cluster.amounts_in_words(spec.resources)
        grouped = self._group is not None and spec.name in self._parts
        key = "the group" if grouped else asked
        if key in self._explained:
            return
        self._explained.add(key)

        def ask() -> None:
            try:
                whole = grouped and not self._is_complete()
                contents = ray_cluster.contents_in_words(self._ray)
            except Exception as error:  # noqa: BLE001 - Ray raises many kinds.
                contents, whole = f"Ray does not say what it has: {error}", grouped
                logging.exception("Ray does not say what the cluster has")
            who = self._group_in_words() if whole else f"{spec.name} waits for a node. It asks for"
            asks = self._all_asked() if whole else asked
            self._say(f"{who} {asks}. After {waited_seconds:.0f} s, {contents}")

        threading.Thread(target=ask, name="cluster", daemon=True).start()

    def found_room(self) -> None:
        """Lets `explain` explain a later wait of the same kind again."""
        self._explained.clear()

    def close(self) -> None:
        """Frees the room."""
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
            self._group = None

    def _is_complete(self) -> bool:
        return self._ray.util.placement_group_table(self._group)["state"] == "CREATED"

    def _group_in_words(self) -> str:
        return (
            f"the run waits for room on the cluster for all its {len(self._bundles)} jobs at once "
            f"(Ray.placement = '{self._strategy}'). They ask for"
        )

    def _all_asked(self) -> str:
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        largest = max(self._bundles, key=_weight)
        return (
            f"{ray_cluster.amounts_in_words(total)} in all, one of them for "
            f"{ray_cluster.amounts_in_words(largest)} on its node"
        )


def _weight(bundle: Mapping[str, float]) -> tuple[float, float, float]:
    return bundle.get("GPU", 0.0), bundle.get("CPU", 0.0), bundle.get("memory", 0.0)
