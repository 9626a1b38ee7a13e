"""The benchmarks run; what they measure is read by people, not asserted."""

import dataclasses
import itertools
import json
import pathlib
import re
import subprocess
import sys
import time
import types

import pytest

from actor_learner import experiment
from benchmarks import (
    agents,
    collect,
    dqn_loop,
    end_to_end,
    growth,
    harness,
    inference,
    jobs,
    learners,
    overlap,
    peer_process,
    processes,
    proofs,
    read,
    results,
    ring,
    run,
    settings,
    startup,
    tensor,
    tensor_collect,
    turns,
    wire,
)

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


def test_measures_that_begin_anew_need_no_round_that_does_not_count():
    calls = []
    measures = {name: (lambda n=name: calls.append(n) or len(calls)) for name in ("ours", "peer")}
    results = harness.alternate(measures, repetitions=2, warm_up=False)
    assert calls == ["ours", "peer"] * 2
    assert results == {"ours": [1, 3], "peer": [2, 4]}


def test_what_finishes_a_measurement_counts_in_its_time(monkeypatch):
    clock = types.SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(harness, "time", clock)

    def work():
        clock.now += 1.0
        return 10

    def finish():
        clock.now += 3.0

    assert harness.rate(work, 2.0)() == 20 / 2
    assert harness.rate(work, 2.0, finish)() == 20 / 5


FIELDS = {
    "name", "case", "ours", "peer", "limit", "ratio_to_peer", "share_of_limit", "spread",
}  # fmt: skip


@pytest.mark.slow  # It only shows that the benchmarks run.
def test_the_command_measures_and_writes_its_results(tmp_path):
    target = tmp_path / "results.json"
    names = "collect,write,read,learn"
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", f"--only={names}",
         f"--results={target}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    rows = json.loads(target.read_text())
    assert [(row["name"], row["case"]) for row in rows] == [
        ("collect", "8 lanes"),
        ("write", "8 lanes"),
        ("write", "PrioritizedReplay, 8 lanes"),
        ("write", "SequenceReplay 80/40, 8 lanes"),
        ("write", "UnrollQueue 32, 8 lanes"),
        ("read", "8 lanes, batch 256"),
        ("read", "PrioritizedReplay, batch 256"),
        ("read", "SequenceReplay 80/40, batch 64"),
        ("read", "UnrollQueue 32, 8 lanes, batch 256"),
        ("learn", "DQN 64x64, batch 64, 8 lanes"),
        ("learn", "SAC 256x256, batch 256, 8 lanes"),
    ]
    for row in rows:
        assert set(row) == {*FIELDS, "note", "measured_at", "code_digest"}
        assert row["ours"] > 0 and row["ratio_to_peer"] > 0
        # Nothing bare writes items of those streams, or reads an unroll twice.
        bare = "Replay" not in row["case"] and "Queue" not in row["case"]
        bare |= row["name"] == "read" and "Queue" not in row["case"]
        assert (row["limit"] is not None) == bare


def measured(case, ours=1.0, name="read"):
    return harness.Row(name, case, ours)


def test_measuring_some_keeps_the_rows_of_others_and_says_so(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    names = ("collect", "read")
    monkeypatch.setattr(proofs, "present_code", lambda: "old")
    first = results.Results(path, names)
    for row in (measured("8 lanes"), measured("9 lanes"), measured("8 lanes", 3.0, "collect")):
        first.add(row)
    stored = json.loads(path.read_text())
    # What no benchmark measures any more is left out.
    path.write_text(json.dumps([*stored, {**stored[0], "name": "gone"}]))
    monkeypatch.setattr(proofs, "present_code", lambda: "new")
    again = results.Results(path, names)
    again.add(measured("8 lanes", 2.0))
    again.add(measured("1 lanes", 5.0))
    again.complete("read", ["1 lanes", "8 lanes"])
    rows = json.loads(path.read_text())
    assert [(row["name"], row["case"], row["ours"], row["code_digest"]) for row in rows] == [
        ("collect", "8 lanes", 3.0, "old"),
        ("read", "1 lanes", 5.0, "new"),
        ("read", "8 lanes", 2.0, "new"),
    ]
    lines = again.table().splitlines()
    assert [line.rsplit(" | ", 1)[-1] for line in lines[2:]] == [
        f"kept: {rows[0]['measured_at'][:10]}, other code |", "now |", "now |",
    ]  # fmt: skip
    assert len({line.count("|") for line in lines}) == 1


def test_a_crash_loses_only_what_was_not_measured(tmp_path, monkeypatch):
    path = tmp_path / "results.json"

    def crash(config):
        yield measured("1 lanes")
        raise RuntimeError("out of memory")

    monkeypatch.setattr(collect, "rows", lambda config: [measured("1 lanes", name="collect")])
    monkeypatch.setattr(read, "rows", crash)
    with pytest.raises(RuntimeError, match="out of memory"):
        run._measure(["collect", "read"], False, path)
    rows = json.loads(path.read_text())
    assert [(row["name"], row["case"]) for row in rows] == [
        ("collect", "1 lanes"), ("read", "1 lanes"),
    ]  # fmt: skip


def test_rows_written_before_they_had_a_date_are_read(tmp_path):
    path = tmp_path / "results.json"
    stored = measured("8 lanes").as_dict()
    del stored["note"]
    path.write_text(json.dumps([stored]))
    (kept,) = results.Results(path, ("read",)).measured()
    assert kept.row == measured("8 lanes")
    assert kept.origin("new") == "kept: before, other code"


def test_every_benchmark_has_an_expected_time():
    assert run.expected(["collect", "read"]).startswith("expected minutes: collect ")
    for name in run.MINUTES:
        assert (ROOT / "benchmarks" / f"{name}.py").exists()
    assert sum(run.MINUTES.values()) <= 65


def test_a_start_ends_with_the_first_line_of_metrics_that_has_steps(tmp_path):
    assert not startup.has_steps(tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"seconds": 1.0, "environment_steps": 0}\n')
    assert not startup.has_steps(tmp_path)
    with open(metrics, "a") as file:
        file.write('{"seconds": 2.0, "environment_steps": 16}\n')
    assert startup.has_steps(tmp_path)


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_tensor_environments_are_measured_through_reverb_and_bare():
    config = settings.Settings.quick()
    row = tensor.collect_row(config, "CartPole")
    assert row.ours > 0 and row.limit > 0 and row.peer > 0
    assert tensor.collect_row(config, "pixels").peer is None


def test_growth_by_lanes_has_memory_and_time(tmp_path):
    (row,) = tensor.growth_rows(settings.Settings.quick())
    assert row.limit > 0 and "MB" in row.note and "first unroll" in row.note
    one = {"steps_per_second": 2.0, "bare_steps_per_second": 3.0, "megabytes": 1.0}
    tensor.plot({64: {**one, "compile_seconds": 1.0}}, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1_000


def test_both_sides_of_whole_training_have_the_same_sizes():
    for lanes, minibatches in tensor.SIZES:
        arguments = tensor._ppo(lanes, minibatches)
        (size,) = [a for a in arguments if "minibatch_size" in a]
        assert int(size.split("=")[-1]) * minibatches == lanes * tensor_collect.LENGTH
    peer = (ROOT / "benchmarks" / "peers" / tensor.SCRIPT).read_text()
    assert f"LENGTH = {tensor_collect.LENGTH}\nEPOCHS = 4\n" in peer
    leaf = (ROOT / "gin" / "ppo_tensor_cartpole.gin").read_text()
    assert "ppo.epochs = 4" in leaf and "ppo.learning_rate = 1e-3" in leaf


def test_starts_are_compared_with_one_import_of_tensorflow():
    rows = startup.rows(settings.Settings.quick())
    assert [row.case for row in rows] == list(startup.COMMANDS)
    assert all(row.ours > 0 and row.peer > 0 for row in rows)


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_the_cost_of_publishing_and_pulling_is_measured_at_both_default_intervals():
    rows = jobs.cost_rows(0.2, 1)
    assert [row.case for row in rows] == [
        f"{work} every {seconds:g} s, % of a core"
        for seconds in (experiment.PUBLISH_SECONDS, experiment.PUBLISH_SECONDS_QUEUED)
        for work in ("publishing", "pulling")
    ]
    assert all(row.ours > 0 and FIELDS <= set(row.as_dict()) for row in rows)


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_the_wire_is_measured_for_growing_numbers_of_actors():
    rows = list(wire.count_rows((1, 3), 0.5, 1, turn_seconds=0.05))
    assert [row.case for row in rows] == [
        f"{actors}, {case}"
        for actors in ("1 actor", "3 actors")
        for case in ("news, median, ms", "news, oldest, ms", "learner, % of a core")
    ]
    assert all(row.ours > 0 for row in rows)


def make_window(**changes):
    counts = {"news": 40.0, "policies": 4.0, "reports": 8.0}
    window = {"present": 2, "heard": 2, "median": 1.0, "oldest": 50.0, "share": 3.0}
    return {**window, "counts": counts, **changes}


def test_what_polling_costs_anyway_does_not_count_as_talking():
    windows = [make_window(share=share) for share in (3.0, 5.0, 4.0)]
    rows = list(wire.window_rows(2, windows, idle=1.0))
    assert [row.ours for row in rows] == [1.0, 50.0, 3.0]
    assert rows[-1].spread == 2.0
    assert rows[-1].note == "per second 40 news, 4 policies, 8 reports"


@pytest.mark.parametrize("changes", [{"present": 1}, {"heard": 1}])
def test_a_window_in_which_an_actor_was_missing_is_not_measured(changes):
    with pytest.raises(RuntimeError, match="of 2 actors"):
        list(wire.window_rows(2, [make_window(), make_window(**changes)], idle=1.0))


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_agents_are_compared_with_as_many_lanes_of_one_agent_each():
    (row,) = agents.rows(settings.Settings.quick())
    assert row.name == "agents"
    assert row.ours > 0
    assert row.peer > 0


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_collecting_and_learning_in_one_loop_are_compared_with_tf_agents():
    rows = list(dqn_loop.rows(settings.Settings.quick()))
    assert [row.case for row in rows] == [
        "DQN 64x64, batch 64, CartPole loop, 1 lanes, 1 step a turn, steps/s",
        "DQN 64x64, batch 64, CartPole loop, 8 lanes, 64 steps a turn, steps/s",
    ]
    assert all(row.ours > 0 and row.peer > 0 for row in rows)


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_turns_are_compared_with_tf_agents_and_with_longer_runs():
    rows = list(itertools.islice(turns.rows(settings.Settings.quick()), 4))
    assert [row.case.split(",")[0] for row in rows] == ["loop", "loop", "learner", "learner"]
    assert all(row.ours > 0 for row in rows)
    assert [row.peer is not None for row in rows] == [True, True, False, False]
    assert [row.limit is not None for row in rows] == [False, False, True, True]


def test_what_is_measured_beside_sbx_is_known_to_its_script():
    script = (peer_process.SCRIPTS / "sbx_rate.py").read_text()
    for case in turns.SBX_CASES:
        assert f'"{case.name}": Case(' in script
        assert (processes.ROOT / "gin" / f"{case.leaf}.gin").exists()


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


def test_a_rate_leaves_out_the_start_and_what_comes_after_training():
    metrics = [
        {"environment_steps": 10, "seconds": 2.0},
        {"environment_steps": 100, "seconds": 3.0},
        {"environment_steps": 500, "seconds": 5.0},
        {"environment_steps": 500, "seconds": 9.0, "eval_return": 1.0},
        {"environment_steps": 500, "seconds": 9.1},
    ]
    assert end_to_end.figure(metrics, None, 2.5) == 200.0
    with pytest.raises(RuntimeError, match="1 lines of metrics between the first 4 s"):
        end_to_end.figure(metrics, None, 4.0)


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_the_rate_of_a_training_is_measured_without_evaluations():
    metrics = end_to_end.train("impala_cartpole", 0, settings.Settings.quick().rate_arguments)
    assert end_to_end.figure(metrics, None, 0.0) > 0
    assert sum("eval_return" in row for row in metrics) == 1
    assert all(row["train_steps"] > 0 for row in metrics)


def test_a_training_that_fails_is_shown_with_its_output():
    with pytest.raises(processes.CommandError, match="(?s)no_such_leaf.*--seed=3.*no gin file"):
        end_to_end.train("no_such_leaf", 3)


CASE = next(case for case in end_to_end.CASES if case.what.startswith("PPO"))


def test_peers_that_are_not_installed_are_quoted_and_the_case_says_so(monkeypatch):
    monkeypatch.setattr(peer_process, "available", lambda: False)
    monkeypatch.setattr(end_to_end, "train", lambda *arguments: METRICS)
    monkeypatch.setattr(dqn_loop, "rows", lambda config: [])
    monkeypatch.setattr(end_to_end, "CASES", (CASE,))
    (row,) = end_to_end.rows(settings.Settings())
    assert (row.ours, row.peer) == (2.5, 8.0)
    assert row.case == "PPO 64x64, minibatch 256, CartPole to 475, s"
    assert row.note == "5 of 5 seeds, SB3: 8, recorded on another machine, other networks"


def test_peers_are_measured_by_turns_with_ours_and_each_seed_once(monkeypatch):
    calls = []

    def run(script, *arguments):
        calls.append((script, *arguments))
        return {"seconds": 7.0 + len(calls), "reached": len(calls) > 1, "steps_per_second": 100.0}

    def train(leaf, seed, arguments):
        calls.append((leaf, seed))
        return METRICS[:1] + METRICS

    rated = [case for case in end_to_end.CASES if case.target is None]
    monkeypatch.setattr(peer_process, "available", lambda: True)
    monkeypatch.setattr(peer_process, "run", run)
    monkeypatch.setattr(end_to_end, "train", train)
    monkeypatch.setattr(dqn_loop, "rows", lambda config: [])
    monkeypatch.setattr(end_to_end, "CASES", (dataclasses.replace(CASE, seeds=2),))
    (row,) = end_to_end.rows(settings.Settings())
    arguments = (
        "sb3_seconds.py", "ppo_cartpole", "--target=475.0", "--interval=8000",
        "--network=64,64", "--batch_size=256",
    )  # fmt: skip
    assert calls == [
        ("ppo_cartpole", 0), (*arguments, "--seed=0"), ("ppo_cartpole", 1), (*arguments, "--seed=1")
    ]  # fmt: skip
    assert row.peer == 10.0
    # The same in every run, so that a row can be found again; what this run found is a note.
    assert row.case == "PPO 64x64, minibatch 256, CartPole to 475, s"
    assert row.note == "2 of 2 seeds, SB3: 2 of 2"

    calls.clear()
    monkeypatch.setattr(end_to_end, "figure", lambda *arguments: 50.0)
    monkeypatch.setattr(end_to_end, "CASES", tuple(rated))
    rows = list(end_to_end.rows(dataclasses.replace(settings.Settings(), seeds=1)))
    assert [call[0] for call in calls] == [
        "ppo_cartpole", "sample_factory_rate.py", "impala_cartpole",
    ]  # fmt: skip
    assert [row.ratio_to_peer for row in rows] == [0.5, 0.5]
    assert rows[0].case == "PPO 64x64, minibatch 256, 10 epochs, CartPole, steps/s"
    assert rows[0].note == "Sample Factory"


def test_peers_train_as_often_evaluated_as_ours():
    for case in end_to_end.CASES:
        if case.target is not None:
            text = (ROOT / "gin" / f"{case.leaf}.gin").read_text().replace("_", "")
            assert f"Evaluation.interval = {case.peer.arguments[2][11:]}\n" in text
            assert f"Evaluation.targetreturn = {case.target}\n" in text


@pytest.mark.parametrize("case", end_to_end.CASES, ids=lambda case: case.what)
def test_both_sides_have_the_networks_and_batches_that_the_case_names(case):
    units = re.search(r" (\d+)x\1,", case.what)[1]
    batch = re.search(r"batch (\d+),", case.what)[1]
    algorithm = case.leaf.split("_")[0]
    ours = _bindings(f"{case.leaf}.gin")
    ours.update(binding.split(" = ") for binding in case.bindings)
    layers = [value for name, value in ours.items() if name.endswith("fc_layer_params")]
    # PPO's leaf leaves it at its default.
    assert set(layers or ["(64, 64)"]) == {f"({units}, {units})"}
    if algorithm == "ppo":
        assert batch == ours["ppo.minibatch_size"]
    elif algorithm == "impala":
        unrolled = ours["UnrollQueue.unroll_length"], ours["GymnasiumEnvironment.num_envs"]
        assert int(batch) == int(unrolled[0]) * int(unrolled[1])
    else:
        assert batch == ours["Experiment.batch_size"]
    if case.peer.name == "SB3":
        assert case.peer.arguments[3:] == (f"--network={units},{units}", f"--batch_size={batch}")
    else:
        script = (ROOT / "benchmarks" / "peers" / case.peer.script).read_text()
        assert f'"--encoder_mlp_layers",\n    "{units}",\n    "{units}",\n' in script


def _bindings(leaf):
    lines = (ROOT / "gin" / leaf).read_text().splitlines()
    return dict(line.split(" = ") for line in lines if " = " in line and line[0] != "#")


def test_overlapping_is_compared_with_taking_turns(monkeypatch):
    given = []

    def train(leaf, seed, arguments):
        given.append([argument for argument in arguments if "overlap" in argument])
        rate = 150.0 if "True" in given[-1][0] else 100.0
        return [{"environment_steps": rate * seconds, "seconds": seconds} for seconds in (3.0, 6.0)]

    monkeypatch.setattr(end_to_end, "train", train)
    (row,) = overlap.rows(settings.Settings())
    assert given == 3 * [
        ["--gin_param=Experiment.overlap = True"], ["--gin_param=Experiment.overlap = False"],
    ]  # fmt: skip
    assert (row.ours, row.peer, row.limit) == (150.0, 100.0, 200.0)


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_a_policy_job_is_compared_with_one_request_at_a_time_and_with_inline():
    many, one = inference.rows(settings.Settings.quick())
    assert many.ours > 0 and many.peer > 0 and "batches by lanes: " in many.note
    assert 0 < one.ours < one.limit and "ms longer" in one.note


def test_a_ring_is_compared_with_one_group_and_with_the_environment_alone():
    far, buffered = ring.rows(settings.Settings.quick())
    assert far.case == "16 groups, steps of 1 ms, answers after 15 ms"
    assert far.peer < 1 / (ring.STEP_SECONDS + ring.LATENCY_SECONDS)
    assert far.limit < 1 / ring.STEP_SECONDS
    assert buffered.peer < 1 / (2 * ring.BUFFERED_SECONDS)
    assert buffered.ours < 1 / ring.BUFFERED_SECONDS


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_a_training_whose_environment_waits_can_overlap():
    assert 0 < overlap.rate(settings.Settings.quick(), True) < 1 / overlap.STEP_SECONDS


@pytest.mark.skipif(not peer_process.available(), reason="make bench-peers has not been called")
def test_the_peers_scripts_run():
    found = peer_process.run(
        "sb3_seconds.py", "ppo_cartpole", "--target=1", "--interval=256", "--steps=1024",
        "--network=32,32", "--batch_size=128",
        timeout_seconds=300,
    )  # fmt: skip
    assert found["reached"] and found["environment_steps"] == 256 and found["seconds"] > 0
    assert found["best_return"] >= 1


def test_a_command_that_takes_too_long_is_ended_with_what_it_has_started(monkeypatch):
    monkeypatch.setattr(processes, "_END_SECONDS", 1.0)
    script = "trap '' TERM; sleep 600 & echo started $!; wait; wait"
    with pytest.raises(processes.CommandError, match=r"took longer than 5 s") as raised:
        processes.run(["bash", "-c", script], timeout_seconds=5)
    child = int(str(raised.value).split("started ")[-1])
    deadline = time.monotonic() + 30
    while _is_running(child):
        assert time.monotonic() < deadline, f"process {child} lives on"
        time.sleep(0.05)


def _is_running(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow  # It only shows that the benchmark runs.
def test_two_learners_are_compared_with_one():
    (row,) = learners.rows(settings.Settings.quick())
    alone = 1 / (learners.BATCH * learners.ITEM_SECONDS)
    assert 0 < row.peer < alone and 0 < row.ours < 2 * alone
