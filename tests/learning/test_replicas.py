"""A train step on replicas that see parts of a batch equals that of one learner on all of it."""

import functools
import json

import pytest

from tests import forked

# The first test of each kind waits for all agents to be trained: minutes, where others work too.
_SECONDS = 1_800
pytestmark = pytest.mark.timeout(_SECONDS + 100)

AGENTS = (
    "dqn", "c51", "sac", "discrete_sac", "td3", "ddpg", "ppo", "ppo_minibatches", "ppo_recurrent",
    "impala", "r2d2", "bc", "cql_sac",
)  # fmt: skip


@functools.cache
def differences(replicas):
    program = "tests.learning.replica_equality"
    done = forked.run(program, replicas, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("agent", AGENTS)
def test_replicas_on_parts_of_a_batch_train_as_one_learner_on_all_of_it(agent, replicas):
    found = differences(replicas)[agent]
    assert found["moved"] > 1e-3, "nothing was learned that could differ"
    assert found["told"] < 1e-5, "losses or priorities"
    assert found["variables"] < 1e-5


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.slow
def test_two_learners_over_the_wire_train_as_one_on_the_whole_batch(agent):
    found = differences("group")[agent]
    assert found["told"] < 1e-5 and found["variables"] < 1e-5
    assert found["moved"] > 1e-3
