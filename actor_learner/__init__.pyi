"""The types of the public names, which the package itself imports when they are first used."""

from actor_learner import parts as parts
from actor_learner.acting import metrics as metrics
from actor_learner.acting.actor import Actor as Actor
from actor_learner.acting.actor import collect_metrics as collect_metrics
from actor_learner.acting.actor import eval_metrics as eval_metrics
from actor_learner.acting.evaluator import Evaluator as Evaluator
from actor_learner.acting.per_lane import PerLaneObserver as PerLaneObserver
from actor_learner.agent_spec import AgentSpec as AgentSpec
from actor_learner.agents.algorithm import Algorithm as Algorithm
from actor_learner.agents.algorithm import World as World
from actor_learner.agents.bc import bc as bc
from actor_learner.agents.c51 import c51 as c51
from actor_learner.agents.cql_sac import cql_sac as cql_sac
from actor_learner.agents.ddpg import ddpg as ddpg
from actor_learner.agents.dqn import dqn as dqn
from actor_learner.agents.impala import impala as impala
from actor_learner.agents.ppo import ppo as ppo
from actor_learner.agents.r2d2 import r2d2 as r2d2
from actor_learner.agents.sac import sac as sac
from actor_learner.agents.td3 import td3 as td3
from actor_learner.collecting import Collecting as Collecting
from actor_learner.environments import suite_atari as suite_atari
from actor_learner.environments import suite_gymnasium as suite_gymnasium
from actor_learner.environments import suite_mujoco as suite_mujoco
from actor_learner.environments import suite_pybullet as suite_pybullet
from actor_learner.environments.agent_world import AgentWorld as AgentWorld
from actor_learner.environments.checks import check_environment as check_environment
from actor_learner.environments.gymnasium import GymnasiumEnvironment as GymnasiumEnvironment
from actor_learner.environments.tensor.dynamics import Dynamics as Dynamics
from actor_learner.environments.tensor.dynamics import Outcome as Outcome
from actor_learner.environments.tensor.environment import TensorEnvironment as TensorEnvironment
from actor_learner.evaluation_settings import Evaluation as Evaluation
from actor_learner.experience import Sequence as Sequence
from actor_learner.experience import Unroll as Unroll
from actor_learner.experiment import Experiment as Experiment
from actor_learner.jobs.controller import Controller as Controller
from actor_learner.jobs.worker import Worker as Worker
from actor_learner.learning import triggers as triggers
from actor_learner.learning.best_policy_trigger import BestPolicyTrigger as BestPolicyTrigger
from actor_learner.learning.evaluation import EvaluationResult as EvaluationResult
from actor_learner.learning.evaluation import EvaluationTrigger as EvaluationTrigger
from actor_learner.learning.interval_trigger import IntervalTrigger as IntervalTrigger
from actor_learner.learning.learner import Learner as Learner
from actor_learner.learning.ppo_learner import PPOLearner as PPOLearner
from actor_learner.learning.priority_updater import PriorityUpdater as PriorityUpdater
from actor_learner.learning.step_per_second_tracker import (
    StepPerSecondTracker as StepPerSecondTracker,
)
from actor_learner.learning.triggers import PolicySavedModelTrigger as PolicySavedModelTrigger
from actor_learner.learning.triggers import ReverbCheckpointTrigger as ReverbCheckpointTrigger
from actor_learner.learning.triggers import StepPerSecondLogTrigger as StepPerSecondLogTrigger
from actor_learner.learning.triggers import StopTraining as StopTraining
from actor_learner.naming.registry import NameRegistry as NameRegistry
from actor_learner.parameters.reverb_variable_container import (
    ReverbVariableContainer as ReverbVariableContainer,
)
from actor_learner.parameters.store import ParameterStore as ParameterStore
from actor_learner.parameters.variables import warm_start as warm_start
from actor_learner.replay.observers import ReverbAddEpisodeObserver as ReverbAddEpisodeObserver
from actor_learner.replay.observers import (
    ReverbAddTrajectoryObserver as ReverbAddTrajectoryObserver,
)
from actor_learner.replay.observers import (
    ReverbTrajectorySequenceObserver as ReverbTrajectorySequenceObserver,
)
from actor_learner.replay.reading.datasets import lane_transitions as lane_transitions
from actor_learner.replay.recording.experience_recorder import (
    ExperienceRecorder as ExperienceRecorder,
)
from actor_learner.replay.reverb_replay_buffer import ReverbReplayBuffer as ReverbReplayBuffer
from actor_learner.replay.server.server import ReplayServer as ReplayServer
from actor_learner.replay.streams.lane_replay import LaneReplay as LaneReplay
from actor_learner.replay.streams.mixed_replay import MixedReplay as MixedReplay
from actor_learner.replay.streams.prioritized_replay import PrioritizedReplay as PrioritizedReplay
from actor_learner.replay.streams.recorded_replay import RecordedReplay as RecordedReplay
from actor_learner.replay.streams.recorded_sequences import RecordedSequences as RecordedSequences
from actor_learner.replay.streams.sample_stream import Experience as Experience
from actor_learner.replay.streams.sample_stream import SampleStream as SampleStream
from actor_learner.replay.streams.seeded_replay import SeededReplay as SeededReplay
from actor_learner.replay.streams.sequence_replay import SequenceReplay as SequenceReplay
from actor_learner.replay.streams.unroll_queue import UnrollQueue as UnrollQueue
from actor_learner.replay.streams.window_replay import WindowReplay as WindowReplay
from actor_learner.replay.writing.block_observer import BlockObserver as BlockObserver
from actor_learner.replay.writing.episode_rows import read_episodes as read_episodes
from actor_learner.replay.writing.window_observer import LaneObserver as LaneObserver
from actor_learner.reporting.logger import RunContext as RunContext
from actor_learner.reporting.wandb_logger import WandbLogger as WandbLogger
from actor_learner.run_directory import RunDirectory as RunDirectory
from actor_learner.run_settings import Checkpoints as Checkpoints
from actor_learner.run_settings import Devices as Devices
from actor_learner.run_settings import Reporting as Reporting
from actor_learner.run_settings import Staleness as Staleness
from actor_learner.runs.loaded_policy import LoadedPolicy as LoadedPolicy
from actor_learner.runs.loaded_policy import load_policy as load_policy
from actor_learner.runs.one_process import OneProcess as OneProcess
from actor_learner.runs.python_run import train as train
from actor_learner.runs.result import Result as Result

__version__: str
