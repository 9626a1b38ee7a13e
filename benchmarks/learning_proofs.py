"""Trains the ready-made configurations on several seeds and says which reach their target.

python -m benchmarks.learning_proofs [--only=dqn_cartpole,recurrent] [--keep] [--fresh] [--readme]

Each (configuration, seed) is a run of its own under learn/, made by the command a user types.
Finished ones are not repeated unless their gin file or the code has changed: an interrupted proof
goes on. `--keep` accepts results of older code, and marks them; `--fresh` repeats everything. A run
that crashes, or takes too long, is shown with its error, and the others go on.

Results: a table, curves with seed bands (learn/<configuration>.png) and learn_results.json, rows
{config, seed, target, reached, succeeded, environment_steps, seconds, best_return, ...}; those of
runs that crashed have an `error`, are not `reached`, and say how far they came, or null. `reached`
means that an evaluation during training reached the target and a second one, on other episodes,
confirmed it; `fresh_return` rates the best policy once more, by the command `eval`, on episodes
that had no part in either. The table shows the interquartile mean of these over the seeds, with a
95 % bootstrap interval. The exit code is 1 unless everything is proved.

`--readme` trains nothing: it writes docs/results.md, its curves and the rows of the README with the
results at hand, and prints the rows.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shutil
import sys
import traceback

from benchmarks import processes, proof_page, proof_table, proofs

ROOT = proofs.ROOT
RESULTS = ROOT / "learn_results.json"
RUNS = ROOT / "learn"
TRAIN_SECONDS = 3_600
EVALUATE_SECONDS = 900


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="proofs or groups, separated by commas")
    parser.add_argument("--keep", action="store_true", help="accept results of older code")
    parser.add_argument("--fresh", action="store_true", help="repeat what is finished")
    parser.add_argument("--readme", action="store_true", help="write the results' page, and end")
    options = parser.parse_args(arguments)
    if options.readme:
        for name in proofs.PROOFS:
            _draw(name, ROOT / proof_page.CURVES / f"{name}.png")
        print("\n".join(proof_page.write(ROOT, _read_results())))
        return 0
    try:
        names = proofs.select(options.only)
    except ValueError as error:
        parser.error(str(error))
    results = _read_results()
    for name in names:
        for seed in range(proofs.PROOFS[name].seeds):
            key = (name, seed)
            if options.fresh or not proofs.counts(results.get(key), keep=options.keep):
                results[key] = _prove_or_report(name, seed)
                _write_results(results)
            print(proof_table.line(results[key]), flush=True)
        _draw(name, RUNS / f"{name}.png")
    print(f"\n{proof_table.table(names, results)}")
    comparisons = proof_table.comparisons(names, results, keep=options.keep)
    for comparison in comparisons:
        print(comparison.text)
    held = all(proof_table.holds(name, results) for name in names)
    return 0 if held and all(comparison.holds for comparison in comparisons) else 1


def _prove_or_report(name: str, seed: int) -> dict:
    """A result; one that says why there is none if anything goes wrong: the others must go on."""
    try:
        return _prove(name, seed)
    except Exception as error:
        traceback.print_exc()
        last = _last_row(RUNS / f"{name}-{seed}")
        return {
            "config": name,
            "seed": seed,
            "target": proofs.PROOFS[name].target,
            "reached": False,
            "succeeded": False,
            "environment_steps": last.get("environment_steps"),
            "seconds": last.get("seconds"),
            "error": f"{type(error).__name__}: {error}",
        }


def _prove(name: str, seed: int) -> dict:
    proof = proofs.PROOFS[name]
    run = RUNS / f"{name}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "actor_learner.cli", "up" if proof.actors else "train"]
    command += [f"--gin_file=gin/{proof.leaf or name}.gin", f"--seed={seed}", f"--run_dir={run}"]
    command += [f"--gin_param={binding}" for binding in proof.bindings]
    if proof.actors:
        command.append(f"--actors={proof.actors}")
    if proof.policies:
        command.append(f"--policies={proof.policies}")
    if proof.expert:
        find = _whole_run if proof.whole_run else _demonstrations
        command.append(f"--gin_param=RecordedReplay.path = '{find(proof.expert, seed)}'")
    processes.run(command, TRAIN_SECONDS)
    score = json.loads((run / "best" / "score.json").read_text())
    rows = _rows(run)
    reached_at = _first_to_reach(proof, rows)
    end = reached_at or rows[-1]
    fresh = _evaluate_again(run, proof.fresh_episodes)
    return {
        "config": name,
        "seed": seed,
        "target": proof.target,
        "reached": reached_at is not None,
        "succeeded": (reached_at is None) == proof.control,
        "environment_steps": end["environment_steps"],
        "seconds": round(end["seconds"], 1),
        "best_return": round(score["mean"], 3),
        "fresh_return": fresh,
        "fresh_holds": (fresh < proof.target) == proof.control,
        "config_digest": proofs.config_digest(name),
        "code_digest": proofs.present_code(),
    }


def _first_to_reach(proof: proofs.Proof, rows: list[dict]) -> dict | None:
    """The first row by which the target is reached and confirmed; None if there is none.

    A control must not reach it in any evaluation, confirmed or not.
    """
    column = "eval_return" if proof.control else "best_return"
    return next((row for row in rows if row.get(column, -1e9) >= proof.target), None)


def _demonstrations(expert: str, seed: int) -> pathlib.Path:
    """Episodes of the expert with the same seed, recorded now; it is trained first if need be."""
    run = RUNS / f"{expert}-{seed}"
    if not (run / "best" / "score.json").exists():
        _prove(expert, seed)
    recording = run / "experience"
    shutil.rmtree(recording, ignore_errors=True)
    command = [sys.executable, "-m", "actor_learner.cli", "eval", str(run)]
    processes.run([*command, f"--record={recording}"], EVALUATE_SECONDS)
    return recording


def _whole_run(expert: str, seed: int) -> pathlib.Path:
    """All experience of a run of the expert's leaf that does not stop at its target."""
    run = RUNS / f"{expert}-{seed}-recorded"
    if not (run / "best" / "score.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        command = [sys.executable, "-m", "actor_learner.cli", "train"]
        command += [f"--gin_file=gin/{expert}.gin", f"--seed={seed}", f"--run_dir={run}"]
        command.append("--gin_param=Experiment.record = True")
        command.append("--gin_param=Evaluation.target_return = None")
        processes.run(command, TRAIN_SECONDS)
    return run


def _evaluate_again(run: pathlib.Path, episodes: int) -> float:
    command = [sys.executable, "-m", "actor_learner.cli", "eval", str(run)]
    output = processes.run([*command, f"--episodes={episodes}"], EVALUATE_SECONDS)
    return float(re.search(r"return (-?[\d.]+)", output)[1])


def _rows(run: pathlib.Path) -> list[dict]:
    from actor_learner.reporting import jsonl

    return jsonl.read_rows(run / "metrics.jsonl")


def _last_row(run: pathlib.Path) -> dict:
    """How far a run came that has crashed; empty if there is nothing to read."""
    from actor_learner.support import errors

    try:
        return _rows(run)[-1]
    except (OSError, IndexError, errors.ActorLearnerError):
        return {}


def _draw(name: str, path: pathlib.Path) -> None:
    from actor_learner.reporting import curve

    proof = proofs.PROOFS[name]
    runs = [RUNS / f"{name}-{seed}" for seed in range(proof.seeds)]
    drawn = [_rows(run) for run in runs if (run / "metrics.jsonl").exists()]
    if drawn:
        path.parent.mkdir(parents=True, exist_ok=True)
        curve.draw_seed_bands({name: drawn}, path, name, proof.target)


def _read_results() -> dict:
    if not RESULTS.exists():
        return {}
    return {(row["config"], row["seed"]): row for row in json.loads(RESULTS.read_text())}


def _write_results(results: dict) -> None:
    RESULTS.write_text(json.dumps(list(results.values()), indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
