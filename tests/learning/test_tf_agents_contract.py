"""TF-Agents' own tests of its learners, run against ours."""

import pytest

from tests import contract

_LEARNER = {
    "tf_agents.train.learner": "actor_learner.learning.learner",
    "tf_agents.environments.suite_gym": "actor_learner.environments.suite_gymnasium",
}
_INITIAL = "LearnerTest.testInitialCheckpointStoresOptimizerVariables"
_LATER = "LearnerTest.testCheckpointStoresOptimizerVariables"
_NO_TPU = {
    name + agent + "_TPU": "there is no TPU here: the case repeats the default strategy"
    for name in (_INITIAL, _LATER)
    for agent in ("DQN", "PPO")
}
_SLOW = "slow: another case of the same runs here, and this one with the learning proofs"


@pytest.mark.timeout(600)
def test_tf_agents_learner_tests_pass_against_our_learner():
    slow = [
        _INITIAL + case
        for case in ("DQN_default", "DQN_one_device", "DQN_mirrored")
        + ("PPO_default", "PPO_one_device", "PPO_mirrored")
    ]
    slow += [
        _LATER + case
        for case in ("DQN_default", "DQN_mirrored", "PPO_default", "PPO_one_device", "PPO_mirrored")
    ]
    slow += ["LearnerTest.testLossLearnerDifferentDistStratPPO"]
    result = contract.run_tf_agents_tests(
        "tf_agents.train.learner_test",
        _LEARNER,
        deselect={**_NO_TPU, **{name: _SLOW for name in slow}},
        timeout_seconds=560,
    )
    assert {
        "LearnerTest.testLearnerRun",
        "LearnerTest.testLearnerLoss",
        "LearnerTest.testLearnerLossPassExperience",
        "LearnerTest.testLearnerAssertInvalidIterations",
        "LearnerTest.testLearnerRaiseExceptionOnMismatchingBatchSetup",
        _LATER + "DQN_one_device",
        "LearnerTest.testLossLearnerDifferentDistStratDQN",  # Default, one device, mirrored.
    } <= set(result.passed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_tf_agents_learner_tests_pass_against_our_learner():
    result = contract.run_tf_agents_tests(
        "tf_agents.train.learner_test", _LEARNER, deselect=_NO_TPU, timeout_seconds=1700
    )
    assert len(result.passed) >= 19


def test_tf_agents_ppo_learner_tests_pass_against_our_ppo_learner():
    result = contract.run_tf_agents_tests(
        "tf_agents.train.ppo_learner_test",
        {"tf_agents.train.ppo_learner": "actor_learner.learning.ppo_learner"},
    )
    assert len(result.passed) >= 14
