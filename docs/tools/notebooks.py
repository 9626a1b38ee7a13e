"""Runs notebooks without Jupyter, and turns them into pages.

python docs/tools/notebooks.py docs/notebooks/ten_minutes.ipynb   runs it and keeps what it printed
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def read(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def run(notebook: dict[str, Any], directory: pathlib.Path) -> None:
    """Runs all cells of code in order, in `directory`, and replaces their outputs.

    As Jupyter does, a last line that is an expression is shown, and so is what `plt.show` draws.

    Raises:
      Exception: What a cell raises, with a note of the cell.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": "__main__"}
    before = os.getcwd()
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    try:
        for number, cell in enumerate(_code(notebook), start=1):
            outputs: list[dict[str, Any]] = []
            pyplot.show = lambda outputs=outputs: outputs.append(_figure(pyplot))
            printed = io.StringIO()
            print(f"cell {number}: {''.join(cell['source']).splitlines()[0]}", file=sys.stderr)
            # Both, as in Jupyter, where neither is the terminal; warnings are not kept.
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                _run_cell("".join(cell["source"]), f"<cell {number}>", names)
            if printed.getvalue():
                text = _ESCAPES.sub("", printed.getvalue()).replace(str(directory), ".")
                text = text.replace(os.path.join(sys.prefix, "bin", ""), "")  # As if on the path.
                lines = text.splitlines(keepends=True)
                stream = {"name": "stdout", "output_type": "stream", "text": lines}
                outputs.insert(0, stream)
            cell.update(outputs=outputs, execution_count=number)
    finally:
        os.chdir(before)
        sys.path.remove(str(directory))


def as_page(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """The notebook as Markdown, and the pictures that it shows, by name."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            else:
                name = f"{stem}_{len(pictures)}.png"
                pictures[name] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![]({name})")
    return "\n\n".join(parts) + "\n", pictures


def _code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run_cell(source: str, name: str, names: dict[str, Any]) -> None:
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), names)
        return
    tree.body.pop()
    exec(compile(tree, name, "exec"), names)
    value = eval(compile(ast.Expression(last.value), name, "eval"), names)
    if value is not None:
        print(repr(value))


def _figure(pyplot: Any) -> dict[str, Any]:
    image = io.BytesIO()
    pyplot.savefig(image, format="png", dpi=80, bbox_inches="tight")
    pyplot.close("all")
    data = {"image/png": base64.b64encode(image.getvalue()).decode()}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def main() -> None:
    path = pathlib.Path(sys.argv[1])
    notebook = read(path)
    with tempfile.TemporaryDirectory() as directory:
        run(notebook, pathlib.Path(directory))
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
