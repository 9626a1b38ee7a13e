"""One train step of an agent on all replicas of a distribution strategy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable

import tensorflow as tf
from tf_agents.agents import tf_agent

_ASSIGNMENTS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})


class ReplicaStep:
    """Trains on one batch per replica; meant to be traced into a graph.

    Args:
      agent: Trained in place.
      strategy: Has the replicas.
      after_train: `fn((experience, sample_info), loss_info)`, called on each replica; or None.
      use_kwargs: Experience is a dictionary of arguments of `agent.train`.
      run_options: Passed to each `strategy.run`.
    """

    def __init__(
        self,
        agent: tf_agent.TFAgent,
        strategy: tf.distribute.Strategy,
        *,
        after_train: Callable[..., None] | None,
        use_kwargs: bool,
        run_options: tf.distribute.RunOptions | None,
    ) -> None:
        self._agent = agent
        self._strategy = strategy
        self._after_train = after_train
        self._use_kwargs = use_kwargs
        self._run_options = run_options

    def train(self, experience: Any) -> Any:
        """Trains; returns the losses of each replica."""
        return self._run(self._agent_train, experience)

    def loss(self, experience: Any) -> Any:
        """The losses of each replica, without training."""
        return self._run(self._agent_loss, experience)

    def after_train(self, experience: Any, sample_info: Any, loss_info: Any) -> None:
        """Calls the function that follows a train step, if there is one."""
        if not self._after_train:
            return
        sample = (experience, sample_info)
        arguments = (
            dict(kwargs=dict(experience=sample, loss_info=loss_info))
            if self._use_kwargs
            else dict(args=(sample, loss_info))
        )
        self._strategy.run(self._after_train, options=self._run_options, **arguments)

    def reduce(self, loss_info: Any, reduce_op: tf.distribute.ReduceOp) -> Any:
        """Combines the losses over replicas and over their own dimensions."""

        def reduce_leaf(loss):
            one = loss.values[0] if isinstance(loss, tf.distribute.DistributedValues) else loss
            rank = one.shape.rank if tf.is_tensor(one) else None
            axis = tuple(range(rank)) if rank else None
            return self._strategy.reduce(reduce_op, loss, axis=axis)

        return tf.nest.map_structure(reduce_leaf, loss_info)

    def sum(self, loss_info: Any) -> Any:
        """The losses summed over replicas."""
        return self.reduce(loss_info, tf.distribute.ReduceOp.SUM)

    def _run(self, fn: Callable[..., Any], experience: Any) -> Any:
        if self._use_kwargs:
            return self._strategy.run(fn, kwargs=experience, options=self._run_options)
        return self._strategy.run(fn, args=(experience,), options=self._run_options)

    # AutoGraph must not go into an agent: it is slow there, and agents do not need it.
    @tf.autograph.experimental.do_not_convert
    def _agent_train(self, *args: Any, **kwargs: Any) -> tf_agent.LossInfo:
        batch = tf.nest.flatten((args, kwargs), expand_composites=True)
        with _after_batch([leaf for leaf in batch if tf.is_tensor(leaf)][:1]):
            return self._agent.train(*args, **kwargs)

    @tf.autograph.experimental.do_not_convert
    def _agent_loss(self, *args: Any, **kwargs: Any) -> tf_agent.LossInfo:
        return self._agent.loss(*args, **kwargs)


@contextlib.contextmanager
def _after_batch(batch: list[tf.Tensor]) -> Iterator[None]:
    """Has what is assigned in this context wait until the batch is there.

    Agents raise the train step without looking at the batch, so that a graph may do so long before
    it comes: a dataset that reads the step, or a checkpoint saved while the learner waits, would
    meet the next one's number. Control dependencies for everything would do as well, but constants
    that have one are no longer folded, and a small train step takes a third longer.
    """
    if not batch or not tf.inside_function():
        yield
        return
    graph = batch[0].graph
    before = set(graph.get_operations())
    yield
    for operation in graph.get_operations():
        if operation.type in _ASSIGNMENTS and operation not in before:
            operation._add_control_input(batch[0].op)
