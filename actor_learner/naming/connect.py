"""From the address of a name registry to the registry."""

from __future__ import annotations

import os
import urllib.parse
from typing import Callable

from actor_learner import errors
from actor_learner.naming import files, memory, redis, registry

ENVIRONMENT_VARIABLE = "ACTOR_LEARNER_REGISTRY"

_FORMS = "memory://NAME, file:///DIRECTORY, a path, redis://HOST:PORT/DATABASE or unix:///SOCKET"


def registry_url(given: str | None = None, default: str | None = None) -> str:
    """Where the registry is: what was given, else `ACTOR_LEARNER_REGISTRY`, else the default.

    Raises:
      errors.ConfigError: If none of them says.
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
    on_lost: Callable[[registry.NameLostError], None] | None = None,
    poll_seconds: float = 0.2,
) -> registry.NameRegistry:
    """Opens a name registry.

    Args:
      url: `memory://name` (within this process), `file:///directory` or a plain path (one machine,
        or a shared file system), `redis://host:port/database`, `rediss://...` or `unix:///socket`.
      who: How error messages call this end, e.g. `actor-3`.
      on_lost: Called when a name that was to be kept alive is lost.
      poll_seconds: The longest time between two looks of `wait` and `watch`.

    Raises:
      errors.ConfigError: If the URL is none of these.
      registry.RegistryUnavailableError: If nothing answers there.
    """
    options = {"who": who, "on_lost": on_lost, "poll_seconds": poll_seconds}
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
        return redis.RedisRegistry(url, **options)
    raise errors.ConfigError(f"{url} is no registry we know: it must be one of {_FORMS}")
