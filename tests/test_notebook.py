"""The notebook of the docs runs, from its first cell to its last, and says what it shows."""

import json
import os
import subprocess
import sys

import pytest

from tests import checkout

NOTEBOOK = checkout.ROOT / "docs" / "notebooks" / "ten_minutes.ipynb"
TOOL = checkout.ROOT / "docs" / "tools" / "notebooks.py"


@pytest.mark.timeout(900)  # Five processes that import TensorFlow, on a machine with other work.
def test_the_notebook_trains_two_agents(tmp_path):
    copy = tmp_path / "copy.ipynb"
    copy.write_text(NOTEBOOK.read_text())
    paths = [str(checkout.ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(TOOL), str(copy)],
        capture_output=True,
        text=True,
        timeout=850,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ran, kept = (json.loads(path.read_text())["cells"] for path in (copy, NOTEBOOK))
    assert [cell["source"] for cell in ran] == [cell["source"] for cell in kept]
    text = "".join(
        line
        for cell in ran
        for output in cell.get("outputs", [])
        for line in output.get("text", [])
    )
    assert text.count("Target reached at") == 2
    assert "did you mean 'learning_rate'?" in text
    assert all(cell["outputs"] for cell in kept if cell["cell_type"] == "code")
