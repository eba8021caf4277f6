"""The notebook of docs: its cells are executed in order, and what the last line of each gives can be shown."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK: dict[str, Any] = json.loads((Path(__file__).parents[1] / "docs" / "tour.ipynb").read_text())
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_it_is_stored_without_outputs() -> None:
    assert NOTEBOOK["nbformat"] == 4
    code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    for instrument in ("arena", "leak", "features", "fields"):
        assert any(f'"{instrument}"' in cell or f"whence.{instrument}.train" in cell for cell in CELLS)


def execute(cell: str, scope: dict[str, Any]) -> Any:
    """The value of its last line, where that is an expression."""
    tree = ast.parse(cell)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(cell, scope)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "tour.ipynb", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "tour.ipynb", "eval"), scope)


@pytest.mark.slow
def test_it_runs(here: Path) -> None:
    scope: dict[str, Any] = {}
    values = [execute(cell, scope) for cell in CELLS]
    shown = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert len(shown) == 5
    assert all(html.startswith("<div>") and "<script" not in html for html in shown)
    assert not list(here.iterdir()), "everything is written into the store of the notebook"
