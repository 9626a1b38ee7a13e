"""Trains twice on three logical CPU devices, by threads and by one, and prints what it found.

A program of its own, since TensorFlow divides its devices once, before the first operation.
"""

import json
import pathlib
import sys

import numpy as np

from actor_learner import evaluation_settings, experiment, run_directory, run_settings
from actor_learner.agents import ppo
from actor_learner.environments.tensor import cartpole, environment
from actor_learner.replay.streams import unroll_queue
from actor_learner.runs import one_process

LANES, LENGTH, STEPS = 8, 4, 400
LAG = 1


def make_env(seed, num_envs=LANES):
    return environment.TensorEnvironment(cartpole.CartPoleDynamics(), num_envs, seed=seed)


def build(run, rows):
    return one_process.OneProcess(
        experiment.Experiment(
            make_env,
            lambda world: ppo.ppo(world, fc_layer_params=(8,), epochs=2, minibatch_size=32),
            replay=unroll_queue.UnrollQueue(LENGTH, in_process=True),
            environment_steps=STEPS,
            sample_timeout_seconds=600.0,  # Tracing in threads of a loaded machine takes long.
            evaluation=evaluation_settings.Evaluation(interval=0, episodes=2),
            reporting=run_settings.Reporting(seconds=1e-6),
            devices=run_settings.Devices(
                ("CPU:1", "CPU:2"), learner="CPU:0", lag=LAG, logical_cpus=3
            ),
        ),
        run_directory.RunDirectory(run),
        seed=1,
        on_row=rows.append,
    )


def by_one_thread(acting, learning):
    """What the threads do, one after the other."""
    policies = acting.policies
    policies.publish()
    turn, taken = 0, 0
    allowed = LAG + 1
    while policies.rounds < allowed:
        while turn < min(allowed, policies.rounds + LAG + 1):
            for index, actor in enumerate(acting.actors):
                policies.apply(index, turn)
                actor.run()
            turn += 1
        learning.train(1)
        taken += acting.steps_of_round()
        policies.publish()
        if taken < STEPS:
            allowed = policies.rounds + LAG + 1


def main(directory):
    found = {}
    for name in ("threads", "one_thread"):
        rows = []
        with build(pathlib.Path(directory) / name, rows) as training:
            if name == "threads":
                assert training.run() == one_process.COMPLETED
                kernel = training._acting._sides[1].actor.policy.variables()[0]
                found["actor_device"] = kernel.device
                found["learner_device"] = training._algorithm.agent.variables[0].device
                found["row"] = {
                    key: rows[-1][key]
                    for key in ("replay_size", "samples_per_insert", "version_lag", "episodes")
                }
            else:
                by_one_thread(training._acting, training._learning)
            weights = training._algorithm.agent.collect_policy.variables()
            found[name] = [float(np.sum(np.abs(v.numpy()))) for v in weights]
            found[f"{name}_counts"] = [training.environment_step, training.train_step]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
