"""`Collecting`: how a policy acts while it collects, and what is sent of what it meets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from actor_learner.support import configurable, errors


@configurable.register
class Collecting:
    """Says how a trained policy collects: that of `Experiment.agent`, of one agent or of many.

    A further policy of a world has the same settings in its `AgentSpec`.

    Args:
      deterministic_action: Act greedily while collecting, once the random steps are taken: as in
        evaluations. For agents that learn from any policy's experience.
      sample_steps: Together with the next two: an item is `burn_in_steps + sample_steps +
        bootstrap_steps` consecutive steps of a lane, and the next one begins `sample_steps` later.
        Of `UnrollQueue` and `SequenceReplay`, whose own lengths it replaces. None leaves these.
      bootstrap_steps: None is the agent's `n_step`; 1, the observation alone, for unrolls.
      burn_in_steps: None is what the agent says, such as `r2d2.burn_in`, with which it must agree.
      tables: Names of the tables that every item goes to, several for several readers. The first
        is the learner's, and replaces the name that its stream has given it; each of the others
        keeps the latest items for whoever reads them, and never makes the actor wait.
      copy_size: Items that each of the others keeps; None is as many as the first.
      send_full_trajectory: An item of `SequenceReplay` is a whole episode, of as many steps as a
        window or its `sequence_length` has, or fewer; an episode with more is an error.
      pad_trajectory: With it: fill such items up where they are written, with steps of zeros that
        nobody learns from, so that all in the table have one length. Otherwise they have as many
        blocks (of `SequenceReplay.period`, if `sequence_length` is a multiple) as their episode
        needs, and are filled up in the learner's batches.
      send_concise_info: Also write one row for each episode: its `lane`, `return` and `length` (of
        agents that take turns, in turns of the world), whether it was `terminated`, and the
        `version` of the policy. They are in the table `episodes`, of a further policy in
        `NAME-episodes`, which keeps the latest 10,000; `read_episodes` takes them out.
      send_after_done: Send an episode when it has ended, and nothing of one that has not. Lanes are
        then written one by one, which costs time, and whole episodes are held in memory.
      postprocessors: Functions that an episode goes through before it is sent, one after the other;
        implies `send_after_done`. `@discounted_return`, `@n_step_return`, `@gae`, or a function of
        your own that takes a `Trajectory` of NumPy arrays `[T + 1, ...]`, with the final
        observation in row T, and returns one with as many rows: fields may change, and more be in
        `policy_info`.
    """

    def __init__(
        self,
        *,
        deterministic_action: bool = False,
        sample_steps: int | None = None,
        bootstrap_steps: int | None = None,
        burn_in_steps: int | None = None,
        tables: Sequence[str] = (),
        copy_size: int | None = None,
        send_full_trajectory: bool = False,
        pad_trajectory: bool = False,
        send_concise_info: bool = False,
        send_after_done: bool = False,
        postprocessors: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        lengths = {
            "sample_steps": (sample_steps, 1),
            "bootstrap_steps": (bootstrap_steps, 1),
            "burn_in_steps": (burn_in_steps, 0),
        }
        for name, (value, least) in lengths.items():
            if value is None:
                continue
            if value != int(value) or value < least:
                raise errors.ConfigError(
                    f"{name} must be a whole number, {least} or more, got {value!r}"
                )
            if sample_steps is None:
                raise errors.ConfigError(
                    f"{name} is {value}, but sample_steps, the steps between two items, is not set"
                )
        self.deterministic_action = deterministic_action
        self.sample_steps = sample_steps
        self.bootstrap_steps = bootstrap_steps
        self.burn_in_steps = burn_in_steps
        self.tables = _table_names(tables)
        if copy_size is not None:
            if len(self.tables) < 2:
                raise errors.ConfigError(
                    f"copy_size is {copy_size}, but tables names no table besides the learner's"
                )
            if copy_size != int(copy_size) or copy_size < 1:
                raise errors.ConfigError(f"copy_size must be 1 or more, got {copy_size!r}")
        self.copy_size = copy_size
        if pad_trajectory and not send_full_trajectory:
            raise errors.ConfigError(
                "pad_trajectory is set without send_full_trajectory: windows that an episode does "
                "not fill are filled up in any case"
            )
        self.send_full_trajectory = send_full_trajectory
        self.pad_trajectory = pad_trajectory
        self.send_concise_info = send_concise_info
        for postprocessor in postprocessors:
            if not callable(postprocessor):
                raise errors.ConfigError(
                    f"postprocessors has {postprocessor!r}; each must be a function that takes an "
                    "episode, without calling it: [@discounted_return]"
                )
        self.postprocessors = tuple(postprocessors)
        self.after_done = send_after_done or bool(self.postprocessors)


def _table_names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise errors.ConfigError(f"tables is {names!r}; it must be a list of names: [{names!r}]")
    for name in names:
        if not isinstance(name, str) or not name or "@" in name:
            raise errors.ConfigError(
                f"tables has {name!r}; names must be texts that are not empty, without '@', behind "
                "which a run writes its id"
            )
    if len(set(names)) < len(names):
        raise errors.ConfigError(f"tables names one twice: {list(names)}")
    return tuple(names)
