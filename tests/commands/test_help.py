"""`actor-learner help NAME` lists parameters with defaults and meaning, without TensorFlow."""

import subprocess
import sys

import pytest

from actor_learner import cli


def test_the_parameters_of_an_agent_are_listed_with_default_and_meaning(capsys):
    assert cli.main(["help", "sac"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "sac: Builds SAC for one continuous action vector, or for one discrete action."
    )
    place = lines.index("  sac.actor_fc_layer_params = (256, 256)")
    assert lines[place + 1] == "      Dense layers of the actor."
    assert "  sac.world, no default" in lines
    assert "  sac.reward_limit = 10.0" in lines  # normalization.REWARD_LIMIT in the source.


@pytest.mark.parametrize("name", ["Experiment", "Learner", "LaneReplay", "WandbLogger"])
def test_every_parameter_of_the_main_classes_has_a_meaning(name, capsys):
    assert cli.main(["help", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    parameters = [i for i, line in enumerate(lines) if line.startswith(f"  {name}.")]
    assert len(parameters) > 3
    for i in parameters:
        assert lines[i + 1].startswith("      "), lines[i]


def test_a_users_own_module_is_found_in_the_working_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "import gin\n\n@gin.configurable\nclass Pager:\n    '''Calls.\n\n    Args:\n"
        "      number: Whom.\n    '''\n    def __init__(self, number='911'): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["help", "mine.Pager"]) == 0
    assert "mine.Pager.number = '911'\n      Whom." in capsys.readouterr().out


def test_an_unknown_name_is_refused_with_the_nearest(capsys):
    assert cli.main(["help", "sack"]) == 2
    assert "did you mean 'sac'?" in capsys.readouterr().err


def test_an_unknown_name_without_a_nearest_may_be_the_users_own(capsys):
    assert cli.main(["help", "xyzzy_plugh"]) == 2
    assert "named with its module: my_module.xyzzy_plugh" in capsys.readouterr().err


def test_it_needs_no_tensorflow():
    code = (
        "import sys; from actor_learner import cli; cli.main(['help', 'dqn']);"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200, capture_output=True)
