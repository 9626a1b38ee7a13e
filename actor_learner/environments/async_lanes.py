"""One process per lane, with deadlines: a lane that dies or hangs becomes an error that names it.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Iterable, Sequence
from multiprocessing import connection
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.vector import utils

from actor_learner.environments import making
from actor_learner.support import errors

# Starting a process imports Python, Gymnasium and the environment's packages, on a busy machine.
START_TIMEOUT_SECONDS = 180.0
_CLOSE_TIMEOUT_SECONDS = 5.0


class AsyncLanes(gymnasium.vector.VectorEnv):
    """A Gymnasium vector environment whose lanes step at the same time, each in its own process.

    Processes are spawned, never forked: forking is unsafe once TensorFlow runs. Observations come
    through shared memory. Arrays of observations returned by `reset` and `step` are views of that
    memory and are overwritten by the next call: copy what must last.

    After an error about a lane only `close()` is of use; every other call repeats the error.
    """

    def __init__(
        self,
        factory: making.EnvironmentFactory,
        num_envs: int,
        *,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        render_mode: str | None,
        timeout_seconds: float,
    ):
        """Starts the processes; blocks until all have made their environment.

        Args:
          factory: Makes one environment; is sent to each process.
          num_envs: Number of lanes.
          observation_space: Observation space of one lane; every lane must have the same.
          action_space: Action space of one lane; every lane must have the same.
          render_mode: What the environments are made with.
          timeout_seconds: How long `reset`, `step` and `render` wait for the slowest lane.

        Raises:
          errors.ConfigError: If the factory cannot be sent to another process.
          errors.EnvironmentError: If a lane cannot make its environment.
        """
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = utils.batch_space(observation_space, num_envs)
        self.action_space = utils.batch_space(action_space, num_envs)
        self.render_mode = render_mode
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self._name = factory.name
        self._timeout_seconds = timeout_seconds
        self._failure: str | None = None
        self._pipes: list[connection.Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []

        payload = _pickled(factory)
        context = multiprocessing.get_context("spawn")
        shared = utils.create_shared_memory(observation_space, n=num_envs, ctx=context)
        self._observations = utils.read_from_shared_memory(observation_space, shared, n=num_envs)
        try:
            for lane in range(num_envs):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve_lane,
                    name=f"lane-{lane}",
                    args=(lane, payload, theirs, shared),
                    daemon=True,
                )
                self._pipes.append(ours)
                self._processes.append(process)
                process.start()
                theirs.close()
            answers = self._gather("start", START_TIMEOUT_SECONDS)
            for lane, spaces in enumerate(answers):
                self._require_same_spaces(lane, spaces)
        except BaseException:
            self._failure = self._failure or "it did not start"
            self.close()
            raise

    @property
    def processes(self) -> Sequence[multiprocessing.process.BaseProcess]:
        """The process of each lane."""
        return tuple(self._processes)

    def reset(
        self, *, seed: Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all lanes. `seed` has one seed per lane."""
        seeds = [None] * self.num_envs if seed is None else list(seed)
        self._send("reset", [(lane_seed, options) for lane_seed in seeds])
        return self._observations, self._merged(self._gather("reset", self._timeout_seconds))

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all lanes; finished ones are reset instead, as in AutoresetMode.NEXT_STEP."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Sends the actions and returns at once."""
        self._send("step", utils.iterate(self.action_space, actions))

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Waits for the step that `step_async` began, for `timeout_seconds` at most."""
        answers = self._gather("step", self._timeout_seconds)
        rewards, terminations, truncations, infos = zip(*answers)
        return (
            self._observations,
            np.array(rewards, dtype=np.float64),
            np.array(terminations, dtype=np.bool_),
            np.array(truncations, dtype=np.bool_),
            self._merged(infos),
        )

    def render(self) -> tuple[Any, ...]:
        """Returns one frame per lane."""
        self._send("render", [None] * self.num_envs)
        return tuple(self._gather("render", self._timeout_seconds))

    def close_extras(self, **kwargs: Any) -> None:
        """Ends all processes, by force after a few seconds, and waits until they are gone."""
        if self._failure is None:
            for pipe in self._pipes:
                try:
                    pipe.send(("close", None))
                except OSError:
                    continue  # The process is gone already, which is what we are after.
        for pipe in self._pipes:
            pipe.close()
        started = [process for process in self._processes if process.pid is not None]
        if self._failure is None:
            deadline = time.monotonic() + _CLOSE_TIMEOUT_SECONDS
            for process in started:
                process.join(max(0.0, deadline - time.monotonic()))
        for process in started:
            if process.is_alive():
                process.kill()
            process.join()

    def _send(self, command: str, arguments: Iterable[Any]) -> None:
        self._require_usable()
        broken = []
        for lane, (pipe, argument) in enumerate(zip(self._pipes, arguments)):
            try:
                pipe.send((command, argument))
            except OSError:
                broken.append(lane)
        if broken:
            self._fail(f"{command} failed: {self._obituary(broken)}")

    def _gather(self, command: str, timeout_seconds: float) -> list[Any]:
        self._require_usable()
        try:
            return self._receive(command, timeout_seconds)
        except BaseException:
            # Answers still under way would be taken for those to the next call.
            self._failure = self._failure or f"{command} was interrupted"
            raise

    def _receive(self, command: str, timeout_seconds: float) -> list[Any]:
        """Receives one answer from each lane, in whatever order they come."""
        answers: list[Any] = [None] * self.num_envs
        waiting = {pipe: lane for lane, pipe in enumerate(self._pipes)}
        failed: list[tuple[int, str]] = []
        gone: list[int] = []
        deadline = time.monotonic() + timeout_seconds
        while waiting and not gone:
            ready = connection.wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                silent = sorted(waiting.values())
                self._fail(
                    f"{command} did not finish within {timeout_seconds:g} s: no answer from "
                    f"{self._lanes_with_processes(silent)}; the environment hangs there, or needs "
                    "a larger step_timeout_seconds"
                )
            for pipe in ready:
                lane = waiting.pop(pipe)
                try:
                    success, answer = pipe.recv()
                except (EOFError, OSError):
                    gone.append(lane)
                    continue
                if success:
                    answers[lane] = answer
                else:
                    failed.append((lane, answer))
        if gone:
            self._fail(f"{command} failed: {self._obituary(gone, starting=command == 'start')}")
        if failed:
            failed.sort()
            lanes = ", ".join(str(lane) for lane, _ in failed)
            self._fail(
                f"{command} raised in lane(s) {lanes}; the first of them said:\n{failed[0][1]}"
            )
        return answers

    def _require_same_spaces(self, lane: int, spaces: tuple[Any, Any]) -> None:
        expected = (self.single_observation_space, self.single_action_space)
        for kind, space, wanted in zip(("observation", "action"), spaces, expected):
            if space != wanted:
                self._fail(
                    f"lane {lane} has {kind} space {space}, another has {wanted}: all lanes must "
                    "have the same"
                )

    def _require_usable(self) -> None:
        if self.closed:
            raise errors.EnvironmentError(f"environment {self._name!r} is closed")
        if self._failure is not None:
            raise errors.EnvironmentError(
                f"environment {self._name!r} failed before, close it and make a new one: "
                f"{self._failure}"
            )

    def _fail(self, message: str) -> None:
        self._failure = message
        raise errors.EnvironmentError(f"environment {self._name!r}: {message}")

    def _obituary(self, lanes: Sequence[int], starting: bool = False) -> str:
        fates = []
        for lane in lanes:
            process = self._processes[lane]
            process.join(_CLOSE_TIMEOUT_SECONDS)  # Its pipe is closed, so it is ending.
            code = process.exitcode
            if code is not None and code < 0:
                fate = f"was killed by {signal.Signals(-code).name}"
            else:
                fate = f"ended with exit code {code}"
            fates.append(f"lane {lane} (process {process.pid}) {fate}")
        hint = "its own output says why; out of memory is the usual cause of SIGKILL"
        if starting:
            hint = (
                "its own output says why; a script that starts processes needs its code under "
                "`if __name__ == '__main__':`"
            )
        return f"{'; '.join(fates)}; {hint}"

    def _lanes_with_processes(self, lanes: Sequence[int]) -> str:
        return ", ".join(f"lane {lane} (process {self._processes[lane].pid})" for lane in lanes)

    def _merged(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for lane, info in enumerate(infos):
            merged = self._add_info(merged, info, lane)
        return merged


def _pickled(factory: making.EnvironmentFactory) -> bytes:
    try:
        return cloudpickle.dumps(factory)
    except Exception as error:
        raise errors.ConfigError(
            f"environment {factory.name!r} cannot be sent to the processes of vectorization='async'"
            f": {type(error).__name__}: {error}; functions and classes that gin has wrapped are "
            "the usual cause: give environments by id, and wrappers by name, as in "
            "('TimeLimit', {'max_episode_steps': 100}), or use vectorization='sync'"
        ) from error


def _serve_lane(lane: int, payload: bytes, pipe: connection.Connection, shared: Any) -> None:
    """The life of a lane's process: makes its environment, then answers until told to close."""
    # Ctrl-C reaches the whole process group; the parent decides when lanes end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        try:
            env = pickle.loads(payload)()
            pipe.send((True, (env.observation_space, env.action_space)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
            return
        try:
            _answer(lane, env, pipe, shared)
        finally:
            env.close()
    except (EOFError, OSError):
        return  # The parent is gone: nobody is left to answer.


def _answer(lane: int, env: gymnasium.Env, pipe: connection.Connection, shared: Any) -> None:
    finished = False
    while True:
        command, argument = pipe.recv()
        try:
            if command == "close":
                return
            if command == "render":
                pipe.send((True, env.render()))
                continue
            if command == "reset":
                seed, options = argument
                observation, info = env.reset(seed=seed, options=options)
                answer, finished = info, False
            elif finished:
                observation, info = env.reset()
                answer, finished = (0.0, False, False, info), False
            else:
                observation, reward, terminated, truncated, info = env.step(argument)
                answer, finished = (reward, terminated, truncated, info), terminated or truncated
            utils.write_to_shared_memory(env.observation_space, lane, observation, shared)
            pipe.send((True, answer))
        except (EOFError, BrokenPipeError):
            raise
        except Exception:
            pipe.send((False, traceback.format_exc()))
