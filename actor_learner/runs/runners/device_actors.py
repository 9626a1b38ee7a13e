"""Several actors in one process, each on its own device, with copies of the policy for each."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf
from absl import logging

from actor_learner import experiment as experiment_lib
from actor_learner import parts, run_settings
from actor_learner.acting import metrics as metrics_lib
from actor_learner.agents import algorithm as algorithm_lib
from actor_learner.runs import acting_side, step_watch
from actor_learner.support import errors, seeds


def divide_cpu(devices: run_settings.Devices) -> None:
    """Divides the CPU into logical devices, and refuses devices that do not exist.

    Call it before TensorFlow's first operation.

    Raises:
      errors.ConfigError: If TensorFlow has started already, or a device does not exist.
    """
    if devices.logical_cpus is not None:
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * devices.logical_cpus
        try:
            tf.config.set_logical_device_configuration(cpu, parts)
        except RuntimeError as error:
            if len(tf.config.list_logical_devices("CPU")) != devices.logical_cpus:
                raise errors.ConfigError(
                    f"Devices.logical_cpus = {devices.logical_cpus} comes too late: TensorFlow has "
                    "started in this process. Start a new one"
                ) from error
    wanted = [*devices.actors, *([devices.learner] if devices.learner else [])]
    if not wanted:
        return
    logical = tf.config.list_logical_devices()
    available = [device.name.removeprefix("/device:") for device in logical]
    for name in wanted:
        if name.removeprefix("/device:").upper() not in available:
            raise errors.ConfigError(
                f"Devices names {name!r}, but TensorFlow has {', '.join(available)} here. "
                "Devices.logical_cpus divides the CPU"
            )


class StagedPolicies:
    """Keeps snapshots of the trained policy by train step, for actors that act with older ones.

    Args:
      source: Variables that are trained, including the version.
      targets: For each actor, the variables like `source` of the policy that it acts with.
      lag: An actor takes turn k with the policy of train step k - lag.
    """

    def __init__(
        self, source: Sequence[tf.Variable], targets: Sequence[Sequence[tf.Variable]], lag: int
    ) -> None:
        for target in targets:
            if len(source) != len(target):
                raise ValueError(f"{len(source)} variables cannot be copied to {len(target)}")
        self._source = tuple(source)
        self._targets = [tuple(target) for target in targets]
        self._lag = lag
        self._read = tf.function(lambda: [tf.identity(v) for v in self._source], autograph=False)
        self._lock = threading.Lock()
        # Only those that an actor may still ask for.
        self._snapshots: collections.deque[list[tf.Tensor]] = collections.deque(maxlen=lag + 2)
        self._rounds = -1

    @property
    def rounds(self) -> int:
        """Train steps published so far; 0 once the first policy is published, -1 before."""
        return self._rounds

    def publish(self) -> None:
        """Takes a snapshot; called by the learner's thread after each train step."""
        snapshot = self._read()
        with self._lock:
            self._snapshots.append(snapshot)
            self._rounds += 1

    def apply(self, actor: int, turn: int) -> None:
        """Assigns the policy with which an actor takes a turn; called by the actor's thread.

        Args:
          actor: Index of the actor.
          turn: Counts from 0 in this process; at most `rounds + lag`.
        """
        with self._lock:
            age = self._rounds - max(0, turn - self._lag)
            snapshot = self._snapshots[-1 - age]
        for variable, value in zip(self._targets[actor], snapshot):
            variable.assign(value)


class DeviceActor:
    """One of the actors; runs on its own device, whichever thread calls it."""

    def __init__(self, side: acting_side.ActingSide, device: str) -> None:
        self._side = side
        self._device = device
        self.watch = side.watch
        self.counted = side.statistics.state()  # After the latest turn.
        self.steps: collections.deque[int] = collections.deque()  # Of turns not trained on yet.

    @property
    def turns(self) -> int:
        """Turns that are complete."""
        return self._side.turns

    def run(self) -> None:
        """Takes one turn."""
        before = self._side.steps_taken
        with tf.device(self._device):
            self._side.run()
        self.steps.append(self._side.steps_taken - before)
        # Copied here, since nobody may read the statistics while a turn changes them.
        self.counted = self._side.statistics.state()


class DeviceActors:
    """Presents all actors of a process that have their own devices as one acting side.

    Args:
      sides: The acting side of each actor.
      names: The device of each actor.
      policies: The policies that they act with.
      window: Number of episodes that the statistics hold.
    """

    def __init__(
        self,
        sides: Sequence[acting_side.ActingSide],
        names: Sequence[str],
        policies: StagedPolicies,
        window: int,
    ) -> None:
        self._sides = list(sides)
        self.actors = [DeviceActor(*pair) for pair in zip(sides, names)]
        self.policies = policies
        self.statistics = metrics_lib.EpisodeStatistics(window)
        self.metrics = [kind(self.statistics) for kind in map(type, sides[0].metrics)]
        self._counted = [(0, 0)] * len(self._sides)

    @property
    def actor(self) -> Any:
        """The first actor, for properties that all of them share."""
        return self._sides[0].actor

    @property
    def watch(self) -> step_watch.StepWatch:
        return self._sides[0].watch

    @property
    def turns(self) -> int:
        """Turns that every actor has completed."""
        return min(side.turns for side in self._sides)

    @property
    def steps_taken(self) -> int:
        """Environment steps of all actors."""
        return sum(side.steps_taken for side in self._sides)

    def time_shares(self) -> dict[str, float]:
        """Returns how the actors spent their time, on average: see `TurnTimes.shares`."""
        known = [shares for side in self._sides if (shares := side.time_shares())]
        return {
            kind: round(sum(shares[kind] for shares in known) / len(known), 4)
            for kind in (known[0] if known else ())
        }

    def steps_of_round(self) -> int:
        """Removes and sums the steps of each actor's oldest turn that was not returned yet.

        Raises:
          IndexError: If an actor has no such turn.
        """
        return sum(actor.steps.popleft() for actor in self.actors)

    def count_episodes(self) -> None:
        """Adds the episodes since the last call to the statistics; for the learner's thread."""
        for index, actor in enumerate(self.actors):
            found = actor.counted
            steps, episodes = self._counted[index]
            self.statistics.environment_steps += found["environment_steps"] - steps
            new = found["episodes"] - episodes
            self.statistics.episodes += new
            if new:
                self.statistics.returns.extend(found["returns"][-new:])
                self.statistics.lengths.extend(found["lengths"][-new:])
            self._counted[index] = (found["environment_steps"], found["episodes"])

    def save_recording(self) -> None:
        """Does nothing: these actors do not record."""

    def close(self) -> None:
        """Ends all actors; safe to call twice."""
        with contextlib.ExitStack() as stack:
            for side in self._sides:
                stack.callback(side.close)


def build(
    experiment: experiment_lib.Experiment,
    trained: tuple[algorithm_lib.Algorithm, tf.Variable],
    env: Any,
    make_side: Callable[..., acting_side.ActingSide],
    *,
    environment_step: tf.Variable,
    seed: int,
    closing: contextlib.ExitStack,
) -> DeviceActors:
    """Builds every actor on its device, each with its own environment and policy.

    Args:
      experiment: Names the devices.
      trained: The algorithm that is trained, and its train step.
      env: The environment of the first actor.
      make_side: Makes the acting side of an actor, given its algorithm, environment, version and
        seed.
      environment_step: Counts environment steps.
      seed: Seed of the first actor; those of the others are derived from it.
      closing: Closes environments and actors at the end.
    """
    devices = experiment.devices
    sides, targets = [], []
    for index, device in enumerate(devices.actors):
        with tf.device(device):
            if index:
                env = experiment.make_environment(seeds.of(seed, "actor", index))
                closing.callback(env.close)
            version = tf.Variable(0, trainable=False, dtype=tf.int64, name="policy_version")
            algorithm = experiment.make_algorithm(env, version, environment_step)
            own_seed = seeds.of(seed, "actor", index) if index else seed
            side = make_side(algorithm, env, version, own_seed)
        closing.callback(side.close)
        sides.append(side)
        targets.append(_variables(algorithm, version, environment_step))
    policies = StagedPolicies(_variables(*trained, environment_step), targets, devices.lag)
    logging.info("Actors on %s, the learner on %s.", ", ".join(devices.actors), devices.learner)
    made = DeviceActors(sides, devices.actors, policies, experiment.reporting.window)
    closing.callback(made.close)
    parts.publish(collect_metrics=made.metrics)
    return made


def _variables(
    algorithm: algorithm_lib.Algorithm, version: tf.Variable, environment_step: tf.Variable
) -> list[tf.Variable]:
    """Returns the variables that acting needs, with the version as the last."""
    found = algorithm.collect_policy.variables()
    return [*(variable for variable in found if variable is not environment_step), version]
