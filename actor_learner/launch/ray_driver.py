"""Begins a run on a Ray cluster, and shows one that is under way there, to a user at a terminal."""

from __future__ import annotations

import json
import pathlib
import shlex
import time
from typing import Any, TextIO

from absl import logging

from actor_learner import run_directory
from actor_learner.jobs.presence import names
from actor_learner.launch import ray_cluster, ray_supervisor, run_jobs, shared_view, view
from actor_learner.support import atomic, errors, signals

_NAME = "supervisor"
_MAX_RESTARTS = 10  # Of the supervisor, by Ray, when its node is lost.
_BEGIN_SECONDS = 120.0
_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 0.3
_SAY_SECONDS = 10.0


class RayRun:
    """One run, as seen from a process beside the cluster.

    Args:
      address: Of the cluster.
      run: Name of the run.
      run_dir: Its directory; None where it is not on this machine.
      runtime_env: For a run that is to begin.

    Raises:
      errors.MissingExtraError: If Ray is not installed.
      errors.ConfigError: If there is no cluster at `address`.
    """

    def __init__(
        self,
        address: str,
        run: str,
        run_dir: run_directory.RunDirectory | None,
        *,
        runtime_env: dict[str, Any] | None = None,
    ) -> None:
        self._run = run
        self._run_dir = run_dir
        self._resume = ray_supervisor.RunPlan.resume
        namespace = f"actor-learner/{run}"
        self._ray = ray_cluster.connect(address, namespace=namespace, runtime_env=runtime_env)

    def close(self) -> None:
        """Leaves the cluster; a run that has begun goes on."""
        self._ray.shutdown()

    def refuse_second(self) -> None:
        """Makes sure that this run is not under way already.

        Raises:
          errors.JobError: If it is; says where, and how to see it.
        """
        supervisor = self._find()
        if supervisor is None:
            return
        try:
            look = self._ray.get(supervisor.look.remote(None), timeout=_ANSWER_SECONDS)
            run_dir, host = self._ray.get(supervisor.place.remote(), timeout=_ANSWER_SECONDS)
        except self._ray.exceptions.ActorDiedError:
            return  # It has ended just now.
        except self._ray.exceptions.RayError as error:
            raise errors.JobError(
                f"run {self._run} has a supervisor on this cluster, and it does not answer: "
                f"{ray_cluster.first_line(error)}. Try again, or look for it with `ray list actors`"
            ) from error
        if look.ending is None:
            raise errors.JobError(
                f"run {self._run} is under way on this cluster, in {run_dir}, with its supervisor "
                f"on {host}: look at it with {_attach(run_dir)}, end it with {_exit(run_dir)}, or "
                "choose another --run_dir"
            )
        self._ray.kill(supervisor, no_restart=True)  # It only lingers for viewers.
        deadline = time.monotonic() + _ANSWER_SECONDS
        while self._find() is not None and time.monotonic() < deadline:
            time.sleep(0.1)

    def begin(self, plan: ray_supervisor.RunPlan) -> None:
        """Starts the supervisor, which starts the jobs; returns when it has begun.

        Raises:
          errors.JobError: If somebody else has begun this run meanwhile, or Ray cannot start it.
        """
        from ray.util import scheduling_strategies

        self._resume = plan.resume
        run_dir = run_directory.RunDirectory(plan.run_dir)
        shared_view.forget_ending(run_dir)
        here = self._ray.get_runtime_context()
        _note_address(run_dir, here.gcs_address)
        # Beside whoever starts it, where the run directory is; elsewhere if this node is lost.
        strategy = scheduling_strategies.NodeAffinitySchedulingStrategy(
            here.get_node_id(), soft=True
        )
        supervisor = None
        try:
            supervisor = (
                self._ray.remote(ray_supervisor.RaySupervisor)
                .options(
                    name=_NAME,
                    lifetime="detached",
                    num_cpus=0,
                    max_restarts=_MAX_RESTARTS,
                    scheduling_strategy=strategy,
                )
                .remote(plan)
            )
            self._ray.get(supervisor.look.remote(None), timeout=_BEGIN_SECONDS)
        except BaseException as error:
            if supervisor is not None:  # It would run the jobs, though the user is told otherwise.
                self._kill(supervisor)
            if not isinstance(error, (ValueError, self._ray.exceptions.RayError)):
                raise
            if isinstance(error, ValueError):  # The name is taken.
                self.refuse_second()
            raise errors.JobError(
                f"Ray cannot start the supervisor of run {self._run}: {error}"
            ) from error

    def follow(self, terminal: TextIO, *, owner: bool) -> int:
        """Shows the run to its end; returns the exit code that it ends with.

        Args:
          terminal: Where the user looks.
          owner: Whether a signal to this process ends the run, in order; else it only ends the
            view, and the exit code is the signal's.

        Raises:
          errors.JobError: If this run is not under way, or the cluster is lost.
        """
        supervisor = self._find()
        if supervisor is None:
            return self._tell_ending(terminal, f"run {self._run} is not under way on this cluster")

        def at_once(number: int) -> None:
            if owner:
                self._end_at_once(supervisor, number)

        words = "saving; once more to exit without saving"
        if not owner:
            words = f"the run goes on; end it with {_exit(self._shown())}"
        shown = view.make_view(terminal, self._run)
        with signals.stop_on_signal(terminal, words=words, at_once=at_once) as stop:
            shown.start()
            stop.say = shown.message
            try:
                ending = self._follow(supervisor, shown, stop, owner)
            finally:
                stop.say = None
                shown.close()
        if ending is not None:
            return run_jobs.tell(ending, terminal)
        if stop.event.is_set() and not owner:
            return stop.exit_code
        return self._tell_ending(
            terminal,
            f"the supervisor of run {self._run} was lost, and Ray could not start it again: its "
            f"jobs have ended. Resume it with `actor-learner {self._resume} --resume="
            f"{shlex.quote(self._shown())}`",
        )

    def say_detached(self, terminal: TextIO) -> None:
        """Tells the user how to find the run again."""
        run = self._shown()
        print(
            f"the run continues on the cluster: look at it with {_attach(run)}, end it with "
            f"{_exit(run)}",
            file=terminal,
            flush=True,
        )

    def _follow(
        self, supervisor: Any, shown: view.JobsView, stop: signals.StopRequest, owner: bool
    ) -> run_jobs.Ending | None:
        """Shows the run until it ends; None if the viewer leaves, or the supervisor has died."""
        exceptions = self._ray.exceptions
        seen: tuple[str, int] | None = None
        pending = supervisor.look.remote(seen)
        heard_at = time.monotonic()
        told = said = False
        while True:
            if stop.event.is_set() and not owner:
                return None
            if stop.event.is_set() and not told:
                told = True
                supervisor.stop.remote(stop.signal_number)
            try:
                ready, _ = self._ray.wait([pending], timeout=_LOOK_SECONDS)
                look: shared_view.Look | None = self._ray.get(ready[0]) if ready else None
            except exceptions.ActorUnavailableError as error:
                logging.warning("the supervisor is not reached: %s", error)
                look, told, pending = None, False, supervisor.look.remote(seen)
                time.sleep(_LOOK_SECONDS)
            except exceptions.RayActorError as error:
                logging.warning("the supervisor has died: %s", error)
                return None
            except exceptions.RayError as error:
                raise errors.JobError(
                    f"this view has lost the cluster: {ray_cluster.first_line(error)}. The run may "
                    f"well go on: look again with {_attach(self._shown())}"
                ) from error
            now = time.monotonic()
            if look is None:
                if now - heard_at > _SAY_SECONDS and not said:
                    said = True
                    shown.message(
                        f"the supervisor has not answered for {_SAY_SECONDS:g} s: its node is busy "
                        "or lost; Ray starts it again elsewhere if it is"
                    )
                continue
            if said:
                shown.message("the supervisor answers again")
            heard_at, said, seen = now, False, look.seen
            for text in look.messages:
                shown.message(text)
            if look.rows:
                shown.update(look.rows)
            if look.ending is not None:
                return look.ending
            time.sleep(_LOOK_SECONDS)
            pending = supervisor.look.remote(seen)

    def _find(self) -> Any:
        """The supervisor of the run; None if it has none."""
        try:
            return self._ray.get_actor(_NAME)
        except ValueError:
            return None

    def _kill(self, supervisor: Any) -> None:
        try:
            self._ray.kill(supervisor, no_restart=True)
        except Exception as error:  # noqa: BLE001 - what led here is worth more to the user.
            logging.error(
                "the supervisor of run %s may be left on the cluster, look for it with "
                "`ray list actors`: %s",
                self._run,
                error,
            )

    def _end_at_once(self, supervisor: Any, number: int) -> None:
        try:
            self._ray.get(supervisor.end_at_once.remote(number), timeout=_ANSWER_SECONDS)
        except self._ray.exceptions.RayActorError:
            pass  # It has ended, as it was told to.
        except Exception as error:  # noqa: BLE001 - this process ends now, whatever it is.
            logging.error("the supervisor is killed, as it does not answer: %s", error)
            self._ray.kill(supervisor, no_restart=True)

    def _tell_ending(self, terminal: TextIO, otherwise: str) -> int:
        ending = None if self._run_dir is None else shared_view.read_ending(self._run_dir)
        if ending is None:
            raise errors.JobError(otherwise)
        return run_jobs.tell(ending, terminal)

    def _shown(self) -> str:
        return self._run if self._run_dir is None else str(self._run_dir)


def attach(run: str, address: str | None, terminal: TextIO) -> int:
    """Shows a run that was begun on a Ray cluster; returns the exit code that it ends with.

    Args:
      run: Its directory, or, where that is not on this machine, its name.
      address: Of the cluster; None for the one that the run directory names.
      terminal: Where the user looks.

    Raises:
      errors.ConfigError: If there is no such run, or no cluster.
      errors.JobError: If it is neither under way nor ended.
    """
    run_dir: run_directory.RunDirectory | None = run_directory.RunDirectory(run)
    if not pathlib.Path(run).is_dir():
        if pathlib.PurePath(run).name != run:
            raise errors.ConfigError(f"--attach={run}: there is no such run directory")
        run_dir = None
    elif (ending := shared_view.read_ending(run_dir)) is not None:
        return run_jobs.tell(ending, terminal)
    noted = _noted_address(run_dir)
    if run_dir is not None and noted is None and address is None:
        raise errors.ConfigError(
            f"--attach={run}: this run was not begun on a Ray cluster. A run on this machine is "
            "shown by its own `up`, and by `actor-learner control "
            f"{shlex.quote(run)} status`"
        )
    shown = RayRun(address or noted or ray_cluster.AUTO, names.run_name(run), run_dir)
    try:
        return shown.follow(terminal, owner=False)
    finally:
        shown.close()


def _attach(run: str) -> str:
    return f"`actor-learner up --attach={shlex.quote(run)}`"


def _exit(run: str) -> str:
    return f"`actor-learner control {shlex.quote(run)} exit --job=learner`"


def _address_in(run_dir: run_directory.RunDirectory) -> pathlib.Path:
    return run_dir.path / "ray.json"


def _note_address(run_dir: run_directory.RunDirectory, address: str) -> None:
    with atomic.replacing(_address_in(run_dir)) as temporary:
        temporary.write_text(json.dumps({"address": address}) + "\n")


def forget(run_dir: run_directory.RunDirectory) -> None:
    """Removes what a run on a cluster has left for `attach`: the run begins on this machine.

    Raises:
      errors.ConfigError: If it cannot be removed.
    """
    try:
        shared_view.forget_ending(run_dir)
        _address_in(run_dir).unlink(missing_ok=True)
    except OSError as error:
        raise errors.ConfigError(f"{run_dir} cannot be written to: {error}") from error


def _noted_address(run_dir: run_directory.RunDirectory | None) -> str | None:
    """The cluster on which the run was begun last; None if it was on none."""
    if run_dir is None:
        return None
    try:
        return str(json.loads(_address_in(run_dir).read_text())["address"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.ConfigError(f"{_address_in(run_dir)} cannot be read: {error}") from error
