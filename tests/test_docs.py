"""What README and docs name exists: commands, flags, bindings, modules, files; their code runs."""

import ast
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import griffe
import pytest

import actor_learner
from actor_learner import config
from tests import checkout, command_flags, markdown

ROOT = checkout.ROOT
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
)
TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
BLOCKS = [block for page, text in TEXTS.items() for block in markdown.blocks(page, text)]
SPANS = [span for page, text in TEXTS.items() for span in markdown.spans(page, text)]
# What changed, or what others call it: these pages name things that are not, or not any more, here.
HISTORY = ("CHANGELOG.md",)
FILE = re.compile(r"[\w./*<>-]+\.(?:py|gin|md|sh|yaml|cff|toml|ipynb)")
BINDING = re.compile(r"(?:\w+/)?(?P<name>[A-Za-z_]\w*)\.(?P<parameter>[a-z_]\w*)(?: = .*)?")
IMPORT = re.compile(r"actor_learner(?:\.\w+)+")
IS_GIN = re.compile(r"^(?:include '|import |[\w/]+\.\w+ = )", re.M)
COMMAND = re.compile(r"actor-learner|make|python -m")
# Modules that stand for a reader's own.
FICTIONAL = re.compile(r"my_\w+(?:\.\w+)*")


@functools.cache
def package():
    return griffe.load("actor_learner", search_paths=[ROOT], docstring_parser="google")


@functools.cache
def classes():
    """Every class and function of the package, by its own name."""
    found = {}
    pending = [package()]
    while pending:
        for name, member in pending.pop().members.items():
            if member.is_alias:
                continue
            if member.is_module:
                pending.append(member)
            else:
                found.setdefault(name, []).append(member)
    return found


def has(name, part):
    """Whether something of the package called `name` takes or has `part`."""
    for found in classes().get(name, []):
        if found.is_function and part in {parameter.name for parameter in found.parameters}:
            return True
        if found.is_class:
            bases = [found, *found.mro()] if found.bases else [found]
            for base in bases:
                made = base.members.get("__init__")
                taken = {p.name for p in made.parameters} if made and made.is_function else set()
                if part in base.members or part in taken:
                    return True
    return False


def exists(dotted):
    """Whether a dotted name of the package is a module, or something that a module defines."""
    at = package()
    for part in dotted.split(".")[1:]:
        if at.is_alias or part not in at.members:
            return False
        at = at.members[part]
    return True


def commands_of(text):
    """The single commands of a shell snippet, without comments, prompts and continuations."""
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip().removeprefix("$ ")
        for part in re.split(r"&&|;|\|", line):
            part = re.sub(r"^(?:\w+=\S+ +)+", "", part.strip())
            if part:
                yield part


def shell_commands():
    for block in BLOCKS:
        if block.language in ("bash", "sh", "console"):
            for command in commands_of(block.code):
                yield str(block), command
    for place, span in SPANS:
        if COMMAND.match(span):
            yield place, span


def problem_of(command):
    """What is wrong with a command line of ours; None for one that could run, or is not ours."""
    try:
        words = shlex.split(command.replace("…", "x").replace("'\\''", ""))
    except ValueError:
        return None  # Shell syntax that is not ours to check.
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        missing = [word for word in words[1:] if "=" not in word and word not in targets]
        return f"there is no target {missing}" if missing else None
    if words[:2] == ["python", "-m"] and words[2].startswith(("benchmarks.", "actor_learner.")):
        module = ROOT / pathlib.Path(*words[2].split("."))
        return None if module.with_suffix(".py").exists() else f"there is no module {words[2]}"
    if words[0] != "actor-learner" or len(words) == 1:
        return None
    return command_flags.problem(words[1:])


@pytest.mark.parametrize("page", PAGES)
def test_every_command_has_that_name_and_takes_those_flags(page):
    wrong = {
        f"{place}: {command}": problem
        for place, command in shell_commands()
        if place.startswith(f"{page}:") and (problem := problem_of(command))
    }
    assert not wrong


def test_a_flag_in_the_text_is_one_of_some_command():
    known = command_flags.everywhere()
    sources = [
        *ROOT.glob("benchmarks/*.py"),
        *ROOT.glob("examples/**/*"),
        *ROOT.glob("docs/tools/*"),
    ]
    others = "".join(path.read_text() for path in sources if path.is_file())
    wrong = [
        f"{place}: {span}"
        for place, span in SPANS
        if (flag := re.match(r"--[a-z][\w-]*", span))
        and flag[0] not in known
        and f'"{flag[0]}"' not in others
        and not place.startswith(HISTORY)
    ]
    assert not wrong


def test_a_binding_in_the_text_is_one_that_can_be_bound():
    wrong = []
    for place, span in SPANS:
        match = BINDING.fullmatch(span)
        if not match or place.startswith(HISTORY) or FILE.fullmatch(span):
            continue
        name, parameter = match["name"], match["parameter"]
        ours = name in classes() or re.match(r"[A-Z][a-z]+[A-Z]?\w*$", name) or " = " in span
        if name in KNOWN_OTHERS or f"{name}.{parameter}" in NOT_BINDINGS:
            continue
        if ours and not has(name, parameter):
            wrong.append(f"{place}: {span}")
    assert not wrong, "\n".join(wrong)


# What looks like a binding and is something else: of other libraries, of JSON files, or an example.
NOT_BINDINGS = {
    "agent.train",
    "ReverbReplayBuffer.as_dataset",  # Inherited of TF-Agents.
    "Learner.step",  # Of Acme.
    "run.json",
    "exploitability.jsonl",
    "LossInfo.extra",  # Of TF-Agents.
    "Name.parameter",
    "Experiment.target_return",  # Named as one that is refused.
}
KNOWN_OTHERS = {"gymnasium", "tf", "self", "uuid", "errors", "experience"}


def test_a_module_or_name_of_the_package_in_the_text_exists():
    named = [(place, match) for place, span in SPANS for match in IMPORT.findall(span)]
    for block in BLOCKS:
        if block.language == "python":
            named += [(str(block), match) for match in IMPORT.findall(block.code)]
    wrong = [f"{place}: {name}" for place, name in named if not exists(name)]
    assert not wrong


def test_a_file_in_the_text_exists():
    folders = [
        ROOT,
        *(ROOT / name for name in ("actor_learner", "gin", "docs", "examples", "tests")),
    ]
    rooms = [path for path in (ROOT / "actor_learner").iterdir() if path.is_dir()]
    wrong = []
    for place, span in SPANS:
        if not FILE.fullmatch(span) or place.startswith(HISTORY) or "<" in span:
            continue
        if span.startswith(("mine", "my_", "config.gin", "operative_config.gin")):
            continue
        if not any(list(folder.glob(span)) for folder in [*folders, *rooms]):
            wrong.append(f"{place}: {span}")
    assert not wrong


def test_every_public_name_is_in_the_reference():
    reference = TEXTS["docs/reference/api.md"]
    entry = re.compile(r"^::: ([\w.]+)\n(?:    options: \{members: \[([^\]]+)\]\})?", re.M)
    listed = dict(entry.findall(reference))
    missing = [
        name
        for name, module in actor_learner._NAMES.items()
        if not module.startswith("actor_learner.agents.")  # Builders are on the page of bindings.
        and (module not in listed or (listed[module] and name not in listed[module].split(", ")))
    ]
    assert missing == []


def test_every_error_is_explained():
    explained = TEXTS["docs/howto/errors.md"]
    raised = package()["support.errors"].classes
    assert [name for name in raised if f"`{name}`" not in explained] == []


def test_links_of_the_readme_lead_somewhere():
    for page in [page for page in PAGES if "/" not in page]:
        for target in re.findall(r"\]\(([^)#\s]+)", TEXTS[page]) + re.findall(
            r'src="([^"]+)"', TEXTS[page]
        ):
            assert target.startswith("http") or (ROOT / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "python"], ids=str)
def test_python_in_the_docs_is_python_and_imports_what_is_there(block):
    for node in ast.walk(ast.parse(block.code)):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "actor_learner"
        ):
            for alias in node.names:
                exported = node.module == "actor_learner" and alias.name in actor_learner.__all__
                assert exported or exists(f"{node.module}.{alias.name}"), f"{block}: {alias.name}"


def is_gin(block):
    return block.language == "gin" or (not block.language and bool(IS_GIN.match(block.code)))


@pytest.mark.parametrize("block", [b for b in BLOCKS if is_gin(b)], ids=str)
def test_gin_in_the_docs_binds_what_can_be_bound(block, tmp_path, monkeypatch):
    write_modules(block, tmp_path)
    # As pytest's own path does, so that modules that stand for a reader's are found.
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT))
    (tmp_path / "mine.gin").write_text(block.code)
    config.check(config.ConfigSource(("mine.gin",), ()))


def write_modules(block, directory):
    """Writes the modules that a page has, and stand-ins for others that a gin snippet imports."""
    modules = {
        other.file: other.code for other in BLOCKS if other.file and other.path == block.path
    }
    wanted = {name for name in re.findall(r"@(?:\w+/)?(\w+)", block.code) if name not in classes()}
    stand_in = "import gin\n" + "".join(
        f"@gin.configurable\ndef {name}(**_):\n    pass\n" for name in sorted(wanted)
    )
    for name in re.findall(r"^import ([\w.]+)", block.code, re.M):
        if FICTIONAL.fullmatch(name):
            modules.setdefault(f"{name.replace('.', '/')}.py", stand_in)
    for name, code in modules.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        if path.parent != directory:
            (path.parent / "__init__.py").touch()


def test_python_that_says_so_runs(tmp_path):
    """All of it in one process, since most of it imports TensorFlow, and each as a program."""
    running = [block for block in BLOCKS if block.test == "run"]
    assert len(running) >= 6
    program = (
        "import json, sys\n"
        "for index, (place, code) in enumerate(json.load(open(sys.argv[1]))):\n"
        "    print(place, flush=True)\n"
        "    exec(compile(code, place, 'exec'), {'__name__': f'snippet_{index}'})\n"
    )
    snippets = tmp_path / "snippets.json"
    snippets.write_text(json.dumps([(str(block), block.code) for block in running]))
    done = subprocess.run(
        [sys.executable, "-c", program, str(snippets)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_leaves_that_say_so_can_be_built(tmp_path):
    """Each is built as `train --dry_run` does: environment, agent, replay, nothing left unused."""
    leaves = [block for block in BLOCKS if block.test == "build"]
    assert len(leaves) >= 8
    for index, block in enumerate(leaves):
        directory = tmp_path / str(index)
        directory.mkdir()
        write_modules(block, directory)
        (directory / "mine.gin").write_text(block.code)
    program = (
        "import os, sys\n"
        "import gin\n"
        "from actor_learner import cli\n"
        "for index, place in enumerate(sys.argv[2:]):\n"
        "    print(place, flush=True)\n"
        "    os.chdir(os.path.join(sys.argv[1], str(index)))\n"
        "    code = cli.main(['train', '--gin_file=mine.gin', '--dry_run'])\n"
        "    assert code == 0, place\n"
        "    gin.clear_config()\n"
        "    for name in [name for name in sys.modules if name.startswith('my_')]:\n"
        "        del sys.modules[name]\n"
        "    sys.path[:] = [path for path in sys.path if not path.startswith(sys.argv[1])]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), *map(str, leaves)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_site_builds_strictly_and_asks_no_other_server(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, f"--site-dir={tmp_path}"], capture_output=True, text=True, cwd=ROOT, timeout=240
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    home = (tmp_path / "index.html").read_text()
    assert "From zero to a trained agent" in home
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+stylesheet"[^>]+href="(https?:[^"]+)"""
    )
    for page in tmp_path.rglob("*.html"):
        assert not loaded.findall(page.read_text()), page
    bindings = (tmp_path / "reference" / "gin.html").read_text()
    assert "updates_per_step" in bindings and "epsilon_decay_steps" in bindings


def test_what_is_not_there_is_noticed():
    assert "no command" in problem_of("actor-learner trian --gin_file=x")
    assert "--gin_fil" in problem_of("actor-learner train --gin_fil=x")
    assert problem_of("actor-learner train --gin_file=x --seed=1") is None
    assert "tets" in problem_of("make tets")
    assert has("dqn", "learning_rate") and not has("dqn", "learning_rat")
    assert exists("actor_learner.acting.actor.Actor") and not exists("actor_learner.acting.Aktor")
