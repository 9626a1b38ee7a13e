"""Trains the ready-made configurations on several seeds and says which reach their target.

python benchmarks/learning_proofs.py [--only dqn_cartpole,sac_pendulum] [--fresh]

Each (configuration, seed) is a run of its own under learn/, made by the command a user types.
Finished ones are not repeated unless their gin file has changed: an interrupted proof goes on.
Results: a table, curves with seed bands (learn/<configuration>.png) and learn_results.json, rows
{config, seed, target, reached, succeeded, environment_steps, seconds, best_return, ...}.
`reached` is judged by the evaluations during training; `fresh_return` rates the best policy again,
on 20 episodes of other seeds, because the best of many evaluations is partly luck.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "learn_results.json"
RUNS = ROOT / "learn"
FRESH_SEED = 777


@dataclasses.dataclass(frozen=True)
class Proof:
    """What a configuration must show: `needed` of `seeds` seeds reach `target`.

    Attributes:
      target: Mean return to reach; for controls, not to reach.
      seeds: How many are tried.
      needed: How many must succeed.
      leaf: The gin file; by default the proof's own name.
      actors: Train as separate jobs, with so many actors, instead of in one process.
      control: Shows what must fail: no evaluation may reach the target.
      expert: Learns from 20 recorded episodes of what this other proof has trained.
    """

    target: float
    seeds: int
    needed: int
    leaf: str | None = None
    actors: int = 0
    control: bool = False
    expert: str | None = None


PROOFS = {
    "dqn_cartpole": Proof(target=475.0, seeds=5, needed=4),
    "c51_cartpole": Proof(target=475.0, seeds=3, needed=2),
    "sac_pendulum": Proof(target=-180.0, seeds=3, needed=3),
    "td3_pendulum": Proof(target=-180.0, seeds=3, needed=2),
    "dqn_lunarlander": Proof(target=200.0, seeds=3, needed=2),
    "ppo_cartpole": Proof(target=475.0, seeds=5, needed=4),
    "impala_cartpole": Proof(target=475.0, seeds=5, needed=4),
    "per_dqn_cartpole": Proof(target=475.0, seeds=5, needed=4),
    "ppo_pendulum": Proof(target=-200.0, seeds=5, needed=4),
    "r2d2_memory": Proof(target=0.95, seeds=5, needed=4),
    "r2d2_memory_control": Proof(target=0.4, seeds=2, needed=2, control=True),
    "bc_cartpole": Proof(target=475.0, seeds=5, needed=4, expert="dqn_cartpole"),
    "ppo_lunarlander": Proof(target=200.0, seeds=3, needed=3),
    "dqn_cartpole_jobs": Proof(target=475.0, seeds=5, needed=4, leaf="dqn_cartpole", actors=2),
    "sac_pendulum_jobs": Proof(target=-180.0, seeds=3, needed=3, leaf="sac_pendulum", actors=1),
    "ppo_cartpole_jobs": Proof(target=475.0, seeds=3, needed=2, leaf="ppo_cartpole", actors=1),
    "impala_cartpole_jobs": Proof(
        target=475.0, seeds=3, needed=2, leaf="impala_cartpole", actors=2
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="configurations, separated by commas")
    parser.add_argument("--fresh", action="store_true", help="repeat what is finished")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or list(PROOFS)
    unknown = sorted(set(names) - set(PROOFS))
    if unknown:
        parser.error(f"no proof named {', '.join(unknown)}; there are {', '.join(PROOFS)}")
    results = _read_results()
    for name in names:
        for seed in range(PROOFS[name].seeds):
            key = (name, seed)
            known = results.get(key, {})
            if arguments.fresh or known.get("config_digest") != _config_digest(name):
                results[key] = _prove(name, seed)
                _write_results(results)
            print(_line(results[key]), flush=True)
        _draw(name)
    return 0 if _summary(names, results) else 1


def _prove(name: str, seed: int) -> dict:
    proof = PROOFS[name]
    run = RUNS / f"{name}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "actor_learner.cli", "up" if proof.actors else "train"]
    command += [f"--gin_file=gin/{proof.leaf or name}.gin", f"--seed={seed}", f"--run_dir={run}"]
    if proof.actors:
        command.append(f"--actors={proof.actors}")
    if proof.expert:
        demonstrations = _demonstrations(proof.expert, seed)
        command.append(f"--gin_param=RecordedReplay.path = '{demonstrations}'")
    process = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if process.returncode != 0:
        raise SystemExit(f"{name}, seed {seed}: training failed\n{process.stdout[-4000:]}")
    score = json.loads((run / "best" / "score.json").read_text())
    rows = _rows(run)
    reached_at = next((row for row in rows if row.get("eval_return", -1e9) >= proof.target), None)
    end = reached_at or rows[-1]
    fresh = _evaluate_again(run)
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
        "config_digest": _config_digest(name),
    }


def _demonstrations(expert: str, seed: int) -> pathlib.Path:
    """Episodes of the expert with the same seed, recorded now; it is trained first if need be."""
    run = RUNS / f"{expert}-{seed}"
    if not (run / "best" / "score.json").exists():
        _prove(expert, seed)
    recording = run / "experience"
    shutil.rmtree(recording, ignore_errors=True)
    command = [sys.executable, "-m", "actor_learner.cli", "eval", str(run)]
    subprocess.run([*command, f"--record={recording}"], cwd=ROOT, check=True, capture_output=True)
    return recording


def _config_digest(name: str) -> str:
    """Changes with the proof's gin file, or one that it includes: a proof of another is none."""
    digest = hashlib.sha256()
    pending = [f"{PROOFS[name].leaf or name}.gin"]
    while pending:
        path = ROOT / "gin" / pending.pop(0)
        # Comments carry the results of these very proofs.
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        digest.update("\n".join([path.name, *lines]).encode())
        pending += re.findall(r"^include '(.+)'", "\n".join(lines), re.MULTILINE)
    return digest.hexdigest()[:12]


def _evaluate_again(run: pathlib.Path) -> float:
    command = [sys.executable, "-m", "actor_learner.cli", "eval", str(run)]
    process = subprocess.run(
        [*command, "--episodes=20", f"--seed={FRESH_SEED}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(re.search(r"return (-?[\d.]+)", process.stdout)[1])


def _rows(run: pathlib.Path) -> list[dict]:
    from actor_learner.reporting import jsonl

    return jsonl.read_rows(run / "metrics.jsonl")


def _draw(name: str) -> None:
    from actor_learner.reporting import curve

    runs = [_rows(RUNS / f"{name}-{seed}") for seed in range(PROOFS[name].seeds)]
    curve.draw_seed_bands({name: runs}, RUNS / f"{name}.png", name, PROOFS[name].target)


def _read_results() -> dict:
    if not RESULTS.exists():
        return {}
    return {(row["config"], row["seed"]): row for row in json.loads(RESULTS.read_text())}


def _write_results(results: dict) -> None:
    RESULTS.write_text(json.dumps(list(results.values()), indent=2) + "\n")


def _line(row: dict) -> str:
    return (
        f"{row['config']:20} seed {row['seed']}  {'reached' if row['reached'] else 'missed '} "
        f"{row['target']:7.1f}  best {row['best_return']:7.1f}  fresh {row['fresh_return']:7.1f}  "
        f"{row['environment_steps']:9,} steps  {row['seconds']:7.1f} s"
    )


def _summary(names: list[str], results: dict) -> bool:
    print()
    proved = True
    for name in names:
        proof = PROOFS[name]
        rows = [results[name, seed] for seed in range(proof.seeds)]
        succeeded = [row for row in rows if row["succeeded"]]
        again = [row for row in rows if row["fresh_holds"]]
        holds = len(succeeded) >= proof.needed
        proved &= holds
        seconds = sorted(row["seconds"] for row in rows)
        steps = sorted(row["environment_steps"] for row in rows)
        verb = "stay below" if proof.control else "reach"
        print(
            f"{'proved' if holds else 'FAILED':7} {name:20} {len(succeeded)} of {proof.seeds} "
            f"seeds {verb} {proof.target:g}; median {steps[len(steps) // 2]:,} steps, "
            f"{seconds[len(seconds) // 2]:.0f} s ({seconds[0]:.0f} to {seconds[-1]:.0f}); on other "
            f"seeds {len(again)} of them still do"
        )
    return proved


if __name__ == "__main__":
    sys.exit(main())
