"""PPO as a TFAgent: one call of `train` learns all there is to learn from one batch of unrolls."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.trajectories import time_step as ts

from actor_learner import batch_notes, minibatches
from actor_learner import experience as experience_lib
from actor_learner.agents import normalization, unroll_policy
from actor_learner.agents.losses import gae, ppo_loss
from actor_learner.agents.networks import actor_critic_network, network_variables
from actor_learner.support import errors, replicas, write_order

# Where the KL divergence stands behind a minibatch's count and loss.
_KL = 2 + ppo_loss.PPOLossInfo._fields.index("kl")


class _Data(NamedTuple):
    """What minibatches are gathered from; leaves `[frames, ...]`, or `[lanes, T, ...]` with memory.

    `frames` holds the fields of `ppo_loss.Frames` in its last dimension: one gather for all five.
    Parts that are not needed are `()`.
    """

    observation: Any
    action: Any
    raw_action: Any
    frames: tf.Tensor
    step_type: Any
    state: Any


class KLPenalty(tf.Module):
    """A weight of the KL divergence that grows and shrinks until steps are as long as wanted.

    Args:
      weight: At the start.
      target: KL divergence that one train step should move the policy by.
    """

    def __init__(self, weight: float, target: float) -> None:
        super().__init__(name="kl_penalty")
        if weight <= 0 or target <= 0:
            raise errors.ConfigError(
                f"ppo.kl_penalty ({weight}) and ppo.kl_target ({target}) must be above 0"
            )
        self._target = target
        self.weight = tf.Variable(
            float(weight),
            trainable=False,
            name="kl_penalty/weight",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def adapt(self, kl: tf.Tensor) -> None:
        """Doubles the weight if `kl` is far above the target, halves it if far below."""
        factor = tf.where(kl > 1.5 * self._target, 2.0, tf.where(kl < self._target / 1.5, 0.5, 1.0))
        self.weight.assign(tf.clip_by_value(self.weight * factor, 1e-6, 1e6))


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(*args)


class PPOAgent(tf_agent.TFAgent):
    """Learns from unrolls of the policy that acted, several epochs from each.

    `train(unroll)` takes an `experience.Unroll`. In one graph it rates all T + 1 rows, computes
    advantages, trains for `epochs` epochs on shuffled minibatches, and last updates the statistics
    of observations, so that actions and loss are computed with the same ones. Each epoch uses every
    step exactly once; boundary rows are no steps. A network with memory is trained on the whole
    unrolls of lanes, from the stored state on. The train step rises by one per call.

    The losses returned are means over the last epoch; `extra` is a `ppo_loss.PPOLossInfo`.

    Continuous actions are drawn from a Gaussian and clipped to their bounds for the environment
    only: ratios are those of the numbers drawn, which the collect policy's info holds.

    Args:
      time_step_spec: `TimeStep` of tensor specs.
      action_spec: Nest of bounded tensor specs.
      network: Policy and value.
      optimizer: One of `optimizers`.
      loss: The loss of a minibatch.
      gamma: Discount factor.
      gae_lambda: Of generalized advantage estimation.
      epochs: Times that each frame is learned from, at least 1.
      minibatch_size: Frames per gradient step at most. With memory a minibatch holds as many lanes
        as have so many frames, at least one.
      gradient_clipping: Largest norm of the gradient; None clips nothing.
      kl_penalty: Holds the policy near the one that acted; None for none.
      max_kl: A minibatch at which the KL divergence is above this ends its train step: neither it
        nor what is left of the epochs is learned from. None for no limit.
      observation_normalizer: The network's, to be updated; None if it has none.
      reward_normalizer: Scales the rewards; None leaves them.
      train_step_counter: Raised by one per call of `train`.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: Any,
        *,
        network: actor_critic_network.ActorCriticNetwork,
        optimizer: Any,
        loss: ppo_loss.PPOLoss,
        gamma: float,
        gae_lambda: float,
        epochs: int,
        minibatch_size: int,
        gradient_clipping: float | None = None,
        kl_penalty: KLPenalty | None = None,
        max_kl: float | None = None,
        observation_normalizer: normalization.ObservationNormalizer | None = None,
        reward_normalizer: normalization.RewardNormalizer | None = None,
        train_step_counter: tf.Variable | None = None,
    ) -> None:
        for name, value in (("epochs", epochs), ("minibatch_size", minibatch_size)):
            if value < 1:
                raise errors.ConfigError(f"ppo.{name} must be at least 1, got {value}")
        if not 0.0 <= gae_lambda <= 1.0:
            raise errors.ConfigError(f"ppo.gae_lambda must lie in [0, 1], got {gae_lambda}")
        for name, value in (("gradient_clipping", gradient_clipping), ("max_kl", max_kl)):
            if value is not None and value <= 0:
                raise errors.ConfigError(f"ppo.{name} must be above 0 or None, got {value}")
        with network_variables.of_any_integers():
            network.create_variables()
        self._network = network
        self._optimizer = optimizer
        self._loss_of = loss
        self._gamma = gamma
        self._gae_lambda = gae_lambda
        self._epochs = epochs
        self._minibatch_size = minibatch_size
        self._gradient_clipping = gradient_clipping
        self._kl_penalty = kl_penalty
        self._max_kl = max_kl
        self._observation_normalizer = observation_normalizer
        self._reward_normalizer = reward_normalizer
        # A learner builds several graphs around `train`, with summaries and without: the large part
        # of them is traced once.
        self._learn_in_graph = tf.function(self._learn, autograph=False)
        collect_policy = unroll_policy.UnrollCollectPolicy(time_step_spec, action_spec, network)
        super().__init__(
            time_step_spec,
            action_spec,
            unroll_policy.ActorCriticPolicy(time_step_spec, action_spec, network),
            collect_policy,
            train_sequence_length=None,
            train_step_counter=train_step_counter,
        )

    def _initialize(self) -> None:
        """Nothing is left to create."""

    def train_on_replicas(
        self, experience: experience_lib.Unroll, weights: Any = None
    ) -> tf_agent.LossInfo:
        """As `train`, but called outside of replicas, with the parts of all of them.

        Replicas add up gradients in every minibatch, which TensorFlow lets them do in a loop around
        them, but in none of their own.

        Args:
          experience: Leaves have a value for each replica.
          weights: None.

        Returns:
          The share of each replica in the losses.
        """
        _refuse_weights(weights)
        return self._learn_in_order(experience, tf.distribute.get_strategy().run)

    def _train(self, experience: experience_lib.Unroll, weights: Any = None) -> tf_agent.LossInfo:
        _refuse_weights(weights)
        learn = self._learn_in_graph if tf.inside_function() else self._learn
        with write_order.checks_come_first():
            losses = learn(experience)
        self._summarize(losses)
        return losses

    def _learn(self, experience: experience_lib.Unroll) -> tf_agent.LossInfo:
        """All of a train step but its summaries."""
        with write_order.checks_come_first():
            return self._learn_in_order(experience)

    def _learn_in_order(
        self, experience: experience_lib.Unroll, run: Callable[..., Any] = _call
    ) -> tf_agent.LossInfo:
        """All of a train step, by `run(function, args)`, which may do each part on all replicas."""
        data, order, num_items, count = run(self._begin, args=(experience,))

        def train_minibatch(
            number: tf.Tensor, _: tf.Tensor, totals: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scalars, moved_too_far = run(
                self._learn_minibatch, args=(data, order, num_items, count, number)
            )
            scalars = replicas.first_of(scalars)
            begins_epoch = tf.equal(number % num_minibatches, 0)
            totals = tf.where(begins_epoch, scalars, totals + scalars)
            return number + 1, replicas.first_of(moved_too_far), totals

        num_minibatches = replicas.first_of(count)
        _, _, totals = tf.while_loop(
            lambda number, moved_too_far, _: tf.logical_and(
                number < self._epochs * num_minibatches, tf.logical_not(moved_too_far)
            ),
            train_minibatch,
            (tf.constant(0), tf.constant(False), tf.zeros([2 + len(ppo_loss.PPOLossInfo._fields)])),
        )
        return run(self._finish, args=(experience, totals))

    def _begin(
        self, experience: experience_lib.Unroll
    ) -> tuple[_Data, tf.Tensor, tf.Tensor, tf.Tensor]:
        """What there is to learn from, its order over all epochs, and how it is cut up.

        Returns:
          The data, the order of its items, their number, and the number of minibatches per epoch.
        """
        for leaf in tf.nest.flatten(experience.trajectory.observation):
            if leaf.dtype.is_floating:
                # Normalised, it would be clipped, and the epochs be over when its variance is not
                # finite.
                tf.debugging.check_numerics(tf.nn.l2_loss(leaf), "an observation squared")
        if self._reward_normalizer is not None:
            self._reward_normalizer.update(experience.trajectory)
        data, items, size = self._prepare(experience)
        # Before the first minibatch: a bad one may be the last.
        tf.debugging.check_numerics(data.frames, "an advantage, a value or a log-probability")
        num_items = tf.size(items)
        # Of several replicas, each cuts its items into as many parts as the others.
        count = minibatches.count(replicas.total(num_items), size)
        return data, minibatches.shuffled_epochs(items, self._epochs), num_items, count

    def _learn_minibatch(
        self,
        data: _Data,
        order: tf.Tensor,
        num_items: tf.Tensor,
        count: tf.Tensor,
        number: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Learns from minibatch `number`.

        Returns:
          1, the loss and what it is made of, in one tensor; and whether the policy has moved too
          far. Both are those of the whole minibatch.
        """
        chosen = minibatches.select(order, number, num_items, count)
        minibatch = tf.nest.map_structure(lambda leaf: tf.gather(leaf, chosen), data)
        return self._step(minibatch)

    def _finish(self, experience: experience_lib.Unroll, totals: tf.Tensor) -> tf_agent.LossInfo:
        """What follows the epochs; returns this replica's share of the losses."""
        loss, *scalars = tf.unstack(totals[1:] / tf.maximum(totals[0], 1.0))
        info = ppo_loss.PPOLossInfo(*scalars)
        if self._kl_penalty is not None:
            self._kl_penalty.adapt(info.kl)
        if self._observation_normalizer is not None:
            # Not before the epochs: their ratios must be computed as the actions were.
            self._observation_normalizer.update(_steps(experience.trajectory.observation))
        self.train_step_counter.assign_add(1)
        return tf.nest.map_structure(replicas.share, tf_agent.LossInfo(loss, info))

    def _loss(
        self, experience: experience_lib.Unroll, weights: Any = None, training: bool = False
    ) -> tf_agent.LossInfo:
        """The loss of all steps as one minibatch, before any learning from them."""
        del training
        _refuse_weights(weights)
        data, items, _ = self._prepare(experience)
        loss, info = self._minibatch_loss(
            tf.nest.map_structure(lambda leaf: tf.gather(leaf, items), data)
        )
        return tf_agent.LossInfo(loss, info)

    def _prepare(self, unroll: experience_lib.Unroll) -> tuple[_Data, tf.Tensor, int]:
        """What there is to learn from, the items that make an epoch, and how many a minibatch."""
        trajectory = unroll.trajectory
        (_, value), _ = self._network(
            trajectory.observation, step_type=trajectory.step_type, network_state=unroll.state
        )
        reward = trajectory.reward
        if self._reward_normalizer is not None:
            reward = self._reward_normalizer.normalize(reward)
        rated = gae.advantages(
            trajectory, reward, value, gamma=self._gamma, gae_lambda=self._gae_lambda
        )
        rated = rated._replace(value_target=batch_notes.note("target", rated.value_target))
        info = trajectory.policy_info
        frames = ppo_loss.Frames(
            log_probability=info[experience_lib.LOG_PROBABILITY][:, :-1],
            advantage=rated.advantage,
            value_target=rated.value_target,
            value=value[:, :-1],
            mask=rated.mask,
        )
        data = _Data(
            observation=_steps(trajectory.observation),
            action=_steps(trajectory.action),
            raw_action=_steps(info.get(unroll_policy.RAW_ACTION, ())),
            frames=tf.stack(frames, axis=-1),
            step_type=(),
            state=(),
        )
        if self._network.has_memory:
            num_lanes, length = tf.shape(rated.mask)[0], rated.mask.shape[1]
            data = data._replace(step_type=_steps(trajectory.step_type), state=unroll.state)
            return data, tf.range(num_lanes), max(1, self._minibatch_size // length)
        data = tf.nest.map_structure(_join_lanes, data)
        items = tf.cast(tf.where(tf.reshape(rated.mask, [-1]) > 0.0)[:, 0], tf.int32)
        return data, items, self._minibatch_size

    def _step(self, minibatch: _Data) -> tuple[tf.Tensor, tf.Tensor]:
        """One step along the gradient, unless the policy has moved too far by then.

        Returns:
          As `_learn_minibatch`.
        """
        variables = self._network.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss, info = self._minibatch_loss(minibatch)
        gradients = replicas.reduced(tape.gradient(loss, variables))
        norm = tf.linalg.global_norm(gradients)
        if self._gradient_clipping is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._gradient_clipping, norm)
        info = info._replace(gradient_norm=replicas.share(norm))
        scalars = replicas.whole(tf.stack([replicas.share(1.0), loss, *info]))
        moved_too_far = None
        if self._max_kl is not None:
            moved_too_far = scalars[_KL] > self._max_kl

        with write_order.checks_come_first():
            tf.debugging.check_numerics(scalars[1], "the loss of PPO")
            self._optimizer.apply_gradients(
                zip(gradients, variables),
                experimental_aggregate_gradients=False,
                only_if=None if moved_too_far is None else tf.logical_not(moved_too_far),
            )
        return scalars, tf.constant(False) if moved_too_far is None else moved_too_far

    def _minibatch_loss(self, minibatch: _Data) -> tuple[tf.Tensor, ppo_loss.PPOLossInfo]:
        has_memory = self._network.has_memory
        (parameters, value), _ = self._network(
            minibatch.observation,
            step_type=minibatch.step_type if has_memory else None,
            network_state=minibatch.state,
        )
        distribution = self._network.distribution
        return self._loss_of(
            ppo_loss.Frames(*tf.unstack(minibatch.frames, axis=-1)),
            log_probability=distribution.log_probability(
                parameters, minibatch.action, minibatch.raw_action
            ),
            entropy=distribution.entropy(parameters),
            value=value,
            kl_weight=None if self._kl_penalty is None else self._kl_penalty.weight,
            masked=has_memory,  # Else boundary rows were left out.
        )

    def _summarize(self, losses: tf_agent.LossInfo) -> None:
        step = self.train_step_counter
        tf.summary.scalar("Losses/loss", losses.loss, step)
        for name, value in losses.extra._asdict().items():
            tf.summary.scalar(f"Losses/{name}", value, step)
        if self._kl_penalty is not None:
            tf.summary.scalar("KLPenalty/weight", self._kl_penalty.weight, step)


def _steps(nest: Any) -> Any:
    """The first T of `[lanes, T + 1, ...]`: without the row that holds an observation only."""
    return tf.nest.map_structure(lambda leaf: leaf[:, :-1], nest)


def _join_lanes(leaf: tf.Tensor) -> tf.Tensor:
    """`[lanes, T, ...]` to `[lanes * T, ...]`."""
    return tf.reshape(leaf, [-1, *leaf.shape[2:]])


def _refuse_weights(weights: Any) -> None:
    if weights is not None:
        raise errors.SpecMismatchError(
            "PPO learns from every unroll once and takes no weights: it needs an UnrollQueue, not "
            "prioritized replay"
        )
