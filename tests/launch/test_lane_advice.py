"""More lanes are advised where inference and writing take more time than environments do."""

import pytest

from actor_learner.jobs import states
from actor_learner.jobs import status as status_lib
from actor_learner.launch import lane_advice


def actor(stepping, inferring, writing, waiting, *, lanes=8, index=0, state=states.RUNNING):
    shares = {
        "stepping": stepping, "inferring": inferring, "writing": writing, "waiting": waiting
    }  # fmt: skip
    return status_lib.Status("actor", index, state, details={"time": shares, "lanes": lanes})


def test_more_lanes_are_advised_where_overhead_outweighs_the_environment():
    words = lane_advice.advice([actor(0.2, 0.5, 0.2, 0.1), actor(0.3, 0.4, 0.1, 0.2, index=1)])
    assert "60% of their time on inference and writing and 25% on stepping 8 lanes each" in words
    assert "num_envs" in words and "tune-actor" in words


@pytest.mark.parametrize(
    "status",
    [
        actor(0.7, 0.2, 0.1, 0.0),  # A slow environment: another process steps it as well.
        actor(0.1, 0.2, 0.1, 0.6),  # It waits for the learner.
        actor(0.1, 0.8, 0.1, 0.0, lanes=256),
        actor(0.1, 0.8, 0.1, 0.0, state=states.PAUSED),
        status_lib.Status("actor", 0, states.RUNNING),
        status_lib.Status("learner", 0, states.RUNNING, details={"time": {"training": 1.0}}),
    ],
)
def test_nothing_is_advised_where_lanes_are_not_what_is_missing(status):
    assert lane_advice.advice([status]) is None


def test_it_is_said_once_and_only_of_what_lasts():
    said, now = [], [0.0]
    advisor = lane_advice.LaneAdvisor(said.append, clock=lambda: now[0])
    few, enough = actor(0.1, 0.8, 0.1, 0.0), actor(0.8, 0.1, 0.1, 0.0)
    for seconds, status in ((0, few), (20, enough), (25, few), (50, few), (56, few), (200, few)):
        now[0] = float(seconds)
        advisor.look([status])
        assert len(said) == (1 if seconds >= 56 else 0)
