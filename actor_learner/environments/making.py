"""From an environment id or callable to a Gymnasium environment, or an error that says what to do.

Worker processes import this module, so it must not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Union

import gymnasium
from gymnasium.envs import registration

from actor_learner.support import errors, extras

EnvironmentSource = Union[str, Callable[..., gymnasium.Env]]
# A callable env -> env, the name of a Gymnasium wrapper (or "module:Class"), or a pair of either
# and a dict of keyword arguments.
WrapperLike = Any

# Packages that environments need, by the start of their entry point.
_EXTRA_OF_ENTRY_POINT = (
    ("gymnasium.envs.box2d", "Box2D", "box2d"),
    ("gymnasium.envs.mujoco", "mujoco", "mujoco"),
    ("ale_py", "ale_py", "atari"),
)
# Wrappers of Gymnasium that keep running statistics, with the agents' parameter that does as much.
_RUNNING_STATISTICS = {
    "NormalizeObservation": "normalize_observations",
    "NormalizeReward": "normalize_rewards",
}
# Ids that ale_py registers outside its own namespace: Pong-v4 variants of old Gym.
_OLD_ATARI_ID = re.compile(r"(NoFrameskip|Deterministic|-ram(NoFrameskip|Deterministic)?)-v[04]$")


@dataclasses.dataclass(frozen=True)
class EnvironmentFactory:
    """Makes one environment per call. Can be sent to another process, with all that it needs.

    Attributes:
      name: What to call the environment in messages.
      source: The registered spec, or a callable that returns an environment.
      make_kwargs: Keyword arguments of the environment's constructor, or of the callable.
      max_episode_steps: Time limit; None for the registered one, 0 for none.
      wrappers: Callables env -> env, applied in order.
    """

    name: str
    source: registration.EnvSpec | Callable[..., gymnasium.Env]
    make_kwargs: Mapping[str, Any]
    max_episode_steps: int | None
    wrappers: tuple[Callable[[gymnasium.Env], gymnasium.Env], ...]

    @property
    def spec(self) -> registration.EnvSpec | None:
        """The registered spec, or None if the environment comes from a callable."""
        return self.source if isinstance(self.source, registration.EnvSpec) else None

    def __call__(self) -> gymnasium.Env:
        """Makes one environment.

        Raises:
          errors.MissingExtraError: If a package that the environment needs is not installed.
          errors.ConfigError: If it cannot be made for another reason.
        """
        with quiet_gymnasium(), explained(self.name, self.spec):
            if self.spec is not None:
                kwargs = {"disable_env_checker": True, **self.make_kwargs}
                limit = -1 if self.max_episode_steps == 0 else self.max_episode_steps
                env = gymnasium.make(self.spec, max_episode_steps=limit, **kwargs)
            else:
                env = self.source(**self.make_kwargs)
                _require_environment(env, self.name)
                if self.max_episode_steps:
                    env = gymnasium.wrappers.TimeLimit(env, self.max_episode_steps)
            env = apply_wrappers(env, self.wrappers)
            refuse_running_statistics(env)
        return env


def environment_factory(
    source: EnvironmentSource,
    *,
    make_kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    wrappers: Sequence[WrapperLike] = (),
) -> EnvironmentFactory:
    """Checks the arguments and finds the environment, without making one yet.

    Raises:
      errors.ConfigError: If the id is unknown (with the nearest ids), a wrapper is unknown, or an
        argument makes no sense.
      errors.MissingExtraError: If the id belongs to a package that is not installed.
    """
    if max_episode_steps is not None and max_episode_steps < 0:
        raise errors.ConfigError(
            f"max_episode_steps is {max_episode_steps}: give a positive number, 0 for no limit, or "
            "None for the limit the environment is registered with"
        )
    if isinstance(source, str):
        name, resolved = source, find_spec(source)
    elif callable(source):
        name, resolved = _callable_name(source), source
    else:
        raise errors.ConfigError(
            f"env_id is {source!r}, a {type(source).__name__}: give a Gymnasium id such as "
            "'CartPole-v1', or a callable that returns a new gymnasium.Env at each call"
        )
    return EnvironmentFactory(
        name=name,
        source=resolved,
        make_kwargs=dict(make_kwargs or {}),
        max_episode_steps=max_episode_steps,
        wrappers=tuple(as_wrapper(wrapper) for wrapper in wrappers),
    )


def find_spec(env_id: str) -> registration.EnvSpec:
    """Returns the registered spec of `env_id` (`[module:][namespace/]name[-vN]`).

    A missing version means the highest one. Atari ids are registered by importing `ale_py` here.

    Raises:
      errors.ConfigError: If there is no such id; the message lists the nearest ones.
      errors.MissingExtraError: If the id is an Atari game and `ale_py` is not installed.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise errors.ConfigError(
                f"environment {env_id!r}: the module {module!r} that should register it cannot be "
                f"imported: {error}"
            ) from error
    spec = _lookup(name)
    if spec is None and _is_atari(name):
        gymnasium.register_envs(extras.require("ale_py", "atari"))
        spec = _lookup(name)
    if spec is None:
        raise errors.ConfigError(_unknown_id_message(name))
    return spec


def refuse_running_statistics(env: Any) -> None:
    """Refuses an environment in which a wrapper normalises by running statistics.

    Raises:
      errors.ConfigError: Names the wrapper, and the parameters to use instead.
    """
    while isinstance(env, (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)):
        _refuse_running_statistics(type(env), type(env).__name__)
        env = env.env


def as_wrapper(wrapper: WrapperLike) -> Callable[[gymnasium.Env], gymnasium.Env]:
    """Turns one entry of `wrappers` into a callable env -> env.

    Raises:
      errors.ConfigError: If it names no wrapper, or is something else, or normalises by running
        statistics.
    """
    if isinstance(wrapper, str):
        found = _wrapper_by_name(wrapper)
        _refuse_running_statistics(found, wrapper)
        return found
    if isinstance(wrapper, (tuple, list)) and len(wrapper) == 2 and isinstance(wrapper[1], Mapping):
        return functools.partial(as_wrapper(wrapper[0]), **wrapper[1])
    if callable(wrapper):
        inner = wrapper.func if isinstance(wrapper, functools.partial) else wrapper
        _refuse_running_statistics(inner, _callable_name(inner))
        return wrapper
    raise errors.ConfigError(
        f"{wrapper!r} is not a wrapper: give a callable env -> env, the name of one of "
        "gymnasium.wrappers, 'module:Class', or a pair (one of these, dict of keyword arguments)"
    )


def apply_wrappers(
    env: gymnasium.Env, wrappers: Sequence[Callable[[gymnasium.Env], gymnasium.Env]]
) -> gymnasium.Env:
    """Applies the wrappers in order, the last one outermost."""
    for wrapper in wrappers:
        env = wrapper(env)
        _require_environment(env, f"the wrapper {_callable_name(wrapper)}")
    return env


@contextlib.contextmanager
def quiet_gymnasium() -> Iterator[None]:
    """Keeps Gymnasium's and pygame's notices about themselves off the terminal."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "hide")
    with warnings.catch_warnings():
        for module in (r"gymnasium(\.|$)", r"pygame(\.|$)", r"pkg_resources(\.|$)"):
            warnings.filterwarnings("ignore", module=module)
        yield


@contextlib.contextmanager
def explained(name: str, spec: registration.EnvSpec | None) -> Iterator[None]:
    """Turns whatever goes wrong while making environment `name` into an error for the user."""
    try:
        yield
    except errors.ActorLearnerError:
        raise
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        entry_point = str(spec.entry_point) if spec is not None else ""
        for prefix, package, extra in _EXTRA_OF_ENTRY_POINT:
            if entry_point.startswith(prefix) and importlib.util.find_spec(package) is None:
                raise errors.MissingExtraError(
                    f"environment {name!r} needs {package}, which is not installed: "
                    f"{extras.install_command(extra)}"
                ) from error
        raise errors.MissingExtraError(
            f"environment {name!r} needs a package that cannot be imported: {error}"
        ) from error
    except Exception as error:
        raise errors.ConfigError(
            f"environment {name!r} cannot be made: {type(error).__name__}: {error}"
        ) from error


def _lookup(name: str) -> registration.EnvSpec | None:
    spec = gymnasium.registry.get(name)
    if spec is None and not re.search(r"-v\d+$", name):
        versions = [
            candidate
            for candidate in gymnasium.registry.values()
            if candidate.version is not None and candidate.id == f"{name}-v{candidate.version}"
        ]
        spec = max(versions, key=lambda candidate: candidate.version, default=None)
    return spec


def _is_atari(name: str) -> bool:
    return name.startswith("ALE/") or bool(_OLD_ATARI_ID.search(name))


def _unknown_id_message(name: str) -> str:
    ids = list(gymnasium.registry)
    lowered = {env_id.lower(): env_id for env_id in ids}
    near = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(lowered[key] for key in near)}? " if near else ""
    return (
        f"unknown environment id {name}: {hint}One of your own is written with the module that "
        f"registers it: 'my_module:{name}'"
    )


def _wrapper_by_name(name: str) -> Callable[[gymnasium.Env], gymnasium.Env]:
    module, _, attribute = name.rpartition(":")
    if module:
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise errors.ConfigError(f"wrapper {name!r} cannot be imported: {error}") from error
    if name.startswith("Vector") and name[len("Vector") :] in _RUNNING_STATISTICS:
        name = name[len("Vector") :]  # Refused alike, rather than called unknown.
    known = gymnasium.wrappers.__all__
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise errors.ConfigError(f"{name!r} is none of gymnasium.wrappers: {hint}")
    with explained(f"wrapper {name}", None):
        return getattr(gymnasium.wrappers, name)


def _refuse_running_statistics(wrapper: Any, name: str) -> None:
    """Raises if `wrapper` is one of Gymnasium's, or a class made from one."""
    if not isinstance(wrapper, type):
        return
    for kind in wrapper.__mro__:
        if kind.__name__ in _RUNNING_STATISTICS and kind.__module__.startswith("gymnasium."):
            parameter = _RUNNING_STATISTICS[kind.__name__]
            raise errors.ConfigError(
                f"the wrapper {name} keeps running statistics in each process: they are neither "
                "saved nor exported with the policy, and actors, evaluation and a resumed run "
                f"would each use their own. Leave it out and set the agent's {parameter} = True "
                f"(e.g. dqn.{parameter}): its statistics are part of the policy"
            )


def _require_environment(env: Any, origin: str) -> None:
    if not isinstance(env, gymnasium.Env):
        raise errors.ConfigError(
            f"{origin} returned a {type(env).__module__}.{type(env).__name__}, not a "
            "gymnasium.Env; environments of old Gym have to be ported or converted (shimmy does "
            "that)"
        )


def _callable_name(function: Any) -> str:
    if isinstance(function, functools.partial):
        return _callable_name(function.func)
    return getattr(function, "__qualname__", None) or type(function).__qualname__
