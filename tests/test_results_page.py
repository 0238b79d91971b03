"""docs/results.md lists every function that returns a result, and its facts as the docstrings describe them.

`python -m tests.test_results_page` writes the page again.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import clickshift as cs
from clickshift.display.result import Result

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
COMMANDS = {
    "fit": "fit",
    "evaluate": "evaluate",
    "compare": "compare",
    "predict": "predict",
    "judgments": "judgments",
    "conversions": "conversions",
    "examine": "examination",
    "models": "list_models",
    "propensities": "propensities",
    "audit": "audit",
    "decide": "decide",
    "explore": "explore",
    "ope evaluate": "evaluate_policy",
    "ope optimise": "optimise_policy",
    "ope backtest": "backtest",
    "rank train": "train_ranker",
    "rank evaluate": "evaluate_ranker",
    "rank score": "score",
    "rank labels": "ranking_labels",
    "rank export": "export_ranker",
    "log info": "log_summary",
    "log group": "group_queries",
    "log split": "split_log",
    "log convert": "convert_log",
    "log encode": "encode_log",
    "log count": "count_log",
    "log merge": "merge_counts",
    "log drift": "drift",
    "shift run": "policy_shift",
    "shift logs": "compare_logs",
    "shift export": "export_policy_shift",
    "shift score": "score_policy_shift",
    "selection run": "model_selection",
    "reproduce": "reproduce",
    "reproduce --list": "tables_and_figures",
    "simulate": "simulate_log",
    "import": "read_events",
    "doctor": "check_log",
    "corpus info": "corpus_summary",
}
"""Functions by command; `shift status` and `report`, `selection status` and `report` read what a run has written."""
INTRODUCTION = """# Results

Every command is a function of the same meaning, with the same arguments, that returns a result. A result is a frozen
value that describes itself:

| attribute | content |
|---|---|
| `conclusion` | the answer, in one to three sentences |
| `rows()`, `to_arrow()`, `to_pandas()` | tidy rows |
| `to_dict()` | the facts: exactly what the command prints with `--json`; `--output` and `--report` add their paths |
| `figures`, `figure(name)` | Plotly figures |
| `document` | conclusion, figures, tables and settings, computed once |
| `write(path)` | a page (.html), a folder with page, rows and `exports/`, or the file that the result is for |

In a notebook a result displays itself. `fit` returns a click model, which displays itself in the same way; its facts
are those of `ModelSummary`. Long work takes `progress`: `with cs.progress("fitting") as progress: cs.fit("NCM", log,
progress=progress)` shows a bar in terminals and notebooks, and a line now and then in log files.

The tests write this page from the docstrings (`python -m tests.test_results_page`).

"""


def result_of(function: str) -> type[Result]:
    """The class of what a function returns."""
    if function == "fit":
        from clickshift.models.summary import ModelSummary

        return ModelSummary
    annotation = inspect.signature(getattr(cs, function)).return_annotation
    module = inspect.getmodule(getattr(cs, function))
    kind = annotation if isinstance(annotation, type) else getattr(module, str(annotation))
    assert issubclass(kind, Result)
    return kind


def facts_of(kind: type[Result]) -> str:
    """The section Notes of a result's docstring."""
    lines = inspect.cleandoc(kind.__doc__ or "").splitlines()
    assert "Notes" in lines, f"{kind.__name__} does not describe its facts"
    start = lines.index("Notes") + 2
    headings = [k for k in range(start + 1, len(lines)) if re.fullmatch("-{4,}", lines[k])]
    return "\n".join(lines[start : headings[0] - 1 if headings else None]).strip()


def page() -> str:
    table = "".join(
        f"| `clickshift {command}` | `cs.{function}` | `{result_of(function).__name__}` |\n"
        for command, function in COMMANDS.items()
    )
    kinds = dict.fromkeys(result_of(function) for function in COMMANDS.values())
    facts = "\n".join(
        f"## {kind.__name__}\n\n{inspect.cleandoc(kind.__doc__ or '').splitlines()[0]}\n\n{facts_of(kind)}\n"
        for kind in kinds
    )
    return f"{INTRODUCTION}| command | function | result |\n|---|---|---|\n{table}\n{facts}"


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_command_has_a_function() -> None:
    from clickshift.cli.reproduce import SHIFT_COMMANDS
    from tests.cli.shell import commands

    others = {"shift status", "shift report", "selection status", "selection report", "relevance"}
    papers = {f"shift {name}" for name in SHIFT_COMMANDS}
    assert {name for name, _ in commands()} - others - papers == set(COMMANDS) - {"reproduce --list"}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
