"""`@name` for `@name()`, the other way round, and bindings that an override has orphaned."""

import gin
import pytest

from actor_learner import config
from actor_learner.support import errors


def check(*bindings, leaf="dqn_cartpole"):
    config.check(config.ConfigSource((leaf,), bindings))


@pytest.mark.parametrize(
    "binding, message",
    [
        ("Experiment.agent = @sac()", r"calls sac at once, without 'world': write @sac, to"),
        ("Experiment.environment = @GymnasiumEnvironment()", "write @GymnasiumEnvironment$"),
        ("Experiment.replay = @PrioritizedReplay", r"the class.*write @PrioritizedReplay\(\)"),
        ("Experiment.evaluation = @Evaluation", r"write @Evaluation\(\)"),
    ],
)  # fmt: skip
def test_the_wrong_form_of_a_reference_is_refused_with_the_right_one(binding, message):
    with pytest.raises(errors.ConfigError, match=message) as caught:
        check(binding)
    assert str(caught.value).startswith("--gin_param '")


def test_file_and_line_are_named(tmp_path):
    path = tmp_path / "mine.gin"
    path.write_text("include 'dqn_cartpole.gin'\n\nExperiment.replay = @LaneReplay\n")
    with pytest.raises(errors.ConfigError, match=r"mine.gin:3: .*write @LaneReplay\(\)"):
        check(leaf=str(path))


def test_a_trigger_class_that_is_called_by_mistake_of_form_is_refused(tmp_path, monkeypatch):
    (tmp_path / "own_form.py").write_text(
        "import gin\nfrom typing import Callable, Sequence\n\n"
        "@gin.configurable\nclass Trigger:\n    def __call__(self, step): pass\n\n"
        "@gin.configurable\nclass Holder:\n"
        "    def __init__(self, triggers: Sequence[Callable] = ()): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.gin").write_text("import own_form\nHolder.triggers = [@Trigger]\n")
    with pytest.raises(errors.ConfigError, match=r"own.gin:2: .*write @Trigger\(\)"):
        check(leaf="own.gin")
    (tmp_path / "own.gin").write_text("import own_form\nHolder.triggers = [@Trigger()]\n")
    check(leaf="own.gin")


@pytest.mark.parametrize(
    "binding",
    [
        "Experiment.agent = @td3",
        "Experiment.replay = @PrioritizedReplay()",
        "Evaluation.environment = @evaluation/GymnasiumEnvironment",
    ],
)
def test_right_forms_pass(binding):
    check(binding, leaf="sac_pendulum")


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Loads a leaf that builds `first` with `kept`, and the bindings given on top of it."""
    (tmp_path / "orphans.py").write_text(
        "import gin\n\n"
        "@gin.configurable\ndef part(size=1): return size\n\n"
        "@gin.configurable\ndef first(rate=0, part=None): return rate\n\n"
        "@gin.configurable\ndef second(rate=0): return rate\n\n"
        "@gin.configurable\ndef build(agent=None, steps=0): return agent()\n"
    )
    (tmp_path / "leaf.gin").write_text(
        "import orphans\nbuild.agent = @first\nfirst.rate = 3\nfirst.part = @part()\n"
        "part.size = 4\n"
    )
    monkeypatch.chdir(tmp_path)

    def load(*bindings):
        config.load(config.ConfigSource(("leaf.gin",), bindings))
        gin.get_configurable("build")()

    yield load
    gin.clear_config()


def test_bindings_that_an_override_orphans_are_told_and_dropped_instead_of_refused(loaded):
    loaded("build.agent = @second")
    config.check_all_used()
    (line,) = config.drop_orphaned()
    assert line == (
        "--gin_param 'build.agent = @second': build.agent is now @second instead of @first; "
        "without effect: first.rate, first.part, part.size"
    )
    assert "first" not in config.config_text()
    assert config.drop_orphaned() == []


def test_a_binding_that_was_always_without_effect_is_still_refused(loaded):
    loaded("build.agent = @second", "second.rate = 1")
    config.check_all_used()
    loaded("second.rate = 1")
    with pytest.raises(errors.ConfigError, match="second.rate is never used"):
        config.check_all_used()
    assert config.drop_orphaned() == []
