"""What experts of each algorithm look for is gauged by its train step, without computing more."""

import numpy as np
import pytest
import tensorflow as tf

from actor_learner import batch_notes
from actor_learner.learning import replica_step
from tests.agents import test_agents as made

VALUES = {"q_value", "td_error"}
NORMS = {"actor_gradient_norm", "critic_gradient_norm"}
CASES = [
    ("dqn", made.DISCRETE, {*VALUES, "gradient_norm"}),
    ("c51", made.DISCRETE, {*VALUES, "gradient_norm"}),
    ("sac", made.CONTINUOUS, {*VALUES, *NORMS, "entropy"}),
    ("sac", made.DISCRETE, {*VALUES, *NORMS}),
    ("td3", made.CONTINUOUS, {*VALUES, *NORMS}),
    ("ddpg", made.CONTINUOUS, {*VALUES, *NORMS}),
]


def trained(agent, steps=2):
    """Trains in a graph, as the learner does; returns the step and the last loss."""
    step = replica_step.ReplicaStep(
        agent,
        tf.distribute.get_strategy(),
        after_train=None,
        use_kwargs=False,
        run_options=None,
    )
    train = tf.function(step.train)
    for _ in range(steps):  # TD3 updates its actor every second time.
        loss_info = train(made.batch_for(agent))
    return step, loss_info


@pytest.mark.parametrize("name, action, expected", CASES)
def test_a_train_step_gauges_what_experts_look_for(name, action, expected):
    builder, _ = made.BUILDERS[name]
    agent = builder(made.make_world(made.OBSERVATIONS["vector"], action), **made.SMALL[name]).agent
    agent.initialize()
    step, loss_info = trained(agent)
    gauges = step.gauges()
    assert set(gauges) == expected
    assert all(np.isfinite(value) for value in gauges.values())
    error = np.abs(loss_info.extra.td_error.numpy()).mean()
    assert gauges["td_error"] == pytest.approx(error, rel=1e-5)
    assert all(gauges[name] > 0.0 for name in gauges if name.endswith("norm"))
    # What is told of a step that fails is the batch, as ever.
    assert not [name for name in step.latest_batch() if name.split("#")[0] in expected]
    step.close()


def test_what_is_gauged_twice_is_averaged_and_the_latest_train_step_counts():
    notes = batch_notes.BatchNotes()

    @tf.function
    def train(first, second):
        with notes.over({"reward": first}):
            batch_notes.gauge("q_value", first)
            batch_notes.gauge("q_value", second)
            tf.cond(first[0] > 0.0, lambda: in_branch(second), lambda: None)
            notes.keep_gauges()

    def in_branch(second):
        squares = tf.square(second)
        batch_notes.gauge("norm", squares, reduce=lambda values: np.sqrt(values.sum()))

    assert notes.gauges() == {}
    train(tf.constant([1.0, 3.0]), tf.constant([3.0, 4.0]))
    assert notes.gauges() == {"q_value": 2.75, "norm": 5.0}
    train(tf.constant([-1.0, 1.0]), tf.constant([6.0, 8.0]))
    assert notes.gauges() == {"q_value": 3.5, "norm": 5.0}  # The branch was not taken.
    notes.close()
