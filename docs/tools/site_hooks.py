"""Makes the pages that are not written by hand: bindings, commands, notebook, changelog.

Nothing is imported that imports TensorFlow: bindings are read from the source.
"""

from __future__ import annotations

import pathlib
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "tools")]

import binding_pages  # noqa: E402
import command_pages  # noqa: E402
import notebooks  # noqa: E402


def on_files(files, config):
    """Adds the generated pages to those on the disk."""
    notebook = notebooks.read(ROOT / "docs" / "notebooks" / "ten_minutes.ipynb")
    page, pictures = notebooks.as_page(notebook, "ten_minutes")
    generated = {
        "reference/gin.md": binding_pages.page(ROOT),
        "reference/commands.md": command_pages.page(),
        "notebooks/ten_minutes.md": page,
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        **{f"notebooks/{name}": content for name, content in pictures.items()},
    }
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_config(config):
    config.watch += [str(ROOT / "actor_learner"), str(ROOT / "CHANGELOG.md")]
    return config
