"""Every example in a docstring runs: it is taken out of the source and executed."""

import contextlib
import pathlib
import re
import textwrap
from unittest import mock

import gymnasium
import numpy as np
import pytest
import reverb
import tensorflow as tf

import actor_learner
from actor_learner import evaluation_settings, minibatches, run_directory
from actor_learner.acting import resident, ring, turn_rows, turn_times
from actor_learner.environments import agent_world, slot_group
from actor_learner.environments import lanes as lanes_lib
from actor_learner.environments.games import tic_tac_toe
from actor_learner.environments.tensor import dynamics
from actor_learner.inference import one_group
from actor_learner.inference import protocol as inference_protocol
from actor_learner.inference import server as inference_server
from actor_learner.jobs import controller, main, states, worker
from actor_learner.learning import sample_watch
from actor_learner.messaging import client as wire_client
from actor_learner.messaging import server as wire_server
from actor_learner.naming import connect
from actor_learner.replay import observers
from actor_learner.replay.server import server as replay_server
from actor_learner.replay.server import tables
from actor_learner.replay.writing import item_writer
from actor_learner.runs import (
    acting_side,
    further_acting,
    further_policy,
    learning_side,
    loaded_policy,
)
from actor_learner.support import graph_call, unsaved

PACKAGE = pathlib.Path(actor_learner.__file__).parent
_BLOCK = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def examples():
    for path in sorted(PACKAGE.rglob("*.py")):
        for block in _BLOCK.findall(path.read_text()):
            yield path.relative_to(PACKAGE).as_posix(), textwrap.dedent(block)


EXAMPLES = list(examples())


class Once:
    """True once, then false: for `while training`."""

    def __init__(self):
        self._left = 1

    def __bool__(self):
        self._left -= 1
        return self._left >= 0


class NotYet(Once):
    def __bool__(self):
        return not super().__bool__()


def _made(kind, **returned):
    """A class that checks its arguments, whose instance returns something from its methods."""
    for name, value in returned.items():
        getattr(kind.return_value, name).return_value = value
    return kind


def environment():
    return actor_learner.GymnasiumEnvironment("CartPole-v1", num_envs=2, seed=0)


def data_spec():
    env = environment()
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    made = actor_learner.Experiment(environment, actor_learner.dqn).make_algorithm(env, *counters)
    return made.agent.collect_data_spec


@pytest.fixture
def names(tmp_path):
    """What the examples take for granted, by the file they stand in; real, or of a real spec."""
    closing = []
    server = reverb.Server([tables.uniform_table("experience", 100)])
    closing.append(server.stop)
    client = reverb.Client(f"localhost:{server.port}")
    spec = mock.create_autospec

    def stream():
        return dict(
            stream=actor_learner.LaneReplay(capacity=100),
            experience=actor_learner.Experience(data_spec(), 2, 1, 0.99),
            ReplayServer=replay_server.ReplayServer,
        )

    def one_process():
        def small():
            return actor_learner.Experiment(
                environment,
                lambda world: actor_learner.dqn(world, fc_layer_params=(4,)),
                environment_steps=100,
                initial_random_steps=64,
                evaluation=evaluation_settings.Evaluation(interval=0, episodes=1),
            )

        return dict(
            OneProcess=actor_learner.OneProcess,
            Experiment=small,
            run=run_directory.RunDirectory(tmp_path),
        )

    def policy():
        fake = spec(loaded_policy.LoadedPolicy, instance=True)
        fake.act.return_value = 0
        return dict(actor_learner=mock.Mock(load_policy=lambda run: fake), gymnasium=gymnasium)

    yield {
        "acting/actor.py": lambda: dict(
            Actor=spec(actor_learner.Actor),
            env=None, agent=mock.Mock(), train_step=None, observer=None,
            learner=spec(actor_learner.Learner, instance=True), training=Once(),
        ),
        "acting/resident.py": lambda: dict(
            env=spec(agent_world.AgentWorld, instance=True),
            resident=spec(resident.Resident, instance=True),
            actor=spec(actor_learner.Actor, instance=True), training=Once(), version=0,
        ),
        "acting/ring.py": lambda: dict(
            EnvironmentRing=spec(ring.EnvironmentRing), make_environment=mock.Mock(), seed=0,
            Actor=spec(actor_learner.Actor), policy=None, train_step=None,
        ),
        "acting/turn_rows.py": lambda: dict(
            TurnRows=turn_rows.TurnRows, env=mock.Mock(), writer=mock.Mock(),
            Actor=spec(actor_learner.Actor), policy=None, train_step=None,
        ),
        "acting/turn_times.py": lambda: dict(
            times=turn_times.TurnTimes(), INFERRING=turn_times.INFERRING, act=len
        ),
        "environments/games/turn_based.py": lambda: dict(
            game=tic_tac_toe.TicTacToe(), choose=lambda mask: int(np.flatnonzero(mask)[0])
        ),
        "environments/slot_group.py": lambda: dict(
            group=spec(slot_group.SlotGroup, instance=True), slot=0, observation=None,
            reward=0.0, terminated=False, truncated=False, info={},
        ),
        "inference/server.py": lambda: dict(
            InferenceServer=spec(inference_server.InferenceServer), job=mock.Mock(),
            service=None, working=Once(),
        ),
        "runs/further_acting.py": lambda: dict(
            FurtherActing=spec(further_acting.FurtherActing),
            experiment=None, plan=None, algorithm=None, env=None, client=client, step=None,
            version=0, epoch=0, training=Once(), acting=spec(acting_side.ActingSide, instance=True),
        ),
        "runs/further_policy.py": lambda: dict(
            FurtherPolicy=_made(spec(further_policy.FurtherPolicy), tables=[]),
            contextlib=contextlib,
            experiment=None, env=None, run=None, main_tables=[tables.uniform_table("main", 1)],
            ReplayServer=mock.Mock(), client=client, training=Once(),
            acting=spec(acting_side.ActingSide, instance=True),
        ),
        "acting/per_lane.py": lambda: dict(
            PerLaneObserver=actor_learner.PerLaneObserver,
            reverb_utils=observers, client=client, table="experience",
        ),
        "environments/tensor/dynamics.py": lambda: dict(
            Dynamics=dynamics.Dynamics, Outcome=dynamics.Outcome, gymnasium=gymnasium, tf=tf
        ),
        "inference/one_group.py": lambda: dict(
            Actor=spec(actor_learner.Actor), one_group=spec(one_group),
            env=None, stream=None, train_step=None,
        ),
        "support/graph_call.py": lambda: dict(
            GraphCall=graph_call.GraphCall, tf=tf, fn=lambda count: count + 1,
            count=tf.constant(1, tf.int64),
        ),
        "inference/protocol.py": lambda: dict(
            inference=spec(inference_protocol.GroupInference, instance=True),
            stream=spec(inference_protocol.InferenceStream, instance=True),
            lanes=spec(lanes_lib.Lanes, instance=True),
            groups=[spec(lanes_lib.Lanes, instance=True)],
            time_steps=[None], collecting=Once(), observe=mock.Mock(), version=1, steps=2,
        ),
        "jobs/controller.py": lambda: dict(
            Controller=mock.MagicMock(return_value=_entered(spec(controller.Controller, True))),
            connect=spec(connect), states=states,
        ),
        "jobs/main.py": lambda: dict(
            __name__="__main__", sys=mock.Mock(), main=spec(main), Watcher=mock.Mock()
        ),
        "jobs/worker.py": lambda: dict(gin=_Gin, worker=worker),
        "learning/sample_watch.py": lambda: dict(
            watch=sample_watch.SampleWatch(tf.Variable(0, dtype=tf.int64), 60.0),
            train_step=tf.Variable(0, dtype=tf.int64), sources=lambda: [],
        ),
        "messaging/protocol.py": lambda: dict(
            server=wire_server, client=wire_client,
            answer_status=lambda request: request.answer({"state": "running"}),
        ),
        "minibatches.py": lambda: dict(
            minibatches=minibatches, items=tf.range(6), epochs=2, count=3, tf=tf
        ),
        "replay/streams/sample_stream.py": stream,
        "replay/writing/item_writer.py": lambda: dict(
            ItemWriter=item_writer.ItemWriter, client=client, np=np
        ),
        "replay/writing/lane_writer.py": lambda: dict(observers=observers),
        "runs/acting_side.py": lambda: dict(
            acting=spec(acting_side.ActingSide, instance=True), done=NotYet()
        ),
        "runs/learning_side.py": lambda: dict(
            learning=spec(learning_side.LearningSide, instance=True), done=NotYet()
        ),
        "runs/loaded_policy.py": policy,
        "runs/one_process.py": one_process,
        "support/unsaved.py": lambda: dict(
            unsaved=unsaved, save=lambda: "path", directory=tmp_path
        ),
    }  # fmt: skip
    for close in closing:
        close()


class _Gin:
    """Registers nothing: a test must not leave a configurable behind."""

    configurable = staticmethod(lambda decorated: decorated)


def _entered(instance):
    instance.__enter__ = mock.Mock(return_value=instance)
    instance.__exit__ = mock.Mock(return_value=False)
    return instance


@pytest.mark.parametrize(
    "place, code", EXAMPLES, ids=[f"{place}-{i}" for i, (place, _) in enumerate(EXAMPLES)]
)
def test_the_example_runs(place, code, names):
    assert place in names, f"say in this test what the example of {place} takes for granted"
    exec(compile(code, place, "exec"), names[place]())


def test_there_are_examples():
    assert len(EXAMPLES) >= 17
