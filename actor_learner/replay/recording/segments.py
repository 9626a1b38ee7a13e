"""Cuts recorded rows into pieces of single lanes, of one length, that can be laid side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.recording import shards

FIRST, LAST = int(ts.StepType.FIRST), int(ts.StepType.LAST)

Segment = dict[str, np.ndarray]
"""Fields `[rows, ...]` of consecutive rows of one lane, by path."""


class RecordedSegments:
    """The rows of a recording as segments of `rows + overlap` consecutive rows of one lane.

    The next segment of a lane begins `rows` later: every window of `overlap + 1` rows that begins
    in the first `rows` rows of a segment lies inside it, and every row is the first of one such
    window. Only where a lane's rows end are segments shorter.

    Args:
      found: The shards of the recording, those that follow one another in order.
      paths: Fields to read.
      rows: Rows by which segments advance.
      overlap: Further rows of each segment.
      min_episode_return: Leaves out episodes whose rewards sum to less; None keeps all.
    """

    def __init__(
        self,
        found: Sequence[shards.Shard],
        paths: Sequence[str],
        rows: int,
        overlap: int,
        min_episode_return: float | None = None,
    ) -> None:
        self._paths = list(paths)
        self._rows = rows
        self._overlap = overlap
        self._min_episode_return = min_episode_return
        self._found = list(found)

    @property
    def max_segments(self) -> int:
        """How many segments there are at most."""
        # A shard may turn out unreadable, which cuts its lanes in two.
        return sum(
            shard.num_lanes * (-(-shard.num_rows // self._rows) + 1) for shard in self._found
        )

    def __iter__(self) -> Iterator[Segment]:
        for group in shards.contiguous(self._found):
            if self._min_episode_return is None:
                yield from self._cut([(shard, None) for shard in group])
            else:
                for whole, kept in keep_good_episodes(group, self._min_episode_return):
                    yield from self._cut(list(zip(whole, kept)))

    def _cut(self, group: list[tuple[shards.Shard, np.ndarray | None]]) -> Iterator[Segment]:
        """Segments of consecutive shards; each with the rows `[rows, lanes]` to keep, or all."""
        waiting: list[Segment] = [{}] * group[0][0].num_lanes  # Rows not yet emitted, by lane.
        for shard, keep in group:
            fields = shards.read(shard, self._paths)
            if fields is None:
                for segment in waiting:
                    yield from self._finish(segment)
                waiting = [{}] * shard.num_lanes
                continue
            for lane in range(shard.num_lanes):
                new = {
                    path: field[:, lane] if keep is None else field[keep[:, lane], lane]
                    for path, field in fields.items()
                }
                segment = join(waiting[lane], new)
                while num_rows(segment) >= self._rows + self._overlap:
                    yield head(segment, self._rows + self._overlap)
                    segment = tail(segment, self._rows)
                waiting[lane] = segment
        for segment in waiting:
            yield from self._finish(segment)

    def _finish(self, segment: Segment) -> Iterator[Segment]:
        """The rest of a lane. A single row is not a transition."""
        while num_rows(segment) > 1:
            yield head(segment, self._rows + self._overlap)
            segment = tail(segment, self._rows)


def keep_good_episodes(
    group: list[shards.Shard], min_return: float
) -> Iterator[tuple[list[shards.Shard], list[np.ndarray]]]:
    """Marks the rows of episodes that are good enough.

    Args:
      group: Consecutive shards.
      min_return: Smallest sum of rewards of an episode that is kept. Of an episode whose beginning
        or end is not recorded, the recorded rewards count.

    Yields:
      Shards that are still consecutive without those that cannot be read, and for each of them the
      rows to keep, `[rows, lanes]`.
    """
    readable, fields = [], []
    for shard in group:
        read = shards.read(shard, ["step_type", "reward"])
        if read is not None:
            readable.append(shard)
            fields.append(read)
    start = 0
    for whole in shards.contiguous(readable):
        part = fields[start : start + len(whole)]
        start += len(whole)
        step_type, reward = (
            np.concatenate([field[name] for field in part]) for name in ("step_type", "reward")
        )
        keep = episode_returns(step_type, reward) >= min_return
        yield whole, np.split(keep, np.cumsum([shard.num_rows for shard in whole])[:-1])


def episode_returns(step_type: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """For each row, the sum of the rewards of the episode that it belongs to.

    An episode reaches from its FIRST row to its LAST, which is the boundary step to the next
    episode and whose reward does not count.

    Args:
      step_type: `[rows, lanes]`.
      reward: `[rows, lanes]`, of the step that leaves each row.
    """
    number = np.cumsum(step_type == FIRST, axis=0)  # Of the row's episode, in its lane.
    lanes = step_type.shape[1]
    totals = np.zeros((number.max(initial=0) + 1, lanes), np.float64)
    counted = np.where(step_type == LAST, 0.0, reward)
    lane = np.broadcast_to(np.arange(lanes), step_type.shape)
    np.add.at(totals, (number, lane), counted)
    return totals[number, lane]


def num_rows(segment: Segment) -> int:
    return len(next(iter(segment.values()))) if segment else 0


def head(segment: Segment, count: int) -> Segment:
    return {path: field[:count] for path, field in segment.items()}


def tail(segment: Segment, start: int) -> Segment:
    return {path: field[start:] for path, field in segment.items()}


def join(first: Segment, second: Segment) -> Segment:
    if not first:
        return second
    return {path: np.concatenate([first[path], second[path]]) for path in second}
