"""The memory task: what it asks for, and that nothing but memory solves it."""

import collections

import numpy as np
import pytest

from actor_learner.environments import checks, memory
from actor_learner.environments import gymnasium as gymnasium_environment
from actor_learner.support import errors

ENV_ID = f"actor_learner.environments.memory:{memory.ENV_ID}"
FIRST, MID, LAST = 0, 1, 2
CUES, LANES = 4, 32

Episode = collections.namedtuple("Episode", "observations rewards discounts")


def play(policy, vectorization="native", steps=800, seed=5, **make_kwargs):
    """Whole episodes of a policy `[lanes, features] -> actions [lanes]`, final observation too."""
    env = gymnasium_environment.GymnasiumEnvironment(
        ENV_ID, LANES, vectorization=vectorization, seed=seed, make_kwargs=make_kwargs
    )
    time_step = env.reset()
    running = [Episode([], [], []) for _ in range(LANES)]
    finished = []
    for _ in range(steps):
        actions = policy(time_step)
        next_step = env.step(actions)
        for lane in range(LANES):
            running[lane].observations.append(time_step.observation[lane])
            if time_step.step_type[lane] == LAST:
                assert next_step.step_type[lane] == FIRST
                finished.append(running[lane])
                running[lane] = Episode([], [], [])
            else:
                running[lane].rewards.append(next_step.reward[lane])
                running[lane].discounts.append(next_step.discount[lane])
        time_step = next_step
    env.close()
    return finished


def at_random(seed=0):
    generator = np.random.default_rng(seed)
    return lambda time_step: generator.integers(CUES, size=LANES)


class Remembering:
    """Answers with the symbol that each lane's first step showed."""

    def __init__(self):
        self.cues = np.zeros(LANES, np.int64)

    def __call__(self, time_step):
        first = time_step.step_type == FIRST
        shown = time_step.observation[:, :CUES].argmax(axis=1)
        self.cues = np.where(first, shown, self.cues)
        return self.cues


@pytest.fixture(scope="module")
def episodes():
    return play(at_random())


@pytest.mark.parametrize("vectorization", ["native", "sync"])
def test_an_episode_shows_the_cue_then_distractors_then_asks(vectorization):
    found = play(
        at_random(), vectorization, steps=120, num_cues=4, shortest_delay=2, longest_delay=3
    )
    assert len(found) > 100
    lengths = set()
    for episode in found:
        observations = np.array(episode.observations)
        delay = len(observations) - 3
        lengths.add(delay)
        parts = observations[:, CUES:]
        np.testing.assert_array_equal(parts[0], [1, 0, 0])
        np.testing.assert_array_equal(parts[1:-2], [[0, 1, 0]] * delay)
        np.testing.assert_array_equal(parts[-2:], [[0, 0, 1], [0, 0, 0]])
        np.testing.assert_array_equal(
            observations[:, :CUES].sum(axis=1), [1] * (delay + 1) + [0, 0]
        )
        assert episode.rewards[:-1] == [0.0] * (delay + 1)
        assert episode.discounts == [1.0] * (delay + 1) + [0.0]
    assert lengths == {2, 3}


@pytest.mark.parametrize("vectorization", ["native", "sync"])
def test_an_agent_that_remembers_is_always_right(vectorization):
    found = play(Remembering(), vectorization, steps=100)
    assert len(found) > 100
    assert {episode.rewards[-1] for episode in found} == {1.0}


def test_what_is_seen_when_the_answer_is_due_says_nothing_about_the_cue(episodes):
    seen = {tuple(episode.observations[-2]) for episode in episodes}
    assert seen == {(0, 0, 0, 0, 0, 0, 1)}


def test_cues_are_even_and_distractors_and_delays_independent_of_them(episodes):
    cues = np.array([episode.observations[0][:CUES].argmax() for episode in episodes])
    last = np.array([episode.observations[-3][:CUES].argmax() for episode in episodes])
    delays = np.array([len(episode.observations) - 3 for episode in episodes])
    assert set(delays) == {6, 7, 8, 9, 10}
    expected = len(cues) / CUES
    chi_square = ((np.bincount(cues, minlength=CUES) - expected) ** 2 / expected).sum()
    assert chi_square < 21.1  # 99.99 % of the chi-square distribution with 3 degrees of freedom.
    for other, degrees_limit in ((last, 33.7), (delays - 6, 39.1)):  # 9 and 12 degrees, likewise.
        table = np.zeros((CUES, other.max() + 1))
        np.add.at(table, (cues, other), 1)
        expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
        assert ((table - expected) ** 2 / expected).sum() < degrees_limit


@pytest.mark.parametrize("answer", range(CUES))
def test_every_answer_that_ignores_the_cue_is_right_by_chance_only(episodes, answer):
    cues = np.array([episode.observations[0][:CUES].argmax() for episode in episodes])
    deviation = np.sqrt(0.25 * 0.75 / len(cues))
    assert abs((cues == answer).mean() - 0.25) < 4 * deviation
    found = play(lambda time_step: np.full(LANES, answer), steps=400)
    successes = np.mean([episode.rewards[-1] for episode in found])
    assert abs(successes - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(found))


def test_one_seed_gives_one_course_of_events():
    def course(seed):
        return [np.array(e.observations).tolist() for e in play(at_random(), steps=60, seed=seed)]

    assert course(1) == course(1)
    assert course(1) != course(2)


def test_the_environment_keeps_its_contract():
    found = checks.check_environment(ENV_ID, num_steps=300)
    assert [line for line in found if not line.startswith("note:")] == []


@pytest.mark.parametrize(
    "make_kwargs, match",
    [({"num_cues": 1}, "num_cues"), ({"shortest_delay": 5, "longest_delay": 4}, "longest_delay")],
)
@pytest.mark.parametrize("vectorization", ["native", "sync"])
def test_settings_that_make_no_task_are_refused(vectorization, make_kwargs, match):
    with pytest.raises(errors.ConfigError, match=match):
        gymnasium_environment.GymnasiumEnvironment(
            ENV_ID, 2, vectorization=vectorization, make_kwargs=make_kwargs
        )
