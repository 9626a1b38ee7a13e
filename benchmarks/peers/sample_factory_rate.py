"""Environment steps per second that Sample Factory trains CartPole with.

python benchmarks/peers/sample_factory_rate.py --steps=300000 --warm_up=10

Run by the Python of the peers' environment; prints one line of JSON: {"steps_per_second", "steps"}.
Parameters are those that its documentation gives for CartPole, but for the network, which is as
large as ours (64x64, policy and value in one) instead of 512x512. The rate is the slope between its
own counts, one every 5 s, after `warm_up` seconds, so that starting its processes does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile

from sample_factory import train
from sample_factory.algo.utils import misc
from sample_factory.cfg import arguments as configuration
from sf_examples import train_gym_env

PARAMETERS = (
    "--env=CartPole-v1",
    "--algo=APPO",
    "--device=cpu",
    "--use_rnn=False",
    "--num_envs_per_worker=20",
    "--policy_workers_per_policy=2",
    "--recurrence=1",
    "--with_vtrace=False",
    "--batch_size=512",
    "--reward_scale=0.1",
    "--encoder_mlp_layers",
    "64",
    "64",
    "--log_to_file=False",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300_000, help="of training, in all")
    parser.add_argument("--warm_up", type=float, default=10.0, help="seconds that do not count")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train_gym_env.register_custom_components()
    with tempfile.TemporaryDirectory() as directory:
        given = [
            *PARAMETERS,
            f"--seed={options.seed}",
            f"--train_for_env_steps={options.steps}",
            f"--train_dir={directory}",
            "--experiment=rate",
        ]
        sf_parser, _ = configuration.parse_sf_args(given)
        _, runner = train.make_runner(configuration.parse_full_cfg(sf_parser, given))
        status = runner.init()
        if status == misc.ExperimentStatus.SUCCESS:
            status = runner.run()
        counts = list(runner.fps_stats)
    if status != misc.ExperimentStatus.SUCCESS:
        print(f"Sample Factory ended with status {status}", file=sys.stderr)
        return 1
    print(json.dumps(slope(counts, options.warm_up)), flush=True)
    return 0


def slope(counts: list[tuple[float, int]], warm_up: float) -> dict[str, float]:
    """Steps per second between the first count after `warm_up` seconds of steps and the last."""
    moving = [(when, steps) for when, steps in counts if steps > 0]
    counted = [(when, steps) for when, steps in moving if when - moving[0][0] >= warm_up]
    if len(counted) < 2:
        raise SystemExit(f"{len(counted)} counts after {warm_up:g} s: train for more --steps")
    (first, before), (last, after) = counted[0], counted[-1]
    return {"steps_per_second": (after - before) / (last - first), "steps": after - before}


if __name__ == "__main__":
    sys.exit(main())
