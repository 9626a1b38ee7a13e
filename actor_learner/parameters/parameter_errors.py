"""Errors of parameter stores."""

from __future__ import annotations

from actor_learner.support import errors


class ParameterError(errors.ActorLearnerError):
    """Base of the errors of a parameter store."""


class ParametersNotFoundError(ParameterError, LookupError):
    """There is no such name, version or tag; the message says which there are."""


class DamagedParametersError(ParameterError):
    """A file is there but is not what was written; the message names it and says why."""


class NotFiniteParametersError(ParameterError, errors.NotFiniteError):
    """Parameters to be stored hold NaN or infinity; the message names the array."""
