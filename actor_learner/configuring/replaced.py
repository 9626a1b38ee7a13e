"""TF-Agents' configurables that have a counterpart here, which is what a gin file means.

`learner.Learner.x` would bind to a class of TF-Agents that nothing here builds, without a word.
"""

from __future__ import annotations

# By their complete gin name, what ours is called in gin files.
_OURS = {
    "tf_agents.environments.atari_preprocessing.AtariPreprocessing": "AtariPreprocessing",
    "tf_agents.environments.suite_atari.game": "suite_atari.game",
    "tf_agents.environments.suite_atari.load": "suite_atari.load",
    "tf_agents.environments.suite_gym.load": "suite_gymnasium.load",
    "tf_agents.environments.suite_gym.wrap_env": "suite_gymnasium.wrap_env",
    "tf_agents.environments.suite_mujoco.load": "suite_mujoco.load",
    "tf_agents.replay_buffers.reverb_replay_buffer.ReverbReplayBuffer": "ReverbReplayBuffer",
    "tf_agents.train.actor.Actor": "Actor",
    "tf_agents.train.learner.Learner": "Learner",
    "tf_agents.train.ppo_learner.PPOLearner": "PPOLearner",
}


def refusal(written: str, complete: str) -> str | None:
    """Why a gin file may not say `written` when that means `complete`; None if it may.

    The complete name is always allowed: whoever writes that has code of his own that builds it.
    """
    ours = _OURS.get(complete)
    if ours is None or written == complete:
        return None
    return (
        f"'{written}' is TF-Agents', which nothing here uses: write '{ours}' for ours, or "
        f"'{complete}' if code of your own calls that"
    )
