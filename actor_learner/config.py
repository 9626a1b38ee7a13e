"""Gin configuration: find, check, load, and prove that every binding took effect.

Importing this module and calling `find` and `check` does not import TensorFlow, so that a mistake
in a gin file is reported within a second:

    source = config.ConfigSource(("dqn_cartpole.gin",), ("Experiment.environment_steps = 1_000",))
    config.check(source)            # by reading files and sources only
    config.load(source)             # imports everything, TensorFlow included
    experiment = Experiment()
    config.check_all_used()
"""

import argparse
import dataclasses

import gin

from actor_learner.configuring import (
    agent_policies,
    checking,
    files,
    loading,
    program,
    statements,
    usage,
)


@dataclasses.dataclass(frozen=True)
class ConfigSource:
    """All that a configuration is made of; a child process is given exactly this.

    Attributes:
      gin_files: Names or paths as `find` takes them, later files overriding earlier ones.
      bindings: Statements such as `"Learner.checkpoint_interval = 1_000"`, applied after all files.
    """

    gin_files: tuple[str, ...]
    bindings: tuple[str, ...] = ()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds `--gin_file` and `--gin_param`, the fields of a `ConfigSource`, to a command."""
    parser.add_argument(
        "--gin_file", action="append", default=[], help="configuration; may be repeated"
    )
    parser.add_argument(
        "--gin_param",
        "--gin_bindings",
        action="append",
        default=[],
        dest="gin_param",
        metavar="'NAME.PARAMETER = VALUE'",
        help="one binding, stronger than the files; may be repeated",
    )


def find(gin_file: str) -> str:
    """The absolute path of a gin file.

    `gin_file` is taken as a path first, then as the name of a file that comes with this package:
    `dqn_cartpole`, `dqn_cartpole.gin` and `gin/dqn_cartpole.gin` all work from any directory.

    Raises:
      errors.ConfigError: If there is no such file; names the places searched and similar names.
    """
    return files.find(gin_file)


def leaves() -> list[str]:
    """The names of the ready-made experiments, each of which `find` accepts."""
    return files.leaves()


def check(source: ConfigSource) -> None:
    """Checks everything that can be known without importing what is configured.

    That is: syntax, missing files and modules, unknown or ambiguous names, unknown parameters,
    literals of the wrong type, undefined and unused macros, and parameters bound twice in a file.

    Raises:
      errors.ConfigError: With one line for each problem, sorted by file and line.
    """
    checking.check(source.gin_files, source.bindings)


def bindings_of(source: ConfigSource, owner: str) -> dict[str, statements.Binding]:
    """The bindings of one configurable that take effect, by parameter, read from the text alone.

    Args:
      source: Must have passed `check`.
      owner: As gin files call it, without a scope.
    """
    found = {}
    for _, statement in program.read(source.gin_files, source.bindings).steps:
        if isinstance(statement, statements.Binding) and statement.selector == owner:
            found[statement.parameter] = statement
    return found


def further_policies(source: ConfigSource) -> list[str]:
    """Names of the policies that a world's agents have besides `main` and that are trained, too.

    They are read from the text alone: the specs in `AgentWorld.agents` of the world that
    `Experiment.environment` names, if it names one.

    Args:
      source: Must have passed `check`.
    """
    return agent_policies.trained(program.read(source.gin_files, source.bindings))


def load(source: ConfigSource) -> None:
    """Replaces gin's global configuration by `source`, importing everything it names.

    The working directory becomes importable, so that a gin file can import modules beside it.
    The configuration is left unlocked. After an error it is empty.

    Raises:
      errors.ConfigError: With file and line of the statement that failed.
    """
    loading.load(source.gin_files, source.bindings)


def check_all_used() -> None:
    """Checks that every binding has reached a call; to be called when everything is constructed.

    A binding is also unused when the caller always gives that argument itself, and when an inner
    scope's binding always replaces it. What was handed over uncalled, as `@name`, is not judged.

    Raises:
      errors.ConfigError: With the place of, and the reason for, each unused binding.
    """
    usage.check_all_used()


def drop_orphaned() -> list[str]:
    """Takes out bindings of what an override has replaced; returns lines that say so.

    To be called when everything is constructed, before the configuration is written.
    """
    return usage.drop_orphaned()


def unused() -> dict[str, str]:
    """What `check_all_used` would complain about: place and reason of each binding, by its name."""
    return usage.unused()


def operative_config() -> str:
    """The values in effect in all calls so far, defaults included, as gin text."""
    return gin.operative_config_str()


def config_text() -> str:
    """Everything bound, imports included: loading this text alone gives the same configuration."""
    return gin.config_str()
