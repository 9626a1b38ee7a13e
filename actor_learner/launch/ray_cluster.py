"""Connects to a Ray cluster, describes what it has, and rewords its errors."""

from __future__ import annotations

import logging as python_logging
import os
import socket
from collections.abc import Mapping
from typing import Any

from actor_learner import ray_settings
from actor_learner.configuring import suggestions
from actor_learner.support import errors, extras

AUTO = "auto"
_CONNECT_SECONDS = 5.0
_UNITS = {"CPU": "CPU", "GPU": "GPU"}
_NOT_SHOWN = ("object_store_memory", "node:")


def connect(address: str, *, namespace: str, runtime_env: Mapping[str, Any] | None = None) -> Any:
    """Connects this process to a cluster; returns the module `ray`.

    Args:
      address: `auto`, for the cluster that this machine belongs to, or `host:port`.
      namespace: Names the run to Ray.
      runtime_env: For this connection and all that is started by it.

    Raises:
      errors.MissingExtraError: If Ray is not installed.
      errors.ConfigError: If there is no cluster, or `runtime_env` is wrong.
    """
    ray = extras.require("ray", "ray")
    _check_runtime_env(ray, runtime_env or {})
    _check_address(address)
    try:
        ray.init(
            address=address,
            namespace=namespace,
            runtime_env=dict(runtime_env) if runtime_env else None,
            log_to_driver=False,
            logging_level=python_logging.WARNING,
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise errors.ConfigError(_no_cluster(address, first_line(error))) from error
    return ray


def amounts_in_words(amounts: Mapping[str, float]) -> str:
    """`{"CPU": 2.0, "memory": 8e9}` as `2 CPU, 8 GB of memory`."""
    words = []
    for name, amount in sorted(amounts.items()):
        if name.startswith(_NOT_SHOWN):
            continue
        if name == "memory":
            words.append(f"{amount / ray_settings.GIGABYTE:.3g} GB of memory")
        else:
            words.append(f"{amount:g} {_UNITS.get(name, repr(name))}")
    return ", ".join(words) or "nothing"


def contents_in_words(ray: Any) -> str:
    """What the cluster has, in all and free. Asks the cluster, and waits for its answer."""
    total, free = ray.cluster_resources(), ray.available_resources()
    # What is used up is missing from what Ray returns.
    free = {name: free.get(name, 0.0) for name in total}
    nodes = [node for node in ray.nodes() if node["Alive"]]
    plural = "" if len(nodes) == 1 else "s"
    return (
        f"the cluster has {len(nodes)} node{plural} with {amounts_in_words(total)} in all; free: "
        f"{amounts_in_words(free)}"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error that says something: Ray's have many."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def _check_address(address: str) -> None:
    given = address
    if address == AUTO:
        given = os.environ.get("RAY_ADDRESS") or _own_cluster()
    if given == AUTO:
        return
    host, _, port = given.rpartition(":")
    if "://" in given or not host or not port.isdigit():
        raise errors.ConfigError(
            f"--address={given} must be 'auto', on a machine that belongs to the cluster, or "
            "HOST:PORT of its head as `ray start` prints it. Ray's client (ray://) is not "
            "supported: run this command on a node of the cluster"
        )
    # Ray itself tries for minutes, and ends the process.
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise errors.ConfigError(_no_cluster(given, error)) from error


def _own_cluster() -> str:
    """The address that Ray has noted for this machine; its cluster may have ended since.

    Raises:
      errors.ConfigError: If it has noted none.
    """
    from ray._private import services

    find = getattr(services, "canonicalize_bootstrap_address_or_die", None)
    try:
        # Not part of Ray's public interface; without it Ray looks by itself, and takes longer.
        return AUTO if find is None else str(find(AUTO))
    except ConnectionError as error:
        raise errors.ConfigError(_no_cluster(AUTO, first_line(error))) from error


def _no_cluster(address: str, why: object) -> str:
    return (
        f"there is no Ray cluster at --address={address}: {why}. Start one with "
        "`ray start --head`, or run on this machine with --launcher=local"
    )


def _check_runtime_env(ray: Any, runtime_env: Mapping[str, Any]) -> None:
    from ray import runtime_env as runtime_env_lib

    known = sorted(runtime_env_lib.RuntimeEnv.known_fields)
    for name in runtime_env:
        if name not in known:
            hint = suggestions.did_you_mean(name, known) or f": it has {', '.join(known)}"
            raise errors.ConfigError(f"Ray.runtime_env has an unknown field '{name}'{hint}")
    try:
        runtime_env_lib.RuntimeEnv(**runtime_env)
    except (TypeError, ValueError, ray.exceptions.RayError) as error:
        raise errors.ConfigError(f"Ray.runtime_env is refused by Ray: {error}") from error
