"""The PPO learner: several epochs of minibatches over each round of fresh sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.agents.ppo import ppo_agent
from tf_agents.networks import utils as network_utils
from tf_agents.typing import types

from actor_learner import minibatches
from actor_learner.learning import learner, not_finite, sample_sources, tuning
from actor_learner.support import configurable, errors, write_order

_ALL = np.iinfo(np.int64).max


@configurable.register
class PPOLearner:
    """Trains a PPO agent on rounds of `num_samples` samples, `num_epochs` times over each.

    One `run` is one round:

        agent = ppo_agent.PPOAgent(
            ..., compute_value_and_advantage_in_train=False, update_normalizers_in_train=False)
        learner = PPOLearner(
            root_dir, train_step, agent,
            experience_dataset_fn=train_dataset_fn,             # from one queue
            normalization_dataset_fn=normalization_dataset_fn,  # the same sequences, another queue
            num_samples=1, num_epochs=10, minibatch_size=64, shuffle_buffer_size=2048)
        while ...:
            collect_actor.run()
            learner.run()

    With minibatches, every epoch is shuffled and uses each frame of the round exactly once, in
    as many minibatches as it takes at `minibatch_size` frames each; where that does not divide the
    frames, all are a little smaller, by one frame more or less. With several replicas their number
    is a multiple of that of the replicas. No frame of a round is seen in a later one.
    """

    def __init__(
        self,
        root_dir: str,
        train_step: tf.Variable,
        agent: ppo_agent.PPOAgent,
        experience_dataset_fn: Callable[..., tf.data.Dataset],
        normalization_dataset_fn: Callable[..., tf.data.Dataset],
        num_samples: int,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_buffer_size: int | None = None,
        after_train_strategy_step_fn: Callable[[types.NestedTensor, tf_agent.LossInfo], None]
        | None = None,
        triggers: Sequence[learner.Trigger] | None = None,
        checkpoint_interval: int = 100000,
        summary_interval: int = 1000,
        use_kwargs_in_agent_train: bool = False,
        strategy: tf.distribute.Strategy | None = None,
        *,
        checkpoint_items: Mapping[str, Any] | None = None,
        sample_timeout_message: Callable[[], str] | None = None,
        sample_timeout_seconds: float | None = 600.0,
        when_not_finite: str = not_finite.STOP,
        max_skipped_in_a_row: int = 10,
    ):
        """Builds the datasets and a `Learner` for them.

        Args:
          root_dir: As in `Learner`, like all arguments not listed here.
          train_step: The agent adds one per minibatch.
          agent: With `update_normalizers_in_train=False`, since this learner updates them; for
            minibatches also `compute_value_and_advantage_in_train=False`.
          experience_dataset_fn: Makes a dataset of `(Trajectory [B, T, …], sample_info)`; with
            minibatches already preprocessed by `agent.preprocess_sequence`.
          normalization_dataset_fn: Makes a dataset of the same trajectories, read once per round to
            update the normalizers and to count frames.
          num_samples: Elements of either dataset per round. If fewer come before the dataset ends,
            the round fails with `errors.ReplayTimeoutError`.
          num_epochs: Passes over the round's data.
          minibatch_size: Frames per train step at most; batches are `[minibatch, 1, …]`. None
            trains on whole elements, as recurrent networks need; of those, several replicas leave
            out the last ones of a round that are not enough for all of them.
          shuffle_buffer_size: Frames to shuffle among; needed with minibatches.
          after_train_strategy_step_fn: As in `Learner`.
          triggers: As in `Learner`.
          checkpoint_interval: As in `Learner`.
          summary_interval: As in `Learner`.
          use_kwargs_in_agent_train: As in `Learner`.
          strategy: As in `Learner`.
          checkpoint_items: As in `Learner`.
          sample_timeout_message: As in `Learner`.
          sample_timeout_seconds: As in `Learner`.
          when_not_finite: As in `Learner`, for minibatches. A round whose observations or rewards
            are not finite always ends training, before the normalizers take them in.
          max_skipped_in_a_row: As in `Learner`; a step is a minibatch here.

        Raises:
          ValueError: If the agent's settings, the minibatch size and the shuffle buffer do not go
            together.
        """
        _check(agent, minibatch_size, shuffle_buffer_size)
        strategy = strategy or tf.distribute.get_strategy()
        self._agent = agent
        self._num_samples = num_samples
        self._num_epochs = num_epochs
        self._minibatch_size = minibatch_size
        self._shuffle_buffer_size = shuffle_buffer_size
        self._experience_dataset_fn = experience_dataset_fn
        self._normalization_dataset_fn = normalization_dataset_fn
        self.num_replicas = strategy.num_replicas_in_sync
        self.num_frames_for_training = tf.Variable(0, dtype=tf.int32)
        self._train_sources: list[sample_sources.Source] = []
        self._normalization_sources: list[sample_sources.Source] = []
        self._generic_learner = _RoundsLearner(
            root_dir,
            train_step,
            agent,
            experience_dataset_fn=self._make_train_dataset,
            after_train_strategy_step_fn=after_train_strategy_step_fn,
            triggers=triggers,
            checkpoint_interval=checkpoint_interval,
            summary_interval=summary_interval,
            use_kwargs_in_agent_train=use_kwargs_in_agent_train,
            strategy=strategy,
            checkpoint_items=checkpoint_items,
            sample_timeout_message=sample_timeout_message,
            sample_timeout_seconds=sample_timeout_seconds,
            when_not_finite=when_not_finite,
            max_skipped_in_a_row=max_skipped_in_a_row,
            sources=lambda: self._train_sources,
        )
        self._normalization_dataset = self._endless_rounds(self._normalization_round)
        self._normalization_iterator = iter(self._normalization_dataset)

    @property
    def train_step_numpy(self) -> np.ndarray:
        """The train step now, as a NumPy scalar."""
        return self._generic_learner.train_step_numpy

    @property
    def triggers(self) -> Sequence[learner.Trigger]:
        """The triggers, the checkpoint's last."""
        return self._generic_learner.triggers

    @property
    def stop_reason(self) -> str | None:
        """Why a trigger asked to stop; None as long as none has."""
        return self._generic_learner.stop_reason

    @property
    def skipped_steps(self) -> int:
        """As `Learner.skipped_steps`."""
        return self._generic_learner.skipped_steps

    @property
    def restored_from(self) -> str | None:
        """Path prefix of the checkpoint this learner continues from; None after a fresh start."""
        return self._generic_learner.restored_from

    @property
    def train_summary_writer(self) -> tf.summary.SummaryWriter:
        """Writes to `<root_dir>/train`."""
        return self._generic_learner.train_summary_writer

    def add_trigger(self, trigger: learner.Trigger) -> None:
        """As `Learner.add_trigger`."""
        self._generic_learner.add_trigger(trigger)

    def save_checkpoint(self) -> str | None:
        """As `Learner.save_checkpoint`."""
        return self._generic_learner.save_checkpoint()

    def close(self) -> None:
        """As `Learner.close`."""
        self._generic_learner.close()

    def __enter__(self) -> PPOLearner:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def run(self, parallel_iterations: int = 10) -> tf_agent.LossInfo:
        """Takes the next round, updates the normalizers, trains on its minibatches, calls triggers.

        Blocks until the round's `num_samples` samples have come.

        Args:
          parallel_iterations: As in `Learner.run`.

        Returns:
          The losses of the last train step.

        Raises:
          ValueError: If the round has too few frames for one minibatch on each replica.
          errors.ReplayTimeoutError: If a dataset ended early, or gave nothing for
            `sample_timeout_seconds`.
          errors.NotFiniteError: If a loss or gradient, or what the round holds, is not finite; see
            `when_not_finite`.
          errors.TriggerError: If a trigger raised.
        """
        try:
            with self._generic_learner.watching(lambda: self._normalization_sources):
                frames = int(self._update_normalizers(self._normalization_iterator))
        except errors.ReplayTimeoutError:
            self._normalization_iterator = iter(self._normalization_dataset)
            raise
        except (tf.errors.OpError, StopIteration) as error:
            if not _ended(error):
                self._generic_learner.raise_if_not_finite(error)
                raise
            self._normalization_iterator = iter(self._normalization_dataset)
            raise self._generic_learner.replay_timeout(error) from error
        self.num_frames_for_training.assign(frames)
        if self._minibatch_size:
            batches = int(self._minibatches(frames)) * self._num_epochs
            too_few = frames < self.num_replicas
        else:
            batches = self._num_samples * self._num_epochs
            too_few = batches < self.num_replicas
        if too_few:
            raise ValueError(
                f"Cannot distribute a round across {self.num_replicas} replicas: it has {frames} "
                f"frames in num_samples={self._num_samples} samples. Please increase "
                "PPOLearner.num_samples."
            )
        iterations = batches // self.num_replicas
        return self._generic_learner.run(iterations, parallel_iterations=parallel_iterations)

    def _minibatches(self, frames: Any) -> Any:
        """Minibatches of an epoch: as many for each replica; of a number or a tensor."""
        per_step = self._minibatch_size * self.num_replicas
        return minibatches.count(frames, per_step) * self.num_replicas

    def _endless_rounds(self, make_round: Callable[[], tf.data.Dataset]) -> tf.data.Dataset:
        return tuning.without_tuning(tf.data.Dataset.counter().flat_map(lambda _: make_round()))

    def _round_of(
        self, dataset: tf.data.Dataset, sources: list[sample_sources.Source]
    ) -> tf.data.Dataset:
        """The next `num_samples` elements; fewer are an error. Notes the dataset's `sources`.

        Without the check a dataset that ended, which is how Reverb reports a timeout, would be
        started again by the endless rounds, and the wait would never end.
        """
        sources[:] = sample_sources.find(dataset)
        return dataset.take(self._num_samples).apply(
            tf.data.experimental.assert_cardinality(self._num_samples)
        )

    def _normalization_round(self) -> tf.data.Dataset:
        return self._round_of(self._normalization_dataset_fn(), self._normalization_sources)

    def _make_train_dataset(self) -> tf.data.Dataset:
        return self._endless_rounds(self._train_round)

    def _train_round(self) -> tf.data.Dataset:
        dataset = self._round_of(self._experience_dataset_fn(), self._train_sources)
        if not self._minibatch_size:
            batches = self._num_samples * self._num_epochs
            whole = batches - batches % self.num_replicas
            return dataset.cache().repeat(self._num_epochs).take(whole)

        def squash(sequence: Any, info: Any) -> Any:
            return tf.nest.map_structure(network_utils.BatchSquash(2).flatten, (sequence, info))

        # Minibatches may hold steps of several sequences: each step carries its own advantage.
        frames = dataset.map(squash).rebatch(_ALL)  # [B, T, …] each -> one [frames, …]
        return frames.flat_map(self._epochs)

    def _epochs(self, *frames: Any) -> tf.data.Dataset:
        """Minibatches `[minibatch, 1, …]` of all epochs over the frames `[frames, …]`."""
        num_frames = tf.shape(tf.nest.flatten(frames)[0], tf.int64)[0]
        count = self._minibatches(num_frames)
        order = tf.data.Dataset.range(num_frames).shuffle(self._shuffle_buffer_size)
        order = order.batch(num_frames).repeat(self._num_epochs)  # Each epoch in another order.

        def cut(order: tf.Tensor) -> tf.data.Dataset:
            def minibatch(part: tf.Tensor) -> Any:
                chosen = minibatches.select(order, part, num_frames, count)
                return tf.nest.map_structure(
                    lambda tensor: tf.expand_dims(tf.gather(tensor, chosen), 1), frames
                )

            return tf.data.Dataset.range(count).map(minibatch)

        return order.flat_map(cut)

    @tf.function
    def _update_normalizers(self, iterator: Any) -> tf.Tensor:
        """Reads one round into the normalizers; returns how many frames it holds."""
        frames = tf.constant(0, tf.int32)
        for _ in tf.range(self._num_samples):
            trajectory, _ = next(iterator)
            with write_order.checks_come_first():
                _check_finite(trajectory)
                self._agent.update_observation_normalizer(trajectory.observation)
                self._agent.update_reward_normalizer(trajectory.reward)
            frames += tf.size(trajectory.step_type, tf.int32)
        return frames


def _ended(error: Exception) -> bool:
    """Whether a dataset ended, on its own or before its round was complete."""
    if isinstance(error, tf.errors.FailedPreconditionError):
        # An uninitialized variable has the same type, and nothing but the text tells them apart.
        return "dataset was expected to contain" in str(error)
    return isinstance(error, (tf.errors.OutOfRangeError, StopIteration))


def _check_finite(trajectory: Any) -> None:
    """Checks what the normalizers are to take in."""
    for name in ("observation", "reward"):
        for leaf in tf.nest.flatten(getattr(trajectory, name)):
            if leaf.dtype.is_floating:
                tf.debugging.check_numerics(leaf, f"{name} of a round is not finite")


class _RoundsLearner(learner.Learner):
    """A learner whose dataset is not read ahead on one device: that would mix rounds.

    Args:
      *args: Of `Learner`.
      sources: Returns the tables that a round is made of.
      **kwargs: Of `Learner`.
    """

    def __init__(
        self, *args: Any, sources: Callable[[], list[sample_sources.Source]], **kwargs: Any
    ) -> None:
        self._round_sources = sources
        super().__init__(*args, **kwargs)

    def _sources(self, iterator: Any) -> list[sample_sources.Source]:
        # The rounds are made within a function of the dataset, where `find` may not see them.
        return self._round_sources()

    def _distribute(self, dataset_fn: Callable[[], Any], options: Any) -> Any:
        if self.strategy.num_replicas_in_sync > 1:
            return super()._distribute(dataset_fn, options)
        return dataset_fn()

    def raise_if_not_finite(self, error: tf.errors.OpError) -> None:
        """Ends training if `error` is about numbers that are not finite."""
        why = not_finite.reason(error)
        if why is not None:
            told = f"{why} at train step {self.train_step.numpy()}. It was not applied."
            raise not_finite.error(told, self._save_after_failure()) from error

    def _train(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._train(*args, **kwargs)
        except tf.errors.FailedPreconditionError as error:
            if not _ended(error):
                raise
            raise StopIteration(str(error)) from error


def _check(
    agent: ppo_agent.PPOAgent, minibatch_size: int | None, shuffle_buffer_size: int | None
) -> None:
    if minibatch_size and shuffle_buffer_size is None:
        raise ValueError("shuffle_buffer_size must be provided if minibatch_size is not None.")
    if minibatch_size and (agent._actor_net.state_spec or agent._value_net.state_spec):
        raise ValueError("minibatch_size must be set to None for RNN networks.")
    if minibatch_size and agent._compute_value_and_advantage_in_train:
        raise ValueError(
            "agent.compute_value_and_advantage_in_train should be set to False when mini batching "
            "is used."
        )
    if agent.update_normalizers_in_train:
        raise ValueError(
            "agent.update_normalizers_in_train should be set to False when PPOLearner is used."
        )
