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
