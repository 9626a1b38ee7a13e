"""Begins a run from an earlier policy: `--warm_start=RUN`, or `WarmStart.source` in gin.

The flag becomes a binding, so that it is part of the run's configuration.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from actor_learner import run_directory
from actor_learner.support import configurable, errors

_PARAMETER = "WarmStart.source"


@configurable.register
class WarmStart:
    """The policy that a new run begins from.

    Args:
      source: A run directory, for its best policy, else its latest; `RUN@VERSION` or `RUN@TAG`; a
        file of parameters, or an exported policy: anything that `parameters.sources.find` finds.
        None begins from scratch. Critics that the policy does not use, and the optimizer, always
        do.
    """

    def __init__(self, source: str | None = None) -> None:
        self._source = source

    def apply(self, agent: Any, run_dir: run_directory.RunDirectory) -> None:
        """Gives the agent's policy the source's values, unless the run resumes from a checkpoint.

        Call this before the agent is initialized, which copies them to its target networks.

        Raises:
          errors.ConfigError: If there are no such parameters, or they are damaged.
          errors.SpecMismatchError: If they do not fit the agent.
        """
        if self._source is None:
            return
        if run_dir.has_checkpoints:
            logging.info("The run resumes from its checkpoint, not from %s.", self._source)
            return
        from actor_learner.parameters import parameter_errors, variables

        try:
            variables.warm_start(agent, self._source)
        except parameter_errors.ParameterError as error:
            raise errors.ConfigError(f"{_PARAMETER} = {self._source!r}: {error}") from error


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--warm_start` to a parser that has `--gin_param`."""
    parser.add_argument(
        "--warm_start",
        action=_Bind,
        metavar="RUN_OR_FILE[@VERSION_OR_TAG]",
        help="begin with a policy that was learned before: a run's best one, or the one given",
    )


def refuse_to_resume(bindings: Sequence[str]) -> None:
    """Checks that a run is not both resumed and warm-started.

    Raises:
      errors.ConfigError: If it is.
    """
    if any(binding.startswith(f"{_PARAMETER} =") for binding in bindings):
        raise errors.ConfigError(
            "--resume continues from the run's own checkpoint: leave out --warm_start, or begin a "
            "new run with it"
        )


class _Bind(argparse.Action):
    """Converts the flag to a binding, with a path that is valid in any working directory."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        path = os.path.abspath(os.path.expanduser(values))
        namespace.gin_param = [*(namespace.gin_param or ()), f"{_PARAMETER} = {path!r}"]
