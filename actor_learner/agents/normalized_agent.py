"""Lets an agent learn from, and act on, normalised observations and rewards out of replay."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import greedy_policy, tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory as trajectory_lib

from actor_learner import experience as experience_lib
from actor_learner.agents import algorithm, normalization


def normalized(
    built: algorithm.Algorithm,
    name: str,
    *,
    normalize_observations: bool,
    observation_limit: float = normalization.OBSERVATION_LIMIT,
    normalize_rewards: bool = False,
    reward_limit: float = normalization.REWARD_LIMIT,
) -> algorithm.Algorithm:
    """The algorithm with a `NormalizedAgent`, or as it is if nothing is to be normalised.

    Args:
      built: Learns from transitions or sequences; its `n_step` and `gamma` say what rewards sum up.
      name: The builder's, for errors.
      normalize_observations: Whether to centre and scale float vectors.
      observation_limit: Largest normalised element of an observation.
      normalize_rewards: Whether to scale rewards.
      reward_limit: Largest scaled reward.

    Raises:
      errors.ConfigError: If a limit has no effect, or rewards have no scale since gamma is 1.
    """
    normalization.check_limits(
        name,
        normalize_observations=normalize_observations,
        observation_limit=observation_limit,
        normalize_rewards=normalize_rewards,
        reward_limit=reward_limit,
    )
    if not (normalize_observations or normalize_rewards):
        return built
    observations = rewards = None
    if normalize_observations:
        observations = normalization.ObservationNormalizer(
            built.agent.time_step_spec.observation, observation_limit
        )
    if normalize_rewards:
        # Rows of sequences hold the rewards of single steps.
        n_step = built.n_step if built.kind == experience_lib.TRANSITIONS else 1
        rewards = normalization.SampledRewardNormalizer(built.gamma, n_step, reward_limit)
    changed: dict[str, Any] = {"agent": NormalizedAgent(built.agent, observations, rewards)}
    if rewards is not None and built.initial_priorities is not None:
        # An actor has the statistics of rewards with the policy's variables.
        initial_priorities = built.initial_priorities

        def with_scaled_rewards(sequence: experience_lib.Sequence) -> Any:
            reward = rewards.normalize(sequence.trajectory.reward).numpy()
            trajectory = sequence.trajectory._replace(reward=reward)
            return initial_priorities(sequence._replace(trajectory=trajectory))

        changed["initial_priorities"] = with_scaled_rewards
    return dataclasses.replace(built, **changed)


class NormalizedAgent(tf_agent.TFAgent):
    """Trains an agent on normalised experience, and keeps the statistics.

    Everything inside sees the same normalised numbers: the networks that act and those that are
    trained, all critics and all target networks. Each train step uses the statistics that its
    policy acts with, and updates them last.

    The statistics are those of the batches trained on: a step counts each time that it is sampled,
    and prioritized sampling counts surprising steps more often, without correction. They describe
    what the networks have to cope with, which is more than what is new. Since counts grow for ever,
    they settle, and networks need not follow them; a policy that comes to see another part of the
    world late moves them slowly. Both observations of a transition count, the final ones of
    episodes among them, but not rows that fill up a sequence.

    Args:
      agent: Takes a `Trajectory`, or an `experience.Sequence`.
      observations: Statistics of observations; None leaves them.
      rewards: Statistics of rewards; None leaves them.
    """

    def __init__(
        self,
        agent: tf_agent.TFAgent,
        observations: normalization.ObservationNormalizer | None,
        rewards: normalization.SampledRewardNormalizer | None,
    ) -> None:
        tf.Module.__init__(self, name="NormalizedAgent")
        self._inner = agent
        self._observations = observations
        self._rewards = rewards
        super().__init__(
            agent.time_step_spec,
            agent.action_spec,
            self._normalized_policy(agent.policy),
            self._normalized_policy(agent.collect_policy),
            train_sequence_length=agent.train_sequence_length,
            train_step_counter=agent.train_step_counter,
        )

    @property
    def inner(self) -> tf_agent.TFAgent:
        """The agent that sees what is normalised."""
        return self._inner

    def _initialize(self) -> None:
        self._inner.initialize()

    def _train(self, experience: Any, weights: tf.Tensor | None = None) -> tf_agent.LossInfo:
        losses = self._inner.train(self._normalized(experience), weights=weights)
        self._update(experience)
        return losses

    def _loss(
        self, experience: Any, weights: tf.Tensor | None = None, training: bool = False
    ) -> tf_agent.LossInfo:
        return self._inner.loss(self._normalized(experience), weights=weights, training=training)

    def _normalized(self, experience: Any) -> Any:
        trajectory = _trajectory(experience)
        if self._observations is not None:
            observation = self._observations.normalize(trajectory.observation)
            trajectory = trajectory._replace(observation=observation)
        if self._rewards is not None:
            trajectory = trajectory._replace(reward=self._rewards.normalize(trajectory.reward))
        if isinstance(experience, experience_lib.Sequence):
            return experience._replace(trajectory=trajectory)
        return trajectory

    def _update(self, experience: Any) -> None:
        trajectory = _trajectory(experience)
        if isinstance(experience, experience_lib.Sequence):
            mask = experience.mask
            # The LAST row of an episode is left by no step.
            is_step = tf.not_equal(trajectory.step_type, ts.StepType.LAST)
            reward, steps = trajectory.reward, mask * tf.cast(is_step, tf.float32)
        else:
            mask = None
            # The second row of a transition is where it leads: its own reward means nothing.
            reward, steps = trajectory.reward[:, 0], None
        if self._observations is not None:
            self._observations.update(trajectory.observation, mask)
        if self._rewards is not None:
            self._rewards.update(reward, steps)

    def _normalized_policy(self, policy: tf_policy.TFPolicy) -> tf_policy.TFPolicy:
        if isinstance(policy, greedy_policy.GreedyPolicy):
            # Outermost, where exports look for it.
            return greedy_policy.GreedyPolicy(self._normalized_policy(policy.wrapped_policy))
        return NormalizedPolicy(policy, self._observations, self._rewards)


class NormalizedPolicy(tf_policy.TFPolicy):
    """Acts like another policy that is shown normalised observations.

    Its variables are those of the policy and the statistics, so that whoever gets the variables
    normalises alike. Acting needs no rewards, but priorities of new sequences do, and whoever
    trains an exported policy further.

    Args:
      policy: Acts on normalised observations.
      observations: Statistics of observations; None leaves them.
      rewards: Statistics of rewards; None for none.
    """

    def __init__(
        self,
        policy: tf_policy.TFPolicy,
        observations: normalization.ObservationNormalizer | None,
        rewards: normalization.SampledRewardNormalizer | None,
    ) -> None:
        super().__init__(
            policy.time_step_spec,
            policy.action_spec,
            policy_state_spec=policy.policy_state_spec,
            info_spec=policy.info_spec,
            clip=False,  # The policy inside does.
            emit_log_probability=policy.emit_log_probability,
        )
        self._wrapped_policy = policy
        self._observations = observations
        self._rewards = rewards

    @property
    def wrapped_policy(self) -> tf_policy.TFPolicy:
        return self._wrapped_policy

    @property
    def lane_values(self) -> Any:
        """What tells one lane from another, `[lanes]`; None if nothing does."""
        return getattr(self._wrapped_policy, "lane_values", None)

    @lane_values.setter
    def lane_values(self, values: Any) -> None:
        self._wrapped_policy.lane_values = values

    def for_lanes(self, num_lanes: int) -> NormalizedPolicy:
        """The same policy for so many lanes, if its lanes differ."""
        inner = self._wrapped_policy.for_lanes(num_lanes)
        return NormalizedPolicy(inner, self._observations, self._rewards)

    def _variables(self) -> list[tf.Variable]:
        statistics = [s for s in (self._observations, self._rewards) if s is not None]
        return [
            *self._wrapped_policy.variables(),
            *(variable for part in statistics for variable in part.variables),
        ]

    def _get_initial_state(self, batch_size: int | None) -> Any:
        return self._wrapped_policy.get_initial_state(batch_size)

    def _action(
        self, time_step: ts.TimeStep, policy_state: Any, seed: Any
    ) -> policy_step.PolicyStep:
        return self._wrapped_policy.action(self._normalized(time_step), policy_state, seed)

    def _distribution(self, time_step: ts.TimeStep, policy_state: Any) -> policy_step.PolicyStep:
        return self._wrapped_policy.distribution(self._normalized(time_step), policy_state)

    def _normalized(self, time_step: ts.TimeStep) -> ts.TimeStep:
        if self._observations is None:
            return time_step
        observation = self._observations.normalize(time_step.observation)
        return time_step._replace(observation=observation)


def _trajectory(experience: Any) -> trajectory_lib.Trajectory:
    return experience.trajectory if isinstance(experience, experience_lib.Sequence) else experience
