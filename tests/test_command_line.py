"""Commands and flags that are mistyped are refused with the nearest one."""

import pytest

import actor_learner
from actor_learner import cli


@pytest.mark.parametrize(
    "argv, words",
    [
        (["trian", "--gin_file=dqn_cartpole"], "no command 'trian': did you mean 'train'?"),
        (["xyzzy"], "no command 'xyzzy': there are train, up,"),
        (["train", "--gin_fil=dqn_cartpole"], "--gin_fil=dqn_cartpole: did you mean '--gin_file'?"),
        (["train", "--gin_file=dqn_cartpole", "--sed=1"], "--sed=1: did you mean '--seed'?"),
        (["params", "lst", "runs/x"], "no command 'lst': did you mean 'list'?"),
        (["actor", "--gin_fil=dqn_cartpole"], "did you mean '--gin_file'?"),
        (["train", "dqn_cartpole"], "unrecognized argument dqn_cartpole"),
    ],
)
def test_what_is_mistyped_is_refused_with_the_nearest(argv, words, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_without_a_command_all_commands_are_shown(capsys):
    assert cli.main([]) == 2
    shown = capsys.readouterr().err
    assert "train in one process" in shown and "check-env" in shown


def test_the_version_is_shown(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"actor-learner {actor_learner.__version__}\n"
