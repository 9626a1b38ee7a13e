"""Between the variables of a policy and arrays by name; and warm starts.

store.push("policy", variables.values_of(agent.policy), version)
variables.assign(policy, store.get("policy").values)
variables.warm_start(agent, "runs/earlier")
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner.parameters import archive, parameter_errors, sources, store
from actor_learner.support import errors

_SAVED_MODEL_KEY = re.compile(r"model_variables/(\d+)/\.ATTRIBUTES/VARIABLE_VALUE\Z")
_MOST_DIFFERENCES_SHOWN = 10


def named_variables(subject: Any) -> dict[str, tf.Variable]:
    """The variables of `subject` under names that are the same in every process.

    Keras numbers its layers through a whole process (`dense_7`), so the numbers are left out; equal
    names are told apart by their order: `dense/kernel`, `dense/kernel#2`.

    Args:
      subject: An agent, for its policy; a policy; or any nest of variables.
    """
    if hasattr(subject, "collect_policy"):
        subject = subject.policy
    variables = getattr(subject, "variables", subject)
    variables = variables() if callable(variables) else variables
    named: dict[str, tf.Variable] = {}
    times: dict[str, int] = {}
    for variable in tf.nest.flatten(variables):
        if not isinstance(variable, tf.Variable):
            raise TypeError(
                f"expected an agent, a policy or variables; got {type(variable).__name__} in "
                f"{type(subject).__name__}"
            )
        name = _without_numbers(variable.name)
        times[name] = times.get(name, 0) + 1
        named[name if times[name] == 1 else f"{name}#{times[name]}"] = variable
    return named


def values_of(subject: Any) -> dict[str, np.ndarray]:
    """Copies of the values of all variables of `subject`, by `named_variables`' names."""
    return {name: np.array(variable) for name, variable in named_variables(subject).items()}


def assign(subject: Any, values: Mapping[str, Any], *, source: str = "the given values") -> None:
    """Gives the variables of `subject` these values; all of them, or none if any does not fit.

    Args:
      subject: As for `named_variables`.
      values: An array for each variable, no more.
      source: Where they come from, for errors.

    Raises:
      errors.SpecMismatchError: Names the variables that are missing, unknown, or of another shape
        or type.
    """
    variables = named_variables(subject)
    arrays = {name: np.asarray(value) for name, value in values.items()}
    differences = _differences(variables, arrays)
    if differences:
        shown = "".join(f"\n  {line}" for line in differences[:_MOST_DIFFERENCES_SHOWN])
        more = len(differences) - _MOST_DIFFERENCES_SHOWN
        raise errors.SpecMismatchError(
            f"{source} does not fit these {len(variables)} variables:{shown}"
            + (f"\n  and {more} more" if more > 0 else "")
            + "\nThe networks, or what they observe and do, differ from those it was taken from."
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])


def warm_start(subject: Any, source: str | os.PathLike, *, name: str = "policy") -> str:
    """Begins from what was learned before; of other runs, or of this one.

    Only what `subject` holds is set: of an agent its policy, so that value networks that the policy
    does not use, and the optimizer, start from scratch. Do it before the agent is initialized
    (`Learner` does that), so that target networks are copied from what was assigned.

    Args:
      subject: As for `named_variables`.
      source: A run directory, the directory of a store, `directory:name@tag`, a file of parameters
        or an exported policy; see `sources.find`.
      name: Whose parameters, where `source` does not say.

    Returns:
      What was used, for people to read.

    Raises:
      parameter_errors.ParameterError: If there are no such parameters, or they are damaged.
      errors.SpecMismatchError: If they do not fit; nothing was assigned then.
    """
    found = sources.find(source, name)
    if isinstance(found, sources.StoreSource):
        parameters = store.ParameterStore(found.directory).get(found.name, found.identifier)
        used = f"version {parameters.version} of {found.name!r} in {found.directory}"
        values = parameters.values
    elif isinstance(found, sources.FileSource):
        header, values = _read_file(found.path)
        used = f"version {header.version} of {header.name!r} in {found.path}"
    else:
        used = f"the exported policy {found.path}"
        values = _read_saved_model(found.path, list(named_variables(subject)))
    assign(subject, values, source=used)
    logging.info("Warm start from %s.", used)
    return used


def _differences(
    variables: Mapping[str, tf.Variable], arrays: Mapping[str, np.ndarray]
) -> list[str]:
    """How arrays differ from what the variables need, one line each."""
    lines = []
    for name, variable in variables.items():
        needed = (variable.dtype.name, tuple(variable.shape))
        if name not in arrays:
            lines.append(f"{name} {_kind(*needed)} is missing")
            continue
        given = (arrays[name].dtype.name, arrays[name].shape)
        if given != needed:
            lines.append(f"{name} must be {_kind(*needed)}, and is {_kind(*given)}")
    for name in arrays:
        if name not in variables:
            lines.append(f"{name} is there, but not among the variables")
    return lines


def _kind(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"


def _without_numbers(name: str) -> str:
    """`QNetwork/dense_7/kernel:0` without the output's number and that of the process."""
    return "/".join(re.sub(r"_\d+\Z", "", part) for part in name.split(":")[0].split("/"))


def _read_file(path: pathlib.Path) -> tuple[archive.Header, dict[str, np.ndarray]]:
    try:
        return archive.read(path)
    except OSError as error:
        raise parameter_errors.ParameterError(f"{path} cannot be read: {error}") from error


def _read_saved_model(path: pathlib.Path, names: list[str]) -> dict[str, np.ndarray]:
    """The values of an exported policy, which keeps their order and not their names."""
    prefix = os.path.join(path, "variables", "variables")
    try:
        reader = tf.train.load_checkpoint(prefix)
        keys = filter(None, map(_SAVED_MODEL_KEY.match, reader.get_variable_to_shape_map()))
        values = [reader.get_tensor(key[0]) for key in sorted(keys, key=lambda key: int(key[1]))]
    # TensorFlow reports damage as its own errors, IndexError, ValueError or RuntimeError.
    except Exception as error:  # noqa: BLE001
        raise parameter_errors.DamagedParametersError(
            f"the variables of the exported policy {path} cannot be read: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not values:
        raise parameter_errors.ParametersNotFoundError(
            f"{path} is a SavedModel, but not of a policy: it has no model_variables"
        )
    names = names[: len(values)] + [f"variable {i}" for i in range(len(names), len(values))]
    return dict(zip(names, values))
