"""Reinforcement learning split into actors, a Reverb server and a learner.

The public names. They are imported when first used, so that `import actor_learner` costs nothing
and the command line can check a configuration before TensorFlow is loaded.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

_MODULES = {
    "triggers": "actor_learner.learning.triggers",
    "metrics": "actor_learner.acting.metrics",
    "suite_gymnasium": "actor_learner.environments.suite_gymnasium",
}

_NAMES = {
    "Actor": "actor_learner.acting.actor",
    "PerLaneObserver": "actor_learner.acting.per_lane",
    "collect_metrics": "actor_learner.acting.actor",
    "eval_metrics": "actor_learner.acting.actor",
    "Evaluator": "actor_learner.acting.evaluator",
    "Algorithm": "actor_learner.agents.algorithm",
    "World": "actor_learner.agents.algorithm",
    "GymnasiumEnvironment": "actor_learner.environments.gymnasium",
    "check_environment": "actor_learner.environments.checks",
    "Experiment": "actor_learner.experiment",
    "OneProcess": "actor_learner.jobs.one_process",
    "BestPolicyTrigger": "actor_learner.learning.evaluation",
    "EvaluationResult": "actor_learner.learning.evaluation",
    "EvaluationTrigger": "actor_learner.learning.evaluation",
    "IntervalTrigger": "actor_learner.learning.interval_trigger",
    "Learner": "actor_learner.learning.learner",
    "PPOLearner": "actor_learner.learning.ppo_learner",
    "StepPerSecondTracker": "actor_learner.learning.step_per_second_tracker",
    "PolicySavedModelTrigger": "actor_learner.learning.triggers",
    "ReverbCheckpointTrigger": "actor_learner.learning.triggers",
    "StepPerSecondLogTrigger": "actor_learner.learning.triggers",
    "StopTraining": "actor_learner.learning.triggers",
    "ReverbVariableContainer": "actor_learner.parameters.reverb_variable_container",
    "LaneObserver": "actor_learner.replay.lane_observer",
    "LaneReplay": "actor_learner.replay.lane_replay",
    "WindowReplay": "actor_learner.replay.window_replay",
    "ReverbAddEpisodeObserver": "actor_learner.replay.observers",
    "ReverbAddTrajectoryObserver": "actor_learner.replay.observers",
    "ReverbTrajectorySequenceObserver": "actor_learner.replay.observers",
    "ReplayServer": "actor_learner.replay.server",
    "ReverbReplayBuffer": "actor_learner.replay.reverb_replay_buffer",
    "lane_transitions": "actor_learner.replay.datasets",
    "RunDirectory": "actor_learner.run_directory",
}

__all__ = sorted([*_MODULES, *_NAMES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'actor_learner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
