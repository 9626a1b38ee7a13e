"""Subclasses written for TF-Agents' observers write the same items when they derive from ours."""

from __future__ import annotations

import logging as python_logging

import numpy as np
import pytest
import reverb
import tree
from absl import logging
from tf_agents.replay_buffers import reverb_utils

from actor_learner.replay import observers
from actor_learner.replay.server import signatures, tables
from actor_learner.support import errors
from tests.replay import lane_steps


def fixed_length(module):
    """Windows over boundaries, as the published PPO script writes them."""

    class FixedLength(module.ReverbAddTrajectoryObserver):
        def __call__(self, trajectory):
            self._writer.append(trajectory)
            self._cached_steps += 1
            self._write_cached_steps()

    return FixedLength, dict(sequence_length=3, stride_length=3)


def recording_the_last_trajectory(module):
    """Cuts and pads through `reset`, which looks at the last trajectory."""

    class Recording(module.ReverbAddTrajectoryObserver):
        def __call__(self, trajectory):
            self._last_trajectory = trajectory
            self._get_writer().append(trajectory)
            self._cached_steps += 1
            self._write_cached_steps()
            if trajectory.is_boundary():
                self.reset(write_cached_steps=self._pad_end_of_episodes)

    return Recording, dict(sequence_length=4, pad_end_of_episodes=True)


def own_padding(module):
    """Leaves writing to the parent, and pads with the last observation instead of zeros."""

    class OwnPadding(module.ReverbAddTrajectoryObserver):
        def _get_padding_step(self, example_trajectory):
            zeros = super()._get_padding_step(example_trajectory)
            return zeros._replace(observation=example_trajectory.observation)

    return OwnPadding, dict(sequence_length=3, pad_end_of_episodes=True, tile_end_of_episodes=True)


def own_items(module):
    """Makes its items itself, of slices of the history, for every second window."""

    class OwnItems(module.ReverbAddTrajectoryObserver):
        def _sequence_lengths_reached(self):
            return super()._sequence_lengths_reached() and self._cached_steps % 2 == 0

        def _write_cached_steps(self):
            if not self._sequence_lengths_reached():
                return
            item = tree.map_structure(
                lambda column: column[-self._sequence_length :], self._get_writer().history
            )
            for table in self._table_names:
                self._get_writer().create_item(
                    table=table, trajectory=item, priority=self._priority + self._cached_steps
                )

    return OwnItems, dict(sequence_length=2, stride_length=1)


def long_episodes_only(module):
    """Writes an episode only if it is long enough."""

    class LongEpisodes(module.ReverbAddEpisodeObserver):
        def _write_cached_steps(self):
            if self._cached_steps < 4:
                self._writer_has_data = False
            super()._write_cached_steps()

    return LongEpisodes, dict(max_sequence_length=9)


def own_overflow(module):
    """Skips the rest of a long episode by the parent's own flag."""

    class OwnOverflow(module.ReverbAddEpisodeObserver):
        def __call__(self, trajectory):
            if self._cached_steps >= 3:
                self._overflow_episode = True
            super().__call__(trajectory)

    return OwnOverflow, dict(max_sequence_length=9)


SUBCLASSES = [
    fixed_length,
    recording_the_last_trajectory,
    own_padding,
    own_items,
    long_episodes_only,
    own_overflow,
]


@pytest.fixture
def client():
    server = reverb.Server([tables.queue_table("ours", 100), tables.queue_table("theirs", 100)])
    yield server.localhost_client()
    server.stop()


def samples(client, table):
    size = client.server_info(5)[table].current_size
    return list(client.sample(table, size, emit_timesteps=False)) if size else []


def written(client, table, module, subclass, steps):
    observer_class, arguments = subclass(module)
    observer = observer_class(client, table, **arguments)
    for step in steps:
        observer(step)
    observer.flush()
    items = samples(client, table)
    observer.reset(write_cached_steps=False)
    observer.close()
    assert observer._writer is None
    return items


@pytest.mark.parametrize("subclass", SUBCLASSES, ids=lambda subclass: subclass.__name__)
def test_a_subclass_of_ours_writes_the_items_of_the_same_subclass_of_theirs(client, subclass):
    steps = lane_steps.steps([2, 5, 1])
    theirs = written(client, "theirs", reverb_utils, subclass, steps)
    ours = written(client, "ours", observers, subclass, steps)

    assert len(ours) == len(theirs) > 0
    for mine, reference in zip(ours, theirs):
        assert mine.info.priority == reference.info.priority
        for column, expected in zip(mine.data, reference.data):
            np.testing.assert_array_equal(column, expected)


def test_attributes_that_subclasses_read_have_the_values_of_theirs(client):
    arguments = dict(sequence_length=3, stride_length=2, pad_end_of_episodes=True)
    pair = [
        module.ReverbAddTrajectoryObserver(client, table, **arguments)
        for module, table in ((observers, "ours"), (reverb_utils, "theirs"))
    ]
    for step in lane_steps.steps([6])[:4]:
        for observer in pair:
            observer(step)
        ours, theirs = pair
        for name in ("_cached_steps", "_sequence_length", "_stride_length", "_priority"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours._sequence_lengths_reached() == theirs._sequence_lengths_reached()
        tree.map_structure(
            np.testing.assert_array_equal, ours._last_trajectory, theirs._last_trajectory
        )
        tree.map_structure(
            lambda mine, reference: np.testing.assert_array_equal(mine, np.asarray(reference)),
            ours._get_padding_step(step),
            theirs._get_padding_step(step),
        )
        assert [len(column) for column in tree.flatten(ours._get_writer().history)] == [
            len(column) for column in tree.flatten(theirs._get_writer().history)
        ]
    for observer in pair:
        observer.reset(write_cached_steps=False)
        assert (observer._cached_steps, observer._last_trajectory) == (0, None)
        observer.close()


def test_overridden_hooks_see_one_lane_at_a_time(client):
    observer_class, arguments = own_padding(observers)
    with observer_class(client, "ours", **arguments) as observer:
        for step in lane_steps.batched([lane_steps.steps([2], lane) for lane in (1, 2)]):
            observer(step)

    items = lane_steps.counts(sample.data for sample in samples(client, "ours"))
    padded = [(0, 1, 2), (1, 2, 2), (2, 2, 2)]  # Of F M L, padded with L's observation.
    expected = [tuple(1000 * lane + 10 + t for t in item) for item in padded for lane in (1, 2)]
    assert sorted(items) == sorted(expected)


def test_a_subclass_that_writes_single_steps_is_told_how_to_see_many_lanes(client):
    observer_class, arguments = fixed_length(observers)
    with observer_class(client, "ours", **arguments) as observer:
        with pytest.raises(errors.SpecMismatchError, match=r"shape \[2\].*PerLaneObserver"):
            observer(lane_steps.batched([lane_steps.steps([2], lane) for lane in (1, 2)])[0])


def test_the_steps_of_a_subclass_are_checked_against_the_table():
    first = lane_steps.steps([2])[0]
    other = first._replace(reward=np.zeros((), np.float64))
    signature = signatures.window_signature(first, 3)
    server = reverb.Server([tables.queue_table("signed", 10, signature=signature)])
    observer_class, arguments = fixed_length(observers)
    try:
        with observer_class(server.localhost_client(), "signed", **arguments) as observer:
            with pytest.raises(errors.SpecMismatchError, match="reward.*float32.*float64"):
                observer(other)
    finally:
        server.stop()


class _Records(python_logging.Handler):
    def __init__(self):
        super().__init__()
        self.levels = []

    def emit(self, record):
        if "began before the last one had ended" in record.getMessage():
            self.levels.append(record.levelname)


@pytest.fixture
def takeovers(monkeypatch):
    """The levels of what the log says about episodes that were cut off."""
    monkeypatch.setattr(logging, "_log_counter_per_token", {})
    handler = _Records()
    logger = logging.get_absl_logger()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(python_logging.INFO)
    yield handler.levels
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_an_actor_that_takes_over_is_no_cause_for_a_warning(client, takeovers):
    with observers.ReverbAddTrajectoryObserver(client, "ours", 2) as observer:
        for step in lane_steps.steps([5])[:3] + lane_steps.steps([3]):
            observer(step)
    assert takeovers == ["INFO"]


def test_an_environment_that_is_reset_again_and_again_is(client, takeovers):
    with observers.ReverbAddTrajectoryObserver(client, "ours", 2) as observer:
        for step in 5 * lane_steps.steps([5])[:3]:
            observer(step)
    assert takeovers == ["INFO", "WARNING"]
