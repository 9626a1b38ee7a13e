"""Measures the cost of a turn of an experiment's actor, with any number of lanes."""

from __future__ import annotations

import contextlib
import time
from typing import Callable

import tensorflow as tf

from actor_learner import experiment as experiment_lib
from actor_learner.acting import turn_times
from actor_learner.environments import lanes as lanes_lib
from actor_learner.replay.server import server as server_lib
from actor_learner.runs import acting_side, actor_advice

_WARM_UP_TURNS = 2


def measure(
    experiment: experiment_lib.Experiment,
    num_lanes: int | None,
    *,
    seconds: float,
    seed: int = 0,
    recording_dir: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[actor_advice.Measured, str]:
    """Acts as in a run, with an untrained policy and a server of its own, and does not train.

    Args:
      experiment: The experiment to act in.
      num_lanes: Number of lanes, for environments that take `num_envs`; None for as many as are
        configured.
      seconds: How long to measure, after three turns to warm up.
      seed: Seed of environment and exploration.
      recording_dir: Where experience is recorded, if the experiment says so.
      clock: Returns seconds.

    Returns:
      The cost of a step, and how inference was done.
    """
    with contextlib.ExitStack() as closing:
        more = {} if num_lanes is None else {"num_envs": num_lanes}
        env = experiment.make_environment(seed, **more)
        closing.callback(env.close)
        lanes = lanes_lib.as_lanes(env).num_lanes
        counters = [tf.Variable(0, trainable=False, dtype=tf.int64) for _ in range(2)]
        train_step, environment_step = counters
        algorithm = experiment.make_algorithm(env, train_step, environment_step)
        plan = experiment.plan(algorithm, lanes)
        server = server_lib.ReplayServer(plan.tables())
        closing.callback(server.stop)
        client = server.client()
        environment_step.assign(plan.initial_random_steps)  # Random steps do not use the policy.
        acting = acting_side.ActingSide(
            experiment,
            plan,
            algorithm,
            env,
            client,
            train_step=train_step,
            environment_step=environment_step,
            seed=seed,
            recording_dir=recording_dir,
        )
        closing.callback(acting.close)

        def take_turn() -> None:
            acting.run()
            client.reset(plan.stream.table_name)  # Nobody samples it, so it would fill up.

        for _ in range(_WARM_UP_TURNS):
            take_turn()
        times = acting.actor.times = turn_times.TurnTimes(1, clock=clock)
        take_turn()  # Not measured: the first turn with the new clock.
        before, steps, deadline = times.totals(), acting.steps_taken, clock() + seconds
        turns = 0
        while not turns or clock() < deadline:
            take_turn()
            turns += 1
        spent = {kind: now - before[kind] for kind, now in times.totals().items()}
        group_steps = turns * plan.steps_per_turn / lanes
        taken = acting.steps_taken - steps
        measured = actor_advice.Measured(
            lanes,
            *(spent[kind] / group_steps for kind in turn_times.PARTS),
            steps_per_second=taken / sum(spent.values()),
        )
        return measured, acting.actor.inference
