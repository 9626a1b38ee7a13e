"""Worlds made of PettingZoo's own classes, wrapped as its worlds are."""

from pettingzoo import ParallelEnv
from pettingzoo.utils import conversions, wrappers

from actor_learner.environments import spread


class ParallelSpread(spread.Spread, ParallelEnv):
    """`Spread` as a `ParallelEnv`."""

    render_mode = None


def parallel():
    return ParallelSpread(max_steps=7)


def turns():
    """The same by turns, with PettingZoo's wrapper that refuses calls out of order."""
    return wrappers.OrderEnforcingWrapper(conversions.parallel_to_aec(parallel()))
