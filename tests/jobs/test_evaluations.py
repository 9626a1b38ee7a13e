"""Evaluators' messages become rows, a reason to end, and the best policy in the learner's store."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.jobs import best_policy, evaluations
from actor_learner.parameters import store as store_lib
from actor_learner.replay import server


class Policy:
    """All that is needed of one here."""

    def __init__(self, value):
        self.kernel = tf.Variable(tf.fill([2, 3], float(value)), name="layer/kernel")
        self.bias = tf.Variable([0.5], name="layer/bias")

    def variables(self):
        return (self.kernel, self.bias)


class Mail(list):
    """A mailbox that a test puts messages into."""

    def receive(self):
        taken = list(self)
        self.clear()
        return taken


def result(train_step, mean, *, evaluator=0, sent=False):
    return {
        "evaluator": evaluator,
        "train_step": train_step,
        "environment_step": 10 * train_step,
        "mean": mean,
        "std": 1.5,
        "episodes": 4,
        "sent": sent,
    }


@pytest.fixture(scope="module")
def replay():
    with server.ReplayServer([best_policy.best_table(Policy(0))]) as made:
        yield made


@pytest.fixture
def store(tmp_path):
    return store_lib.ParameterStore(tmp_path / "parameters")


@pytest.fixture
def keeper(replay, store):
    return best_policy.Keeper(replay.address, Policy(0), store)


def make(keeper, mail, rows, **settings):
    return evaluations.Evaluations(
        mail, keeper, on_row=rows.append, seconds=lambda: 2.0,
        **{"target_return": None, **settings},
    )  # fmt: skip


def test_each_result_becomes_one_row_even_if_it_comes_twice(keeper):
    mail, rows = Mail(), []
    made = make(keeper, mail, rows)
    mail += [result(5, 1.0), result(7, 2.0), result(5, 1.0, evaluator=1)]
    made.take()
    mail += [result(7, 2.0)]
    made.take()
    assert [row["train_steps"] for row in rows] == [5, 7, 5]
    assert rows[1] == {
        "seconds": 2.0, "environment_steps": 70, "train_steps": 7, "eval_return": 2.0,
        "eval_return_std": 1.5, "eval_episodes": 4,
    }  # fmt: skip
    assert made.has(7) and not made.has(6)


def test_the_target_is_reached_by_a_mean_that_is_as_high(keeper):
    mail = Mail()
    made = make(keeper, mail, [], target_return=3.0)
    mail += [result(1, 2.9)]
    made.take()
    assert made.target_reached is None
    mail += [result(2, 3.0)]
    made.take()
    assert made.target_reached == "mean return 3 over 4 episodes"


def test_the_best_policy_that_was_sent_is_kept_and_tagged(replay, keeper, store):
    mail = Mail()
    made = make(keeper, mail, [])
    policy = Policy(1)
    sender = best_policy.Sender(replay.address, policy)
    sender.send(4)
    mail += [result(4, 10.0, sent=True)]
    made.take()
    policy.kernel.assign(tf.fill([2, 3], 2.0))
    sender.send(8)
    mail += [result(8, 9.0, sent=True)]  # By an evaluator that has forgotten the better one.
    made.take()
    best = store.get("policy", "best")
    assert best.version == 4
    assert best.metadata == {
        "environment_steps": 40, "mean_return": 10.0, "std_return": 1.5, "episodes": 4
    }  # fmt: skip
    np.testing.assert_array_equal(best.values["layer/kernel"], np.ones([2, 3]))
    mail += [result(9, 11.0, sent=True)]  # What was sent is version 8.
    made.take()
    assert store.get("policy", "best").version == 4
    sender.send(12)
    mail += [result(12, 11.0, sent=True)]
    made.take()
    best = store.get("policy", "best")
    assert best.version == 12
    np.testing.assert_array_equal(best.values["layer/kernel"], np.full([2, 3], 2.0))


def test_a_result_that_was_not_sent_leaves_the_store_alone(keeper, store):
    mail = Mail([result(3, 99.0)])
    make(keeper, mail, []).take()
    assert store.names() == ()
