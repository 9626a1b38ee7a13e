"""Finds the policy of a run that is evaluated, filmed or recorded, and loads it."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Callable, NamedTuple

from actor_learner import run_directory
from actor_learner.parameters import sources, store
from actor_learner.support import errors


class RatedPolicy(NamedTuple):
    """A policy on the disk.

    Attributes:
      what: Describes the policy, for people to read.
      load: Returns the greedy policy, given the experiment and an environment to act in. Load the
        configuration before.
      path: The exported policy; None if it is in the run's parameter store only.
    """

    what: str
    load: Callable[[Any, Any], Any]
    path: pathlib.Path | None = None


def find(run_dir: run_directory.RunDirectory) -> RatedPolicy:
    """Finds the best policy of a run: in `best/`, else the one tagged `best`, else the last one.

    Raises:
      errors.ConfigError: If the run has none yet.
    """
    best, last = run_dir.best / "policy", run_dir.policies / "greedy_policy"
    if best.is_dir():
        what = f"{best}{_score(run_dir)}"
        return RatedPolicy(what, lambda _, env: _load_export(best, env), best)
    held = store.ParameterStore(run_dir.path / store.DIRECTORY)
    if sources.DEFAULT_NAME in held.names():
        tagged = [v for v in held.list(sources.DEFAULT_NAME) if sources.BEST in v.tags]
        if tagged:
            what = f"version {tagged[0].version}, tagged '{sources.BEST}', of {held}"
            return RatedPolicy(what, lambda experiment, env: _load_stored(held, experiment, env))
    if last.is_dir():
        what = f"{last} (the last policy: no evaluation has found a best one)"
        return RatedPolicy(what, lambda _, env: _load_export(last, env), last)
    raise errors.ConfigError(
        f"{run_dir} has no policy yet: neither {best} nor {last} exists, and none is tagged "
        f"'{sources.BEST}' in {held}. Continue training with --resume={run_dir}"
    )


def _score(run_dir: run_directory.RunDirectory) -> str:
    try:
        score = json.loads((run_dir.best / "score.json").read_text())
    except (OSError, ValueError):
        return ""  # An evaluation rates it again anyway.
    return f" (the best policy, of train step {score['train_step']})"


def _load_export(path: pathlib.Path, env: Any) -> Any:
    from actor_learner.inference import saved_model

    return saved_model.load(str(path), env)


def _load_stored(held: store.ParameterStore, experiment: Any, env: Any) -> Any:
    """Builds the experiment's own policy, with stored values."""
    import tensorflow as tf

    from actor_learner import experiment as experiment_lib
    from actor_learner.parameters import variables

    counters = [tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2)]
    policy = experiment.make_algorithm(env, *counters).agent.policy
    values = held.get(sources.DEFAULT_NAME, sources.BEST).values
    variables.assign(policy, values, source=f"'{sources.BEST}' of {held}")
    return experiment_lib.greedy(policy)
