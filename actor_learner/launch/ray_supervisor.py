"""Runs a run on a Ray cluster from within it: the supervisor as a detached actor.

Whoever has started it may leave or be killed: the jobs are this actor's, not theirs. Should its own
process or node be lost, Ray starts it again, elsewhere if need be, and it starts the jobs again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging as python_logging
import pathlib
import socket
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence

from absl import logging

from actor_learner import ray_settings, run_directory
from actor_learner.launch import job_spec, ray, run_jobs, shared_view
from actor_learner.messaging import keys as keys_lib
from actor_learner.naming import connect
from actor_learner.support import errors, extras, signals

LOG = "up"  # As that of `up`, which began the run.
_LOCK_SECONDS = 30.0  # For the one who started this actor to let go of the run directory.
_LINGER_SECONDS = 10.0  # For viewers to see the end.


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """All that a supervisor needs to know; Ray keeps it for one that is started again.

    Attributes:
      run: Name of the run.
      run_dir: Its directory.
      specs: The jobs.
      registry: URL of the registry that they use.
      settings: How they are placed.
      keys: Of the run, as JSON; None for none.
      host: How other machines reach the supervisor; None for the address of its node.
      files: As `ray.RayLauncher` takes them; so are the next two.
      files_from: Where they are.
      program: The Python in the commands of `specs`.
      seconds: Those settings of `run_jobs.supervise` that are seconds, by name.
      resume: The command that resumes the run, all but `--resume=RUN`.
    """

    run: str
    run_dir: str
    specs: Sequence[job_spec.JobSpec]
    registry: str = dataclasses.field(repr=False)  # It may have a password.
    settings: ray_settings.RaySettings = ray_settings.RaySettings()
    keys: str | None = dataclasses.field(default=None, repr=False)
    host: str | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    files_from: str = ""
    program: str = ""
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    resume: str = "up --launcher=ray"


class RaySupervisor:
    """The actor. Its constructor begins the run, so that Ray alone can begin it again."""

    def __init__(self, plan: RunPlan) -> None:
        self._ray = extras.require("ray", "ray")
        self._plan = plan
        self._run_dir = run_directory.RunDirectory(plan.run_dir)
        self._view = shared_view.SharedView()
        self._stop = signals.StopRequest()
        self._own_handle = self._ray.get_runtime_context().current_actor
        again = self._ray.get_runtime_context().was_current_actor_reconstructed
        threading.Thread(target=self._run, args=(again,), name="supervisor", daemon=True).start()

    def look(self, seen: tuple[str, int] | None) -> shared_view.Look:
        """See `shared_view.SharedView.look`."""
        return self._view.look(seen)

    def place(self) -> tuple[str, str]:
        """The run directory, and the machine this actor is on."""
        return self._plan.run_dir, socket.gethostname()

    def stop(self, signal_number: int) -> None:
        """Ends the run in order, as a signal to `up` does."""
        self._stop.signal_number = signal_number
        self._stop.event.set()

    def end_at_once(self, signal_number: int) -> None:
        """Ends the run without saving; this actor ends with it."""
        code = 128 + signal_number
        self._note_ending(run_jobs.Ending(code, [f"ended at once, unsaved: {self._run_dir}"]))
        self._end()

    def _run(self, again: bool) -> None:
        handler = None
        try:
            try:
                handler = _log_to(self._run_dir.log(LOG))
                # A run whose end its predecessor has recorded is not started again.
                ending = shared_view.read_ending(self._run_dir) if again else None
            except (OSError, errors.ActorLearnerError) as error:
                words = f"the supervisor on {socket.gethostname()} cannot begin: {error}"
                ending = run_jobs.Ending(run_jobs.FAILED, [words, f"failed: {self._run_dir}"])
                self._note_ending(ending)
            if ending is None:
                ending = self._supervise(again)
                self._note_ending(ending)
            self._view.end(ending)
            time.sleep(_LINGER_SECONDS)
        finally:
            if handler is not None:
                python_logging.getLogger().removeHandler(handler)
            self._end()

    def _supervise(self, again: bool) -> run_jobs.Ending:
        plan = self._plan
        if again:
            self._view.message(
                f"the supervisor was lost with its process or node: a new one, on "
                f"{socket.gethostname()}, starts all jobs again"
            )
        try:
            with (
                _locked(self._run_dir),
                connect.connect(plan.registry, who=LOG) as names,
            ):
                launcher = ray.RayLauncher(
                    self._ray,
                    plan.specs,
                    self._view.message,
                    settings=plan.settings,
                    files=plan.files,
                    files_from=plan.files_from,
                    program=plan.program,
                )
                try:
                    return run_jobs.supervise(
                        plan.specs,
                        launcher,
                        self._view,
                        self._stop,
                        run=plan.run,
                        run_dir=self._run_dir,
                        names=names,
                        host=plan.host or self._ray.util.get_node_ip_address(),
                        keys=None if plan.keys is None else keys_lib.RunKeys.from_json(plan.keys),
                        resume=plan.resume,
                        **plan.seconds,
                    )
                finally:
                    _close(launcher)
        except errors.ActorLearnerError as error:
            bad = isinstance(error, errors.ConfigError)
            code = run_jobs.BAD_CONFIGURATION if bad else run_jobs.FAILED
            return run_jobs.Ending(code, [str(error), f"failed: {self._run_dir}"])
        except Exception:  # noqa: BLE001 - whoever looks must learn of it.
            logging.exception("the supervisor has failed")
            words = traceback.format_exc().rstrip()
            return run_jobs.Ending(run_jobs.FAILED, [words, f"failed: {self._run_dir}"])

    def _note_ending(self, ending: run_jobs.Ending) -> None:
        try:
            shared_view.write_ending(self._run_dir, ending)
        except OSError as error:
            logging.error("how the run has ended cannot be written: %s", error)
            ending.lines.append(f"warning: `up --attach` will not know of this end: {error}")

    def _end(self) -> None:
        """Ends this actor, for good, and with it what is left of the jobs."""
        self._ray.kill(self._own_handle, no_restart=True)


def _close(launcher: ray.RayLauncher) -> None:
    try:
        launcher.close()
    except Exception:  # noqa: BLE001 - the run has ended as it has; this actor's end frees all.
        logging.exception("what was reserved on the cluster is not given back yet")


@contextlib.contextmanager
def _locked(run_dir: run_directory.RunDirectory) -> Iterator[None]:
    """Holds the lock of the run directory, which `up` has until this actor is there.

    Raises:
      errors.ConfigError: If another process has it for longer.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(run_dir.locked())
                break
            except errors.ConfigError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield


def _log_to(path: pathlib.Path) -> python_logging.Handler:
    """Appends what this process logs to a file of the run as well, not only to one of Ray's."""
    handler = python_logging.FileHandler(path)
    handler.setFormatter(logging.PythonFormatter())
    python_logging.getLogger().addHandler(handler)
    logging.set_verbosity(logging.INFO)
    return handler
