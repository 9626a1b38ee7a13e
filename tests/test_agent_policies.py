"""Which policies a gin file trains beside `main`, read from its text alone."""

import pytest

from actor_learner import config

BEGINNING = """
include 'ppo_spread.gin'
AgentWorld.agents = [@AgentSpec(), @seekers/AgentSpec(), %CROWD]
AgentSpec.agents = 'agent_0'
seekers/AgentSpec.agents = 'agent_1'
seekers/AgentSpec.policy = %NAME
seekers/AgentSpec.agent = @dqn
NAME = 'hunters'
CROWD = @many/crowd/AgentSpec()
many/crowd/AgentSpec.agents = '.*'
many/AgentSpec.policy = 'crowd'
"""


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("", ["hunters"]),
        ("many/AgentSpec.agent = @dqn", ["hunters", "crowd"]),
        ("many/crowd/AgentSpec.frozen = @random_policy", ["hunters"]),
        ("seekers/AgentSpec.agent = None", []),
        ("AgentWorld.agents = [@AgentSpec()]", []),
        ("other/AgentSpec.agent = @dqn\nother/AgentSpec.policy = 'other'", ["hunters"]),
        # The innermost scope is the strongest.
        ("many/AgentSpec.agent = @dqn\nmany/crowd/AgentSpec.agent = None", ["hunters"]),
        # The world's own scope counts.
        (
            "Experiment.environment = @small/AgentWorld\n"
            "small/AgentWorld.agents = [@seekers/AgentSpec()]",
            ["hunters"],
        ),
        ("Experiment.environment = @GymnasiumEnvironment", []),
    ],
)
def test_policies_with_an_agent_of_their_own_are_found(tmp_path, more, found):
    path = tmp_path / "world.gin"
    path.write_text(BEGINNING)
    (tmp_path / "more.gin").write_text(more)
    source = config.ConfigSource((str(path), str(tmp_path / "more.gin")))
    assert config.further_policies(source) == found


def test_most_experiments_have_none():
    for name in ("dqn_cartpole", "ppo_spread"):
        assert config.further_policies(config.ConfigSource((name,))) == []
