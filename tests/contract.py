"""Runs TF-Agents' own, installed unit tests against our modules, to prove the contract of names.

    from tests import contract

    def test_tf_agents_own_tests_pass_against_our_observers(tmp_path):
        contract.run_tf_agents_tests(
            "tf_agents.replay_buffers.reverb_utils_test",
            {"tf_agents.replay_buffers.reverb_utils": "actor_learner.replay.observers"},
            deselect={"FooTest.test_bar": "needs the old gym, which we do not support"},
        )

The installed test file is read, its import lines are rewritten, and it is run as a script in a
process of its own, as its authors run it: they configure devices, flags and start methods.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


class ContractResult(NamedTuple):
    """What ran: names are `Class.method`."""

    passed: Sequence[str]
    skipped: Sequence[str]


def run_tf_agents_tests(
    module_path: str,
    replacements: Mapping[str, str],
    deselect: Mapping[str, str] | None = None,
    *,
    timeout_seconds: float = 240.0,
) -> ContractResult:
    """Runs the tests of an installed module with some of its imports replaced.

    Args:
      module_path: Dotted name of the installed test module.
      replacements: `{"their.module": "our.module"}`. Each must occur in an import of the file.
      deselect: `{"Class.method": reason}` of tests not to run; a parameterized test is named with
        its case (`Class.method_case`), or without it for all its cases. A reason is required.
      timeout_seconds: After this the run is killed and fails.

    Returns:
      The names that passed and those that were skipped.

    Raises:
      AssertionError: If a test fails, none runs, a replacement or a deselection matches nothing,
        or a reason is empty. The message holds the output of the failed tests.
    """
    source = with_imports_replaced(module_path, replacements)
    # TF-Agents' tests use the backport package; the standard library has had it since 3.3.
    source = re.sub(r"^import mock$", "from unittest import mock", source, flags=re.MULTILINE)
    deselect = dict(deselect or {})
    unexplained = [name for name, reason in deselect.items() if not reason.strip()]
    assert not unexplained, f"no reason is given for deselecting {unexplained}"
    source = _insert_before_main(source, _SKIP.format(deselect=deselect))

    with tempfile.TemporaryDirectory() as directory:
        script = pathlib.Path(directory) / (module_path.rpartition(".")[2] + ".py")
        script.write_text(source)
        report = pathlib.Path(directory) / "report.xml"
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore")
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(_REPOSITORY)] + [p for p in [os.environ.get("PYTHONPATH")] if p]
        )
        try:
            process = subprocess.run(
                [sys.executable, str(script), f"--xml_output_file={report}"],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_seconds,
            )
        except subprocess.TimeoutExpired as error:
            tail = (error.stdout or b"").decode(errors="replace")[-6000:]
            raise AssertionError(
                f"{module_path} did not finish within {timeout_seconds} s; it last printed:\n{tail}"
            ) from None
        assert report.exists(), (
            f"{module_path} ended with code {process.returncode} before it wrote a report:\n"
            f"{process.stdout[-6000:]}"
        )
        passed, skipped, failed = _read_report(report)

    assert not failed, f"{len(failed)} of {module_path} failed: {failed}\n{process.stdout[-12000:]}"
    assert process.returncode == 0, f"{module_path}: exit code {process.returncode}"
    assert passed, f"{module_path}: no test ran"
    return ContractResult(passed, skipped)


def with_imports_replaced(module_path: str, replacements: Mapping[str, str]) -> str:
    """The source of an installed module with some of its imports replaced, to run as a script."""
    return _substitute_imports(_read_module(module_path), replacements)


def load_with_imports_replaced(
    module_path: str, replacements: Mapping[str, str], directory: pathlib.Path
) -> types.ModuleType:
    """Imports such a source, which is written to `directory`, under a name of its own."""
    name = module_path.rpartition(".")[2]
    path = directory / f"{name}.py"
    path.write_text(with_imports_replaced(module_path, replacements))
    spec = importlib.util.spec_from_file_location(f"ported_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read_module(module_path: str) -> str:
    spec = importlib.util.find_spec(module_path)
    assert spec is not None and spec.origin, f"{module_path} is not installed"
    return pathlib.Path(spec.origin).read_text()


def _substitute_imports(source: str, replacements: Mapping[str, str]) -> str:
    """Rewrites `from a.b import c [as d]` and `import a.b.c as d`, keeping the bound name."""
    for theirs, ours in replacements.items():
        their_package, _, their_name = theirs.rpartition(".")
        our_package, _, our_name = ours.rpartition(".")
        pattern = re.compile(
            rf"^(?P<indent>[ \t]*)(?:from {re.escape(their_package)} import {re.escape(their_name)}"
            rf"|import {re.escape(theirs)}(?= as ))(?: as (?P<alias>\w+))?[ \t]*(?P<tail>#.*)?$",
            re.MULTILINE,
        )

        def rewritten(match, package=our_package, name=our_name, bound=their_name):
            alias = match["alias"] or bound
            return f"{match['indent']}from {package} import {name} as {alias}"

        source, count = pattern.subn(rewritten, source)
        assert count, f"the file imports no {theirs}: the replacement by {ours} does nothing"
    return source


_SKIP = """
def _skip_deselected_tests(deselect):
  import unittest
  for name, reason in deselect.items():
    class_name, _, method = name.partition(".")
    case = globals()[class_name]
    names = [n for n in dir(case) if n.startswith("test") and callable(getattr(case, n))]
    chosen = [n for n in names if n == method] or [
        n for n in names if n.startswith(method + "_") or n.startswith(method + "0")]
    if not chosen:
      raise LookupError(name + " is deselected but does not exist; there are " + ", ".join(names))
    for n in chosen:
      setattr(case, n, unittest.skip(reason)(getattr(case, n)))


_skip_deselected_tests({deselect!r})


"""


def _insert_before_main(source: str, block: str) -> str:
    match = re.search(r"^if __name__ == ['\"]__main__['\"]:", source, re.MULTILINE)
    assert match, "the file has no `if __name__ == '__main__'`: it cannot be run as a script"
    return source[: match.start()] + block + source[match.start() :]


def _read_report(path: pathlib.Path):
    passed, skipped, failed = [], [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.get("status") == "notrun" or case.get("result") == "suppressed":
            skipped.append(name)
        else:
            passed.append(name)
    return passed, skipped, failed
