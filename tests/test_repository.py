"""The files around the package agree with it, and with one another."""

import re

import yaml

import actor_learner
from tests import checkout

ROOT = checkout.ROOT


def test_the_licence_is_the_one_that_the_package_declares():
    assert (ROOT / "LICENSE").read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert 'license="Apache-2.0"' in (ROOT / "setup.py").read_text()


def test_the_version_is_in_the_changelog_and_the_citation():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == actor_learner.__version__
    assert citation["license"] == "Apache-2.0"
    versions = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == actor_learner.__version__


def test_workflow_and_hooks_call_what_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    called = {step["run"].split()[1] for step in steps if step.get("run", "").startswith("make ")}
    assert called == {"lint", "docs", "test"}
    assert called <= targets
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for hook in hooks:
        for word in hook["entry"].split():
            assert not word.startswith("tests/") or (ROOT / word).exists()


def test_issue_forms_have_what_github_asks_for():
    forms = list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) >= 3
    for path in forms:
        form = yaml.safe_load(path.read_text())
        if path.name != "config.yml":
            assert form["name"] and form["description"] and form["body"]
            assert all(field.get("type") for field in form["body"])
