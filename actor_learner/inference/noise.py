"""Random numbers for the lanes of a group, from a generator for each lane.

What a lane draws depends on the seed and on the lane's number, and on nothing else: not on how many
lanes are stepped with it, nor on what those draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import numpy as np

_BLOCK_STEPS = 1024  # A generator's call takes as long as some hundred of its numbers.
_BLOCK_NUMBERS = 2**22  # 16 MB of float32.


class Draw(NamedTuple):
    """Random numbers that a policy draws in every step.

    Attributes:
      kind: "uniform" in [0, 1), "normal" with mean 0 and variance 1, "gumbel", or "integers".
      shape: Of all lanes' numbers.
      dtype: Of the numbers.
      limits: Of integers: the smallest, and one more than the largest.
      lanes_axis: The axis of `shape` that lanes lie along, each with as many entries in a row as
        any other; None if all lanes share the numbers.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: Any
    limits: tuple[int, ...] = ()
    lanes_axis: int | None = None


def with_lanes_axes(
    draws: Sequence[Draw], num_lanes: int, draws_of: Callable[[int], Sequence[Draw]]
) -> list[Draw]:
    """The draws with their `lanes_axis`.

    Args:
      draws: What a policy draws for so many lanes.
      num_lanes: Lanes of a step.
      draws_of: Returns what it draws for another number of lanes, in the same order. It is called
        only where shapes leave a doubt, such as `[3, 3]` of three lanes, and raises where there is
        no telling.
    """
    others: Sequence[Draw] | None = None
    result = []
    for number, draw in enumerate(draws):
        axes = [axis for axis, size in enumerate(draw.shape) if size and size % num_lanes == 0]
        if len(axes) > 1 and num_lanes > 1:
            others = draws_of(num_lanes + 1) if others is None else others
            axes = [axis for axis in axes if others[number].shape[axis] != draw.shape[axis]]
        result.append(draw._replace(lanes_axis=axes[0] if axes else None))
    return result


class LaneNoise:
    """Draws for one step after another, made in blocks of many steps.

    Args:
      draws: What is drawn in every step.
      num_lanes: Lanes of a step.
      seed: Of the generators.
      first_lane: Number of the first lane among all that share the seed.

    Attributes:
      blocks: For each draw, the numbers of many steps, `[steps, *shape]`; `next_step` says which
        of these is next. Overwritten when all are used up.
    """

    def __init__(
        self, draws: Sequence[Draw], num_lanes: int, seed: int, first_lane: int = 0
    ) -> None:
        self._draws = tuple(draws)
        self._num_lanes = num_lanes
        numbers = sum(int(np.prod(draw.shape)) for draw in draws)
        self._steps = max(1, min(_BLOCK_STEPS, _BLOCK_NUMBERS // max(1, numbers)))
        self.blocks = [np.zeros((self._steps, *draw.shape), draw.dtype) for draw in draws]
        # A generator per draw as well: what one draws must not depend on the length of a block.
        self._generators = [
            [
                np.random.default_rng([seed, number, lane])
                for lane in _lanes(draw, first_lane, num_lanes)
            ]
            for number, draw in enumerate(draws)
        ]
        self._next = self._steps

    def next_step(self) -> int:
        """The position in `blocks` of the next step's numbers, which are then used up."""
        position = self._next
        if position == self._steps:
            self._fill()
            position = 0
        self._next = position + 1
        return position

    def _fill(self) -> None:
        for draw, block, generators in zip(self._draws, self.blocks, self._generators):
            if draw.lanes_axis is None:
                block[...] = _numbers(generators[0], draw, block.shape)
                continue
            axis = draw.lanes_axis
            size = draw.shape[axis] // self._num_lanes
            outer, inner = draw.shape[:axis], draw.shape[axis + 1 :]
            lanes = block.reshape((self._steps, *outer, self._num_lanes, size, *inner))
            lanes = np.moveaxis(lanes, 1 + len(outer), 0)  # [lanes, steps, ...]
            # Lane by lane in memory first: a lane's steps are far apart in the block.
            numbers = np.empty(lanes.shape, draw.dtype)
            for lane, generator in enumerate(generators):
                numbers[lane] = _numbers(generator, draw, lanes.shape[1:])
            lanes[...] = numbers


def _lanes(draw: Draw, first_lane: int, num_lanes: int) -> range:
    # Numbers that all lanes share are those of the group's first lane.
    return range(first_lane, first_lane + (1 if draw.lanes_axis is None else num_lanes))


def _numbers(generator: np.random.Generator, draw: Draw, shape: tuple[int, ...]) -> np.ndarray:
    if draw.kind == "integers":
        return generator.integers(*draw.limits, shape, draw.dtype)
    if draw.kind == "normal":
        return generator.standard_normal(shape, draw.dtype)
    if draw.kind == "uniform":
        return generator.random(shape, draw.dtype)
    if draw.kind == "gumbel":
        # Of exponential numbers there are some of exactly 0, whose logarithm would be infinite.
        tiny = np.finfo(np.float32).tiny
        return -np.log(np.maximum(generator.standard_exponential(shape, draw.dtype), tiny))
    raise ValueError(f"no numbers are of the kind {draw.kind!r}")
