"""Late imports of optional dependencies, with an error that names the extra to install."""

import importlib
import shlex
import sys
import types

from actor_learner.support import errors


def install_command(extra: str) -> str:
    """What to type to get an extra, for the Python that runs, which no shell may know of."""
    return f"{shlex.quote(sys.executable)} -m pip install -e '.[{extra}]' (in the checkout)"


def require(module: str, extra: str) -> types.ModuleType:
    """Imports `module`, which the optional `extra` of this package installs.

    Raises:
      errors.MissingExtraError: If the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # The optional package is there but broken inside: its own error says more.
        raise errors.MissingExtraError(
            f"{module} is not installed: {install_command(extra)}"
        ) from error
