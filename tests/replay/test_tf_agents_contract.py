"""TF-Agents' own unit tests of the replay modules, run against ours."""

from tests import contract

OURS = {
    "tf_agents.replay_buffers.reverb_replay_buffer": "actor_learner.replay.reverb_replay_buffer",
    "tf_agents.replay_buffers.reverb_utils": "actor_learner.replay.observers",
}


def test_tf_agents_tests_of_the_observers_pass():
    contract.run_tf_agents_tests("tf_agents.replay_buffers.reverb_utils_test", OURS)


def test_tf_agents_tests_of_the_replay_buffer_pass():
    contract.run_tf_agents_tests("tf_agents.replay_buffers.reverb_replay_buffer_test", OURS)


def test_tf_agents_tests_of_recorded_datasets_pass():
    result = contract.run_tf_agents_tests(
        "tf_agents.replay_buffers.rlds_to_reverb_test",
        OURS,
        deselect={
            "RldsToReverbTest.test_push_to_reverb_with_policy": (
                "writes items with a policy_info that is not in the table's signature, which "
                "would stop the learner that reads them: ours refuse to write them"
            )
        },
    )
    assert len(result.passed) >= 34
