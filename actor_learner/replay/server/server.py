"""`ReplayServer`: a Reverb server that probes its port, restores with care and ends on time.

with server.ReplayServer([tables.uniform_table("experience", 100_000)]) as replay:
    observer = observers.ReverbAddTrajectoryObserver(replay.client(), "experience", 2)
    buffer = ReverbReplayBuffer(spec, "experience", 2, local_server=replay)
    print(replay.describe())
"""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import reverb
from absl import logging
from reverb.platform.default import checkpointers

from actor_learner.replay.server import checkpoints, signatures, state
from actor_learner.support import configurable, errors, reverb_calls

TableState = state.TableState
ReplayInfo = state.ReplayInfo
table_state = state.table_state

_STARTUP_SECONDS = 60.0


@configurable.register
class ReplayServer:
    """Holds tables, embedded in this process, for it and for others.

    Reverb listens on all network interfaces, unencrypted and without passwords, and cannot be told
    otherwise: whoever reaches the port can read, write and delete. Keep it behind a firewall.

    Attributes:
      server: The underlying `reverb.Server`.
      port: The port it listens on.
      address: `localhost:<port>`.
      restored_from: The checkpoint its contents came from, or None.
    """

    def __init__(
        self,
        tables: Sequence[reverb.Table],
        port: int | None = None,
        *,
        checkpoint_dir: str | os.PathLike | None = None,
        restore: bool = True,
        checkpoints_to_keep: int = 2,
        standalone: bool = False,
    ):
        """Starts the server; blocks while a checkpoint is read.

        Args:
          tables: The tables, of different names.
          port: The port to listen on; None picks a free one.
          checkpoint_dir: Where `checkpoint()` saves and from where contents are restored. None:
            contents end with the server.
          restore: Whether to start from the newest readable checkpoint. Unreadable ones are set
            aside as `<name>.corrupt`.
          checkpoints_to_keep: Older ones are removed; keep 2 or more to have one to fall back to.
          standalone: The server is a job of its own, for other machines: warns, once, that anyone
            in the network can reach it.

        Raises:
          errors.ConfigError: If the tables cannot be served together.
          errors.ReplayError: If the port is taken, or the checkpoint holds other tables than
            these: Reverb would restore the old size limits and rate limiters in silence.
          errors.CheckpointError: If there are checkpoints and none can be read.
        """
        _check_tables(tables)
        if checkpoints_to_keep < 1:
            raise errors.ConfigError(
                f"ReplayServer.checkpoints_to_keep is {checkpoints_to_keep}; it must be 1 or more"
            )
        if port is not None:
            _require_free_port(port)
        self._checkpoint_lock = threading.Lock()
        self._stopped = False
        self._scratch = None
        self._checkpoints = None
        self.restored_from: pathlib.Path | None = None
        if checkpoint_dir is None:
            # Reverb always wants a directory, for clients that call `checkpoint()`.
            self._scratch = tempfile.TemporaryDirectory(prefix="replay-")
            self.server = _start(tables, port, self._scratch.name)
        else:
            self._checkpoints = checkpoints.CheckpointDirectory(checkpoint_dir, checkpoints_to_keep)
            self._checkpoints.adopt(remove_unfinished=True)
            self.server = (self._restored(tables, port) if restore else None) or _start(
                tables, port, self._checkpoints.incoming
            )
        self.port: int = self.server.port
        self.address = f"localhost:{self.port}"
        self._client = reverb.Client(self.address)
        if standalone:
            logging.log_first_n(
                logging.WARNING,
                "The replay server on port %d accepts connections from every network this machine "
                "is in, unencrypted and without a password; Reverb has no option to change that. "
                "Let only the machines of this run reach the port.",
                1,
                self.port,
            )

    def client(self) -> reverb.Client:
        """A new client of this server."""
        return reverb.Client(self.address)

    def info(self, timeout_seconds: float = 5.0) -> ReplayInfo:
        """The state of all tables; blocks up to `timeout_seconds`.

        Raises:
          errors.ReplayTimeoutError: If the server does not answer, e.g. while it saves.
        """
        self._require_running()
        tables = reverb_calls.fetch_tables(self._client, timeout_seconds)
        return ReplayInfo(
            self.address, {name: state.from_table_info(tables[name]) for name in sorted(tables)}
        )

    def describe(self) -> str:
        """The state of all tables as text, one line each."""
        return self.info().describe()

    def checkpoint(self, timeout_seconds: float = 600.0) -> str:
        """Saves all tables and returns the checkpoint's directory.

        All reads and writes of the tables wait meanwhile: for seconds per gigabyte.

        Raises:
          errors.ReplayError: If the server has no `checkpoint_dir` or could not save.
          errors.ReplayTimeoutError: If saving takes longer. It then continues in the background;
            its result is found by the next `checkpoint()` or the next start.
        """
        self._require_running()
        if self._checkpoints is None:
            raise errors.ReplayError(
                "this replay server cannot save: it was started without ReplayServer.checkpoint_dir"
            )
        with self._checkpoint_lock:
            self._checkpoints.adopt(remove_unfinished=False)
            others = self._checkpoints.unfinished()
            try:
                written = reverb_calls.call_with_deadline(
                    self._client.checkpoint,
                    timeout_seconds,
                    lambda: errors.ReplayTimeoutError(
                        f"saving the replay server at {self.address} to {self._checkpoints.path} "
                        f"takes longer than {timeout_seconds:g} s; it continues in the background"
                    ),
                )
            except (RuntimeError, IndexError) as error:  # IndexError: the disk is full.
                for path in self._checkpoints.unfinished() - others:
                    shutil.rmtree(path)
                raise errors.ReplayError(
                    f"the replay server at {self.address} could not save to "
                    f"{self._checkpoints.path}: {error}"
                ) from error
            return str(self._checkpoints.accept(written))

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Ends the server; its contents are gone unless saved. May be called twice.

        Raises:
          errors.ReplayTimeoutError: If it does not end in time; it ends with the process.
        """
        if self._stopped:
            return
        self._stopped = True
        reverb_calls.call_with_deadline(
            self.server.stop,
            timeout_seconds,
            lambda: errors.ReplayTimeoutError(
                f"the replay server at {self.address} did not stop within {timeout_seconds:g} s; "
                f"it ends with this process"
            ),
        )
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> ReplayServer:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"ReplayServer({'stopped' if self._stopped else self.address})"

    def _require_running(self) -> None:
        if self._stopped:
            raise errors.ReplayError(f"the replay server at {self.address} was stopped")

    def _restored(self, tables: Sequence[reverb.Table], port: int | None) -> reverb.Server | None:
        """A server with the contents of the newest readable checkpoint; None if there is none."""
        directory = self._checkpoints
        for path in directory.newest_first():
            try:
                expected = checkpoints.count_items(path)
                server = _start_from(path, tables, port, directory.incoming, expected)
            except ValueError as error:
                directory.set_aside(path, str(error))
                continue
            self.restored_from = path
            logging.info("Restored %s items from %s.", expected, path)
            return server
        unreadable = directory.corrupt()
        if unreadable:
            raise errors.CheckpointError(
                f"{directory.path} holds no readable replay checkpoint, only "
                f"{', '.join(path.name for path in unreadable)}. Restore one from a backup, or "
                f"delete them, or start empty with ReplayServer.restore = False"
            )
        return None


def _start(
    tables: Sequence[reverb.Table],
    port: int | None,
    directory: str | os.PathLike,
    restore_from: pathlib.Path | None = None,
) -> reverb.Server:
    checkpointer = checkpointers.DefaultCheckpointer(
        str(directory), fallback_checkpoint_path=str(restore_from) if restore_from else None
    )
    return reverb.Server(list(tables), port, checkpointer)


def _start_from(
    path: pathlib.Path,
    tables: Sequence[reverb.Table],
    port: int | None,
    directory: pathlib.Path,
    expected_items: dict[str, int],
) -> reverb.Server:
    """Starts a server from one checkpoint.

    Raises:
      ValueError: If the checkpoint is damaged.
      errors.ReplayError: If it belongs to other tables than these.
    """
    unknown = sorted(set(expected_items) - {table.name for table in tables})
    if unknown:
        raise errors.ReplayError(_difference(path, [f"table {name!r} is gone" for name in unknown]))
    try:
        # Copies: a failed attempt may leave some items in the tables it was given.
        server = _start([table.replace() for table in tables], port, directory, path)
    except ValueError as error:  # Reverb's InvalidArgument: the files are sound, the tables differ.
        raise errors.ReplayError(_difference(path, [str(error)])) from error
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    try:
        found = reverb_calls.fetch_tables(server.localhost_client(), _STARTUP_SECONDS)
        differences = [
            line for table in tables for line in _differences(table.info, found[table.name])
        ]
        if differences:
            raise errors.ReplayError(_difference(path, differences))
        for name, count in expected_items.items():
            if found[name].current_size != count:
                raise ValueError(
                    f"table {name!r} has {count} items in the checkpoint, of which Reverb could "
                    f"read {found[name].current_size}"
                )
    except BaseException:
        server.stop()
        raise
    return server


def _differences(
    configured: reverb.reverb_types.TableInfo, restored: reverb.reverb_types.TableInfo
) -> list[str]:
    """Settings of a table that a restored checkpoint has overridden."""
    then = _settings(restored)
    lines = [
        f"table {configured.name!r}: {name} is {now} in the configuration, {then[name]} in the "
        "checkpoint"
        for name, now in _settings(configured).items()
        if now != then[name]
    ]
    if configured.signature is not None and restored.signature is not None:
        lines += [
            f"table {configured.name!r}: signature: {line}"
            for line in signatures.describe_mismatch(configured.signature, restored.signature)
        ]
    elif (configured.signature is None) != (restored.signature is None):
        having = "configuration" if configured.signature is not None else "checkpoint"
        lines.append(f"table {configured.name!r}: only the {having} has a signature")
    return lines


def _settings(info: reverb.reverb_types.TableInfo) -> dict[str, object]:
    """What a table's configuration says, besides its signature."""
    limiter = ("min_size_to_sample", "samples_per_insert", "min_diff", "max_diff")
    return {
        "max_size": info.max_size,
        "max_times_sampled": info.max_times_sampled,
        **{f"rate limiter {name}": getattr(info.rate_limiter_info, name) for name in limiter},
        "sampler": str(info.sampler_options).strip(),
        "remover": str(info.remover_options).strip(),
    }


def _difference(path: pathlib.Path, lines: list[str]) -> str:
    return (
        f"the replay checkpoint {path} belongs to other tables, and Reverb restores their settings "
        f"with their contents:\n  " + "\n  ".join(lines) + "\nSet the configuration back, or move "
        "the checkpoint away, or start empty with ReplayServer.restore = False"
    )


def _check_tables(tables: Sequence[reverb.Table]) -> None:
    names = [table.name for table in tables]
    if not names:
        raise errors.ConfigError(
            "ReplayServer.tables is empty; bind at least one, e.g. [@uniform_table()]"
        )
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise errors.ConfigError(f"ReplayServer.tables has several tables named {doubled}")


def port_is_free(port: int) -> bool:
    """Whether a server could listen on the port."""
    try:
        _require_free_port(port)
    except errors.ReplayError:
        return False
    return True


def _require_free_port(port: int) -> None:
    """Two Reverb servers on one port both start, and the kernel deals connections to either."""
    if not 0 < port < 65536:
        raise errors.ConfigError(
            f"ReplayServer.port is {port}; it must be within 1 to 65535, or None for a free one"
        )
    for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # The machine has no such address family, so nobody listens there.
        with probe:
            # Without this a port of which only closed connections linger counts as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                cause = error.strerror
                if error.errno == errno.EADDRINUSE:
                    cause = "another server, perhaps of an earlier run, has it; stop that one"
                raise errors.ReplayError(
                    f"port {port} cannot be used for the replay server: {cause}. Or choose another "
                    f"port, or let a free one be picked with ReplayServer.port = None"
                ) from error
