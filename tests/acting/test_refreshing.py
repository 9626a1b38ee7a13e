"""When new weights take effect: in every run, after a reset, or after some time."""

import pytest
import tensorflow as tf

from actor_learner.acting import actor, refreshing
from actor_learner.support import errors
from tests.acting import same_items


def versions(refresh, clock=None, monkeypatch=None):
    """Versions and actions of single steps, between which the weights change."""
    written = same_items.Written("transitions", 1)
    policy = written.algorithm.agent.collect_policy
    train_step = tf.Variable(0, dtype=tf.int64)
    seen = []
    acting = actor.Actor(
        same_items.make_lanes(2),
        policy,
        train_step,
        group_steps_per_run=1,
        observers=[lambda trajectory: seen.append(acting.policy_version)],
        refresh=refresh,
        seed=0,
    )
    read = []
    weights = acting._stream._weights
    read_all = weights.read_all
    monkeypatch.setattr(weights, "read_all", lambda: (read.append(len(seen)), read_all()))
    for step in range(13):
        train_step.assign(step)
        if clock is not None:
            clock[0] = float(step)
        acting.run()
    return seen, read


def test_every_run_has_the_weights_of_its_time(monkeypatch):
    seen, read = versions("run", monkeypatch=monkeypatch)
    assert seen == read == list(range(13))


def test_weights_stay_until_a_lane_has_begun_an_episode(monkeypatch):
    seen, read = versions("reset", monkeypatch=monkeypatch)
    changes = [step for step in range(13) if step == 0 or seen[step] != seen[step - 1]]
    assert 1 < len(changes) < 13  # Episodes have at most eleven steps.
    assert [seen[step] for step in changes] == changes == read


def test_weights_stay_for_some_seconds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(refreshing.Refreshing.__init__, "__defaults__", (lambda: clock[0],))
    seen, read = versions(5.0, clock, monkeypatch)
    assert seen == [0] * 5 + [5] * 5 + [10] * 3
    assert read == [0, 5, 10]


@pytest.mark.parametrize("when", ["sometimes", 0, -1.0, True, None])
def test_another_moment_is_refused(when):
    with pytest.raises(errors.ConfigError, match="must be 'run', 'reset' or a number"):
        refreshing.Refreshing(when, "lite")


@pytest.mark.parametrize("kind", ["graph", "unroll", "remote"])
def test_weights_that_are_read_in_every_call_cannot_be_kept_back(kind):
    refreshing.Refreshing("run", kind)
    with pytest.raises(errors.ConfigError, match=f"inference is '{kind}'"):
        refreshing.Refreshing("reset", kind)
