"""The public names have types: `make lint` checks the modules, and editors see through the door."""

import ast
import subprocess
import sys

import pytest

import actor_learner
from tests import checkout

STUB = checkout.ROOT / "actor_learner" / "__init__.pyi"
PYPROJECT = checkout.ROOT / "pyproject.toml"


def stub_line(name):
    module = actor_learner._NAMES.get(name)
    if module is None:
        module, name = actor_learner._MODULES[name].rsplit(".", 1)
    return f"from {module} import {name} as {name}"


def test_the_stub_has_every_public_name_and_no_other():
    wanted = {stub_line(name) for name in actor_learner.__all__}
    there = {
        f"from {node.module} import {alias.name} as {alias.asname}"
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(wanted - there) == [], f"add these lines to {STUB.name}"
    assert sorted(there - wanted) == [], f"remove these lines from {STUB.name}"


def test_the_modules_of_public_names_are_type_checked():
    text = PYPROJECT.read_text()
    modules = {*actor_learner._NAMES.values(), *actor_learner._MODULES.values()}
    missing = sorted(module for module in modules if f'"{module}"' not in text)
    assert missing == [], "add these to `modules` of [tool.mypy] in pyproject.toml"


@pytest.mark.parametrize(
    "code, complaint",
    [
        ("learner.run(iterations='ten')", 'incompatible type "str"; expected "int"'),
        ("learner.run(iterations=10)", None),
        ("actor_learner.Lerner", 'has no attribute "Lerner"'),
    ],
)
def test_users_of_the_package_are_told_about_wrong_types(tmp_path, code, complaint):
    program = tmp_path / "program.py"
    program.write_text(
        f"import actor_learner\n\ndef use(learner: actor_learner.Learner) -> None:\n    {code}\n"
    )
    command = [sys.executable, "-m", "mypy", f"--config-file={PYPROJECT}"]
    command += [f"--cache-dir={tmp_path}", "--follow-imports=silent", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=checkout.ROOT, timeout=240)
    if complaint is None:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert complaint in done.stdout
