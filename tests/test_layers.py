"""Nothing imports upward: DESIGN's rooms stand on one another, and no room knows those above it."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "actor_learner"

# From the ground up. Rooms of one row stand side by side and do not import one another.
ROOMS = (
    ("support",),
    ("configuring",),
    # What rooms share, and what needs nothing but support: single files of the package.
    (
        "action_mask",
        "agent_spec",
        "collecting",
        "experience",
        "spec_json",
        "minibatches",
        "batch_notes",
        "parts",
        "config",
        "import_path",
    ),
    (
        "run_directory",
        "evaluation_settings",
        "run_settings",
        "ray_settings",
        "jobs_settings",
        "frozen_config",
        "argument_checks",
    ),
    ("naming", "messaging"),
    (
        "parameters",
        "environments",
        "inference",
        "replay",
        "agents",
        "reporting",
        "league",
    ),
    ("acting", "learning"),
    ("plan", "experiment_checks", "stream_choice"),
    ("experiment",),
    ("runs",),
    ("jobs",),
    ("launch",),
    ("commands",),
    ("cli", "components"),
)
LEVEL = {room: level for level, row in enumerate(ROOMS) for room in row}
# One file of a row may use another where both are single files; rooms may not.
FILES = {path.stem for path in PACKAGE.glob("*.py")}


def imports():
    """Pairs of the room that imports, and the room that it imports, with the file."""
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
    }
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        importing = inside.parts[0].removesuffix(".py")
        if importing == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] != "actor_learner" or len(parts) == 1:
                    continue
                if parts[1] not in LEVEL and f"actor_learner.{parts[1]}" not in modules:
                    continue  # A name of the package itself.
                yield importing, parts[1], inside


def test_every_room_has_its_level():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    files = FILES - {"__init__", "__main__"}
    assert rooms | files == set(LEVEL)


@pytest.mark.parametrize("room", [room for row in ROOMS for room in row])
def test_nothing_imports_upward(room):
    wrong = []
    for importing, imported, path in imports():
        if importing != room or imported == room:
            continue
        beside = LEVEL[imported] == LEVEL[room]
        if LEVEL[imported] > LEVEL[room] or (beside and not {imported, room} <= FILES):
            wrong.append(f"{path} imports {imported}")
    assert not wrong
