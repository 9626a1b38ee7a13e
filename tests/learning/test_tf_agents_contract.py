"""TF-Agents' own tests of its learners, run against ours."""

from tests import contract

_NO_TPU = "there is no TPU here: the case repeats the default strategy"
_SLOW = "slow; the same test runs with another agent or strategy, and this one was run by hand"


def test_tf_agents_learner_tests_pass_against_our_learner():
    initial = "LearnerTest.testInitialCheckpointStoresOptimizerVariables"
    later = "LearnerTest.testCheckpointStoresOptimizerVariables"
    result = contract.run_tf_agents_tests(
        "tf_agents.train.learner_test",
        {
            "tf_agents.train.learner": "actor_learner.learning.learner",
            "tf_agents.environments.suite_gym": "actor_learner.environments.suite_gymnasium",
        },
        deselect={
            later + "DQN_TPU": _NO_TPU,
            later + "PPO_TPU": _NO_TPU,
            initial + "DQN": _SLOW,
            initial + "PPO": _SLOW,
            later + "DQN_default": _SLOW,
            later + "DQN_mirrored": _SLOW,
            later + "PPO_default": _SLOW,
            later + "PPO_one_device": _SLOW,
            later + "PPO_mirrored": _SLOW,
            "LearnerTest.testLossLearnerDifferentDistStratPPO": _SLOW,
        },
    )
    assert {
        "LearnerTest.testLearnerRun",
        "LearnerTest.testLearnerLoss",
        "LearnerTest.testLearnerLossPassExperience",
        "LearnerTest.testLearnerAssertInvalidIterations",
        "LearnerTest.testLearnerRaiseExceptionOnMismatchingBatchSetup",
        later + "DQN_one_device",
        "LearnerTest.testLossLearnerDifferentDistStratDQN",  # Default, one device, mirrored.
    } <= set(result.passed)


def test_tf_agents_ppo_learner_tests_pass_against_our_ppo_learner():
    result = contract.run_tf_agents_tests(
        "tf_agents.train.ppo_learner_test",
        {"tf_agents.train.ppo_learner": "actor_learner.learning.ppo_learner"},
    )
    assert len(result.passed) >= 14
