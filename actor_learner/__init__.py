"""Reinforcement learning split into actors, a Reverb server and a learner.

The public names. They are imported when first used, so that `import actor_learner` costs nothing
and the command line can check a configuration before TensorFlow is loaded. What TensorFlow prints
on that occasion is dropped.
"""

from typing import Any

from actor_learner.support import quiet_import

__version__ = "0.2.0"

_MODULES = {
    "parts": "actor_learner.parts",
    "triggers": "actor_learner.learning.triggers",
    "metrics": "actor_learner.acting.metrics",
    "suite_atari": "actor_learner.environments.suite_atari",
    "suite_gymnasium": "actor_learner.environments.suite_gymnasium",
    "suite_mujoco": "actor_learner.environments.suite_mujoco",
    "suite_pybullet": "actor_learner.environments.suite_pybullet",
}

_NAMES = {
    "Actor": "actor_learner.acting.actor",
    "collect_metrics": "actor_learner.acting.actor",
    "eval_metrics": "actor_learner.acting.actor",
    "Evaluator": "actor_learner.acting.evaluator",
    "PerLaneObserver": "actor_learner.acting.per_lane",
    "AgentSpec": "actor_learner.agent_spec",
    "Collecting": "actor_learner.collecting",
    "Algorithm": "actor_learner.agents.algorithm",
    "World": "actor_learner.agents.algorithm",
    "bc": "actor_learner.agents.bc",
    "c51": "actor_learner.agents.c51",
    "cql_sac": "actor_learner.agents.cql_sac",
    "ddpg": "actor_learner.agents.ddpg",
    "dqn": "actor_learner.agents.dqn",
    "impala": "actor_learner.agents.impala",
    "ppo": "actor_learner.agents.ppo",
    "r2d2": "actor_learner.agents.r2d2",
    "sac": "actor_learner.agents.sac",
    "td3": "actor_learner.agents.td3",
    "AgentWorld": "actor_learner.environments.agent_world",
    "check_environment": "actor_learner.environments.checks",
    "GymnasiumEnvironment": "actor_learner.environments.gymnasium",
    "Dynamics": "actor_learner.environments.tensor.dynamics",
    "Outcome": "actor_learner.environments.tensor.dynamics",
    "TensorEnvironment": "actor_learner.environments.tensor.environment",
    "Evaluation": "actor_learner.evaluation_settings",
    "Experience": "actor_learner.replay.streams.sample_stream",
    "PriorityUpdater": "actor_learner.learning.priority_updater",
    "Sequence": "actor_learner.experience",
    "Unroll": "actor_learner.experience",
    "Experiment": "actor_learner.experiment",
    "load_policy": "actor_learner.runs.loaded_policy",
    "LoadedPolicy": "actor_learner.runs.loaded_policy",
    "Result": "actor_learner.runs.result",
    "train": "actor_learner.runs.python_run",
    "Controller": "actor_learner.jobs.controller",
    "OneProcess": "actor_learner.runs.one_process",
    "Worker": "actor_learner.jobs.worker",
    "BestPolicyTrigger": "actor_learner.learning.best_policy_trigger",
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
    "NameRegistry": "actor_learner.naming.registry",
    "ReverbVariableContainer": "actor_learner.parameters.reverb_variable_container",
    "ParameterStore": "actor_learner.parameters.store",
    "warm_start": "actor_learner.parameters.variables",
    "BlockObserver": "actor_learner.replay.writing.block_observer",
    "read_episodes": "actor_learner.replay.writing.episode_rows",
    "lane_transitions": "actor_learner.replay.reading.datasets",
    "LaneObserver": "actor_learner.replay.writing.window_observer",
    "LaneReplay": "actor_learner.replay.streams.lane_replay",
    "MixedReplay": "actor_learner.replay.streams.mixed_replay",
    "ReverbAddEpisodeObserver": "actor_learner.replay.observers",
    "ReverbAddTrajectoryObserver": "actor_learner.replay.observers",
    "ReverbTrajectorySequenceObserver": "actor_learner.replay.observers",
    "RecordedReplay": "actor_learner.replay.streams.recorded_replay",
    "PrioritizedReplay": "actor_learner.replay.streams.prioritized_replay",
    "RecordedSequences": "actor_learner.replay.streams.recorded_sequences",
    "ExperienceRecorder": "actor_learner.replay.recording.experience_recorder",
    "ReverbReplayBuffer": "actor_learner.replay.reverb_replay_buffer",
    "SampleStream": "actor_learner.replay.streams.sample_stream",
    "SeededReplay": "actor_learner.replay.streams.seeded_replay",
    "SequenceReplay": "actor_learner.replay.streams.sequence_replay",
    "ReplayServer": "actor_learner.replay.server.server",
    "UnrollQueue": "actor_learner.replay.streams.unroll_queue",
    "WindowReplay": "actor_learner.replay.streams.window_replay",
    "RunContext": "actor_learner.reporting.logger",
    "WandbLogger": "actor_learner.reporting.wandb_logger",
    "RunDirectory": "actor_learner.run_directory",
    "Checkpoints": "actor_learner.run_settings",
    "Devices": "actor_learner.run_settings",
    "Reporting": "actor_learner.run_settings",
    "Staleness": "actor_learner.run_settings",
}

__all__ = sorted([*_MODULES, *_NAMES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return quiet_import.import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(quiet_import.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'actor_learner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
