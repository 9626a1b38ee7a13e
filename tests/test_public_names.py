"""The package's front door."""

import subprocess
import sys

import actor_learner


def test_every_public_name_can_be_imported():
    for name in actor_learner.__all__:
        assert getattr(actor_learner, name) is not None, name


def test_importing_the_package_and_its_command_line_does_not_import_tensorflow():
    code = (
        "import sys, actor_learner, actor_learner.cli, actor_learner.commands.train; "
        "print([m for m in ('tensorflow', 'tf_agents', 'reverb', 'gymnasium') if m in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200
    )
    assert process.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(actor_learner, "NoSuchName")
