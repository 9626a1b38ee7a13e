"""Runs of every agent that meet a number which is not finite: in one process, and as jobs.

python -m tests.runs.faults dqn jobs /tmp/some/directory
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys
import uuid
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory

from actor_learner import experiment, run_directory
from actor_learner.jobs.workers import actor, learner, replay
from actor_learner.replay.recording import experience_recorder
from actor_learner.runs import one_process
from actor_learner.support import errors
from tests.jobs import jobs_in_process
from tests.runs import faulty_environment, poison_weights

REWARD, OBSERVATION, LOSS, WEIGHTS = "reward", "observation", "loss", "weights"
HUGE = 3e38
"""Finite; its square, or the sum of two, is not."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is not finite, and where: in a step, in all that is computed of it, in the agent."""

    place: str
    value: str

    def __str__(self) -> str:
        return f"{self.place} {self.value}"


FAULTS = (
    Fault(REWARD, "nan"),
    Fault(REWARD, "inf"),
    Fault(OBSERVATION, "nan"),
    Fault(OBSERVATION, "inf"),
    Fault(LOSS, str(HUGE)),
    Fault(WEIGHTS, "nan"),
    Fault(WEIGHTS, "inf"),
)

_COLLECTED = """
Experiment.environment = @FaultyEnvironment
FaultyEnvironment.continuous = {continuous}
Evaluation.interval = 0
Evaluation.episodes = 1
Experiment.environment_steps = {environment_steps}
"""
_TRANSITIONS = """
Experiment.replay = @LaneReplay()
# Of items with many rows, those with the latest steps may not be drawn in so short a run.
LaneReplay.rows_per_item = 1
Experiment.initial_random_steps = 32
Experiment.updates_per_step = 0.5
Experiment.collect_steps = 16
Experiment.batch_size = 16
"""
_UNROLLS = """
Experiment.replay = @UnrollQueue()
UnrollQueue.unroll_length = 16
"""
_SEQUENCES = """
Experiment.replay = @SequenceReplay()
SequenceReplay.sequence_length = 6
SequenceReplay.period = 6
Experiment.learn_from = 32
Experiment.updates_per_step = 0.5
Experiment.collect_steps = 16
Experiment.batch_size = 8
"""
_CRITIC = """
{0}.actor_fc_layer_params = (4,)
{0}.critic_fc_layer_params = (4,)
"""
AGENTS = {
    "dqn": _TRANSITIONS + "dqn.fc_layer_params = (4,)",
    "c51": _TRANSITIONS + "c51.fc_layer_params = (4,)",
    "sac": _TRANSITIONS + _CRITIC.format("sac"),
    "td3": _TRANSITIONS + _CRITIC.format("td3"),
    "ddpg": _TRANSITIONS + _CRITIC.format("ddpg"),
    "ppo": _UNROLLS + "ppo.fc_layer_params = (4,)\nppo.epochs = 2\nppo.minibatch_size = 8",
    "impala": _UNROLLS + "impala.fc_layer_params = (4,)",
    "r2d2": _SEQUENCES
    + "r2d2.fc_layer_params = (4,)\nr2d2.head_layer_params = (4,)\n"
    + "r2d2.lstm_size = 3\nr2d2.burn_in = 0\nr2d2.n_step = 1",
    "bc": _TRANSITIONS + "bc.fc_layer_params = (4,)",
    "cql_sac": _TRANSITIONS + _CRITIC.format("cql_sac") + "cql_sac.cql_samples = 2",
}
CONTINUOUS = ("sac", "td3", "ddpg", "ppo", "cql_sac")
OFFLINE = ("bc", "cql_sac")
"""Learn from recorded steps in one process; as jobs, which such runs do not have, from new ones."""

HARMLESS = {
    ("c51", Fault(REWARD, "inf")): "its returns are clipped to the largest that it knows",
    ("bc", Fault(REWARD, "nan")): "it does not look at rewards",
    ("bc", Fault(REWARD, "inf")): "it does not look at rewards",
}

_RECORDED = """
Experiment.replay = @RecordedReplay()
RecordedReplay.path = '{path}'
Experiment.train_steps = {train_steps}
Experiment.batch_size = 16
# Without an environment nothing is evaluated: so often the learner is called.
Evaluation.interval = 5
"""
_STEPS = 320
"""Steps that a run goes on for; the 98th, in the middle of an episode, may be faulty."""
_TRAIN_STEPS = 100
_HEALTHY_TRAIN_STEPS = 4


class Run:
    """The runs, one after the other, of one run directory.

    Args:
      directory: Where everything goes.
      agent: One of `AGENTS`.
    """

    def __init__(self, directory: pathlib.Path, agent: str) -> None:
        self.run_dir = run_directory.RunDirectory(directory / "run")
        self.run_dir.path.mkdir()
        self._directory, self._agent = directory, agent
        self.is_recorded = False
        self.train_step = self._environment_step = 0

    def train(self, fault: Fault | None) -> None:
        """Trains on from what is there.

        Raises:
          errors.NotFiniteError: If that ends it.
          AssertionError: If it does not go on from the train step that was reached before.
        """
        raise NotImplementedError

    def _note_start(self, train_step: int) -> None:
        assert train_step == self.train_step, "it does not go on from the last good state"

    def _collected(self, environment_steps: int) -> list[str]:
        """Bindings of a run that collects."""
        how = _COLLECTED.format(
            continuous=self._agent in CONTINUOUS, environment_steps=environment_steps
        )
        return [how, AGENTS[self._agent]]

    @contextlib.contextmanager
    def _configured(self, fault: Fault | None, *bindings: str):
        lines = [
            "import tests.runs.faulty_environment",
            "import tests.runs.poison_weights",
            "include 'base.gin'",
            f"include 'agents/{self._agent}.gin'",
            f"Learner.checkpoint_interval = {poison_weights.CHECKPOINT_INTERVAL}",
            "Learner.summary_interval = 0",
            "Reporting.seconds = 1e-6",
            *bindings,
        ]
        if fault is not None and fault.place == WEIGHTS:
            lines += [
                "Learner.triggers = [@PoisonWeights()]",
                "PoisonWeights.agent = @agent()",
                f"PoisonWeights.value = '{fault.value}'",
            ]
        elif fault is not None and not self.is_recorded:
            for name, value in _arguments(fault, self._agent).items():
                lines.append(f"FaultyEnvironment.{name} = {value!r}")
        path = self._directory / f"{self._agent}.gin"
        path.write_text("\n".join(lines))
        with jobs_in_process.configured(str(path)) as source:
            yield source


class OneProcessRun(Run):
    """In one process; of `OFFLINE` agents on recorded steps."""

    def __init__(self, directory: pathlib.Path, agent: str) -> None:
        super().__init__(directory, agent)
        self.is_recorded = agent in OFFLINE

    def train(self, fault: Fault | None) -> None:
        rows: list[dict[str, Any]] = []
        with self._configured(fault, *self._bindings(fault)):
            with one_process.OneProcess(
                experiment.Experiment(), self.run_dir, seed=1, on_row=rows.append
            ) as training:
                self._note_start(training.train_step)
                try:
                    assert training.run() == one_process.COMPLETED
                finally:
                    if rows:
                        self._environment_step = rows[-1]["environment_steps"]
                    self.train_step = int(latest_checkpoint(self.run_dir).rpartition("-")[2])

    def _bindings(self, fault: Fault | None) -> list[str]:
        if not self.is_recorded:
            return self._collected(self._environment_step + _STEPS)
        path = self._directory / f"recorded {fault}"
        if not path.exists():
            record(path, self._agent, fault)
        recorded = _RECORDED.format(path=path, train_steps=self.train_step + _TRAIN_STEPS)
        return [AGENTS[self._agent].replace(_TRANSITIONS, ""), recorded]


class JobsRun(Run):
    """As a replay job, an actor and a learner, which this process polls."""

    def train(self, fault: Fault | None) -> None:
        space = uuid.uuid4().hex
        harmless = fault is None or (self._agent, fault) in HARMLESS
        enough = self.train_step + (_HEALTHY_TRAIN_STEPS if fault is None else _TRAIN_STEPS)
        with (
            self._configured(fault, *self._collected(1_000_000)) as source,
            contextlib.ExitStack() as closing,
        ):

            def start(job: Any, kind: str, **options: Any) -> Any:
                closing.callback(job.close)
                return jobs_in_process.configure(job, kind, space, **options)

            start(replay.ReplayJob(), "replay")
            trained = start(learner.LearnerJob(), "learner", run_dir=self.run_dir, source=source)
            self._note_start(trained.status()["steps"])
            trained.poll()  # It publishes the policy that an actor waits for.
            acting = start(actor.ActorJob(), "actor")
            try:
                jobs_in_process.poll_until(
                    lambda: harmless and trained.status()["steps"] > enough,
                    "it fails",
                    acting,
                    trained,
                )
                trained.save()
            finally:
                self.train_step = int(latest_checkpoint(self.run_dir).rpartition("-")[2])


RUNNERS = {"one process": OneProcessRun, "jobs": JobsRun}


def endure(run: Run, agent: str, faults: tuple[Fault, ...]) -> None:
    """Has a run meet one fault after the other, each time going on from what the last one left."""
    if run.is_recorded:
        run.train(None)  # A recorded fault may be met at once: there has to be a state to lose.
    for fault in faults:
        before = run.train_step
        if (agent, fault) in HARMLESS:
            run.train(fault)
        else:
            try:
                run.train(fault)
            except errors.NotFiniteError as error:
                check_message(str(error), fault)
            else:
                raise AssertionError(f"{agent} has not noticed: {fault}")
        check_saved(run.run_dir)
        assert run.train_step > before or run.is_recorded, f"{agent} has not trained on, {fault}"
    before = run.train_step
    run.train(None)
    assert run.train_step > before
    check_saved(run.run_dir)


def check_message(message: str, fault: Fault) -> None:
    """Requires that the error says what was wrong."""
    if fault.place in (REWARD, OBSERVATION):
        found = [line for line in message.splitlines() if f"{fault.place}: " in line]
        kind = "NaN" if fault.value == "nan" else "infinite"
        assert any(kind in line for line in found), message
    elif fault.place == WEIGHTS:
        assert "not finite" in message, message


def check_saved(run_dir: run_directory.RunDirectory) -> None:
    """Requires that nothing a run has left on the disk is NaN or infinite."""
    found = list(run_dir.path.glob("train/checkpoints/ckpt-*.index"))
    assert found
    found += run_dir.path.glob("best/**/variables.index")
    for path in found:
        reader = tf.train.load_checkpoint(str(path.with_suffix("")))
        for name, dtype in reader.get_variable_to_dtype_map().items():
            if dtype.is_floating:
                assert np.isfinite(reader.get_tensor(name)).all(), (path, name)
    for path in run_dir.path.glob("parameters/**/*.npz"):
        with np.load(path) as arrays:
            for name in arrays.files:
                values = arrays[name]
                assert values.dtype.kind != "f" or np.isfinite(values).all(), (path, name)


def latest_checkpoint(run_dir: run_directory.RunDirectory) -> str:
    return tf.train.latest_checkpoint(str(run_dir.path / "train" / "checkpoints"))


def record(path: pathlib.Path, agent: str, fault: Fault | None) -> None:
    """Records steps of which one is faulty; of a fault in weights, healthy ones."""
    arguments: dict[str, Any] = {}
    if fault is not None and fault.place != WEIGHTS:
        arguments = _arguments(fault, agent)
    env = faulty_environment.FaultyEnvironment(continuous=agent in CONTINUOUS, **arguments)
    generator = np.random.default_rng(0)
    spec = _data_spec(env)
    with experience_recorder.ExperienceRecorder(path, spec, num_lanes=1) as recorder:
        step = env.reset()
        for _ in range(_STEPS // 2):
            action = generator.integers(2)
            if agent in CONTINUOUS:
                action = generator.uniform(-1.0, 1.0, 2).astype(np.float32)
            following = env.step(action)
            recorder(
                spec._replace(
                    step_type=step.step_type,
                    observation=step.observation,
                    action=action,
                    next_step_type=following.step_type,
                    reward=following.reward,
                    discount=following.discount,
                )
            )
            step = following


def _data_spec(env: faulty_environment.FaultyEnvironment) -> trajectory.Trajectory:
    step = tensor_spec.from_spec(env.time_step_spec())
    return trajectory.Trajectory(
        step_type=step.step_type,
        observation=step.observation,
        action=tensor_spec.from_spec(env.action_spec()),
        policy_info=(),
        next_step_type=step.step_type,
        reward=step.reward,
        discount=step.discount,
    )


def _arguments(fault: Fault, agent: str) -> dict[str, Any]:
    """Of `FaultyEnvironment`."""
    if fault.place != LOSS:
        return {"fault": fault.value, "field": fault.place}
    # All finite, but not their losses: of c51 and bc, which clip or ignore rewards, because of
    # observations. Some need two in one batch.
    field = OBSERVATION if agent in ("c51", "bc") else REWARD
    return {"fault": fault.value, "field": field, "lasting": agent not in OFFLINE}


if __name__ == "__main__":
    _agent, _runner, _directory = sys.argv[1:]
    endure(RUNNERS[_runner](pathlib.Path(_directory), _agent), _agent, FAULTS)
