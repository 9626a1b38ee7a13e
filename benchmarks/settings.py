"""The agents, environments and streams that several benchmarks measure with."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import q_network
from tf_agents.replay_buffers import reverb_replay_buffer as peer_buffer
from tf_agents.replay_buffers import reverb_utils as peer_observers
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib
from tf_agents.utils import common

from actor_learner.agents import algorithm, dqn, sac
from actor_learner.replay.streams import lane_replay
from benchmarks import streams

PEER_TABLE = "peer"
_UNINTERRUPTED = (
    "--gin_param=Evaluation.target_return = None",
    "--gin_param=Evaluation.interval = 0",
)


def steps(count: int) -> str:
    """The argument of `train.py` that has it take so many environment steps."""
    return f"--gin_param=Experiment.environment_steps = {count}"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much to measure: `quick` only shows that everything runs.

    Attributes:
      seconds: Of one measurement of a rate.
      repetitions: Measurements of each.
      few_seconds: The same of cases beside those that figures are promised for,
      few_repetitions: so that all benchmarks together take little more than half an hour.
      transitions: In the replay that is read from,
      queued_batches: and batches in a queue.
      lanes: Numbers of lanes, for most benchmarks,
      collect_lanes: and for collecting.
      many_lanes: Numbers of lanes for the growth table.
      replay_items: Items in the replay, for the growth table.
      learn_iterations: Train steps of one call of a learner.
      main_lanes: The lanes that `learn` repeats as often as `repetitions` says.
      item_lanes: Numbers of lanes for the memory of streams whose items are of one lane,
      image_lanes: and of those whose images are kept,
      memory_bytes: and what a server must grow by until its growth is believed.
      seeds: Trainings per case of `end_to_end`, at most.
      train_arguments: Given to those trainings that are to reach a target,
      rate_arguments: and to those whose rate is measured,
      rate_warm_up_seconds: of which the first seconds do not count.
      ring_steps: Batched steps of a ring whose environments wait.
      overlap_arguments: Given to trainings whose environment waits,
      overlap_warm_up_seconds: of which the first seconds do not count.
      sbx_arguments: Given to trainings that are measured beside SBX,
      sbx_steps: and their environment steps; None for as many as the case says,
      sbx_warm_up_seconds: of which the first seconds do not count.
      peer_arguments: Given to the scripts that measure peers, by their names.
      tensor_sizes: How many of the sizes of whole training `tensor` measures,
      tensor_repetitions: how often,
      tensor_arguments: what those trainings are given,
      tensor_peer_seconds: and how long their peer is measured each time.
      tensor_lanes: Lanes that `tensor` collects with,
      tensor_growth: and those of its table of growth.
    """

    seconds: float = 1.0
    repetitions: int = 5
    few_seconds: float = 0.5
    few_repetitions: int = 3
    transitions: int = 20_000
    queued_batches: int = 32
    lanes: tuple[int, ...] = (1, 8, 64, 256)
    collect_lanes: tuple[int, ...] = (1, 8, 64, 256, 1024)
    many_lanes: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    replay_items: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    learn_iterations: int = 100
    main_lanes: int = 64
    item_lanes: tuple[int, ...] = (1, 64)
    image_lanes: tuple[int, ...] = (1, 8, 64, 256)
    memory_bytes: int = 32 << 20
    seeds: int = 5
    train_arguments: tuple[str, ...] = ()
    rate_arguments: tuple[str, ...] = (*_UNINTERRUPTED, steps(500_000))
    rate_warm_up_seconds: float = 5.0
    ring_steps: int = 2_000
    overlap_arguments: tuple[str, ...] = (*_UNINTERRUPTED, steps(1_500))
    overlap_warm_up_seconds: float = 3.0
    sbx_arguments: tuple[str, ...] = _UNINTERRUPTED
    sbx_steps: int | None = None
    sbx_warm_up_seconds: float = 5.0
    peer_arguments: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    tensor_sizes: int = 2
    tensor_repetitions: int = 3
    tensor_arguments: tuple[str, ...] = (*_UNINTERRUPTED, steps(4_000_000))
    tensor_peer_seconds: float = 10.0
    tensor_lanes: int = 2_048
    tensor_growth: tuple[int, ...] = (64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)

    @classmethod
    def quick(cls) -> Settings:
        return cls(
            seconds=0.1,
            repetitions=1,
            few_seconds=0.1,
            few_repetitions=1,
            transitions=1_000,
            queued_batches=2,
            lanes=(8,),
            collect_lanes=(8,),
            many_lanes=(1, 8),
            replay_items=(100, 1_000),
            learn_iterations=5,
            item_lanes=(8,),
            image_lanes=(1,),
            memory_bytes=1 << 20,
            seeds=1,
            # The targets are not reached, but it is asked whether they are.
            train_arguments=(steps(1_600), "--gin_param=Evaluation.episodes = 2"),
            rate_arguments=(
                *_UNINTERRUPTED,
                steps(10_000),
                "--gin_param=Reporting.seconds = 0.001",
            ),
            rate_warm_up_seconds=0.0,
            ring_steps=32,
            overlap_arguments=(
                *_UNINTERRUPTED,
                steps(200),
                "--gin_param=Reporting.seconds = 0.001",
            ),
            overlap_warm_up_seconds=0.0,
            sbx_arguments=(
                *_UNINTERRUPTED,
                "--gin_param=Reporting.seconds = 0.001",
                "--gin_param=Experiment.initial_random_steps = 300",
            ),
            sbx_steps=1_500,
            sbx_warm_up_seconds=0.0,
            peer_arguments={
                "sb3_seconds.py": ("--steps=600",),
                "sample_factory_rate.py": ("--steps=100000", "--warm_up=0"),
            },
            tensor_sizes=1,
            tensor_repetitions=1,
            tensor_arguments=(
                *_UNINTERRUPTED,
                steps(40_000),
                "--gin_param=Reporting.seconds = 0.001",
            ),
            tensor_peer_seconds=0.1,
            tensor_lanes=16,
            tensor_growth=(16,),
        )


def cartpole_dqn() -> algorithm.Algorithm:
    """DQN with a 64x64 network for CartPole's specs."""
    built = dqn.dqn(_cartpole_world(), fc_layer_params=(64, 64))
    built.agent.initialize()
    return built


def peer_cartpole_dqn() -> dqn_agent.DdqnAgent:
    """TF-Agents' own agent for the same training, as its users build it."""
    world = _cartpole_world()
    agent = dqn_agent.DdqnAgent(
        world.time_step_spec,
        world.action_spec,
        q_network=q_network.QNetwork(
            world.observation_spec, world.action_spec, fc_layer_params=(64, 64)
        ),
        optimizer=tf.keras.optimizers.Adam(1e-3),
        epsilon_greedy=0.05,
        target_update_period=200,
        td_errors_loss_fn=common.element_wise_huber_loss,
        gamma=0.99,
        gradient_clipping=10.0,
        train_step_counter=world.train_step,
    )
    agent.initialize()
    return agent


def _cartpole_world() -> algorithm.World:
    return algorithm.World(
        ts.time_step_spec(tensor_spec.BoundedTensorSpec([4], tf.float32, -5, 5)),
        tensor_spec.BoundedTensorSpec([], tf.int64, 0, 1),
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )


def pendulum_sac() -> algorithm.Algorithm:
    """SAC with 256x256 networks for Pendulum's specs."""
    world = algorithm.World(
        ts.time_step_spec(tensor_spec.BoundedTensorSpec([3], tf.float32, -8, 8)),
        tensor_spec.BoundedTensorSpec([1], tf.float32, -2, 2),
        tf.Variable(0, dtype=tf.int64),
        tf.Variable(0, dtype=tf.int64),
    )
    built = sac.sac(world)
    built.agent.initialize()
    return built


def step_spec(observation: tf.TensorSpec) -> trajectory_lib.Trajectory:
    """Spec of one step with a choice of two actions, such as CartPole's."""
    step = ts.time_step_spec(observation)
    action = tensor_spec.BoundedTensorSpec([], tf.int64, 0, 1)
    return trajectory_lib.Trajectory(
        step.step_type, observation, action, (), step.step_type, step.reward, step.discount
    )


def vector_spec(size: int) -> trajectory_lib.Trajectory:
    """A step whose observation is a vector; CartPole's has 4 numbers."""
    return step_spec(tensor_spec.BoundedTensorSpec([size], tf.float32, -5, 5))


def image_spec() -> trajectory_lib.Trajectory:
    """A step whose observation is four stacked frames, as for Atari games."""
    return step_spec(tensor_spec.BoundedTensorSpec([84, 84, 4], tf.uint8, 0, 255))


class LaneStream(streams.Stream):
    """An embedded server with a lane-batched table, and an observer that fills it."""

    def __init__(self, data_spec, num_lanes: int, capacity: int = 200_000, **options) -> None:
        super().__init__(lane_replay.LaneReplay(capacity, **options), data_spec, num_lanes)

    def fill(self, rows: int) -> None:
        fill(self, rows)


class PeerStream:
    """TF-Agents' own replay buffer and observer, as its examples build them.

    Args:
      data_spec: Spec of one step.
      capacity: Items kept.
      window: Steps of an item,
      stride: and between the beginnings of two.
      prioritized: The table samples by priority.
    """

    def __init__(
        self,
        data_spec,
        capacity: int = 200_000,
        *,
        window: int = 2,
        stride: int = 1,
        prioritized: bool = False,
    ) -> None:
        self.data_spec = data_spec
        self._window = window
        self.server = reverb.Server([peer_table(capacity, prioritized)])
        self.buffer = peer_buffer.ReverbReplayBuffer(
            data_spec, sequence_length=window, table_name=PEER_TABLE, local_server=self.server
        )
        self.observer = peer_observers.ReverbAddTrajectoryObserver(
            self.buffer.py_client, PEER_TABLE, sequence_length=window, stride_length=stride
        )

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        dataset = self.buffer.as_dataset(sample_batch_size=batch_size, num_steps=self._window)
        return dataset.prefetch(3)

    def fill(self, steps: int) -> None:
        for index in range(steps):
            step = random_step(self.data_spec, 1, index)
            self.observer(tf.nest.map_structure(lambda leaf: leaf[0, ...], step))
        self.observer.flush()

    def close(self) -> None:
        self.observer.close()
        self.server.stop()


def fill(stream: streams.Stream, rows: int) -> None:
    """Writes random steps of all lanes."""
    experience = stream.experience
    for index in range(rows):
        step = random_step(experience.data_spec, experience.num_lanes, index)
        stream.observer(stream.observed(step))
    stream.observer.flush()


def peer_table(capacity: int, prioritized: bool = False) -> reverb.Table:
    """The table that TF-Agents' examples use."""
    selectors = reverb.selectors
    return reverb.Table(
        PEER_TABLE,
        max_size=capacity,
        sampler=selectors.Prioritized(0.6) if prioritized else selectors.Uniform(),
        remover=selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )


def random_step(data_spec, num_lanes: int, seed: int):
    """One step of all lanes in the middle of an episode, with random numbers in it."""
    generator = np.random.default_rng(seed)

    def leaf(spec):
        shape = (num_lanes, *spec.shape)
        if spec.dtype.is_floating:
            return generator.normal(size=shape).astype(spec.dtype.as_numpy_dtype)
        high = 256 if spec.dtype == tf.uint8 else 2
        return generator.integers(0, high, size=shape, dtype=spec.dtype.as_numpy_dtype)

    step = tf.nest.map_structure(leaf, data_spec)
    middle = np.ones(num_lanes, np.int32)
    return step._replace(step_type=middle, next_step_type=middle)


@contextlib.contextmanager
def closing(*things):
    """Closes everything that has a `close()` at the end."""
    with contextlib.ExitStack() as stack:
        for thing in things:
            stack.callback(thing.close)
        yield
