"""TF-Agents' own tests of its learners, run against ours."""

from tests import contract

_ENVIRONMENT = {
    "tf_agents.environments.suite_gym": "actor_learner.environments.suite_gymnasium",
}


def test_tf_agents_learner_tests_pass_against_our_learner():
    r = contract.run_tf_agents_tests(
        "tf_agents.train.learner_test",
        {"tf_agents.train.learner": "actor_learner.learning.learner", **_ENVIRONMENT},
    )
    print(r)


def test_tf_agents_ppo_learner_tests_pass_against_our_ppo_learner():
    r = contract.run_tf_agents_tests(
        "tf_agents.train.ppo_learner_test",
        {"tf_agents.train.ppo_learner": "actor_learner.learning.ppo_learner"},
    )
    print(r)
