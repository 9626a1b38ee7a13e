"""Finding, checking and loading gin files, and the errors a user meets on the way."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from actor_learner import config
from actor_learner.configuring import files
from actor_learner.support import errors
from tests.gin_files import write

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PARTS = """
import dataclasses
from typing import Callable, Literal, Optional, Sequence, Tuple

import gin

Shape = Tuple[int, ...]

@gin.configurable
def toymaker(
    steps: int = 10,
    rate: float = 0.1,
    name: str = "x",
    loud: bool = False,
    limit: Optional[int] = None,
    layers: Sequence[int] = (),
    shape: Shape = (),
    pair: "Tuple[int, float]" = (1, 1.0),
    loss: Optional[Callable] = None,
    mode: Literal["auto", "sync"] = "auto",
    either: "int | str" = 1,
    old: int = None,
    untyped=3,
    part=None,
):
    return dict(locals())

@gin.configurable(denylist=["secret"])
class Part:
    def __init__(self, size: int = 1, secret=None):
        self.size = size

@gin.configurable
class SmallPart(Part):
    pass

@gin.configurable
@dataclasses.dataclass
class Record:
    length: int
    hidden: int = dataclasses.field(default=0, init=False)

@gin.configurable
def anything(**kwargs):
    return kwargs

gin.constant("parts.LARGE", 100)
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A working directory with a module `parts`, read by the checks but never imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts.py").write_text(PARTS)
    return tmp_path


def problems(*gin_files, bindings=()):
    with pytest.raises(errors.ConfigError) as caught:
        config.check(config.ConfigSource(gin_files, tuple(bindings)))
    return str(caught.value).split("\n")


def accepted(directory, text):
    write(directory, "import parts\n" + text)
    config.check(config.ConfigSource(("run.gin",)))


# Names and parameters.


def test_unknown_parameter_is_reported_with_file_line_and_nearest_name(directory):
    write(directory, "import parts\n\ntoymaker.stepz = 3\n")
    assert problems("run.gin") == [
        "run.gin:3: unknown parameter 'stepz' of toymaker: did you mean 'steps'?"
    ]


def test_unknown_parameter_without_a_near_name_lists_the_parameters(directory):
    write(directory, "import parts\nPart.qqqqqq = 3\n")
    assert problems("run.gin") == ["run.gin:2: unknown parameter 'qqqqqq' of Part: it has size"]


def test_unknown_configurable_is_reported_with_the_nearest_name(directory):
    write(directory, "import parts\ntymaker.steps = 3\n")
    assert problems("run.gin") == [
        "run.gin:2: unknown configurable 'tymaker': did you mean 'toymaker'?"
    ]


def test_unknown_references_are_found_inside_nested_values(directory):
    write(directory, "import parts\ntoymaker.part = {'a': [(@Part(), @eval/Prt())]}\n")
    assert problems("run.gin") == [
        "run.gin:2: unknown configurable '@eval/Prt()': did you mean 'Part'?"
    ]


def test_unknown_head_of_a_block_is_reported_once(directory):
    write(directory, "import parts\ntymaker:\n  steps = 3\n  rate = 0.1\n")
    assert problems("run.gin") == [
        "run.gin:2: unknown configurable 'tymaker': did you mean 'toymaker'?"
    ]


def test_bindings_in_a_block_are_checked_on_their_own_lines(directory):
    write(directory, "import parts\ntoymaker:\n  steps = 3\n  rat = 0.1\n")
    assert problems("run.gin") == [
        "run.gin:4: unknown parameter 'rat' of toymaker: did you mean 'rate'?"
    ]


def test_inherited_constructors_and_dataclass_fields_are_known(directory):
    accepted(directory, "SmallPart.size = 2\nRecord.length = 3\n")
    write(directory, "import parts\nSmallPart.sise = 2\nRecord.hidden = 3\nRecord.length = 'a'\n")
    assert problems("run.gin") == [
        "run.gin:2: unknown parameter 'sise' of SmallPart: did you mean 'size'?",
        "run.gin:3: unknown parameter 'hidden' of Record: it has length",
        "run.gin:4: Record.length is 'a', but takes int",
    ]


def test_denied_parameter_is_reported(directory):
    write(directory, "import parts\nPart.secret = 3\n")
    assert problems("run.gin") == ["run.gin:2: parameter 'secret' of Part cannot be set from gin"]


def test_any_parameter_is_accepted_where_the_function_takes_any(directory):
    accepted(directory, "anything.whatever = 3\n")


def test_ambiguous_name_lists_what_it_may_mean(directory):
    (directory / "other.py").write_text("import gin\n@gin.configurable\ndef toymaker(): pass\n")
    write(directory, "import parts\nimport other\ntoymaker.steps = 3\nparts.toymaker.rate = 1.0\n")
    assert problems("run.gin") == [
        "run.gin:3: ambiguous configurable 'toymaker': write other.toymaker or parts.toymaker"
    ]


def test_tf_agents_names_are_known_without_an_import_and_wrong_ones_corrected(directory):
    write(directory, "DqnAgent.gamma = 0.9\ndqn_agent.DqnAgent.gama = 0.9\nDqnAgnt.gamma = 0.9\n")
    assert problems("run.gin") == [
        "run.gin:2: unknown parameter 'gama' of dqn_agent.DqnAgent: did you mean 'gamma'?",
        "run.gin:3: unknown configurable 'DqnAgnt': did you mean 'DqnAgent'?",
    ]


def test_names_registered_in_ways_only_running_them_would_tell_are_left_to_loading(directory):
    (directory / "clever.py").write_text(
        "import gin\nfor name in 'ab':\n    gin.external_configurable(print, name)\n"
    )
    write(directory, "import clever\na.sep = ''\n")
    config.check(config.ConfigSource(("run.gin",)))


# Values.


@pytest.mark.parametrize(
    "binding, message",
    [
        ("steps = 1e6", "toymaker.steps is 1000000.0, but takes int: write 1_000_000"),
        ("steps = True", "toymaker.steps is True, but takes int"),
        ("steps = None", "toymaker.steps is None, but takes int"),
        ("rate = '0.1'", "toymaker.rate is '0.1', but takes float: write 0.1 without quotes"),
        ("rate = True", "toymaker.rate is True, but takes float"),
        ("name = 3", "toymaker.name is 3, but takes str: write '3'"),
        ("loud = 1", "toymaker.loud is 1, but takes bool"),
        ("limit = 1.5", "toymaker.limit is 1.5, but takes Optional[int]"),
        ("layers = 64", "toymaker.layers is 64, but takes Sequence[int]: write [64]"),
        ("layers = [64, '64']", "toymaker.layers is [64, '64'], but takes Sequence[int]"),
        ("shape = [1, 2.0]", "toymaker.shape is [1, 2.0], but takes Tuple[int, ...]"),
        ("pair = (1, 2.0, 3)", "toymaker.pair is (1, 2.0, 3), but takes Tuple[int, float]"),
        (
            "mode = 'atuo'",
            "toymaker.mode is 'atuo', but takes 'auto' or 'sync': did you mean 'auto'?",
        ),
        ("either = None", "toymaker.either is None, but takes Union[int, str]"),
        ("loss = 3", "toymaker.loss is 3, but takes Optional[Callable]: write @name"),
    ],
)
def test_literal_of_the_wrong_type_is_reported(directory, binding, message):
    write(directory, f"import parts\ntoymaker.{binding}\n")
    assert problems("run.gin") == [f"run.gin:2: {message}"]


@pytest.mark.parametrize(
    "binding",
    [
        *(
            "steps = 1_000_000",
            "steps = -1",
            "rate = 1",
            "rate = 1e-3",
            "limit = None",
            "limit = 3",
        ),
        *("layers = (64, 64)", "layers = [64]", "layers = []", "shape = (1,)", "pair = (1, 2)"),
        *("mode = 'sync'", "either = 'a'", "either = 1", "old = None", "untyped = 'anything'"),
        *("loss = @anything", "loss = None", "steps = @anything()", "layers = [1, @anything()]"),
        *("steps = %gin.REQUIRED", "steps = %parts.LARGE", "steps = %LARGE"),
    ],
)
def test_literal_that_fits_is_accepted(directory, binding):
    accepted(directory, f"toymaker.{binding}\n")


def test_wrong_type_through_a_macro_names_the_macro_and_its_place(directory):
    write(directory, "STEPS = 1e6\n", "base.gin")
    write(directory, "include 'base.gin'\nimport parts\ntoymaker.steps = %STEPS\n")
    assert problems("run.gin") == [
        "run.gin:3: toymaker.steps is 1000000.0, but takes int: write 1_000_000 "
        "(%STEPS is set in base.gin:1)"
    ]


# Macros.


def test_undefined_macro_is_reported_with_the_nearest_one(directory):
    write(directory, "import parts\nSTEPS = 3\ntoymaker.steps = %STEPS\nPart.size = %STEP\n")
    assert problems("run.gin") == ["run.gin:4: undefined macro '%STEP': did you mean '%STEPS'?"]


def test_macro_that_nothing_uses_is_reported(directory):
    write(directory, "STEPS = 3\n")
    assert problems("run.gin") == ["run.gin:1: macro 'STEPS' is never used"]


def test_macro_of_a_base_file_may_be_overridden_by_the_leaf(directory):
    write(directory, "import parts\nSTEPS = 3\ntoymaker.steps = %STEPS\n", "base.gin")
    write(directory, "include 'base.gin'\nSTEPS = 4\n")
    config.check(config.ConfigSource(("run.gin",), ("STEPS = 5",)))


def test_macro_needed_only_by_an_overridden_binding_may_be_undefined(directory):
    write(directory, "import parts\ntoymaker.steps = %STEPS\n", "base.gin")
    write(directory, "include 'base.gin'\ntoymaker.steps = 4\n")
    config.check(config.ConfigSource(("run.gin",)))


# Files, includes, imports and syntax.


def test_all_problems_are_reported_together_sorted_by_file_and_line(directory):
    write(directory, "toymaker.rate = 'x'\ntoymaker.stepz = 1\n", "b/second.gin")
    write(directory, "import parts\ninclude 'b/second.gin'\ntoymaker.loud = 2\n", "a.gin")
    found = problems("a.gin", bindings=["toymaker.name = 2", "toymaker.limit = 'z'"])
    assert [line.split(": ")[0] for line in found] == [
        "a.gin:3",
        "b/second.gin:1",
        "b/second.gin:2",
        "--gin_param 'toymaker.name = 2'",
        "--gin_param \"toymaker.limit = 'z'\"",
    ]


def test_parameter_bound_twice_in_one_file_names_both_lines(directory):
    write(
        directory, "import parts\ntoymaker.steps = 1\ntoymaker.rate = 1\nparts.toymaker.steps = 2\n"
    )
    assert problems("run.gin") == [
        "run.gin:4: parts.toymaker.steps is bound a second time: the first is on line 2"
    ]


def test_the_same_parameter_in_another_scope_file_or_binding_is_no_duplicate(directory):
    write(directory, "import parts\ntoymaker.steps = 1\neval/toymaker.steps = 1\n", "base.gin")
    write(directory, "include 'base.gin'\ninclude 'base.gin'\ntoymaker.steps = 2\n")
    config.check(config.ConfigSource(("run.gin",), ("toymaker.steps = 3", "toymaker.steps = 4")))


@pytest.mark.parametrize(
    "text, line, shown",
    [
        ("import parts\ntoymaker.steps 3\n", 2, "toymaker.steps 3"),
        ("import parts\ntoymaker.steps = \n", 2, "toymaker.steps ="),
        (
            "import parts\ntoymaker.layers = [1,\n  2,\ntoymaker.steps = 3\n",
            2,
            "toymaker.layers = [1,",
        ),
        ("import parts\ntoymaker.name = 'a\n", 2, "toymaker.name = 'a"),
        ("import parts\ntoymaker.name = word\n", 2, "toymaker.name = word"),
        ("import parts\ntoymaker:\nsteps = 3\n", 3, "steps = 3"),
        ("toymaker.steps = 3 4\n", 1, "toymaker.steps = 3 4"),
    ],
)
def test_syntax_error_shows_file_line_and_the_offending_line(directory, text, line, shown):
    write(directory, text)
    (found,) = [problem for problem in problems("run.gin") if "syntax error" in problem]
    assert found.startswith(f"run.gin:{line}: syntax error in `{shown}`: ")


def test_problems_before_a_syntax_error_are_still_reported(directory):
    write(directory, "import parts\ntoymaker.stepz = 3\ntoymaker.rate\n")
    assert [line.split(": ")[0] for line in problems("run.gin")] == ["run.gin:2", "run.gin:3"]


def test_missing_module_is_reported_with_the_nearest_one(directory):
    write(directory, "import partz\n@x = 3\n")
    assert problems("run.gin")[0] == "run.gin:1: there is no module 'partz': did you mean 'parts'?"


def test_module_with_a_syntax_error_is_reported_with_its_place(directory):
    (directory / "broken.py").write_text("def f(:\n")
    write(directory, "import broken\n")
    (found,) = problems("run.gin")
    assert found.startswith("run.gin:1: module 'broken' is not valid Python: ")
    assert found.endswith(f"({directory / 'broken.py'}:1)")


def test_modules_in_packages_are_read_without_running_the_package(directory):
    package = directory / "project"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('executed')\n")
    (package / "inner" / "__init__.py").write_text("from project.inner import more\n")
    (package / "inner" / "more.py").write_text("import gin\n@gin.configurable\ndef far(x): pass\n")
    (package / "inner" / "near.py").write_text("import gin\n@gin.configurable\ndef near(x): pass\n")
    write(directory, "import project.inner.near\nnear.x = 1\nfar.x = 2\nfar.y = 3\n")
    assert problems("run.gin") == ["run.gin:4: unknown parameter 'y' of far: it has x"]
    assert "project" not in sys.modules


def test_include_is_found_beside_the_including_file_before_the_working_directory(directory):
    write(directory, "import parts\ntoymaker.steps = 'near'\n", "deep/base.gin")
    write(directory, "import parts\ntoymaker.steps = 'far'\n", "base.gin")
    write(directory, "include 'base.gin'\n", "deep/leaf.gin")
    assert problems("deep/leaf.gin") == ["deep/base.gin:2: toymaker.steps is 'near', but takes int"]


def test_missing_include_names_places_and_nearest_file(directory):
    write(directory, "", "deep/agents/dqn.gin")
    write(directory, "\ninclude 'agents/dqm.gin'\n", "deep/leaf.gin")
    (found,) = problems("deep/leaf.gin")
    assert found.startswith(
        f"deep/leaf.gin:2: no gin file 'agents/dqm.gin' in {directory / 'deep'} or {directory}"
    )
    assert "did you mean 'agents/dqn.gin'" in found


def test_files_that_include_each_other_are_reported(directory):
    write(directory, "include 'b.gin'\n", "a.gin")
    write(directory, "include 'a.gin'\n", "b.gin")
    assert problems("a.gin") == ["b.gin:1: endless include: a.gin includes b.gin includes a.gin"]


def test_file_that_is_not_text_is_reported(directory):
    (directory / "run.gin").write_bytes(b"\xff\xfe\x00")
    (found,) = problems("run.gin")
    assert found.startswith("run.gin:1: cannot be read: 'utf-8' codec")


def test_dynamic_registration_is_left_to_gin(directory):
    write(directory, "from __gin__ import dynamic_registration\nimport parts\nparts.f.x = 3\n")
    config.check(config.ConfigSource(("run.gin",)))


# Finding files.


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A stand-in for the packaged directory, holding leaf.gin and agents/dqn.gin."""
    place = tmp_path / "packaged"
    write(place, "include 'agents/dqn.gin'\n", "leaf.gin")
    write(place, "", "agents/dqn.gin")
    monkeypatch.setattr(files, "packaged_directory", lambda: str(place))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return place


@pytest.mark.parametrize("name", ["leaf.gin", "leaf", "gin/leaf.gin", "gin/leaf"])
def test_packaged_files_are_found_from_any_directory(packaged, name):
    assert config.find(name) == str(packaged / "leaf.gin")


def test_packaged_includes_are_found_from_any_directory(packaged):
    write(packaged.parent / "elsewhere", "include 'agents/dqn.gin'\n", "mine.gin")
    config.check(config.ConfigSource(("leaf", "mine.gin")))


def test_leaves_are_the_ready_made_experiments_and_all_can_be_found(packaged):
    write(packaged, "", "base.gin")
    assert config.leaves() == ["leaf"]
    assert config.find(config.leaves()[0]) == str(packaged / "leaf.gin")


def test_file_of_the_working_directory_comes_before_a_packaged_one(packaged):
    mine = write(packaged.parent / "elsewhere", "", "leaf.gin")
    assert config.find("leaf") == str(mine)


def test_absolute_path_is_found(packaged):
    assert config.find(str(packaged / "agents" / "dqn")) == str(packaged / "agents" / "dqn.gin")


def test_missing_file_names_the_places_searched_and_the_nearest_names(packaged):
    with pytest.raises(errors.ConfigError) as caught:
        config.find("laef.gin")
    assert str(caught.value) == (
        f"no gin file 'laef.gin' in {packaged.parent / 'elsewhere'} or {packaged}"
        ": did you mean 'leaf.gin'?"
    )


def test_missing_file_without_a_near_name_lists_what_there_is(packaged):
    with pytest.raises(errors.ConfigError, match=r"; there are leaf\.gin$"):
        config.find("zzzzzzzz")


def test_missing_gin_file_is_one_of_the_problems_of_a_check(packaged):
    found = problems("laef.gin", bindings=["x 3"])
    assert found[0].startswith("--gin_file=laef.gin: no gin file 'laef.gin' in ")
    assert found[1].startswith("--gin_param 'x 3': syntax error")


def test_packaged_directory_of_a_checkout_is_its_gin_folder():
    assert files.packaged_directory() == os.path.join(ROOT, "gin")


def test_every_packaged_leaf_passes_the_check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "dqn_cartpole" in config.leaves()
    for leaf in config.leaves():
        config.check(config.ConfigSource((leaf,)))


# Without TensorFlow.


def test_a_typo_fails_without_importing_tensorflow(directory):
    write(directory, "import parts\ntoymaker.stepz = 3\nDqnAgent.gama = 1\nQNetwrk.x = 1\n")
    program = textwrap.dedent(
        """
        import sys
        from actor_learner import config
        from actor_learner.support import errors
        try:
            config.check(config.ConfigSource(("run.gin",), ()))
        except errors.ConfigError as error:
            print(error)
        heavy = {"tensorflow", "tf_agents", "reverb", "gymnasium", "parts"}
        print(sorted(heavy & set(sys.modules)))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "run.gin:2: unknown parameter 'stepz' of toymaker: did you mean 'steps'?",
        "run.gin:3: unknown parameter 'gama' of DqnAgent: did you mean 'gamma'?",
        "run.gin:4: unknown configurable 'QNetwrk': did you mean 'QNetwork'?",
        "[]",
    ]
