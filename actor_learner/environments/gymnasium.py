"""`GymnasiumEnvironment`: many lanes of a Gymnasium environment as one batched PyEnvironment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import finite, making, seeding, specs, vectorizing
from actor_learner.support import configurable, errors

_FIRST, _MID, _LAST = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))


@configurable.register
class GymnasiumEnvironment(py_environment.PyEnvironment):
    """Steps `num_envs` lanes with one call.

    A TimeStep is NumPy with leading `[num_envs]`: step_type int32, reward and discount float32, and
    an observation nest with exactly the dtypes of `observation_spec()`. Its arrays are made for it:
    they belong to the caller and are never written again.

    A lane that ends gives LAST with its true final observation; the next `step` ignores that
    lane's action and gives FIRST with reward 0 and discount 1. The discount of LAST is 0 where the
    episode terminated (even if it was truncated as well), and `discount` where it was only
    truncated, so that values are bootstrapped there.

    Discrete and MultiDiscrete actions are zero-based, whatever the space's `start`.
    """

    def __init__(
        self,
        env_id: making.EnvironmentSource,
        num_envs: int = 1,
        *,
        vectorization: str = "auto",
        wrappers: Sequence[making.WrapperLike] = (),
        make_kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        seed: int | None = None,
        first_lane: int = 0,
        discount: float = 1.0,
        step_timeout_seconds: float = 60.0,
        render_mode: str | None = None,
        check_finite: bool = True,
    ):
        """Makes the lanes.

        Args:
          env_id: A Gymnasium id (`"module:Id-v0"` imports the module first), a callable that
            returns a new `gymnasium.Env` at each call, or, for "envpool", EnvPool's task name.
          num_envs: Number of lanes.
          vectorization: "sync" steps lanes one after the other in this process; "async" steps each
            in a process of its own, for slow environments; "native" uses the environment's own
            vector implementation; "envpool" uses EnvPool; "auto" is native where the id has it and
            nothing asked for prevents it, else sync; a single CartPole is sync, which is quicker.
          wrappers: Applied to each lane in order. Each is a callable env -> env, the name of one of
            `gymnasium.wrappers`, "module:Class", or a pair of one of these and keyword arguments:
            `['FlattenObservation', ('FrameStackObservation', {'stack_size': 4})]`. Those that
            normalise by running statistics are refused: agents have `normalize_observations` and
            `normalize_rewards`.
          make_kwargs: Keyword arguments for `gymnasium.make`, or for the callable.
          max_episode_steps: Time limit per episode; None for the registered one, 0 for none.
          seed: Seeds the lanes at the first `reset`; see `seed()`.
          first_lane: Number of the first lane among all lanes that share the seed, so that an
            environment of eight lanes and two of four, the second from lane 4 on, play the same
            episodes. Native vector environments take another seed for each first lane.
          discount: The discount of steps that do not terminate.
          step_timeout_seconds: How long a `reset` or `step` of "async" lanes may take.
          render_mode: "rgb_array" for `render()`; the environment's own default otherwise.
          check_finite: Whether `reset` and `step` raise `errors.NotFiniteError` for rewards and
            observations that are NaN or infinite; costs one microsecond a step.

        Raises:
          errors.ConfigError: If the environment does not exist or cannot do what is asked.
          errors.MissingExtraError: If a package that it needs is not installed.
          errors.SpecMismatchError: If one of its spaces is not supported.
        """
        super().__init__()
        if num_envs < 1:
            raise errors.ConfigError(f"num_envs is {num_envs}: there must be at least one lane")
        if not 0.0 <= discount <= 1.0:
            raise errors.ConfigError(f"discount is {discount}: it must be between 0 and 1")
        if step_timeout_seconds <= 0:
            raise errors.ConfigError(
                f"step_timeout_seconds is {step_timeout_seconds}: it must be positive"
            )
        make_kwargs = dict(make_kwargs or {})
        if render_mode is not None:
            make_kwargs["render_mode"] = render_mode
        self._num_envs = num_envs
        self._first_lane = first_lane
        self._discount = discount
        # What most steps have; copied for each.
        self._going_on = np.full(num_envs, _MID, dtype=np.int32)
        self._discounts = np.full(num_envs, discount, dtype=np.float32)
        self._closed = False
        self._pending_seed: int | None = None
        self._info: dict[str, Any] = {}
        if vectorization == "envpool":
            self._name, self._vectorization = str(env_id), vectorization
            self._vectorized = vectorizing.vectorize_envpool(
                env_id,
                num_envs,
                make_kwargs=make_kwargs,
                max_episode_steps=max_episode_steps,
                has_wrappers=bool(wrappers),
                check_spaces=self._adopt_spaces,
            )
        else:
            factory = making.environment_factory(
                env_id,
                make_kwargs=make_kwargs,
                max_episode_steps=max_episode_steps,
                wrappers=wrappers,
            )
            self._name = factory.name
            self._vectorization = vectorizing.choose(vectorization, factory, num_envs)
            self._vectorized = vectorizing.vectorize(
                factory,
                num_envs,
                vectorization=self._vectorization,
                timeout_seconds=step_timeout_seconds,
                check_spaces=self._adopt_spaces,
            )
        self._env = self._vectorized.env
        self._finite: finite.FiniteCheck | None = None
        if check_finite:
            self._finite = finite.FiniteCheck(
                self._name,
                self._time_step_spec.reward,
                self._observation_spec,
                num_envs,
                "GymnasiumEnvironment.check_finite",
            )
        self._ended = np.zeros(num_envs, dtype=np.bool_)  # Lanes whose next step is a reset.
        self._any_ended = False
        if seed is not None:
            self.seed(seed)

    @property
    def name(self) -> str:
        """The environment's id, or the name of the callable that makes it."""
        return self._name

    @property
    def vectorization(self) -> str:
        """How the lanes are stepped: "sync", "async", "native" or "envpool"."""
        return self._vectorization

    @property
    def vector_env(self) -> gymnasium.vector.VectorEnv:
        """The Gymnasium vector environment underneath."""
        return self._env

    @property
    def check_finite(self) -> bool:
        """Whether what is not finite is refused."""
        return self._finite is not None

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._num_envs

    def observation_spec(self) -> specs.SpecNest:
        return self._observation_spec

    def action_spec(self) -> specs.SpecNest:
        return self._action_spec

    def time_step_spec(self) -> ts.TimeStep:
        return self._time_step_spec

    def seed(self, seed: int) -> int:
        """Seeds all lanes from one number, at the next `reset()` and only then.

        Each lane gets a seed of its own, derived from `seed`; native vector environments take the
        one number and derive their randomness from it. Later resets continue the same random
        streams. Returns `seed`.
        """
        self._pending_seed = seeding.checked_seed(seed)
        return seed

    def get_info(self) -> dict[str, Any]:
        """The info of the last `reset` or `step`, as Gymnasium's vector environments give it."""
        return self._info

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """Returns the frame of lane 0, uint8 `[height, width, 3]`.

        Raises:
          errors.ConfigError: If the environment was not made to give such frames.
        """
        self._require_open()
        if mode != "rgb_array" or self._env.render_mode != "rgb_array":
            raise errors.ConfigError(
                f"environment {self._name!r} was made with render_mode={self._env.render_mode!r}, "
                f"render(mode={mode!r}) needs it made with "
                "render_mode='rgb_array' and mode='rgb_array'"
            )
        with making.quiet_gymnasium():
            return np.asarray(self._vectorized.render_first_lane())

    def close(self) -> None:
        """Closes all lanes and ends their processes; further calls do nothing."""
        if not self._closed:
            self._closed = True
            self._env.close()

    def _reset(self) -> ts.TimeStep:
        """Resets every lane."""
        self._require_open()
        seed, self._pending_seed = self._pending_seed, None
        seeds: int | list[int] | None = seed
        if seed is not None and self._vectorized.seeds_per_lane:
            seeds = seeding.lane_seeds(seed, self._first_lane + self._num_envs)[self._first_lane :]
        elif seed is not None and self._first_lane:
            seeds = seeding.lane_seeds(seed, self._first_lane + 1)[self._first_lane]
        try:
            observation, self._info = self._env.reset(seed=seeds)
        except errors.ActorLearnerError:
            raise
        except Exception as error:
            raise self._broken("reset", error) from error
        self._ended = np.zeros(self._num_envs, dtype=np.bool_)
        self._any_ended = False
        reward = np.zeros(self._num_envs, dtype=np.float32)
        observation = self._copy_observation(observation)
        if self._finite is not None:
            self._finite.reset(reward, observation)
        return ts.TimeStep(
            np.full(self._num_envs, _FIRST, dtype=np.int32),
            reward,
            np.ones(self._num_envs, dtype=np.float32),
            observation,
        )

    def _step(self, action: Any) -> ts.TimeStep:
        self._require_open()
        action = self._encode_action(action)
        try:
            observation, reward, terminated, truncated, self._info = self._env.step(action)
        except errors.ActorLearnerError:
            raise
        except Exception as error:
            raise self._broken("step", error) from error
        reward = np.array(reward, dtype=np.float32)
        observation = self._copy_observation(observation)
        done = np.logical_or(terminated, truncated)
        step_type, discount = self._going_on.copy(), self._discounts.copy()
        any_done = np.count_nonzero(done) > 0  # A tenth of what `done.any()` takes.
        if any_done:
            step_type[done] = _LAST
            discount[np.asarray(terminated, dtype=np.bool_)] = 0.0
        first = None
        if self._any_ended:
            first = self._ended
            step_type[first] = _FIRST
            reward[first] = 0.0
            if self._discount != 1.0:
                discount[first] = 1.0
        self._ended, self._any_ended = done, any_done
        if self._finite is not None:
            self._finite.step(reward, observation, first)
        return ts.TimeStep(step_type, reward, discount, observation)

    def _adopt_spaces(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> None:
        self._observation_spec = specs.space_to_spec(observation_space, "observation")
        self._action_spec = specs.space_to_spec(action_space, "action", zero_based=True)
        self._time_step_spec = ts.time_step_spec(self._observation_spec, self.reward_spec())
        self._copy_observation = specs.compile_observation(self._observation_spec)
        self._encode_action = specs.compile_action(action_space, self._num_envs)

    def _require_open(self) -> None:
        if self._closed:
            raise errors.EnvironmentError(f"environment {self._name!r} is closed")

    def _broken(self, call: str, error: Exception) -> errors.EnvironmentError:
        return errors.EnvironmentError(
            f"environment {self._name!r}: {call} of its {self._num_envs} lane(s) raised "
            f"{type(error).__name__}: {error}; `actor-learner check-env` looks for what is wrong "
            "with an environment"
        )
