"""Settings of the jobs of a run: the user's own jobs and tables, and deadlines.

```
import my_project.watcher
Jobs.extra = {'watcher': @TableWatcher}      # A class derived from Worker, not called.
Jobs.counts = {'watcher': 2}                 # How many `up` starts; 1 by default.
TableWatcher.interval_seconds = 10.0
Jobs.tables = [@my_notes_table()]            # Served beside ours: each a reverb.Table.
Jobs.final_evaluation_seconds = 1_800        # For long episodes.
Jobs.silent_seconds = 600                    # For machines that are often overloaded.
```

`actor-learner up` then starts `watcher-0` and `watcher-1` beside ours; they are supervised,
addressed and shown like them. By hand, on any machine, each is
`actor-learner custom watcher --gin_file=… --run=… --index=…`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from actor_learner import config
from actor_learner.configuring import statements
from actor_learner.support import configurable, errors

LAUNCHER = "launcher"
"""The kind under which the launcher itself is found; it is not a job of the run."""

OURS = ("replay", "actor", "policy", "learner", "evaluator")
_KIND = re.compile(r"[a-z][a-z0-9_]*\Z")
_LEARNER_OF = re.compile(r"learner-[A-Za-z0-9_-]+\Z")
FINAL_EVALUATION_SECONDS = 300.0
NO_ACTORS_SECONDS = 60.0
PART_SECONDS = 10.0
PATIENCE_SECONDS = 600.0
SILENT_SECONDS = 120.0
STUCK_SECONDS = 1_800.0
_OWNER = "Jobs"
_SECONDS = {
    "final_evaluation_seconds": FINAL_EVALUATION_SECONDS,
    "no_actors_seconds": NO_ACTORS_SECONDS,
    "part_seconds": PART_SECONDS,
    "patience_seconds": PATIENCE_SECONDS,
    "silent_seconds": SILENT_SECONDS,
    "stuck_seconds": STUCK_SECONDS,
}


@configurable.register
class Jobs:
    """Holds the settings of the jobs of a run.

    Args:
      extra: The user's own jobs: a callable that makes a `Worker`, by the name of the job.
      tables: The user's own tables, which the replay server holds and saves beside those of the
        run; any signature will do.
      counts: How many of each job of `extra` a launcher starts; 1 by default, 0 for one that is
        only started by hand.
      final_evaluation_seconds: How long the finished learner waits for evaluators to rate its final
        version. A launcher waits twice as long for them to end.
      no_actors_seconds: How long a launcher keeps a run alive after its last actor was ended, so
        that others can be started.
      part_seconds: How long the first of several learners waits for the parts of the others in a
        train step. Then it continues without those that are missing, until they join again.
      patience_seconds: How long a job waits for another that it needs, an actor for the learner or
        the learner for an actor, before it fails. It says so after ten seconds.
      silent_seconds: How long a job may not answer on its wire before a launcher kills and restarts
        it.
      stuck_seconds: How long one poll of a job may last before a launcher kills and restarts it.
        One evaluation may be one poll: allow for the longest.
    """

    def __init__(
        self,
        extra: dict[str, Callable[[], Any]] | None = None,
        tables: Sequence[Any] = (),
        final_evaluation_seconds: float = FINAL_EVALUATION_SECONDS,
        counts: dict[str, int] | None = None,
        no_actors_seconds: float = NO_ACTORS_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        stuck_seconds: float = STUCK_SECONDS,
        part_seconds: float = PART_SECONDS,
    ) -> None:
        self.extra = dict(extra or {})
        self.tables = list(tables)
        self.final_evaluation_seconds = final_evaluation_seconds
        self.no_actors_seconds = no_actors_seconds
        self.part_seconds = part_seconds
        self.patience_seconds = patience_seconds
        self.silent_seconds = silent_seconds
        self.stuck_seconds = stuck_seconds
        self.counts = dict(counts or {})
        _check_extra(self.extra)
        _check_counts(self.counts, self.extra)
        for name in _SECONDS:
            _check_seconds(name, getattr(self, name))


class Declared(NamedTuple):
    """The part of `Jobs` that can be read without importing anything.

    Attributes:
      extra: How many of each of the user's jobs to start, by its name.
      final_evaluation_seconds: As in `Jobs`; so are the others.
    """

    extra: dict[str, int]
    final_evaluation_seconds: float
    no_actors_seconds: float
    part_seconds: float
    patience_seconds: float
    silent_seconds: float
    stuck_seconds: float


def declared(source: config.ConfigSource) -> Declared:
    """Reads the settings of jobs from the text of a configuration.

    A launcher thus need not import the modules of workers. The source must have passed
    `config.check`.

    Raises:
      errors.ConfigError: If a value is a macro or a reference instead of a literal.
    """
    bindings = config.bindings_of(source, _OWNER)
    found = {}
    for parameter in ("extra", "counts"):
        binding = bindings.get(parameter)
        value = {} if binding is None or binding.value is None else binding.value
        literal = isinstance(value, dict) and all(isinstance(key, str) for key in value)
        if not literal or (parameter != "extra" and _references(value)):
            raise errors.ConfigError(
                f"{binding.origin}: Jobs.{parameter} must be a literal dict with names of jobs as "
                f"keys, got {value!r}"
            )
        found[parameter] = value
    _check_extra(found["extra"])
    _check_counts(found["counts"], found["extra"])
    seconds = {}
    for name, default in _SECONDS.items():
        seconds[name] = bindings[name].value if name in bindings else default
        _check_seconds(name, seconds[name])
    extra = {name: found["counts"].get(name, 1) for name in found["extra"]}
    return Declared(extra, **seconds)


def learner_of(policy: str) -> str:
    """Returns the kind of the job that trains a further policy of a world: `learner-seekers`."""
    return f"learner-{policy}"


def is_further_learner(kind: str) -> bool:
    """Whether this is the kind of a job that trains a further policy."""
    return _LEARNER_OF.match(kind) is not None


def is_kind(kind: str) -> bool:
    """Whether this can be the kind of a job."""
    return _KIND.match(kind) is not None or is_further_learner(kind)


def check_kind(kind: str) -> str:
    """Returns `kind` if it can be part of a name.

    Raises:
      errors.ConfigError: If it cannot.
    """
    if not is_kind(kind):
        raise errors.ConfigError(
            f"{kind!r} cannot be the kind of a job: use lower-case letters, digits and _, "
            "beginning with a letter"
        )
    return kind


def _references(value: Any) -> bool:
    kinds = (statements.Reference, statements.Macro)
    return any(isinstance(item, kinds) for item in statements.values_within(value))


def _check_extra(extra: Mapping[str, Any]) -> None:
    for name in extra:
        check_kind(name)
        if name in (*OURS, LAUNCHER) or is_further_learner(name):
            raise errors.ConfigError(
                f"Jobs.extra has a job '{name}', a name that is reserved: {', '.join(OURS)}"
            )


def _check_counts(counts: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    for name, count in counts.items():
        if name not in extra:
            hint = (
                f": use --{name}s of `actor-learner up`" if name in ("actor", "evaluator") else ""
            )
            known = ", ".join(extra) or "none"
            raise errors.ConfigError(
                f"Jobs.counts has '{name}', which is not in Jobs.extra ({known}){hint}"
            )
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise errors.ConfigError(
                f"Jobs.counts['{name}'] must be a whole number, at least 0; got {count!r}"
            )


def _check_seconds(name: str, seconds: Any) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise errors.ConfigError(
            f"Jobs.{name} must be a literal number, at least 0; got {seconds!r}"
        )
