"""TD errors item by item, out of the forward pass that computes an agent's loss."""

from __future__ import annotations

import collections
import functools
import threading
from typing import Any, Callable

import tensorflow as tf
from tf_agents.agents import tf_agent

from actor_learner import batch_notes

LossFn = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class RecordingLoss:
    """An element-wise loss that also keeps the absolute errors it was called with.

    TF-Agents' critics call their `td_errors_loss_fn` with targets and predictions, and give back
    the mean only. The errors are kept while `_train` is traced, or run eagerly, and are taken at
    its end: they are tensors of the same graph.

    Args:
      loss_fn: The loss of `(targets, predictions)`, `[batch]` each.
    """

    def __init__(self, loss_fn: LossFn) -> None:
        self._loss_fn = loss_fn
        self._kept = threading.local()  # Replicas are traced in threads that take turns.

    def __call__(self, targets: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
        targets = batch_notes.note("target", targets)
        batch_notes.gauge("q_value", predictions)
        self._errors.append(tf.abs(tf.stop_gradient(targets - predictions)))
        return self._loss_fn(targets, predictions)

    @property
    def _errors(self) -> list[tf.Tensor]:
        if not hasattr(self._kept, "errors"):
            self._kept.errors = []
        return self._kept.errors

    def forget(self) -> None:
        """Drops what was kept, such as errors of another graph."""
        self._errors.clear()

    def take(self) -> tf.Tensor:
        """The absolute errors `[batch]`, the mean over several critics, and forgets them."""
        errors = tf.add_n(self._errors) / float(len(self._errors))
        self.forget()
        return errors


class WithTdErrors:
    """Mixin for TF-Agents' critics: `train` returns `extra.td_error`, `[batch]`.

    The class it is mixed into must call `self._td_errors_loss_fn`, which is wrapped.
    """

    def __init__(self, *args: Any, td_errors_loss_fn: LossFn, **kwargs: Any) -> None:
        self._recording_loss = RecordingLoss(td_errors_loss_fn)
        super().__init__(*args, td_errors_loss_fn=self._recording_loss, **kwargs)

    def _train(self, experience: Any, weights: tf.Tensor | None = None) -> tf_agent.LossInfo:
        self._recording_loss.forget()
        loss_info = super()._train(experience, weights)
        td_error = self._recording_loss.take()
        batch_notes.gauge("td_error", td_error)
        extra = _extended(type(loss_info.extra))(*loss_info.extra, td_error)
        return loss_info._replace(extra=extra)


class WithEntropy:
    """Mixin for TF-Agents' SAC: lines of metrics have the entropy of its policy, as sampled."""

    def _actions_and_log_probs(self, *args: Any, **kwargs: Any) -> Any:
        actions, log_density = super()._actions_and_log_probs(*args, **kwargs)
        batch_notes.gauge("entropy", log_density, reduce=lambda values: -values.mean())
        return actions, log_density


def absolute_td_errors(loss_info: tf_agent.LossInfo) -> tf.Tensor:
    """The priorities `[batch]` of agents whose `extra` holds a `td_error` per item."""
    return tf.abs(loss_info.extra.td_error)


@functools.cache
def _extended(extra: type) -> type:
    """The named tuple `extra` with one more field."""
    return collections.namedtuple(extra.__name__, (*extra._fields, "td_error"))
