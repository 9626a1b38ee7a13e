"""The errors a user may meet; each says the value, the place, the likely cause, the next step."""


class ActorLearnerError(Exception):
    """Base of every error this package raises on purpose; its message is written for the user."""


class ConfigError(ActorLearnerError):
    """The configuration cannot be used: a name, type, file or binding is wrong. Exit code 2."""


class MissingExtraError(ActorLearnerError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class EnvironmentError(ActorLearnerError):  # noqa: A001 - the word of this domain, used qualified.
    """An environment broke its contract, died, or did not answer in time."""


class SpecMismatchError(ActorLearnerError, ValueError):
    """Data do not have the shape, type or structure that the other side declared."""


class ReplayError(ActorLearnerError):
    """The replay server refused, is unreachable, or holds something other than expected."""


class ReplayTimeoutError(ReplayError, TimeoutError):
    """A wait on the replay server ran past its deadline; the message says who waits for whom."""


class OtherRunError(ReplayError):
    """The replay server belongs to another run; nothing may be written to it or read from it."""


class ReplayMovedError(ReplayError):
    """The replay server of the run was started again elsewhere; so must be whoever used it."""


class InferenceError(ActorLearnerError):
    """An inference stream was used against its rules, or is closed."""


class InferenceTimeoutError(InferenceError, TimeoutError):
    """Actions did not come in time; the message says who waits for whom."""


class CheckpointError(ActorLearnerError):
    """Checkpoint files exist but none of them can be read, so training must not start afresh."""


class EvaluationError(ActorLearnerError):
    """The policy that a run ends with cannot be evaluated: its return is not a finite number."""


class TriggerError(ActorLearnerError):
    """A trigger raised; training stopped after a checkpoint was saved. The cause is chained."""


class JobError(ActorLearnerError):
    """A job failed, refused a command, or was started where another one already runs."""


class JobTimeoutError(JobError, TimeoutError):
    """A wait on a job ran past its deadline; the message says who did not answer."""


class NotFiniteError(ActorLearnerError):
    """A reward, an observation, a loss, a gradient or a weight is NaN or infinite.

    It was not applied, stored or saved. Jobs that end with it are not started again.
    """


class SupersededError(ActorLearnerError):
    """Another process has begun to train the run; this one may neither save nor speak any more."""


REFUSALS = (ConfigError, MissingExtraError, SpecMismatchError)
"""What is wrong with what the user asked for; found before anything is trained."""
