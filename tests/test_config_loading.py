"""Loading gin files, and which bindings reached a call: with a module that is really imported."""

from __future__ import annotations

import sys
import types

import gin
import pytest

from actor_learner import config
from actor_learner.support import errors
from tests.gin_files import write

LIVE = """
from typing import Optional
import gin

@gin.configurable
def live_experiment(agent=None, make=None, steps=1):
    return {"agent": agent() if agent else None, "make": make, "steps": steps}

@gin.configurable
def live_dqn(rate=0.1, seed=0):
    return "dqn", rate, seed

@gin.configurable
def live_sac(rate=0.1):
    return "sac", rate

@gin.configurable
class LivePart:
    def __init__(self, size=1, inner=None):
        self.size, self.inner = size, inner
"""


@pytest.fixture(scope="module")
def live_package(tmp_path_factory):
    """The directory of a package `live_agents`, imported once since gin keeps what registers."""
    place = tmp_path_factory.mktemp("live")
    (place / "live_agents").mkdir()
    (place / "live_agents" / "__init__.py").write_text("")
    (place / "live_agents" / "parts.py").write_text(LIVE)
    return place


@pytest.fixture
def live(live_package, monkeypatch):
    """A working directory with `live_agents.parts` importable and gin empty before and after."""
    monkeypatch.chdir(live_package)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # The real module imports every room, TensorFlow included; these tests configure none of it.
    components = types.ModuleType("actor_learner.components")
    monkeypatch.setitem(sys.modules, "actor_learner.components", components)
    gin.clear_config()
    yield live_package
    gin.clear_config()


def load(directory, text, *bindings):
    write(directory, text)
    config.load(config.ConfigSource(("run.gin",), bindings))
    return sys.modules["live_agents.parts"]


def test_loading_imports_modules_of_the_working_directory_and_binds(live):
    write(live, "live_dqn.rate = 0.5\n", "base.gin")
    parts = load(live, "import live_agents.parts\ninclude 'base.gin'\nlive_dqn:\n  seed = 3\n")
    assert parts.live_dqn() == ("dqn", 0.5, 3)


def test_later_files_and_bindings_win(live):
    write(live, "live_dqn.rate = 0.6\nlive_dqn.seed = 6\n", "second.gin")
    write(live, "import live_agents.parts\nlive_dqn.rate = 0.5\nlive_dqn.seed = 5\n")
    config.load(config.ConfigSource(("run.gin", "second.gin"), ("live_dqn.seed = 7",)))
    assert sys.modules["live_agents.parts"].live_dqn() == ("dqn", 0.6, 7)


def test_loading_again_starts_from_nothing(live):
    load(live, "import live_agents.parts\nlive_dqn.rate = 0.5\n")
    parts = load(live, "import live_agents.parts\nlive_dqn.seed = 5\n")
    assert parts.live_dqn() == ("dqn", 0.1, 5)


def test_loading_an_unknown_name_raises_with_file_and_line_and_leaves_nothing(live):
    with pytest.raises(errors.ConfigError) as caught:
        load(live, "import live_agents.parts\nlive_dqn.rate = 0.5\nlive_dqn.ratte = 0.5\n")
    assert str(caught.value).startswith("run.gin:3: ")
    assert "ratte" in str(caught.value)
    assert config.config_text().strip() == ""


def test_loading_a_wrong_binding_shows_the_binding(live):
    with pytest.raises(errors.ConfigError) as caught:
        load(live, "import live_agents.parts\n", "live_dqn.rate = 1", "live_dqm.rate = 1")
    assert str(caught.value).startswith("--gin_param 'live_dqm.rate = 1': ")


def test_loading_a_module_that_raises_names_its_file_and_line(live):
    (live / "raising.py").write_text("\nundefined_name\n")
    with pytest.raises(errors.ConfigError) as caught:
        load(live, "\nimport raising\n")
    assert str(caught.value) == (
        "run.gin:2: import of 'raising' failed: NameError: name 'undefined_name' is not defined "
        f"({live / 'raising.py'}:2)"
    )


def test_loading_a_missing_file_raises(live):
    with pytest.raises(errors.ConfigError, match="no gin file 'missing.gin'"):
        config.load(config.ConfigSource(("missing.gin",)))


def test_dynamic_registration_works_across_includes(live):
    (live / "plain.py").write_text("def add(x, y=1):\n    return x + y\n")
    write(live, "", "base.gin")
    text = "from __gin__ import dynamic_registration\nimport plain\nimport live_agents.parts\n"
    text += "include 'base.gin'\nlive_agents.parts.live_experiment.make = @plain.add\n"
    parts = load(live, text + "plain.add.y = 4\n")
    assert parts.live_experiment()["make"](3) == 7


def test_config_text_loads_to_the_same_configuration(live):
    parts = load(
        live,
        """
        import live_agents.parts
        SIZE = 3
        SIZES = [%SIZE, 4.5, 'a string long enough that it does not fit on one line of the text']
        live_experiment.agent = @live_dqn
        live_experiment.make = [@eval/LivePart(), {'k': (1, None, True)}]
        eval/LivePart.size = %SIZE
        eval/LivePart.inner = %SIZES
        live_experiment.steps = 1_000
        """,
        "live_dqn.rate = 1e-3",
    )
    before = parts.live_experiment()
    text = config.config_text()
    write(live, text, "saved.gin")
    config.check(config.ConfigSource(("saved.gin",)))
    config.load(config.ConfigSource(("saved.gin",), ()))
    after = parts.live_experiment()
    assert config.config_text() == text
    assert after["agent"] == before["agent"] == ("dqn", 1e-3, 0)
    assert after["steps"] == 1000
    assert vars(after["make"][0]) == vars(before["make"][0])
    assert after["make"][0].size == 3
    assert after["make"][1] == {"k": (1, None, True)}


def test_operative_config_holds_bound_values_and_defaults_of_what_was_called(live):
    parts = load(live, "import live_agents.parts\nlive_dqn.rate = 0.5\nlive_sac.rate = 0.5\n")
    parts.live_dqn()
    text = config.operative_config()
    assert "live_dqn.rate = 0.5" in text
    assert "live_dqn.seed = 0" in text
    assert "live_sac" not in text


def unused():
    with pytest.raises(errors.ConfigError) as caught:
        config.check_all_used()
    return str(caught.value).split("\n")


def test_bindings_that_reached_a_call_are_used(live):
    parts = load(
        live,
        """
        import live_agents.parts
        SIZE = 3
        live_experiment.agent = @live_dqn
        live_experiment.make = @eval/LivePart()
        live_dqn.rate = 0.5
        LivePart.size = %SIZE
        eval/LivePart.inner = 4
        """,
    )
    parts.live_experiment()
    config.check_all_used()


def test_binding_of_something_not_built_is_reported_with_what_is_built_instead(live):
    text = "import live_agents.parts\nlive_dqn.rate = 0.5\nlive_sac.rate = 0.5\n"
    parts = load(live, text, "live_dqn.seed = 3")
    parts.live_sac()
    assert unused() == [
        "run.gin:2: live_dqn.rate is never used: this experiment builds live_sac",
        "--gin_param 'live_dqn.seed = 3': live_dqn.seed is never used: "
        "this experiment builds live_sac",
    ]


def test_binding_that_the_caller_always_overrides_is_reported(live):
    parts = load(live, "import live_agents.parts\nlive_dqn.rate = 0.5\nlive_dqn.seed = 1\n")
    parts.live_dqn(0.1, seed=4)
    assert unused() == [
        "run.gin:2: live_dqn.rate is never used: whoever calls live_dqn gives 'rate' itself",
        "run.gin:3: live_dqn.seed is never used: whoever calls live_dqn gives 'seed' itself",
    ]


def test_binding_in_a_scope_nobody_enters_is_reported(live):
    parts = load(live, "import live_agents.parts\neval/live_dqn.rate = 0.5\n")
    parts.live_dqn()
    assert unused() == [
        "run.gin:2: eval/live_dqn.rate is never used: live_dqn is called in no scope"
    ]


def test_binding_replaced_in_every_scope_it_is_called_in_is_reported(live):
    text = "import live_agents.parts\nlive_dqn.rate = 0.5\neval/live_dqn.rate = 0.6\n"
    parts = load(live, text)
    with gin.config_scope("eval"):
        parts.live_dqn()
    assert unused() == [
        "run.gin:2: live_dqn.rate is never used: "
        "a binding in a narrower scope replaces it in every call of live_dqn"
    ]


def test_what_was_handed_over_uncalled_is_not_judged(live):
    parts = load(
        live,
        """
        import live_agents.parts
        live_experiment.make = @eval/LivePart
        LivePart.size = 3
        eval/LivePart.inner = @live_dqn()
        live_dqn.rate = 0.5
        """,
    )
    parts.live_experiment()
    config.check_all_used()


def test_binding_made_in_code_is_judged_too(live):
    parts = load(live, "import live_agents.parts\n")
    gin.bind_parameter("live_dqn.rate", 0.5)
    parts.live_sac()
    assert unused() == [
        "bound in code: live_dqn.rate is never used: this experiment builds live_sac"
    ]
