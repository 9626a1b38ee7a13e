"""What gin files say about the jobs of a run: the user's own, and how long to wait for each.

```
import my_project.watcher
Jobs.extra = {'watcher': @TableWatcher}      # A class derived from Worker, not called.
Jobs.counts = {'watcher': 2}                 # How many `up` starts; one where nothing is said.
TableWatcher.interval_seconds = 10.0
Jobs.tables = [@my_notes_table()]            # Served beside ours; returns a reverb.Table.
Jobs.resources = {'learner': {'CPU': 2, 'GPU': 1}, 'watcher': {'CPU': 0.1}}
Jobs.final_evaluation_seconds = 1_800        # For long episodes.
Jobs.silent_seconds = 600                    # For machines that are often overloaded.
```

`actor-learner up` then starts `watcher-0` and `watcher-1` beside ours; they are supervised,
addressed and shown like them. By hand, on any machine, each is
`actor-learner custom watcher --gin_file=… --run=… --index=…`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from actor_learner import config
from actor_learner.configuring import program, statements
from actor_learner.jobs import worker as worker_lib
from actor_learner.jobs.presence import names
from actor_learner.support import configurable, errors

OURS = ("replay", "actor", "policy", "learner", "evaluator")
FINAL_EVALUATION_SECONDS = 300.0
NO_ACTORS_SECONDS = 60.0
PATIENCE_SECONDS = 600.0
SILENT_SECONDS = 120.0
STUCK_SECONDS = 1_800.0
_OWNER = "Jobs"
_SECONDS = {
    "final_evaluation_seconds": FINAL_EVALUATION_SECONDS,
    "no_actors_seconds": NO_ACTORS_SECONDS,
    "patience_seconds": PATIENCE_SECONDS,
    "silent_seconds": SILENT_SECONDS,
    "stuck_seconds": STUCK_SECONDS,
}


@configurable.register
class Jobs:
    """What a gin file says about the jobs of a run.

    Args:
      extra: Jobs of the user's own: what makes each worker, by the name of the job.
      tables: Tables of the user's own, which the replay server holds, and saves, beside those of
        the run; with a signature of any kind.
      resources: What a job needs of the node it is placed on, by its kind: `{'CPU': 1, 'GPU': 1}`.
        For launchers that place jobs on a cluster; those on one machine do not look at it.
      counts: How many of each job of `extra` a launcher starts, by its name; 1 where nothing is
        said, 0 for one that is only started by hand.
      final_evaluation_seconds: How long the learner, having finished, waits for the evaluators to
        rate its final version. A launcher waits twice as long for them to end.
      no_actors_seconds: How long a launcher lets a run go on after its last actor was ended, before
        it ends the run: time to start others.
      patience_seconds: How long a job waits for another that it cannot do without, an actor for the
        learner and the learner for an actor, before it fails. It says so after ten seconds.
      silent_seconds: How long a job may not answer on its wire before a launcher kills it and
        starts it again.
      stuck_seconds: How long one poll of a job may last before a launcher does the same. One
        evaluation may be one poll: allow for the longest.
    """

    def __init__(
        self,
        extra: dict[str, Callable[[], worker_lib.Worker]] | None = None,
        resources: dict[str, dict[str, float]] | None = None,
        tables: Sequence[Any] = (),
        final_evaluation_seconds: float = FINAL_EVALUATION_SECONDS,
        counts: dict[str, int] | None = None,
        no_actors_seconds: float = NO_ACTORS_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self.extra = dict(extra or {})
        self.tables = list(tables)
        self.resources = dict(resources or {})
        self.final_evaluation_seconds = final_evaluation_seconds
        self.no_actors_seconds = no_actors_seconds
        self.patience_seconds = patience_seconds
        self.silent_seconds = silent_seconds
        self.stuck_seconds = stuck_seconds
        self.counts = dict(counts or {})
        _check_extra(self.extra)
        _check_counts(self.counts, self.extra)
        _check_resources(self.resources)
        for name in _SECONDS:
            _check_seconds(name, getattr(self, name))

    def make(self, job: str) -> worker_lib.Worker:
        """Makes the worker of one of the user's jobs.

        Raises:
          errors.ConfigError: If there is no such job, or what makes it makes something else.
        """
        if job not in self.extra:
            known = ", ".join(sorted(self.extra)) or "none"
            raise errors.ConfigError(f"Jobs.extra has no job '{job}'; it has {known}")
        made = self.extra[job]()
        if not isinstance(made, worker_lib.Worker):
            raise errors.ConfigError(
                f"Jobs.extra['{job}'] makes a {type(made).__name__}, which is not derived from "
                "actor_learner.jobs.worker.Worker"
            )
        return made


class Declared(NamedTuple):
    """What can be known of `Jobs` without importing anything.

    Attributes:
      extra: How many there are of each of the user's jobs, by its name.
      resources: What each kind of job needs of its node.
      final_evaluation_seconds: As that of `Jobs`; so are the others.
    """

    extra: dict[str, int]
    resources: dict[str, dict[str, float]]
    final_evaluation_seconds: float
    no_actors_seconds: float
    patience_seconds: float
    silent_seconds: float
    stuck_seconds: float


def declared(source: config.ConfigSource) -> Declared:
    """What a configuration says about the jobs, read from the text alone.

    So that a launcher need not import what the workers are made of. The source must have passed
    `config.check`.

    Raises:
      errors.ConfigError: If it is not written out, but as a macro or a reference.
    """
    values: dict[str, tuple[statements.Binding, Any]] = {}
    for _, statement in program.read(source.gin_files, source.bindings).steps:
        if isinstance(statement, statements.Binding) and statement.selector == _OWNER:
            values[statement.parameter] = (statement, statement.value)
    found = {}
    for parameter in ("extra", "resources", "counts"):
        binding, value = values.get(parameter, (None, None))
        value = {} if value is None else value
        literal = isinstance(value, dict) and all(isinstance(key, str) for key in value)
        if not literal or (parameter != "extra" and _references(value)):
            raise errors.ConfigError(
                f"{binding.origin}: Jobs.{parameter} must be written out as a dict with names of "
                f"jobs as keys, got {value!r}"
            )
        found[parameter] = value
    _check_extra(found["extra"])
    _check_resources(found["resources"])
    _check_counts(found["counts"], found["extra"])
    seconds = {}
    for name, default in _SECONDS.items():
        _, seconds[name] = values.get(name, (None, default))
        _check_seconds(name, seconds[name])
    extra = {name: found["counts"].get(name, 1) for name in found["extra"]}
    return Declared(extra, found["resources"], **seconds)


def _references(value: Any) -> bool:
    kinds = (statements.Reference, statements.Macro)
    return any(isinstance(item, kinds) for item in statements.values_within(value))


def _check_extra(extra: Mapping[str, Any]) -> None:
    for name in extra:
        names.check_kind(name)
        if name in (*OURS, names.LAUNCHER):
            raise errors.ConfigError(
                f"Jobs.extra has a job '{name}', which is one of ours: {', '.join(OURS)}"
            )


def _check_counts(counts: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    for name, count in counts.items():
        if name not in extra:
            hint = (
                f": use --{name}s of `actor-learner up`" if name in ("actor", "evaluator") else ""
            )
            known = ", ".join(extra) or "none"
            raise errors.ConfigError(
                f"Jobs.counts has '{name}', which is not a job of Jobs.extra ({known}){hint}"
            )
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise errors.ConfigError(
                f"Jobs.counts['{name}'] must be a whole number, at least 0; got {count!r}"
            )


def _check_seconds(name: str, seconds: Any) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise errors.ConfigError(
            f"Jobs.{name} must be written out as a number, at least 0; got {seconds!r}"
        )


def _check_resources(resources: Mapping[str, Any]) -> None:
    for kind, needed in resources.items():
        names.check_kind(kind)
        if not isinstance(needed, dict) or not all(
            isinstance(amount, (int, float)) and amount >= 0 for amount in needed.values()
        ):
            raise errors.ConfigError(
                f"Jobs.resources['{kind}'] is {needed!r}; it must be a dict of amounts such as "
                "{'CPU': 1, 'GPU': 0.5}"
            )
