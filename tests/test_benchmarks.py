"""The benchmarks run; what they measure is read by people, not asserted."""

import json
import pathlib
import subprocess
import sys

from benchmarks import harness

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
