"""What gin files say about a run on a Ray cluster: what each job needs, and where it is placed.

```
Ray.resources = {'learner': {'num_gpus': 1, 'memory_gb': 8}, 'actor': {'num_cpus': 0.5}}
Ray.placement = 'SPREAD'
Ray.runtime_env = {'env_vars': {'MUJOCO_GL': 'egl'}, 'pip': ['my-environments==1.2']}
```

Runs on one machine do not look at them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from actor_learner import config
from actor_learner.configuring import statements, suggestions
from actor_learner.support import configurable, errors

PLACEMENTS = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
DEFAULT_CPUS = 1.0
WAIT_SECONDS = 600.0
GIGABYTE = 10**9

_OWNER = "Ray"
_AMOUNTS = {"num_cpus": "CPU", "num_gpus": "GPU", "memory_gb": "memory"}
_CUSTOM = "resources"
_NOT_CUSTOM = ("CPU", "GPU", "memory", "object_store_memory")


@configurable.register
class Ray:
    """Says how the jobs of a run are placed on a Ray cluster.

    Args:
      resources: What a job needs of its node, by the kind of the job: `num_cpus` (1 where nothing
        is said), `num_gpus`, `memory_gb` (10^9 bytes), and `resources`, amounts of what the
        cluster's own names stand for, such as `{'resources': {'big_disk': 1}}`. Ray keeps account
        of them and shows a job the GPUs it was given; it does not limit the memory that is used.
      placement: How Ray reserves room for all jobs together, before the first is started: 'PACK'
        puts them on as few nodes as it can, 'SPREAD' on as many, 'STRICT_PACK' on one,
        'STRICT_SPREAD' each on one of its own. None reserves nothing: each job is started where
        there is room, when there is. Actors that `scale` adds are placed so in any case.
      runtime_env: What Ray prepares for the jobs on every node: `env_vars`, `pip`, `working_dir`,
        ...; see Ray's documentation.
      wait_seconds: How long a job waits for room on the cluster before it fails. What is missing
        is said after ten seconds. Allow for a queue, or for an autoscaler that starts machines.
    """

    def __init__(
        self,
        resources: dict[str, dict[str, Any]] | None = None,
        placement: str | None = "PACK",
        runtime_env: dict[str, Any] | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.settings = _checked(
            {
                "resources": resources,
                "placement": placement,
                "runtime_env": runtime_env,
                "wait_seconds": wait_seconds,
            }
        )


class RaySettings(NamedTuple):
    """What is known of `Ray` without building it.

    Attributes:
      resources: What each kind of job that is named needs, in Ray's own names and units.
      placement: One of `PLACEMENTS`, or None.
      runtime_env: As Ray takes it.
      wait_seconds: As that of `Ray`.
    """

    resources: dict[str, dict[str, float]] = {}
    placement: str | None = "PACK"
    runtime_env: dict[str, Any] = {}
    wait_seconds: float = WAIT_SECONDS


def declared(source: config.ConfigSource, kinds: Collection[str]) -> RaySettings:
    """What a configuration says about Ray, read from the text alone.

    Args:
      source: Must have passed `config.check`.
      kinds: Of all jobs that the run may have.

    Raises:
      errors.ConfigError: If a value is wrong, not written out, or about a job that there is not.
    """
    values = {}
    for parameter, binding in config.bindings_of(source, _OWNER).items():
        if any(
            isinstance(item, (statements.Reference, statements.Macro))
            for item in statements.values_within(binding.value)
        ):
            raise errors.ConfigError(
                f"{binding.origin}: Ray.{parameter} must be written out, without @ or %: it is "
                f"read before anything is built. Got {binding.value!r}"
            )
        values[parameter] = binding.value
    settings = _checked(values)
    for kind in settings.resources:
        if kind not in kinds:
            hint = suggestions.did_you_mean(kind, kinds) or f": there are {', '.join(kinds)}"
            raise errors.ConfigError(
                f"Ray.resources names '{kind}', which is not a kind of job{hint}"
            )
    return settings


def _checked(values: Mapping[str, Any]) -> RaySettings:
    given = {**RaySettings()._asdict(), **values}
    placement, runtime_env = given["placement"], given["runtime_env"] or {}
    if placement is not None and placement not in PLACEMENTS:
        raise errors.ConfigError(
            f"Ray.placement must be None or one of {', '.join(PLACEMENTS)}; got {placement!r}"
        )
    if not isinstance(runtime_env, dict):
        raise errors.ConfigError(
            f"Ray.runtime_env must be a dict such as {{'env_vars': {{'NAME': 'value'}}}}; got "
            f"{runtime_env!r}"
        )
    wait_seconds = given["wait_seconds"]
    if not _is_amount(wait_seconds):
        raise errors.ConfigError(
            f"Ray.wait_seconds must be a number, at least 0; got {wait_seconds!r}"
        )
    resources = given["resources"] or {}
    if not isinstance(resources, dict):
        raise errors.ConfigError(
            "Ray.resources must be a dict by kind of job, such as {'learner': {'num_gpus': 1}}; "
            f"got {resources!r}"
        )
    return RaySettings(
        {kind: _in_words_of_ray(kind, needed) for kind, needed in resources.items()},
        placement,
        dict(runtime_env),
        float(wait_seconds),
    )


def _in_words_of_ray(kind: str, needed: Any) -> dict[str, float]:
    place = f"Ray.resources['{kind}']"
    known = (*_AMOUNTS, _CUSTOM)
    if not isinstance(needed, dict):
        raise errors.ConfigError(
            f"{place} must be a dict of amounts such as {{'num_cpus': 2}}; got {needed!r}"
        )
    found = {"CPU": DEFAULT_CPUS}
    for word, amount in needed.items():
        if word == _CUSTOM:
            found.update(_custom(place, amount))
            continue
        if word not in _AMOUNTS:
            hint = suggestions.did_you_mean(str(word), known) or f": use {', '.join(known)}"
            raise errors.ConfigError(f"{place} has an unknown word {word!r}{hint}")
        if not _is_amount(amount):
            raise errors.ConfigError(
                f"{place}['{word}'] must be a number, at least 0; got {amount!r}"
            )
        if word == "num_gpus" and amount > 1 and amount != int(amount):
            raise errors.ConfigError(
                f"{place}['num_gpus'] is {amount}: above 1, Ray gives out whole GPUs only"
            )
        # Ray counts memory in whole bytes.
        found[_AMOUNTS[word]] = int(amount * GIGABYTE) if word == "memory_gb" else float(amount)
    return {name: amount for name, amount in found.items() if amount or name == "CPU"}


def _custom(place: str, amounts: Any) -> dict[str, float]:
    if not isinstance(amounts, dict) or not all(map(_is_amount, amounts.values())):
        raise errors.ConfigError(
            f"{place}['{_CUSTOM}'] must be a dict of amounts by the names that the cluster has for "
            f"them, such as {{'big_disk': 1}}; got {amounts!r}"
        )
    for name in amounts:
        if name in _NOT_CUSTOM:
            raise errors.ConfigError(
                f"{place}['{_CUSTOM}'] has '{name}', which has a word of its own: use "
                f"{', '.join(_AMOUNTS)}"
            )
    return {str(name): float(amount) for name, amount in amounts.items()}


def _is_amount(value: Any) -> bool:
    return (
        not isinstance(value, bool)
        and isinstance(value, (int, float))
        and math.isfinite(value)
        and value >= 0
    )
