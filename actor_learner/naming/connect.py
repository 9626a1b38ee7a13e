"""Opens a name registry by its URL."""

from __future__ import annotations

import os
import time
import urllib.parse
from typing import Callable

from absl import logging

from actor_learner.naming import files, memory, redis, registry
from actor_learner.support import errors, redaction

ENVIRONMENT_VARIABLE = "ACTOR_LEARNER_REGISTRY"

_RETRY_SECONDS = 0.5

_FORMS = "memory://NAME, file:///DIRECTORY, a path, redis://HOST:PORT/DATABASE or unix:///SOCKET"


def registry_url(given: str | None = None, default: str | None = None) -> str:
    """Returns the registry's URL: the one given, else `ACTOR_LEARNER_REGISTRY`, else the default.

    Raises:
      errors.ConfigError: If there is none of them.
    """
    url = given or os.environ.get(ENVIRONMENT_VARIABLE) or default
    if not url:
        raise errors.ConfigError(
            f"no name registry is given: pass --registry, or set {ENVIRONMENT_VARIABLE}, as one of "
            f"{_FORMS}"
        )
    return url


def connect(
    url: str,
    *,
    who: str | None = None,
    poll_seconds: float = 0.2,
    patience_seconds: float = 0.0,
) -> registry.NameRegistry:
    """Opens a name registry.

    Args:
      url: `memory://name` (within this process), `file:///directory` or a plain path (one machine,
        or a shared file system), `redis://host:port/database`, `rediss://...` or `unix:///socket`.
      who: What error messages call this end, e.g. `actor-3`.
      poll_seconds: The longest time between two checks of `wait`.
      patience_seconds: How long to wait for a server that does not answer.

    Raises:
      errors.ConfigError: If the URL is none of these.
      registry.RegistryUnavailableError: If nothing answers there in time.
    """
    options = {"who": who, "poll_seconds": poll_seconds}
    scheme, separator, rest = url.partition("://")
    if not separator:
        if not url:
            raise errors.ConfigError(f"the registry's URL is empty; it must be one of {_FORMS}")
        return files.FileRegistry(os.path.expanduser(url), **options)
    if scheme == "memory":
        return memory.MemoryRegistry(rest or "default", **options)
    if scheme == "file":
        parts = urllib.parse.urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise errors.ConfigError(
                f"{url} names the machine {parts.netloc!r}, not a directory of this one; write "
                f"file:///{parts.netloc}{parts.path}, with three slashes, or the plain path"
            )
        return files.FileRegistry(urllib.parse.unquote(parts.path), **options)
    if scheme in ("redis", "rediss", "unix"):
        return _with_patience(lambda: redis.RedisRegistry(url, **options), patience_seconds)
    raise errors.ConfigError(
        f"{redaction.redacted(url)} is not a registry we know: it must be one of {_FORMS}"
    )


def _with_patience(
    connect_once: Callable[[], registry.NameRegistry], patience_seconds: float
) -> registry.NameRegistry:
    deadline = time.monotonic() + patience_seconds
    waiting = False
    while True:
        try:
            return connect_once()
        except registry.RegistryUnavailableError as error:
            if time.monotonic() >= deadline:
                if not waiting:
                    raise
                raise registry.RegistryUnavailableError(
                    f"no registry has answered within {patience_seconds:g} s: {error}"
                ) from error
            if not waiting:  # Once: it may be a while.
                logging.warning("Waiting up to %g s for the registry: %s", patience_seconds, error)
            waiting = True
        time.sleep(_RETRY_SECONDS)
