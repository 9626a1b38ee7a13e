"""The checks of a TF-Agents PyEnvironment, batched or not."""

from __future__ import annotations

from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from actor_learner.environments import check_values

_FIRST, _LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)
_REPRODUCED_STEPS = 50


def check(
    env: py_environment.PyEnvironment,
    findings: check_values.Findings,
    *,
    num_steps: int,
    seed: int,
) -> None:
    """Adds the violations of `env` to `findings`."""
    outer_dims = (env.batch_size,) if env.batched else ()
    spec = array_spec.add_outer_dims_nest(env.time_step_spec(), outer_dims)
    rng = np.random.RandomState(seed)

    def random_action() -> Any:
        return array_spec.sample_spec_nest(env.action_spec(), rng, outer_dims=outer_dims)

    if not _run(env, spec, findings, random_action, num_steps):
        return
    actions = [random_action() for _ in range(_REPRODUCED_STEPS)]
    first, second = (_rollout(env, findings, seed, actions) for _ in range(2))
    if first is None or second is None:
        return
    for step, (one, other) in enumerate(zip(first, second)):
        if not check_values.same(tuple(one), tuple(other)):
            findings.add(
                "reproducible",
                f"seed({seed}), reset() and the same actions gave something else the second time, "
                f"from step {step} on",
            )
            return


def _run(
    env: py_environment.PyEnvironment,
    spec: ts.TimeStep,
    findings: check_values.Findings,
    random_action: Any,
    num_steps: int,
) -> bool:
    """Returns whether all steps could be taken."""
    memory = check_values.Memory(())
    previous = None
    for step in range(num_steps + 1):
        where = "the first reset" if step == 0 else f"step {step}"
        try:
            time_step = env.reset() if step == 0 else env.step(random_action())
        except Exception as error:
            findings.add(("raised", type(error)), f"{where} raised {type(error).__name__}: {error}")
            return False
        if memory.changed():
            findings.add(
                "aliasing",
                "the arrays of a TimeStep are written again after it was returned: return a copy, "
                f"or earlier observations change ({where})",
            )
        if not isinstance(time_step, ts.TimeStep):
            findings.add("type", f"{where} returned a {type(time_step).__name__}, not a TimeStep")
            return False
        memory = check_values.Memory(time_step)
        for field in ts.TimeStep._fields:
            check_values.check_nest(
                getattr(spec, field), getattr(time_step, field), field, findings, where=where
            )
        step_type = np.asarray(time_step.step_type)
        _check_order(previous, step_type, findings, where)
        previous = step_type
    return True


def _check_order(
    previous: Any, step_type: np.ndarray, findings: check_values.Findings, where: str
) -> None:
    first = step_type == _FIRST
    if previous is None:
        if not np.all(first):
            findings.add("reset", f"reset() gave step type {step_type}, not FIRST ({where})")
    elif np.any((previous == _LAST) & ~first):
        findings.add(
            "after last",
            f"the step after LAST gave step type {step_type}: it must reset and give FIRST "
            f"({where})",
        )
    elif np.any((previous != _LAST) & first):
        findings.add(
            "sudden first", f"an episode began though the one before had not ended ({where})"
        )


def _rollout(
    env: py_environment.PyEnvironment,
    findings: check_values.Findings,
    seed: int,
    actions: list[Any],
) -> list[ts.TimeStep] | None:
    """Returns what happened; None if the environment has no seeds, or raised (a finding)."""
    try:
        env.seed(seed)
        return [env.reset(), *(env.step(action) for action in actions)]
    except NotImplementedError:
        return None  # A PyEnvironment need not have seeds.
    except Exception as error:
        findings.add(("raised", type(error)), f"{type(error).__name__} after seed({seed}): {error}")
        return None
