"""Calls whatever an experiment was given to make its environments."""

from __future__ import annotations

import inspect
from typing import Any, Callable

from tf_agents.environments import py_environment

from actor_learner.environments import lanes as lanes_lib
from actor_learner.support import errors

Factory = Callable[..., py_environment.PyEnvironment]


def make(factory: Factory | None, **wanted: Any) -> py_environment.PyEnvironment:
    """Makes an environment, with what the factory takes of the arguments that are wanted.

    Raises:
      errors.ConfigError: If there is no factory.
      errors.SpecMismatchError: If it makes something else.
    """
    if factory is None:
        raise errors.ConfigError(
            "this needs an environment, but neither Experiment.environment nor "
            "Evaluation.environment is set"
        )
    env = factory(**{name: value for name, value in wanted.items() if takes(factory, name)})
    lanes_lib.as_lanes(env)  # Raises, naming what is accepted, for anything else.
    return env


def takes(factory: Any, argument: str) -> bool:
    """Whether a factory takes an argument of this name."""
    # Not of a class itself: what a scope of gin makes of it (`@evaluation/...`) shows none.
    signed = factory.__init__ if inspect.isclass(factory) else factory
    return argument in inspect.signature(signed).parameters
