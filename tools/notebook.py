"""Runs the cells of docs/frames.ipynb and writes their outputs: python -m tools.notebook.

Jupyter is not needed: cells are plain Python, run in one namespace, in a folder of their own.
"""

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "docs/frames.ipynb"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, run in the current folder."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [dict(cell) for cell in notebook["cells"]]
    code = (cell for cell in cells if cell["cell_type"] == "code")
    for count, cell in enumerate(code, 1):
        outputs = _outputs("".join(cell["source"]), namespace, count)
        cell.update(execution_count=count, outputs=outputs)
    return {**notebook, "cells": cells}


def _outputs(source: str, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    *body, last = ast.parse(source).body
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {count}", "exec"), namespace)  # noqa: S102
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), namespace)  # noqa: S307
        else:
            exec(compile(ast.Module([last], []), f"cell {count}", "exec"), namespace)  # noqa: S102
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if value is not None:
        shown = {"text/plain": _lines(repr(value))}
        if html := getattr(value, "_repr_html_", lambda: None)():
            shown = {"text/html": _lines(html), **shown}
        result = {"data": shown, "execution_count": count, "metadata": {}}
        outputs.append({**result, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ.setdefault("XDG_STATE_HOME", folder)  # its limits are not those of this machine
        found = run(notebook)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
