"""The triggers most training runs use: policy export, speed log, replay checkpoint."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging
from tf_agents.agents import tf_agent
from tf_agents.metrics import py_metric
from tf_agents.policies import greedy_policy, policy_saver, tf_policy
from tf_agents.typing import types

from actor_learner.learning import (
    interval_trigger,
    learner,
    step_per_second_tracker,
    trigger_runner,
)
from actor_learner.support import configurable, errors, finite

StopTraining = trigger_runner.StopTraining

ENV_STEP_METADATA_KEY = "env_step"
_UNFINISHED = ".unfinished"


@configurable.register
class PolicySavedModelTrigger(interval_trigger.IntervalTrigger):
    """Exports an agent's policies once, and the raw policy's variables at every firing.

    At construction, SavedModels `policy`, `collect_policy` and `greedy_policy` are written under
    `saved_model_dir` unless a finished one is there: a second or so each. Every firing then writes
    `checkpoints/policy_checkpoint_<train step, ten digits>`, which can be loaded into any of the
    three, in milliseconds. Each of these directories is written under another name and renamed when
    complete, so that what carries the final name can be read.
    """

    def __init__(
        self,
        saved_model_dir: str,
        agent: tf_agent.TFAgent,
        train_step: tf.Variable,
        interval: int | None,
        async_saving: bool = False,
        metadata_metrics: Mapping[str, py_metric.PyMetric] | None = None,
        start: int = 0,
        extra_concrete_functions: Sequence[tuple[str, Any]] | None = None,
        batch_size: int | None = None,
        use_nest_path_signatures: bool = True,
        save_greedy_policy: bool = True,
        save_collect_policy: bool = True,
        input_fn_and_spec: policy_saver.InputFnAndSpecType | None = None,
        *,
        seconds: float | None = None,
        replace: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Writes the SavedModels that are missing.

        Args:
          saved_model_dir: Usually `<root_dir>/policies`.
          agent: Its policies are exported.
          train_step: The train step, saved along.
          interval: Train steps between firings; None or 0 with `seconds` set fires by time alone.
          async_saving: Write the checkpoints of a firing in a thread, while training goes on. Their
            variables may then come from different train steps. A firing during an unfinished save
            is skipped. `on_stop` waits for the last one.
          metadata_metrics: Metrics whose `result()`, a scalar, is saved along; not if
            `async_saving`.
          start: The step from which the first interval counts.
          extra_concrete_functions: `(name, tf.function)` pairs to put into each SavedModel.
          batch_size: Fixed batch size of the SavedModels' signatures; any by default.
          use_nest_path_signatures: Name the signatures' inputs after their place in the specs.
          save_greedy_policy: Turn off for policies without a mode.
          save_collect_policy: Turn off where nobody collects with it.
          input_fn_and_spec: Converts other inputs to `(time_step, policy_state)`.
          seconds: Seconds between firings.
          replace: Write SavedModels that are there already once more; each takes the place of the
            former when it is complete.
          clock: Returns seconds from a monotonic clock.
        """
        if async_saving and metadata_metrics:
            raise NotImplementedError(
                "metadata_metrics cannot be saved with async_saving: they would belong to another "
                "train step than the variables; set one of the two"
            )
        self._agent = agent
        self._train_step = train_step
        self._metadata_metrics = dict(metadata_metrics or {})
        self._metadata = {}
        for name, metric in self._metadata_metrics.items():
            value = np.asarray(metric.result())
            self._metadata[name] = tf.Variable(np.zeros_like(value), name=name)
        self._checkpoint_dir = os.path.join(saved_model_dir, learner.POLICY_CHECKPOINT_DIR)
        self._executor = (
            concurrent.futures.ThreadPoolExecutor(1, "save-policy") if async_saving else None
        )
        self._pending: concurrent.futures.Future | None = None

        def make_saver(policy: tf_policy.TFPolicy) -> policy_saver.PolicySaver:
            saver = policy_saver.PolicySaver(
                policy,
                batch_size=batch_size,
                train_step=train_step,
                metadata=self._metadata,
                use_nest_path_signatures=use_nest_path_signatures,
                input_fn_and_spec=input_fn_and_spec,
            )
            for name, function in extra_concrete_functions or ():
                saver.register_concrete_function(name, function)
            return saver

        is_greedy = isinstance(agent.policy, greedy_policy.GreedyPolicy)
        raw_policy = agent.policy.wrapped_policy if is_greedy else agent.policy
        self._raw_policy_saver = make_saver(raw_policy)
        savers = [(learner.RAW_POLICY_SAVED_MODEL_DIR, self._raw_policy_saver)]
        if save_collect_policy:
            savers.append(
                (learner.COLLECT_POLICY_SAVED_MODEL_DIR, make_saver(agent.collect_policy))
            )
        if save_greedy_policy:
            greedy = agent.policy if is_greedy else greedy_policy.GreedyPolicy(agent.policy)
            savers.append((learner.GREEDY_POLICY_SAVED_MODEL_DIR, make_saver(greedy)))
        self._raw_policy = raw_policy
        for name, saver in savers:
            path = os.path.join(saved_model_dir, name)
            is_there = tf.io.gfile.exists(os.path.join(path, policy_saver.POLICY_SPECS_PBTXT))
            if replace or not is_there:
                self._require_finite(path)
                _write_then_rename(saver.save, path)

        super().__init__(interval, self._save, start=start, seconds=seconds, clock=clock)

    def on_stop(self, train_step: int) -> None:
        """Waits for an unfinished save and raises what it raised."""
        del train_step
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._take_result()

    def _save(self) -> None:
        self._agent.post_process_policy()
        for name, metric in self._metadata_metrics.items():
            self._metadata[name].assign(metric.result())
        path = os.path.join(
            self._checkpoint_dir, f"policy_checkpoint_{int(self._train_step.numpy()):010d}"
        )
        self._require_finite(path)
        if self._executor is None:
            _write_then_rename(self._raw_policy_saver.save_checkpoint, path)
        elif self._pending is not None and not self._pending.done():
            logging.info("Still saving a policy: %s is skipped.", path)
        else:
            self._take_result()
            self._pending = self._executor.submit(
                _write_then_rename, self._raw_policy_saver.save_checkpoint, path
            )

    def _require_finite(self, path: str) -> None:
        finite.require_finite(self._raw_policy.variables(), f"the policy is not exported to {path}")

    def _take_result(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


@configurable.register
class StepPerSecondLogTrigger(interval_trigger.IntervalTrigger):
    """Logs train steps per second, and writes them as `RunTime/train_steps_per_sec`."""

    def __init__(
        self,
        train_step: tf.Variable,
        interval: int | None,
        log_to_terminal: bool = True,
        *,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Starts measuring.

        Args:
          train_step: The variable whose rate is measured.
          interval: Train steps between lines; None or 0 with `seconds` set logs by time alone.
          log_to_terminal: Log a line as well as write the summary.
          seconds: Seconds between lines.
          clock: Returns seconds from a monotonic clock.
        """
        self._train_step = train_step
        self._log_to_terminal = log_to_terminal
        self._tracker = step_per_second_tracker.StepPerSecondTracker(train_step, clock=clock)
        super().__init__(interval, self._log, seconds=seconds, clock=clock)

    def set_start(self, start: int) -> None:
        """Counts and measures from here: a restored step is not speed."""
        super().set_start(start)
        self._tracker.restart()

    def _log(self) -> None:
        steps_per_second = self._tracker.steps_per_second()
        self._tracker.restart()
        step = self._train_step.numpy()
        if self._log_to_terminal:
            logging.info("Step: %d, %.3f steps/sec", step, steps_per_second)
        with tf.summary.record_if(True), tf.name_scope("RunTime/"):
            tf.summary.scalar(name="train_steps_per_sec", data=steps_per_second, step=step)


@configurable.register
class ReverbCheckpointTrigger(interval_trigger.IntervalTrigger):
    """Makes the Reverb server save its tables; the tables take no other call meanwhile."""

    def __init__(
        self,
        train_step: tf.Variable,
        interval: int | None,
        reverb_client: types.ReverbClient,
        *,
        seconds: float | None = None,
        timeout_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Keeps the client.

        Args:
          train_step: Named in messages.
          interval: Train steps between saves; None or 0 with `seconds` set saves by time alone.
          reverb_client: Connected to the server to save.
          seconds: Seconds between saves.
          timeout_seconds: How long a save may take before it counts as failed.
          clock: Returns seconds from a monotonic clock.
        """
        if not timeout_seconds > 0:
            raise ValueError(f"timeout_seconds={timeout_seconds!r} must be positive")
        self._train_step = train_step
        self._reverb_client = reverb_client
        self._timeout_seconds = timeout_seconds
        super().__init__(interval, self._save, seconds=seconds, clock=clock)

    def _save(self) -> None:
        outcome: list[tuple[str | None, BaseException | None]] = []

        def checkpoint() -> None:
            try:
                outcome.append((self._reverb_client.checkpoint(), None))
            except BaseException as error:  # noqa: BLE001 - handed to the waiting thread.
                outcome.append((None, error))

        # Reverb's call takes no deadline; a daemon thread does not keep a finished run alive.
        thread = threading.Thread(target=checkpoint, name="reverb-checkpoint", daemon=True)
        thread.start()
        thread.join(self._timeout_seconds)
        step = self._train_step.numpy()
        if not outcome:
            raise errors.ReplayTimeoutError(
                f"the Reverb server ({self._reverb_client}) has not finished saving its tables "
                f"after {self._timeout_seconds} s at train step {step}: it is gone, its disk is "
                "slow or full, or timeout_seconds is too short for so many items"
            )
        path, error = outcome[0]
        if error is not None:
            raise errors.ReplayError(
                f"the Reverb server ({self._reverb_client}) could not save its tables at train "
                f"step {step}: {error}\nIs it running, and does it have a checkpointer with a "
                "directory it can write?"
            ) from error
        logging.info("Saved the replay tables to %s at train step %d.", path, step)


def _write_then_rename(write: Callable[[str], None], path: str) -> None:
    """Lets `write` fill another directory, which takes the name `path` once it is complete."""
    unfinished = path + _UNFINISHED
    if tf.io.gfile.exists(unfinished):
        tf.io.gfile.rmtree(unfinished)
    try:
        write(unfinished)
    except BaseException:
        if tf.io.gfile.exists(unfinished):
            tf.io.gfile.rmtree(unfinished)
        raise
    if tf.io.gfile.exists(path):  # Not before: there may be no room for the new one.
        tf.io.gfile.rmtree(path)
    tf.io.gfile.rename(unfinished, path)
