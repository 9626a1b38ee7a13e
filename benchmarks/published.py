"""Figures that others have published for the same tasks, to be shown beside ours."""

from __future__ import annotations

_ZOO = "[SB3 Zoo](https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md)"

# Task, algorithm, mean return ± standard deviation of its episodes, environment steps, source.
FIGURES = (
    ("CartPole-v1", "DQN", "500 ± 0", "50,000", _ZOO),
    ("CartPole-v1", "PPO", "500 ± 0", "100,000", _ZOO),
    ("Pendulum-v1", "SAC", "-157 ± 89", "20,000", _ZOO),
    ("Pendulum-v1", "TD3", "-152 ± 90", "20,000", _ZOO),
    ("Pendulum-v1", "PPO", "-172 ± 104", "100,000", _ZOO),
    ("LunarLander-v2", "DQN", "154 ± 79", "100,000", _ZOO),
    ("LunarLander-v2", "PPO", "242 ± 32", "1,000,000", _ZOO),
    ("HalfCheetah-v3", "SAC", "9,535 ± 100", "1,000,000", _ZOO),
    ("Hopper-v3", "PPO", "2,410 ± 10", "1,000,000", _ZOO),
)


def section() -> str:
    """The section of the page of results, as Markdown."""
    rows = [f"| {' | '.join(figure)} |" for figure in FIGURES]
    return "\n".join(
        [
            "## What others have published\n",
            "Final returns of one trained agent each, over many episodes, after all the steps "
            "named; the tables above stop at their target. Versions of environments differ where "
            "ours is newer.\n",
            "| task | algorithm | return | environment steps | source |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
