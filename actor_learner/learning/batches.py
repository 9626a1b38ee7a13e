"""The batches that a learner trains on: where they come from, and why one did not come."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from actor_learner.learning import sample_sources, tuning
from actor_learner.support import errors


class Batches:
    """Holds a learner's dataset and its iterator, and knows what a sample of it consists of.

    Args:
      dataset_fn: Makes the dataset; None if every `Learner.run` is given an iterator.
      strategy: Distributes it.
      train_step: Named in errors.
      options: Passed to `strategy.distribute_datasets_from_function`.
      use_reverb_v2: Samples have the fields `data` and `info` instead of being a pair.
      direct_sampling: Samples are experience alone.
      timeout_message: Called when the dataset ends, to say why no sample came.

    Attributes:
      dataset: The distributed dataset; None without a `dataset_fn`.
      iterator: Gives its batches; None without one.
    """

    def __init__(
        self,
        dataset_fn: Callable[[], tf.data.Dataset] | None,
        strategy: tf.distribute.Strategy,
        train_step: tf.Variable,
        *,
        options: tf.distribute.InputOptions | None,
        use_reverb_v2: bool,
        direct_sampling: bool,
        timeout_message: Callable[[], str] | None,
    ) -> None:
        self._train_step = train_step
        self._use_reverb_v2 = use_reverb_v2
        self._direct_sampling = direct_sampling
        self._timeout_message = timeout_message
        self._undistributed: Any = None
        self.dataset: Any = None
        self.iterator: Any = None
        if dataset_fn is None:
            return

        def make(_: Any) -> Any:
            self._undistributed = dataset_fn()
            return tuning.without_tuning(self._undistributed)

        with strategy.scope():
            self.dataset = strategy.distribute_datasets_from_function(make, options=options)
            self.renew()

    def renew(self) -> None:
        """Makes the iterator again, after one that has ended or failed."""
        self.iterator = iter(self.dataset)

    def split(self, sample: Any) -> tuple[Any, Any]:
        """Returns the experience and the sample info of a sample; None for info it lacks."""
        if self._direct_sampling:
            return sample, None
        if self._use_reverb_v2:
            return sample.data, sample.info
        experience, sample_info = sample
        return experience, sample_info

    def sources(self, iterator: Any) -> list[sample_sources.Source]:
        """Returns the tables that the batches of `iterator` come from, as far as they are known."""
        if iterator is self.iterator:
            return sample_sources.find(self._undistributed)
        return sample_sources.find(getattr(iterator, "_dataset", None))

    def timeout(self, error: Exception) -> errors.ReplayTimeoutError:
        """Returns the error to raise when the dataset ended with `error`."""
        if self._timeout_message is not None:
            return errors.ReplayTimeoutError(self._timeout_message())
        return errors.ReplayTimeoutError(
            f"the experience dataset ended at train step {self._train_step.numpy()} "
            f"({type(error).__name__}). From Reverb that means no sample came within the rate "
            "limiter's timeout: is anything writing to the table, and has it reached its minimum "
            "size? A finite dataset needs .repeat()."
        )
