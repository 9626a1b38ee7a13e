"""What TFLite draws has the distributions that TensorFlow draws from."""

import numpy as np
import tensorflow as tf

from actor_learner.inference import graph, lite
from tests.inference import policies

OBSERVATION = policies.OBSERVATIONS["vector"]
LANES, STEPS = 100, 100
# Of a chi-square distribution, exceeded in one of a thousand cases, by degrees of freedom.
CHI_SQUARE = {1: 10.83, 2: 13.82, 17: 40.79}


def same_step():
    """All lanes see the same, so that all draws of a step are of one distribution."""
    step = policies.time_step(np.random.default_rng(5), OBSERVATION, 1)
    return tf.nest.map_structure(lambda leaf: np.repeat(leaf, LANES, axis=0), step)


def drawn(stream, part=lambda response: response.action):
    step = same_step()
    return np.concatenate([part(stream.act(step)) for _ in range(STEPS)])


def ours_and_theirs(name, part=lambda response: response.action):
    tf.random.set_seed(11)
    policy = policies.agent_of(name, lanes=LANES).collect_policy
    return (
        drawn(lite.LiteInference(policy, LANES, seed=3), part),
        drawn(graph.GraphInference(policy, LANES), part),
    )


def assert_same_counts(ours, theirs):
    """Chi-square test of whether two samples of choices are of one distribution."""
    values = np.unique(np.concatenate([ours, theirs]))
    counts = np.array([[np.sum(each == value) for value in values] for each in (ours, theirs)])
    expected = counts.sum(0) * counts.sum(1, keepdims=True) / counts.sum()
    assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE[len(values) - 1]


def assert_same_law(ours, theirs):
    """Kolmogorov-Smirnov test of whether two samples of numbers are of one distribution."""
    points = np.sort(np.concatenate([ours, theirs]))
    shares = [
        np.searchsorted(np.sort(each), points, "right") / each.size for each in (ours, theirs)
    ]
    # Exceeded in one of a thousand cases.
    assert np.abs(shares[0] - shares[1]).max() < 1.95 * np.sqrt(1 / ours.size + 1 / theirs.size)


def test_epsilon_greedy_choices():
    assert_same_counts(*ours_and_theirs("bc"))


def test_epsilon_greedy_choices_have_the_shares_of_epsilon():
    policy = policies.agent_of("bc").collect_policy  # 0.3
    best = policies.agent_of("bc").policy
    best = graph.GraphInference(best, LANES).act(same_step()).action[0]
    share = np.mean(drawn(lite.LiteInference(policy, LANES, seed=3)) == best)
    np.testing.assert_allclose(share, 0.7 + 0.3 / 3, atol=0.015)


def test_each_lane_has_an_epsilon_of_its_own():
    agent = policies.agent_of("r2d2", lanes=LANES)
    agent.collect_policy.epsilons = np.linspace(0, 1, LANES)
    stream = lite.LiteInference(agent.collect_policy, LANES, seed=3)
    step = same_step()._replace(step_type=np.zeros(LANES, np.int32))  # The same state each time.
    best = graph.GraphInference(agent.policy, LANES).act(step).action
    explored = np.mean([stream.act(step).action != best for _ in range(1_000)], axis=0)
    np.testing.assert_allclose(explored, np.linspace(0, 1, LANES) * 2 / 3, atol=0.06)
    assert explored[0] == 0


def test_categorical_choices():
    assert_same_counts(*ours_and_theirs("impala"))


def test_several_choices_at_once():
    ours, theirs = ours_and_theirs("ppo", lambda response: response.action["choices"])
    for column in range(3):
        assert_same_counts(ours[:, column], theirs[:, column])
    # All together, which choices that share their noise would not pass.
    assert_same_counts(ours @ [9, 3, 1], theirs @ [9, 3, 1])


def test_gaussian_actions_and_their_log_probabilities():
    for part in (lambda r: r.action[:, 0], lambda r: r.action[:, 1], lambda r: r.policy_info["log_probability"]):  # fmt: skip  # noqa: E501
        assert_same_law(*ours_and_theirs("ppo normalized", part))


def test_squashed_gaussian_actions():
    for element in range(2):
        assert_same_law(*ours_and_theirs("sac", lambda response: response.action[:, element]))  # noqa: B023


def test_deterministic_actions_with_gaussian_noise():
    for element in range(2):
        assert_same_law(*ours_and_theirs("td3", lambda response: response.action[:, element]))  # noqa: B023


def test_ornstein_uhlenbeck_noise_drifts_alike():
    policy = policies.agent_of("ddpg", lanes=LANES).collect_policy
    tf.random.set_seed(11)
    step = same_step()
    paths = []
    for stream in (lite.LiteInference(policy, LANES, seed=3), graph.GraphInference(policy, LANES)):
        states = [np.asarray(stream.act(step).previous_state) for _ in range(200)]
        paths.append(np.stack(states)[100:, :, 0])  # Settled: [steps, lanes]
    ours, theirs = paths
    assert_same_law(ours[::25].ravel(), theirs[::25].ravel())  # Far enough apart to be unrelated.
    after_one = [np.corrcoef(path[:-1].ravel(), path[1:].ravel())[0, 1] for path in paths]
    np.testing.assert_allclose(*after_one, atol=0.02)
