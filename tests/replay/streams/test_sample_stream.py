"""What all streams promise: the name of their table, and tables that can be made again."""

import gin
import pytest

from actor_learner.replay.recording import experience_recorder
from actor_learner.replay.server import server, tables
from actor_learner.replay.streams import (
    lane_replay,
    mixed_replay,
    prioritized_replay,
    recorded_replay,
    sample_stream,
    seeded_replay,
    sequence_replay,
    unroll_queue,
    window_replay,
)
from actor_learner.support import errors
from tests.replay import lane_steps
from tests.replay.recording import test_recording
from tests.replay.streams import test_prioritized_replay

SPEC = test_prioritized_replay.data_spec()
EXPERIENCE = sample_stream.Experience(SPEC, 2, 1, 0.5)


@pytest.fixture(autouse=True)
def _clear_gin():
    yield
    gin.clear_config()


@pytest.fixture
def recorded(tmp_path):
    with experience_recorder.ExperienceRecorder(
        tmp_path, test_recording.counted_spec(), 1
    ) as recorder:
        for row in lane_steps.batched([lane_steps.steps([3])]):
            recorder(row)
    return recorded_replay.RecordedReplay(str(tmp_path), table_name="demonstrations")


@pytest.mark.parametrize(
    "stream",
    [
        lane_replay.LaneReplay(),
        prioritized_replay.PrioritizedReplay(rate_limiter=tables.min_size),
        seeded_replay.SeededReplay(),
        sequence_replay.SequenceReplay(),
        unroll_queue.UnrollQueue(unroll_length=4),
        window_replay.WindowReplay(),
    ],
    ids=lambda stream: type(stream).__name__,
)
def test_every_call_makes_tables_of_its_own_and_the_first_is_named(stream):
    several = [stream.tables(EXPERIENCE) for _ in range(3)]
    assert {made[0].name for made in several} == {stream.table_name}


def test_recorded_and_mixed_streams_are_named_after_what_they_hold(recorded):
    assert recorded.table_name == recorded.tables(EXPERIENCE)[0].name == "demonstrations"
    mixed = mixed_replay.MixedReplay([lane_replay.LaneReplay(), recorded], [1, 1])
    assert mixed.table_name == mixed.tables(EXPERIENCE)[0].name == lane_replay.TABLE


@pytest.mark.parametrize(
    "binding",
    [
        "PrioritizedReplay.rate_limiter = @min_size",
        "prioritized_table.rate_limiter = @min_size()\nSequenceReplay.table = @prioritized_table",
        "uniform_table.rate_limiter = @min_size()\nLaneReplay.table = @uniform_table",
        "uniform_table.rate_limiter = @min_size()\nWindowReplay.table = @uniform_table",
    ],
)
def test_a_rate_limiter_bound_from_gin_holds_in_every_table_that_is_made(binding):
    gin.parse_config(binding + "\nmin_size.min_size = 3")
    kinds = (
        prioritized_replay.PrioritizedReplay,
        sequence_replay.SequenceReplay,
        lane_replay.LaneReplay,
        window_replay.WindowReplay,
    )
    (kind,) = (kind for kind in kinds if kind.__name__ + "." in binding)
    stream = kind()
    compared = stream.tables(EXPERIENCE)  # As jobs do that only look at the signatures.
    with server.ReplayServer(stream.tables(EXPERIENCE)) as running:
        info = running.client().server_info(5)[stream.table_name]
        assert info.rate_limiter_info.min_size_to_sample == 3
    assert compared[0].info.rate_limiter_info.min_size_to_sample == 3


def test_a_rate_limiter_of_another_table_is_refused_instead_of_ending_the_process():
    shared = tables.min_size(1)
    first = tables.uniform_table("first", 10, rate_limiter=shared)
    with pytest.raises(errors.ConfigError, match="'second' serves another table already"):
        tables.uniform_table("second", 10, rate_limiter=shared)
    assert first.name == "first"


def test_prioritized_replay_refuses_a_rate_limiter_that_is_built_already():
    with pytest.raises(errors.ConfigError, match="@min_size, without parentheses"):
        prioritized_replay.PrioritizedReplay(rate_limiter=tables.min_size(1))
