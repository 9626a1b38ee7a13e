"""Errors of name registries."""

from __future__ import annotations

from actor_learner.support import errors


class NamingError(errors.ActorLearnerError):
    """Base of the errors of a name registry."""


class InvalidNameError(NamingError, ValueError):
    """A name, value or time to live that no registry accepts."""


class NameTakenError(NamingError):
    """Somebody else has added the name and it is still alive.

    Attributes:
      name: The name.
      holder: Owner token of whoever has it; None if it went away at that very moment.
    """

    def __init__(self, message: str, *, name: str, holder: str | None) -> None:
        super().__init__(message)
        self.name = name
        self.holder = holder


class NameNotFoundError(NamingError, LookupError):
    """There is no such name, or it has expired."""


class NotOwnerError(NamingError):
    """The name was added by somebody else, who alone may refresh, change or delete it."""


class NameWaitTimeoutError(NamingError, TimeoutError):
    """A wait for a name ran past its deadline; the message says who waits for what."""


class RegistryUnavailableError(NamingError):
    """The registry's server or directory does not answer; it may later."""
