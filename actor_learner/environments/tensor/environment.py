"""`TensorEnvironment`: dynamics in TensorFlow operations as an ordinary batched PyEnvironment."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import finite, seeding, specs
from actor_learner.environments.tensor import dynamics as dynamics_lib
from actor_learner.environments.tensor import dynamics_lanes
from actor_learner.support import configurable, errors


@configurable.register
class TensorEnvironment(py_environment.PyEnvironment):
    """Steps `num_envs` lanes of some dynamics with one graph call.

    TimeSteps are as those of `GymnasiumEnvironment`: NumPy with leading `[num_envs]`, made for the
    caller. What `lanes` does to tensors, a graph can also do for many steps at once.
    """

    def __init__(
        self,
        dynamics: dynamics_lib.Dynamics,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        seed: int | None = None,
        discount: float = 1.0,
        render_mode: str | None = None,
        check_finite: bool = True,
    ):
        """Traces the graphs.

        Args:
          dynamics: The rules: `@CartPoleDynamics()`, or an object of your own class.
          num_envs: Number of lanes.
          max_episode_steps: Time limit per episode; None for that of the dynamics, 0 for none.
          seed: Decides on everything random from the first `reset` on; see `seed()`.
          discount: The discount of steps that do not terminate.
          render_mode: "rgb_array" for `render()`, or None.
          check_finite: Whether `reset` and `step` raise `errors.NotFiniteError` for rewards and
            observations that are NaN or infinite.

        Raises:
          errors.ConfigError: If an argument is out of its range.
          errors.SpecMismatchError: If the dynamics' functions do not give what their spaces say.
        """
        super().__init__()
        if not isinstance(dynamics, dynamics_lib.Dynamics):
            raise errors.ConfigError(
                f"TensorEnvironment.dynamics is {dynamics!r}: it must be an object of a subclass "
                "of Dynamics, in gin @CartPoleDynamics() with parentheses"
            )
        if num_envs < 1:
            raise errors.ConfigError(f"num_envs is {num_envs}: there must be at least one lane")
        if not 0.0 <= discount <= 1.0:
            raise errors.ConfigError(f"discount is {discount}: it must be between 0 and 1")
        if render_mode not in (None, "rgb_array"):
            raise errors.ConfigError(f"render_mode is {render_mode!r}: it can be 'rgb_array' only")
        self._lanes = dynamics_lanes.DynamicsLanes(
            dynamics, num_envs, max_episode_steps=max_episode_steps, discount=discount
        )
        self._render_mode = render_mode
        self._name = type(dynamics).__name__.removesuffix("Dynamics")
        self._time_step_spec = ts.time_step_spec(self.observation_spec(), self.reward_spec())
        self._reset_call = tf.function(self._lanes.reset, autograph=False).get_concrete_function(
            tf.TensorSpec([], tf.int64)
        )
        self._carry_spec, time_step = self._reset_call.structured_outputs
        self._require_shapes(time_step)
        self._step_call = tf.function(self._flat_step, autograph=False).get_concrete_function(
            *map(_with_lanes(num_envs), tf.nest.flatten(self.action_spec())),
            *[tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in tf.nest.flatten(self._carry_spec)],
        )
        self._carry: list[tf.Tensor] = []
        self._finite: finite.FiniteCheck | None = None
        if check_finite:
            self._finite = finite.FiniteCheck(
                self._name,
                self._time_step_spec.reward,
                self.observation_spec(),
                num_envs,
                "TensorEnvironment.check_finite",
            )
        self._random = np.random.SeedSequence()
        if seed is not None:
            self.seed(seed)

    @property
    def name(self) -> str:
        """That of the dynamics."""
        return self._name

    @property
    def lanes(self) -> dynamics_lanes.DynamicsLanes:
        """The lanes as functions on tensors, for graphs that take many steps."""
        return self._lanes

    @property
    def carry(self) -> dynamics_lanes.Carry:
        """Where the lanes stand: what a graph begins with that takes further steps.

        Raises:
          errors.EnvironmentError: If they were never reset.
        """
        if not self._carry:
            raise errors.EnvironmentError(f"environment {self._name!r} has not been reset yet")
        return tf.nest.pack_sequence_as(self._carry_spec, self._carry)

    def resume(self, carry: dynamics_lanes.Carry) -> None:
        """Goes on from where a graph that took further steps has left the lanes."""
        self._carry = tf.nest.flatten(carry)

    def check(self, time_step: ts.TimeStep) -> None:
        """Raises `errors.NotFiniteError` if a step that a graph took is not finite."""
        if self._finite is not None:
            first = time_step.step_type == ts.StepType.FIRST
            self._finite.step(time_step.reward, time_step.observation, first)

    def check_all(self, time_steps: ts.TimeStep) -> bool:
        """Whether all steps that a graph took, leaves `[T, lanes, ...]`, need no `check` each."""
        if self._finite is None:
            return True
        first = time_steps.step_type == ts.StepType.FIRST
        return self._finite.all_steps(time_steps.reward, time_steps.observation, first)

    @property
    def check_finite(self) -> bool:
        """Whether what is not finite is refused."""
        return self._finite is not None

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._lanes.num_lanes

    def observation_spec(self) -> specs.SpecNest:
        return self._lanes.observation_spec

    def action_spec(self) -> specs.SpecNest:
        return self._lanes.action_spec

    def time_step_spec(self) -> ts.TimeStep:
        return self._time_step_spec

    def seed(self, seed: int) -> int:
        """Decides on everything random in all lanes, from the next `reset()` on; returns `seed`."""
        self._random = np.random.SeedSequence(seeding.checked_seed(seed))
        return seed

    def draw_seed(self) -> int:
        """Returns the seed of a reset: another one in each call, all decided by `seed()`."""
        (child,) = self._random.spawn(1)
        return int(child.generate_state(1, np.uint64)[0]) >> 2  # Leaves room for `another`.

    def get_info(self) -> dict[str, Any]:
        """Nothing: dynamics have no infos."""
        return {}

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """Returns the frame of lane 0, uint8 `[height, width, 3]`.

        Raises:
          errors.ConfigError: If the environment was not made to give frames, or its dynamics
            cannot be drawn.
        """
        if mode != "rgb_array" or self._render_mode != "rgb_array":
            raise errors.ConfigError(
                f"environment {self._name!r} was made with render_mode={self._render_mode!r}, "
                f"render(mode={mode!r}) needs it made with render_mode='rgb_array' and "
                "mode='rgb_array'"
            )
        state = tf.nest.map_structure(lambda leaf: leaf[0].numpy(), self.carry.state)
        return np.asarray(self._lanes.dynamics.render(state), np.uint8)

    def _reset(self) -> ts.TimeStep:
        carry, time_step = self._reset_call(tf.constant(self.draw_seed(), tf.int64))
        self._carry = tf.nest.flatten(carry)
        time_step = tf.nest.map_structure(lambda leaf: leaf.numpy(), time_step)
        if self._finite is not None:
            self._finite.reset(time_step.reward, time_step.observation)
        return time_step

    def _step(self, action: Any) -> ts.TimeStep:
        leaves = [
            tf.constant(leaf, spec.dtype)
            for leaf, spec in zip(tf.nest.flatten(action), tf.nest.flatten(self.action_spec()))
        ]
        carry, time_step = self._step_call(*leaves, *self._carry)
        self._carry = tf.nest.flatten(carry)
        time_step = tf.nest.map_structure(lambda leaf: leaf.numpy(), time_step)
        self.check(time_step)
        return time_step

    def _flat_step(self, *leaves: tf.Tensor) -> tuple[dynamics_lanes.Carry, ts.TimeStep]:
        count = len(tf.nest.flatten(self.action_spec()))
        action = tf.nest.pack_sequence_as(self.action_spec(), leaves[:count])
        return self._lanes.step(tf.nest.pack_sequence_as(self._carry_spec, leaves[count:]), action)

    def _require_shapes(self, time_step: ts.TimeStep) -> None:
        """Raises unless `observe` gives what `observation_space` promises."""
        try:
            tf.nest.assert_same_structure(time_step.observation, self.observation_spec())
        except (TypeError, ValueError) as error:
            raise errors.SpecMismatchError(
                f"{self._name}: observe() does not give what observation_space says: {error}"
            ) from None
        for spec, leaf in zip(
            tf.nest.flatten(self.observation_spec()), tf.nest.flatten(time_step.observation)
        ):
            wanted = (self.batch_size, *spec.shape)
            if leaf.shape.as_list() != list(wanted) or leaf.dtype != tf.as_dtype(spec.dtype):
                raise errors.SpecMismatchError(
                    f"{self._name}: observe() gives {leaf.dtype.name} {leaf.shape.as_list()} for "
                    f"{spec.name!r}, and observation_space says {np.dtype(spec.dtype).name} "
                    f"{list(wanted)}, of which the first dimension is that of the lanes"
                )


def _with_lanes(num_lanes: int) -> Any:
    return lambda spec: tf.TensorSpec([num_lanes, *spec.shape], spec.dtype)
