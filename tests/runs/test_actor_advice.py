"""Fast and slow environments, and large networks, lead to different advice."""

from actor_learner.runs import actor_advice
from actor_learner.runs.actor_advice import Measured


def measured(lanes, *, stepping, inferring, writing=0.0):
    total = stepping + inferring + writing
    return Measured(lanes, stepping, inferring, writing, lanes / total)


def test_a_fast_environment_gets_lanes_and_one_actor():
    advice = actor_advice.advise(
        [
            measured(1, stepping=20e-6, inferring=5e-6, writing=60e-6),
            measured(16, stepping=40e-6, inferring=8e-6, writing=70e-6),
            measured(64, stepping=60e-6, inferring=12e-6, writing=80e-6),
        ],
        cores=8,
    )
    assert (advice.lanes, advice.actors) == (64, 1)
    assert (advice.ring_size, advice.inference) == (1, actor_advice.INLINE)
    assert "64 lanes make" in advice.reasons[0]


def test_a_slow_environment_gets_actors_and_few_lanes():
    advice = actor_advice.advise(
        [
            measured(lanes, stepping=lanes * 5e-3, inferring=10e-6, writing=60e-6)
            for lanes in (1, 4, 16)
        ],
        cores=8,
    )
    assert (advice.lanes, advice.actors, advice.ring_size) == (1, 7, 1)
    assert "more than 1 lane do not pay" in advice.reasons[0]


def test_lanes_beyond_those_that_nearly_suffice_are_not_recommended():
    advice = actor_advice.advise(
        [
            measured(1, stepping=1e-4, inferring=1e-4),
            measured(16, stepping=4e-4, inferring=1e-4),
            measured(64, stepping=18e-4, inferring=1e-4),
        ],
        cores=2,
    )
    assert advice.lanes == 16


def test_inference_that_takes_long_is_hidden_and_longer_than_stepping_is_done_elsewhere():
    threaded = actor_advice.advise([measured(16, stepping=1e-3, inferring=0.9e-3)], cores=4)
    assert (threaded.inference, threaded.ring_size) == (actor_advice.THREADED, 2)
    remote = actor_advice.advise([measured(16, stepping=1e-3, inferring=5e-3)], cores=4)
    assert (remote.inference, remote.ring_size) == (actor_advice.REMOTE, 6)
    capped = actor_advice.advise([measured(16, stepping=1e-4, inferring=50e-3)], cores=4)
    assert capped.ring_size == 16


def test_there_is_an_actor_even_on_one_core():
    assert actor_advice.advise([measured(1, stepping=1.0, inferring=0.0)], cores=1).actors == 1
