"""The benchmarks run; what they measure is read by people, not asserted."""

import json
import pathlib
import subprocess
import sys

import pytest

from benchmarks import end_to_end, growth, harness, memory, settings

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_rows_hold_medians_ratios_and_spread():
    row = harness.row(
        "collect", "8 lanes", {"ours": [30.0, 10.0, 20.0], "peer": [4.0, 6.0, 5.0], "limit": [40.0]}
    )
    assert (row.ours, row.peer, row.limit) == (20.0, 5.0, 40.0)
    assert row.as_dict()["ratio_to_peer"] == 4.0
    assert row.as_dict()["share_of_limit"] == 0.5
    assert row.spread == 3.0
    assert "| collect | 8 lanes | 20.00 | 5.00 | 40.00 | 4.0 × | 50% | 3.00 |" in harness.table(
        [row]
    )


def test_small_ratios_keep_their_digits():
    row = harness.row("memory", "4 floats", {"ours": [43.0], "peer": [3520.0], "limit": [40.0]})
    assert "| 43.00 | 3,520 | 40.00 | 0.012 × | 108% |" in harness.table([row])


def test_measures_alternate_after_a_round_that_does_not_count():
    calls = []
    measures = {name: (lambda n=name: calls.append(n) or len(calls)) for name in ("ours", "peer")}
    results = harness.alternate(measures, repetitions=2)
    assert calls == ["ours", "peer"] * 3
    assert results == {"ours": [3, 5], "peer": [4, 6]}


def test_the_command_measures_and_writes_its_results(tmp_path):
    target = tmp_path / "results.json"
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", "--only=read", f"--results={target}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    rows = json.loads(target.read_text())
    assert [row["case"] for row in rows] == ["1 lanes, batch 256", "8 lanes, batch 256"]
    assert all(row["ours"] > 0 and row["ratio_to_peer"] > 0 for row in rows)
    assert set(rows[0]) == {
        "name", "case", "ours", "peer", "limit", "ratio_to_peer", "share_of_limit", "spread",
    }  # fmt: skip


def test_the_server_needs_at_most_a_third_more_than_the_raw_steps():
    config = settings.Settings(memory_bytes=8 << 20, repetitions=1)
    raw = 4 * 4 + 8 + 4 * 4  # Observation, action, and the four numbers of every step.
    stored = memory.our_bytes(config, memory.VECTOR, 8)
    assert 0.3 * raw < stored < 1.3 * raw


@pytest.mark.parametrize("case, share", [(memory.IMAGE, 1.3), (memory.FRAMES, 0.5)])
def test_images_are_stored_once_and_of_stacked_frames_only_the_newest(case, share):
    config = settings.Settings(memory_bytes=16 << 20, repetitions=1)
    raw = 84 * 84 * 4
    stored = memory.our_bytes(config, case, 2)
    # Random pixels do not compress: less than a frame per step would mean that some are missing.
    assert 0.9 * raw / (4 if case == memory.FRAMES else 1) < stored < share * raw


def test_growth_is_measured_for_sizes_and_for_full_tables():
    config = settings.Settings.quick()
    sized = growth.size_rows(config, "4 floats", settings.vector_spec(4), 2)
    full = growth.item_rows(config, 100)
    assert [row.case for row in [*sized, *full]] == [
        "write, 4 floats", "read, 4 floats", "write, 100 items", "read, 100 items",
    ]  # fmt: skip
    assert all(row.ours > 0 for row in [*sized, *full])
    assert [row.share_of_limit is None for row in [*sized, *full]] == [False, False, True, True]


METRICS = [
    {"environment_steps": 100, "seconds": 1.0, "episode_return": 500.0},
    {"environment_steps": 200, "seconds": 2.0, "eval_return": 470.0},
    {"environment_steps": 300, "seconds": 2.5, "eval_return": 480.0},
    {"environment_steps": 400, "seconds": 4.0, "eval_return": 500.0},
]


def test_the_clock_stops_at_the_first_evaluation_that_reaches_the_target():
    assert end_to_end.figure(METRICS, 475.0) == 2.5
    assert end_to_end.first_reaching(METRICS, 475.0)["environment_steps"] == 300
    assert end_to_end.first_reaching(METRICS, 501.0) is None
    assert end_to_end.figure(METRICS, 501.0) == 4.0
    assert end_to_end.figure(METRICS, None) == 100.0


def test_a_training_that_fails_is_shown_with_its_output():
    with pytest.raises(RuntimeError, match="(?s)no_such_leaf, seed 3: .*no gin file"):
        end_to_end.train("no_such_leaf", 3)
