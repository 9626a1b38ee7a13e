"""One train step of an agent on all replicas of a distribution strategy."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf
import tree
from tf_agents.agents import tf_agent
from tf_agents.specs import tensor_spec

from actor_learner import batch_notes
from actor_learner.learning import train_guard
from actor_learner.support import errors, replicas, write_order


class ReplicaStep:
    """Trains on one batch per replica; meant to be traced into a graph.

    Args:
      agent: Trained in place.
      strategy: Has the replicas.
      after_train: `fn((experience, sample_info), loss_info)`, called on each replica; or None.
      use_kwargs: Experience is a dictionary of arguments of `agent.train`.
      run_options: Passed to each `strategy.run`.
      counts: Whether to count train steps in `made`.
      group: Processes that train together with this one; None for none.

    Attributes:
      made: Train steps taken, counted in the graph, since agents count them as they like; None if
        they are not counted.
    """

    def __init__(
        self,
        agent: tf_agent.TFAgent,
        strategy: tf.distribute.Strategy,
        *,
        after_train: Callable[..., None] | None,
        use_kwargs: bool,
        run_options: tf.distribute.RunOptions | None,
        counts: bool = False,
        group: replicas.Group | None = None,
    ) -> None:
        if group is not None and strategy.num_replicas_in_sync > 1:
            raise errors.ConfigError(
                f"Learner.strategy has {strategy.num_replicas_in_sync} replicas, and several "
                "learners train together: use one replica in each of them"
            )
        self._agent = agent
        self._strategy = strategy
        self._after_train = after_train
        self._use_kwargs = use_kwargs
        self._run_options = run_options
        self._group = group
        self.made = tf.Variable(0, trainable=False, dtype=tf.int64) if counts else None
        self._notes = batch_notes.BatchNotes()
        self._check: tf.Operation | None = None  # The last one of the train step traced last.

    def train(self, experience: Any) -> Any:
        """Trains; returns the losses of each replica.

        Raises:
          tf.errors.InvalidArgumentError: When it is run, if a loss or gradient is not finite;
            nothing of that train step was applied then.
        """
        if not tf.inside_function():
            return self._train(experience)
        first = len(write_order.operations_from(0))
        loss_info = self._train(experience)
        # Once for all replicas, whose operations stand in one graph.
        losses = self._strategy.experimental_local_results(loss_info.loss)
        self._check = train_guard.guard(first, losses, self._notes)
        return loss_info

    def trace(self) -> None:
        """Traces a train step on what the agent says of its data, which creates its variables."""
        specs = tensor_spec.add_outer_dims_nest(
            self._agent.training_data_spec, (None, self._agent.train_sequence_length)
        )
        if self._use_kwargs:
            specs = dict(experience=specs)
        tf.function(self.train, autograph=False).get_concrete_function(specs)

    def latest_batch(self) -> dict[str, np.ndarray]:
        """The batch of the latest train step, and what the agent has noted of it, by name.

        Empty if it is not known.
        """
        return self._notes.read()

    def gauges(self) -> dict[str, float]:
        """What the agent has gauged of the latest train step; see `batch_notes.gauge`."""
        return self._notes.gauges()

    def close(self) -> None:
        """Lets go of the latest batch; there must be no train step after it."""
        self._notes.close()

    def abandon(self) -> None:
        """Tells those who train together with this process that a train step has failed."""
        if self._group is not None:
            self._group.abandon()

    def loss(self, experience: Any) -> Any:
        """The losses of each replica, without training."""
        return self._run(self._agent_loss, experience)

    def after_train(self, experience: Any, sample_info: Any, loss_info: Any) -> None:
        """Calls the function that follows a train step, if there is one.

        What it writes waits until that train step is known to be finite.
        """
        first = len(write_order.operations_from(0))
        if self._after_train:
            self._call_after_train(experience, sample_info, loss_info)
        if self.made is not None:
            self.made.assign_add(1)
        if tf.inside_function():
            graph = tf.compat.v1.get_default_graph()
            if self._check is not None and self._check.graph is graph:
                write_order.order(write_order.operations_from(first), after=self._check)

    def _call_after_train(self, experience: Any, sample_info: Any, loss_info: Any) -> None:
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

    @tf.autograph.experimental.do_not_convert
    def _train(self, experience: Any) -> Any:
        # What an agent may have to exchange between replicas within loops of its own.
        together = getattr(self._agent, "train_on_replicas", None)
        if together is None or self._strategy.num_replicas_in_sync == 1:
            return self._run(self._agent_train, experience)
        kwargs = experience if self._use_kwargs else dict(experience=experience)
        first = tf.nest.map_structure(
            lambda leaf: self._strategy.experimental_local_results(leaf)[0], kwargs
        )
        with self._notes.over(_named(**first)):
            return together(**kwargs)

    def _run(self, fn: Callable[..., Any], experience: Any) -> Any:
        if self._use_kwargs:
            return self._strategy.run(fn, kwargs=experience, options=self._run_options)
        return self._strategy.run(fn, args=(experience,), options=self._run_options)

    # AutoGraph must not go into an agent: it is slow there, and agents do not need it.
    @tf.autograph.experimental.do_not_convert
    def _agent_train(self, *args: Any, **kwargs: Any) -> tf_agent.LossInfo:
        with self._notes.over(_named(*args, **kwargs)), replicas.joined(self._group):
            return self._agent.train(*args, **kwargs)

    @tf.autograph.experimental.do_not_convert
    def _agent_loss(self, *args: Any, **kwargs: Any) -> tf_agent.LossInfo:
        return self._agent.loss(*args, **kwargs)


def _named(*args: Any, **kwargs: Any) -> dict[str, tf.Tensor]:
    """The tensors among the arguments of `agent.train`, by their names there."""
    nest = kwargs if kwargs else args[0]
    named = {}
    for path, leaf in tree.flatten_with_path(nest):
        for i, tensor in enumerate(tf.nest.flatten(leaf, expand_composites=True)):
            if tf.is_tensor(tensor):
                name = "/".join(str(part) for part in path if part != "experience") or "experience"
                named[name if not i else f"{name}#{i}"] = tensor
    return named
