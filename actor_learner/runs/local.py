"""Decides whether experience stays within the process or goes through the replay server."""

from __future__ import annotations

import dataclasses

from actor_learner import experiment as experiment_lib
from actor_learner import plan as plan_lib
from actor_learner.replay.streams import local_unrolls, unroll_queue
from actor_learner.support import errors


def within_process(plan: plan_lib.Plan, experiment: experiment_lib.Experiment) -> plan_lib.Plan:
    """Returns the plan of a run whose actors and learner share this process.

    Args:
      plan: The plan of the experiment, as jobs would use it.
      experiment: The experiment.

    Raises:
      errors.ConfigError: If the contents of the in-process queue are to be saved, which only a
        server can do; or if `Devices.actors` is set without such a queue, or together with
        `Experiment.overlap` or `Experiment.record`.
    """
    stream = plan.stream
    num_actors = len(experiment.devices.actors)
    if not (isinstance(stream, unroll_queue.UnrollQueue) and stream.in_process):
        if num_actors:
            raise errors.ConfigError(
                "Devices.actors is set, but experience goes through the replay server: it is for "
                "on-policy algorithms, with UnrollQueue.in_process = True. Other algorithms "
                "collect while they learn with Experiment.overlap, or as separate jobs"
            )
        return plan
    if plan.copies:
        raise errors.ConfigError(
            f"tables names {', '.join(plan.copies)} besides the learner's, but "
            "with UnrollQueue.in_process nothing goes through the replay server: leave out one of "
            "the two"
        )
    if experiment.checkpoints.save_replay:
        raise errors.ConfigError(
            "Checkpoints.save_replay is set, but UnrollQueue.in_process keeps unrolls out of the "
            "replay server, which alone can save them: leave out one of the two"
        )
    if num_actors and (experiment.overlap or experiment.record):
        setting = "overlap" if experiment.overlap else "record"
        why = "has actors collect in threads already" if experiment.overlap else "cannot record"
        raise errors.ConfigError(
            f"Experiment.{setting} is set, but Devices.actors {why}: leave out one of the two"
        )
    if not num_actors:
        return dataclasses.replace(plan, stream=local_unrolls.LocalUnrolls(stream))
    local = local_unrolls.LocalUnrolls(stream, num_actors, experiment.devices.lag + 1)
    group_steps = local.group_steps_per_update(plan.experience, plan.batch_size)
    return dataclasses.replace(
        plan,
        stream=local,
        group_steps=group_steps,
        updates_per_step=1.0 / (group_steps * plan.num_lanes * num_actors),
    )
