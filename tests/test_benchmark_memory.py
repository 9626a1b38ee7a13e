"""The benchmark of memory: what the replay server keeps per step, measured."""

import pytest

from benchmarks import memory, settings


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_memory_is_measured_of_ours_and_of_what_tf_agents_would_store(monkeypatch):
    cases = {name: memory.CASES[name] for name in (memory.VECTOR, memory.SEQUENCES)}
    monkeypatch.setattr(memory, "CASES", cases)
    rows = list(memory.rows(settings.Settings.quick()))
    assert [(row.name, row.case) for row in rows] == [
        ("memory", "4 floats, 8 lanes"),
        ("memory", "SequenceReplay 80/40, 4 floats, 8 lanes"),
    ]
    assert all(row.limit == 40.0 for row in rows)
    assert all(row.ours > 0 and row.peer > 0 for row in rows)
    assert rows[0].ratio_to_peer < 1


def test_the_peer_is_measured_once_for_all_lanes_and_streams_of_one_kind_of_step(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "our_bytes", lambda config, name, lanes: [50.0])
    monkeypatch.setattr(memory, "peer_bytes", lambda config, name: asked.append(name) or [500.0])
    rows = list(memory.rows(settings.Settings()))
    assert asked == [
        memory.VECTOR, memory.IMAGE, memory.SEQUENCES, memory.SEQUENCE_IMAGE,
    ]  # fmt: skip
    cases = [row.case for row in rows]
    for kind in ("4 floats", "84x84x4 image", "84x84x4 image, frame_stack = 4"):
        assert {f"{kind}, {lanes} lanes" for lanes in (1, 8, 64, 256)} <= set(cases)
    assert {"PrioritizedReplay, 4 floats, 64 lanes", "SequenceReplay 80/40, 84x84x4 image, 1 lanes"
            } <= set(cases)  # fmt: skip
    assert {row.limit for row in rows} == {40.0, 84 * 84 * 4 + 24.0}


@pytest.mark.parametrize("name", memory.CASES)
def test_the_tables_and_the_steps_of_a_case_of_memory_can_be_made(name):
    stream, experience = memory.our_stream(name, 2)
    assert stream.tables(experience)[0].name == stream.table_name


def test_the_server_needs_at_most_a_third_more_than_the_raw_steps():
    config = settings.Settings(memory_bytes=8 << 20, few_repetitions=1)
    raw = 4 * 4 + 8 + 4 * 4  # Observation, action, and the four numbers of every step.
    (stored,) = memory.our_bytes(config, memory.VECTOR, 8)
    assert 0.3 * raw < stored < 1.3 * raw


def test_a_transition_with_a_priority_costs_an_item_of_one_column_and_a_share_of_a_chunk():
    config = settings.Settings(memory_bytes=8 << 20, few_repetitions=2)
    # A chunk for every step, and a column for the version, made it 1,800 bytes.
    assert min(memory.our_bytes(config, memory.PRIORITIZED, 1)) < 1_200


@pytest.mark.parametrize("case, share", [(memory.IMAGE, 1.3), (memory.FRAMES, 0.5)])
def test_images_are_stored_once_and_of_stacked_frames_only_the_newest(case, share):
    config = settings.Settings(memory_bytes=32 << 20, few_repetitions=2)
    raw = 84 * 84 * 4
    # The less of two: what the server holds while it answers comes on top by chance.
    stored = min(memory.our_bytes(config, case, 8))
    # Random pixels do not compress: less than a frame per step would mean that some are missing.
    assert 0.9 * raw / (4 if case == memory.FRAMES else 1) < stored < share * raw
