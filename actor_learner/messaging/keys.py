"""The keys of a run: only who has them may talk to its jobs, and nobody else can listen.

On loopback none are needed. Beyond it the wire is CURVE of ZeroMQ: the servers of a run share one
pair of keys, the clients another, and a server admits no other client.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile

import zmq
import zmq.auth.thread

from actor_learner.support import errors

VARIABLE = "ACTOR_LEARNER_KEYS"
"""Environment variable with the keys' file, or the keys themselves as JSON; set by launchers."""


@dataclasses.dataclass(frozen=True, repr=False)
class RunKeys:
    """Two pairs of keys, in ZeroMQ's Z85 text. Never logged: it has no `repr` of its contents."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str

    @classmethod
    def generate(cls) -> RunKeys:
        """New keys."""
        (server_public, server_secret), (client_public, client_secret) = (
            (public.decode(), secret.decode())
            for public, secret in (zmq.curve_keypair(), zmq.curve_keypair())
        )
        return cls(server_public, server_secret, client_public, client_secret)

    @classmethod
    def from_json(cls, text: str) -> RunKeys:
        """Reads what `to_json` wrote.

        Raises:
          errors.ConfigError: If it is something else; the text is not repeated.
        """
        try:
            keys = cls(**json.loads(text))
            for name, public in (("server", keys.server_public), ("client", keys.client_public)):
                secret = getattr(keys, f"{name}_secret")
                if zmq.curve_public(secret.encode()) != public.encode():
                    raise ValueError(f"the two {name} keys do not belong together")
            return keys
        except (AttributeError, TypeError, ValueError, zmq.ZMQError) as error:
            raise errors.ConfigError(
                f"the keys of the run cannot be read ({type(error).__name__}): have the launcher "
                f"make new ones, and give every job the same, by {VARIABLE}"
            ) from None

    @property
    def fingerprint(self) -> str:
        """Tells the keys of one run from those of another, and nothing about what is secret."""
        return hashlib.sha256(self.server_public.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The keys as text. Whoever has it can command the run."""
        return json.dumps(dataclasses.asdict(self))

    def save(self, path: str | os.PathLike) -> None:
        """Writes a file that only its owner can read."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside, and renamed: whoever sees the file sees all of it, in a mode that is ours.
        descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self.to_json())
        os.replace(beside, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> RunKeys:
        """Reads a file that `save` wrote.

        Raises:
          errors.ConfigError: If there is none, or others may read it.
        """
        path = pathlib.Path(path)
        try:
            mode = path.stat().st_mode
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise errors.ConfigError(f"the keys of the run cannot be read: {error}") from error
        if mode & 0o077:
            raise errors.ConfigError(f"{path} can be read by others: chmod 600 {path}")
        return cls.from_json(text)


def from_environment() -> RunKeys | None:
    """The keys that the launcher has left in the environment; None if there are none."""
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    return RunKeys.from_json(value) if value.lstrip().startswith("{") else RunKeys.load(value)


def is_loopback(host: str) -> bool:
    """Whether an address is one that only this machine reaches."""
    return host in ("localhost", "::1") or host.startswith("127.")


def require_for(host: str, keys: RunKeys | None) -> None:
    """Refuses to listen beyond this machine without keys.

    Raises:
      errors.ConfigError: If `host` is not a loopback address and there are no keys.
    """
    if keys is None and not is_loopback(host):
        raise errors.ConfigError(
            f"a job that listens on {host} can be reached from other machines, and needs the keys "
            f"of the run: make them with `actor-learner keys FILE`, and set {VARIABLE} to that file"
        )


def secure_server(socket: zmq.Socket, keys: RunKeys) -> zmq.auth.thread.ThreadAuthenticator:
    """Has a socket, before it is bound, admit only clients with the run's keys.

    Returns:
      What checks them, for all sockets of the context; to be stopped before the context ends.
    """
    authenticator = zmq.auth.thread.ThreadAuthenticator(socket.context)
    authenticator.start()
    authenticator.configure_curve_callback("*", _OneClient(keys.client_public))
    socket.curve_server = True
    socket.curve_publickey = keys.server_public.encode()
    socket.curve_secretkey = keys.server_secret.encode()
    return authenticator


def secure_client(socket: zmq.Socket, keys: RunKeys) -> None:
    """Has a socket, before it connects, prove that it has the run's keys, and demand the same."""
    socket.curve_serverkey = keys.server_public.encode()
    socket.curve_publickey = keys.client_public.encode()
    socket.curve_secretkey = keys.client_secret.encode()


class _OneClient:
    """ZeroMQ's idea of a list of admitted keys."""

    def __init__(self, public: str) -> None:
        self._public = public.encode()

    def callback(self, domain: str, key: bytes) -> bool:
        del domain
        return zmq.utils.z85.encode(key) == self._public if len(key) == 32 else key == self._public
