"""TF-Agents' own unit tests of the variable container, run against ours."""

from tests import contract


def test_tf_agents_tests_of_the_variable_container_pass():
    contract.run_tf_agents_tests(
        "tf_agents.experimental.distributed.reverb_variable_container_test",
        {
            "tf_agents.experimental.distributed.reverb_variable_container": (
                "actor_learner.parameters.reverb_variable_container"
            )
        },
    )
