"""The parts of the running experiment, for gin files to hand to triggers.

```
Learner.triggers = [@PagerTrigger()]
PagerTrigger.agent = @agent()
PagerTrigger.train_step = @train_step()
```

Each is filled in while the experiment is built, in this order: `run_dir`, `train_step`,
`environment_step`, `agent`, `replay_client`, `collect_metrics`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from actor_learner.support import configurable, errors

_current: dict[str, Any] = {}


def publish(**parts: Any) -> None:
    """Makes parts available under their names."""
    _current.update(parts)


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Begins with no parts and forgets them at the end, so that no run sees another's."""
    _current.clear()
    try:
        yield
    finally:
        _current.clear()


def _get(name: str) -> Any:
    if name not in _current:
        raise errors.ConfigError(
            f"@{name}() is asked for before the experiment has built it; it can be handed to "
            "triggers (Learner.triggers) only"
        )
    return _current[name]


@configurable.register
def run_dir() -> str:
    """Path of the run directory."""
    return _get("run_dir")


@configurable.register
def train_step() -> Any:
    """The train step counter, a scalar int64 `tf.Variable`."""
    return _get("train_step")


@configurable.register
def environment_step() -> Any:
    """The environment step counter, a scalar int64 `tf.Variable`."""
    return _get("environment_step")


@configurable.register
def agent() -> Any:
    """The agent that is trained."""
    return _get("agent")


@configurable.register
def replay_client() -> Any:
    """A `reverb.Client` of the replay server."""
    return _get("replay_client")


def latest_row() -> dict[str, Any]:
    """The latest line of metrics, for triggers to look at when they are called; empty before it.

    In Python only: a gin file would hand over the line there was when the trigger was made.
    """
    return dict(_current.get("latest_row", {}))


@configurable.register
def collect_metrics() -> list[Any]:
    """The metrics of the collecting actor."""
    return _get("collect_metrics")
