"""Where the replay servers of a run save their contents; refuses to resume with fewer or more."""

from __future__ import annotations

import pathlib

from actor_learner.support import atomic, errors

_CHECKPOINTS = "checkpoint-*"
_COUNT = "servers"  # Holds their number, where there are several.


def of_server(directory: pathlib.Path, index: int, num_servers: int) -> pathlib.Path:
    """The directory of one server: the run's own for a single one, else one in it for each.

    What several servers hold is cut by their number. With another number, Reverb would restore the
    settings of the old shares, and contents of those that are left out would be lost.

    Args:
      directory: Of the run, for the replay's contents.
      index: Of the server.
      num_servers: How many the run has.

    Raises:
      errors.ConfigError: If another number of servers has saved here.
    """
    saved = saved_by(directory)
    if saved and saved != num_servers:
        started = "1 replay server" if num_servers == 1 else f"{num_servers} replay servers"
        raise errors.ConfigError(
            f"{directory} holds the contents of {_servers(saved)}, and this run is started with "
            f"{started}: {_remedy(saved)}; or move {directory} away, and begin with an empty replay"
        )
    if num_servers == 1:
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    with atomic.replacing(directory / _COUNT) as temporary:  # All servers write the same.
        temporary.write_text(f"{num_servers}\n")
    return directory / str(index)


def saved_by(directory: pathlib.Path) -> int:
    """How many servers have saved their contents in a run's directory; 0 if none has."""
    if any(directory.glob(_CHECKPOINTS)):
        return 1
    if any(directory.glob(f"*/{_CHECKPOINTS}")):
        return int((directory / _COUNT).read_text())
    return 0


def _servers(count: int) -> str:
    return "one replay server" if count == 1 else f"{count} replay servers"


def _remedy(saved: int) -> str:
    if saved == 1:
        return "resume it with one, without --replays (or --num_replays)"
    return (
        f"resume it as jobs, by `actor-learner up --resume=… --replays={saved}` (by hand, "
        f"--num_replays={saved} of each replay job)"
    )
