"""What counts as proved, and what `make learn` does when a run goes wrong. Nothing is trained."""

import dataclasses
import fractions
import json
import math
import re

import pytest

from benchmarks import learning_proofs, processes, proof_page, proof_table, proofs

PROOF = proofs.Proof("toys", 1.0, seeds=2, needed=1, leaf="dqn_cartpole")
CONTROL = proofs.Proof("controls", 0.5, seeds=1, needed=1, leaf="dqn_cartpole", control=True)


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """Two toy proofs, whose runs are made up: `ends[name, seed]` is a return or an error."""
    monkeypatch.setattr(proofs, "PROOFS", {"toy": PROOF, "control": CONTROL})
    monkeypatch.setattr(proofs, "NO_SLOWER", ())
    monkeypatch.setattr(proofs, "present_code", lambda: "new")
    monkeypatch.setattr(learning_proofs, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(learning_proofs, "RUNS", tmp_path / "learn")
    ends = {("toy", 0): 2.0, ("toy", 1): 0.0, ("control", 0): 0.2}
    ends["called"] = []

    def prove(name, seed):
        ends["called"].append((name, seed))
        if isinstance(ends[name, seed], Exception):
            raise ends[name, seed]
        return row(name, seed, ends[name, seed])

    monkeypatch.setattr(learning_proofs, "_prove", prove)
    return ends


def row(name, seed, best, code="new", steps=1000):
    proof = proofs.PROOFS[name]
    reached = best >= proof.target
    return {
        "config": name, "seed": seed, "target": proof.target, "reached": reached,
        "succeeded": reached != proof.control, "environment_steps": steps, "seconds": 5.0,
        "best_return": best, "fresh_return": best, "fresh_holds": reached != proof.control,
        "config_digest": proofs.config_digest(name), "code_digest": code,
    }  # fmt: skip


def results():
    return json.loads(learning_proofs.RESULTS.read_text())


def test_finished_runs_are_not_repeated(toys, capsys):
    assert learning_proofs.main([]) == 0
    assert toys["called"] == [("toy", 0), ("toy", 1), ("control", 0)]
    assert learning_proofs.main([]) == 0
    assert len(toys["called"]) == 3
    table = capsys.readouterr().out
    # Of seeds with 0 and 2, either may be drawn twice: each in a quarter of the repetitions.
    toy = "| toy | proved | 1 of 2 reach it | 1 | 1.00 [0.00, 2.00] | 1,000 | 5 (5 to 5) |"
    assert f"{toy} 1 still do |" in table
    assert "| control | proved | 1 of 1 stay below it | 0.5 | 0.20 [0.20, 0.20] | 1,000 |" in table


def test_results_of_older_code_are_repeated_unless_they_are_to_be_kept(toys, monkeypatch, capsys):
    assert learning_proofs.main([]) == 0
    monkeypatch.setattr(proofs, "present_code", lambda: "newer")
    assert learning_proofs.main(["--keep", "--only=toy"]) == 0
    assert len(toys["called"]) == 3
    out = capsys.readouterr().out
    assert "| toy | proved (2 by older code) |" in out
    assert "5.0 s  (older code)" in out
    assert learning_proofs.main(["--only=toy"]) == 0
    assert toys["called"][3:] == [("toy", 0), ("toy", 1)]


def test_a_run_that_crashes_is_shown_and_repeated_and_the_others_go_on(toys, capsys):
    toys["toy", 0] = processes.CommandError("took longer than 3600 s: train\nlast words")
    assert learning_proofs.main([]) == 1
    assert toys["called"] == [("toy", 0), ("toy", 1), ("control", 0)]
    out = capsys.readouterr().out
    assert "seed 0  crashed          1.00  CommandError: took longer than 3600 s: train\n" in out
    assert "| toy | FAILED (1 crashed) | 0 of 2 reach it |" in out
    assert results()[0]["error"].endswith("last words")
    columns = ("reached", "succeeded", "environment_steps", "seconds")
    assert [results()[0][column] for column in columns] == [False, False, None, None]
    toys["toy", 0] = 3.0
    assert learning_proofs.main(["--keep"]) == 0
    assert toys["called"][3:] == [("toy", 0)]


def test_a_run_that_crashes_says_how_far_it_came(toys):
    toys["toy", 0] = processes.CommandError("killed")
    run = learning_proofs.RUNS / "toy-0"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(
        '{"environment_steps": 100, "seconds": 1.5}\n{"environment_steps": 200, "seconds": 2.5}\n'
    )
    assert learning_proofs.main(["--only=toy"]) == 1
    crashed = results()[0]
    assert (crashed["environment_steps"], crashed["seconds"]) == (200, 2.5)
    assert not crashed["reached"]


def test_what_is_only_compared_with_may_miss_its_target(toys, monkeypatch, capsys):
    slower = dataclasses.replace(PROOF, needed=0, bindings=("dqn.learning_rate = 1.0",))
    monkeypatch.setattr(proofs, "PROOFS", {"toy": slower})
    toys["toy", 0] = 0.0
    assert learning_proofs.main([]) == 0
    assert "| toy | for comparison | 0 of 2 reach it |" in capsys.readouterr().out


def test_bindings_change_the_digest_and_are_given_to_the_run(monkeypatch, tmp_path):
    bound = dataclasses.replace(PROOF, bindings=("dqn.learning_rate = 1.0",))
    monkeypatch.setattr(proofs, "PROOFS", {"toy": PROOF, "bound": bound})
    assert proofs.config_digest("toy") != proofs.config_digest("bound")
    commands = []

    def refuse(command, seconds):
        commands.append(command)
        raise processes.CommandError("not here")

    monkeypatch.setattr(processes, "run", refuse)
    monkeypatch.setattr(learning_proofs, "RUNS", tmp_path)
    with pytest.raises(processes.CommandError):
        learning_proofs._prove("bound", 0)
    assert "--gin_param=dqn.learning_rate = 1.0" in commands[0]


def test_a_crash_fails_a_proof_that_has_seeds_enough(toys):
    toys["toy", 1] = KeyError("seconds")
    assert learning_proofs.main(["--only=toys"]) == 1
    assert [found["succeeded"] for found in results()] == [True, False]


def test_a_control_that_succeeds_is_not_called_missed(toys):
    assert "stays below      0.50" in proof_table.line(row("control", 0, 0.2))
    assert "REACHED" in proof_table.line(row("control", 0, 0.7))
    assert "missed" in proof_table.line(row("toy", 0, 0.2))
    toys["control", 0] = 0.7
    assert learning_proofs.main(["--only=control"]) == 1


def test_cql_learns_from_the_whole_run_of_its_expert(monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(learning_proofs, "RUNS", tmp_path)
    monkeypatch.setattr(
        learning_proofs.processes, "run", lambda command, seconds: commands.append(command)
    )
    with pytest.raises(FileNotFoundError, match="score.json"):  # Nothing was really trained.
        learning_proofs._prove("cql_pendulum", 1)
    expert, learner = commands
    run = tmp_path / "sac_pendulum-1-recorded"
    assert {"--gin_file=gin/sac_pendulum.gin", "--seed=1", f"--run_dir={run}"} < set(expert)
    assert "--gin_param=Experiment.record = True" in expert
    assert f"--gin_param=RecordedReplay.path = '{run}'" in learner


def test_a_target_counts_from_the_evaluation_that_is_confirmed():
    rows = [
        {"environment_steps": 10, "eval_return": 1.5},  # By luck.
        {"environment_steps": 20, "eval_return": 1.5, "best_return": 0.9},
        {"environment_steps": 30},
        {"environment_steps": 40, "eval_return": 1.1, "best_return": 1.0},
    ]
    assert learning_proofs._first_to_reach(PROOF, rows)["environment_steps"] == 40
    assert learning_proofs._first_to_reach(PROOF, rows[:3]) is None
    # Nor may luck alone lift a control above what it must stay below.
    assert learning_proofs._first_to_reach(CONTROL, rows)["environment_steps"] == 10


README = """\
| file | reaches | on | return | environment steps (median) | seconds of training (median) |
|---|---|---|---|---|---|
| `toy.gin` | one, over 20 episodes | 0 of 9 seeds | – | 7 | 7 (1–9) |
| `other.gin` | nothing | 0 of 9 seeds | – | 7 | 7 |
"""


def test_page_and_readme_are_filled_in_from_the_results(toys, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(learning_proofs, "ROOT", tmp_path)
    monkeypatch.setattr(
        proofs, "PROOFS", {"toy": dataclasses.replace(PROOF, group=proofs.ON_POLICY)}
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(README)
    page = tmp_path / "docs" / "results.md"
    page.write_text("| `toy` | what it was | 0 of 9 seeds | – | 7 | 7 |\n")
    assert learning_proofs.main(["--readme"]) == 0
    assert (tmp_path / "README.md").read_text() == README
    kept = "| `toy` | toy: mean return ≥ 1 over 20 greedy episodes | 0 of 9 seeds | – | 7 | 7 |"
    assert capsys.readouterr().out.splitlines() == [kept]
    assert learning_proofs.main(["--only=toy"]) == 0
    capsys.readouterr()
    assert learning_proofs.main(["--readme"]) == 0
    figures = "1 of 2 seeds | 1.00 [0.00, 2.00] | 1,000 | 5 |"
    assert capsys.readouterr().out.splitlines() == [
        kept.replace("0 of 9 seeds | – | 7 | 7 |", figures)
    ]
    assert "## On-policy" in page.read_text() and figures in page.read_text()
    filled, other = (tmp_path / "README.md").read_text().splitlines()[2:]
    assert filled == f"| `toy.gin` | one, over 20 episodes | {figures}"
    assert other == README.splitlines()[3]
    assert len(toys["called"]) == 2


def test_the_page_shows_the_curves_that_there_are(tmp_path):
    assert "images/curves" not in proof_page.render("", {}, tmp_path)
    (tmp_path / proof_page.CURVES).mkdir(parents=True)
    (tmp_path / proof_page.CURVES / "dqn_cartpole.png").touch()
    assert "(images/curves/dqn_cartpole.png)" in proof_page.render("", {}, tmp_path)


def test_page_and_readme_have_the_rows_that_are_filled_in():
    page = (proofs.ROOT / proof_page.PAGE).read_text()
    assert page == proof_page.render(page, {}, proofs.ROOT), "run --readme: the page was edited"
    found = set(re.findall(r"^\| `(\w+?)(?:\.gin)?` ", page, re.M))
    assert found == set(proofs.PROOFS) == set(proofs.WORLDS)
    readme = (proofs.ROOT / "README.md").read_text()
    rows = [line for line in readme.splitlines() if line.startswith("| `")]
    assert len(rows) == 5 and all(row.count("|") == 7 and "[" in row for row in rows)


def test_groups_stand_for_their_proofs():
    assert proofs.select("recurrent") == ["r2d2_memory", "r2d2_memory_long", "r2d2_memory_control"]
    offline = ["bc_cartpole", "cql_pendulum"]
    assert proofs.select("offline,c51_cartpole") == ["c51_cartpole", *offline]
    assert all(proofs.PROOFS[name].actors for name in proofs.select("jobs"))
    assert proofs.select("") == list(proofs.PROOFS)
    assert all(proofs.PROOFS[name].policies for name in proofs.select("remote"))
    parts = ("off_policy", "on_policy", "recurrent", "offline", "jobs", "remote")
    assert sorted(proofs.select(",".join(parts))) == sorted(proofs.PROOFS)
    with pytest.raises(ValueError, match="no proof named offpolicy; .*the groups jobs, off_policy"):
        proofs.select("offpolicy")


def test_every_proof_has_a_leaf_and_rates_memory_as_its_leaf_does():
    for name, proof in proofs.PROOFS.items():
        assert len(proofs.config_digest(name)) == 12
        assert (proof.fresh_episodes >= 200) == name.startswith("r2d2_memory")
    control = (proofs.ROOT / "gin" / "r2d2_memory_control.gin").read_text()
    assert "Evaluation.episodes = 1_000\n" in control
    assert "environment_steps" not in control  # As many as those with memory.


def test_chance_alone_does_not_fail_the_control_without_memory():
    proof = proofs.PROOFS["r2d2_memory_control"]
    leaf = (proofs.ROOT / "gin" / "r2d2_memory.gin").read_text().replace("_", "")
    steps, interval = (
        int(re.search(rf"{name} = (\d+)", leaf)[1])
        for name in (r"Experiment\.environmentsteps", r"Evaluation\.interval")
    )
    episodes = proof.fresh_episodes
    # One in four answers is right without memory; each evaluation asks that often.
    alarm = sum(
        math.comb(episodes, right) * 3 ** (episodes - right)
        for right in range(math.ceil(proof.target * episodes), episodes + 1)
    )
    evaluations = proof.seeds * (steps // interval + 1)  # And once more at the end.
    assert fractions.Fraction(alarm * evaluations, 4**episodes) < fractions.Fraction(1, 1000)


def test_the_digest_of_the_code_changes_with_any_file(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "one.py").write_text("a = 1\n")
    first = proofs.code_digest(tmp_path)
    assert proofs.code_digest(tmp_path) == first
    (tmp_path / "room" / "one.py").write_text("a = 2\n")
    second = proofs.code_digest(tmp_path)
    (tmp_path / "room" / "one.py").rename(tmp_path / "one.py")
    third = proofs.code_digest(tmp_path)
    assert len({first, second, third}) == 3


@pytest.mark.parametrize("fast, slow, holds", [(900, 1000, True), (1000, 1000, True),
                                               (1100, 1000, False)])  # fmt: skip
def test_prioritized_replay_must_be_no_slower_in_environment_steps(fast, slow, holds):
    code = proofs.present_code()
    found = {}
    for name, steps in (("per_dqn_cartpole", fast), ("dqn_cartpole", slow)):
        for seed in range(5):
            found[name, seed] = row(name, seed, 480.0, code, steps + 1000 * (seed - 2))
    names = ["per_dqn_cartpole"]
    assert proofs.NO_SLOWER[0] == ("per_dqn_cartpole", "dqn_cartpole")
    (comparison,) = proof_table.comparisons(names, found, keep=False)
    assert comparison.holds == holds
    assert f"(medians {fast:,} and {slow:,})" in comparison.text
    assert proof_table.comparisons(["sac_pendulum"], found, keep=False) == []
    found["dqn_cartpole", 3]["code_digest"] = "older"
    assert proof_table.comparisons(names, found, keep=False) == []
    assert len(proof_table.comparisons(names, found, keep=True)) == 1
    del found["dqn_cartpole", 3]
    assert proof_table.comparisons(names, found, keep=True) == []


def test_prioritized_replay_is_compared_at_one_learning_rate_as_well():
    fast, slow = "per_dqn_cartpole", "dqn_cartpole_fast_rate"
    rates = []
    for name in (fast, slow):
        proof = proofs.PROOFS[name]
        lines = (proofs.ROOT / "gin" / f"{proof.leaf or name}.gin").read_text().splitlines()
        given = [line for line in [*lines, *proof.bindings] if line.startswith("dqn.learning_rate")]
        rates.append(given[-1])
    assert rates[0] == rates[1]
    assert proofs.PROOFS[slow].leaf == "dqn_cartpole"
