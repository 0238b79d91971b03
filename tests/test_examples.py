"""The notebooks in examples/: every code cell runs, in order, and no output is stored."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def code_cells(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def displayed(source: str, namespace: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, which a notebook displays."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)


@pytest.mark.page
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    shown = [displayed(source, namespace) for source in code_cells(notebook)]
    results = [value for value in shown if hasattr(value, "_repr_html_") and hasattr(value, "conclusion")]
    assert len(results) >= 3
    assert all(result.conclusion and "<" in result._repr_html_() for result in results)
    if notebook.stem == "would-the-new-ranker-win":
        answer = namespace["evaluation"].to_dict()["answer"]
        assert answer["low"] < shown[-1] < answer["high"], "the interval holds what the new ranker earns"
    else:
        assert (tmp_path / "judgments.qrels").read_text(encoding="utf-8").count("\n") > 500


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_outputs(notebook: Path) -> None:
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_notebooks_are_found() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["from-a-data-frame-to-judgments", "would-the-new-ranker-win"]
