"""Figures of the off-policy paper: published numbers against plain loops, the bound, and a small run of each figure."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.experiments._off_policy_numbers import (
    bound_counterexample,
    bound_rows,
    compare_with_published,
    published_numbers,
)
from clickshift.experiments.backtest import Backtest
from clickshift.experiments.experiment import read_run
from clickshift.experiments.off_policy_paper import OffPolicyFigure
from clickshift.experiments.papers import TABLES_AND_FIGURES, table_or_figure
from clickshift.simulation.drifting_log import DriftingLog
from tests.io.datasets.test_yandex import kaggle_query


def test_the_published_numbers_are_those_of_the_paper() -> None:
    """As the fact sheet and the text of sections 6.2 and 6.3 give them, in percent, in their order."""
    by_task: dict[tuple[int, str], list[float]] = {}
    for number in published_numbers()["number"]:
        if "value" in number:
            by_task.setdefault((number["figure"], number["task"]), []).append(number["value"])
    assert by_task == {
        (1, "clicks@2"): [0.075, 0.1607, 0.1355, 0.0450, 0.0174],
        (1, "clicks@3"): [0.1356, 0.1051, 0.1959, 0.5173],
        (1, "dcg"): [0.245, 0.0682, 0.6834, 0.1032, 0.7286],
        (2, "clicks@2"): [0.1790, 0.1318],
        (2, "clicks@3"): [0.4624, 0.1250],
        (2, "dcg"): [0.8196, 0.1065],
    }


def test_our_numbers_by_hand() -> None:
    """Errors of 1 to 6 hundredths at M = 5, 40 and without clipping."""
    error = {"RCTR": (0.10, 0.10, 0.10), "List": (0.08, 0.09, 0.12), "Item": (0.05, 0.06, 0.06)}
    error |= {"IP": (0.05, 0.07, 0.08), "PBM": (0.04, 0.05, 0.06)}
    rows = [
        {"task": "clicks@2", "group": "g", "estimator": name, "M": clip, "rmse": rmse}
        for name, errors in error.items()
        for clip, rmse in zip((5.0, 40.0, math.inf), errors, strict=True)
    ]
    found = {line["quantity"]: (line["published"], line["ours"]) for line in compare_with_published(rows, 1, "g")}
    assert found == {
        "error of RCTR": ("0.075", "0.100"),
        "Item, IP, PBM below RCTR, at least, at any M >= 40": ("16.1%", "20.0%"),  # IP without clipping
        "Item, IP, PBM below List, at least, at any M >= 40": ("13.6%", "22.2%"),  # IP at 40
        "error of List at M = 5 below that without clipping": ("4.5%", "33.3%"),
        "error of IP at M = 5 below that without clipping": ("1.7%", "37.5%"),
    }
    assert compare_with_published(rows, 1, "another group") == []


def test_the_printed_bound_and_the_corrected_one() -> None:
    (printed, corrected), (same, _) = (
        (row["printed"], row["corrected"]) for row in bound_rows(200, {"clicks@2": 2}, [7.0, 1.0])
    )
    assert printed == same == pytest.approx(4 * math.sqrt(math.log(80) / 400))
    assert corrected == pytest.approx(7 * printed)
    example = bound_counterexample()
    assert example["deviation"] == pytest.approx(0.148, abs=5e-4)
    assert example["exceeded"] == pytest.approx(0.264, abs=5e-4)  # fact sheet
    hits = np.random.default_rng(0).binomial(100, 0.01, 20_000)
    assert np.mean(hits - 1 > example["deviation"]) == pytest.approx(example["exceeded"], abs=0.01)


SMALL = {"log": DriftingLog(queries=6, sessions=4000, days=4), "queries": 3, "down_to": 6}


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_figure_of_a_small_log(number: int, tmp_path: Path) -> None:
    assert OffPolicyFigure(number).result([], {}).number == number
    protocol = OffPolicyFigure(number, **SMALL)  # type: ignore[arg-type]
    result = protocol.run(tmp_path, workers=0)
    query = "20100007" if number == 5 else "11655238"
    assert f"ope backtest train.gz --format yandex-kaggle --query {query}" in result.conclusion
    facts = result.to_dict()
    assert facts["command"] in result.conclusion
    if number == 5:
        assert {row["day"] for row in facts["rows"] if row["kind"] == "day"} == {"1", "2", "3", "4"}
    else:
        assert {line["reward"] for line in facts["published"]} == {"clicks@2", "clicks@3", "dcg"}
        assert [row["corrected"] / row["printed"] for row in facts["bound"]] == pytest.approx([1, 5, 100] * 2)
        assert result.document.tables.keys() >= {"published", "bound"}
    assert read_run(tmp_path).to_dict() == facts
    if number == 1:  # the errors are those of the backtest itself
        whole = Backtest(queries=3, down_to=6).on(protocol.log.draw())
        expected = [row["rmse"] for row in whole.rows() if row["group"] == list(whole.groups)[-1]]
        errors = [row for row in facts["rows"] if row["kind"] == "error" and row["group"] == "single query"]
        by_task = {task: [row["rmse"] for row in errors if row["task"] == task] for task in ("clicks@2", "clicks@3")}
        assert by_task["clicks@2"] + by_task["clicks@3"] == pytest.approx(expected[: 2 * len(expected) // 4])


def test_the_figures_are_listed_and_tables_of_one_run_share_its_folder() -> None:
    assert [name for name in TABLES_AND_FIGURES if name.startswith("ope")] == [f"ope-figure{k}" for k in range(1, 6)]
    assert table_or_figure("cmip-table1").run == table_or_figure("cmip-table2").run == "cmip"


def test_a_kaggle_log_is_backtested_on_its_frequent_queries_with_the_published_numbers(tmp_path: Path) -> None:
    """The published query is rare here, and is kept because it is asked for; M below 1 is allowed."""
    rng = np.random.default_rng(3)
    lines = []
    for number in range(600):
        query = 11655238 if number % 40 == 0 else int(5 * rng.random() ** 2)
        docs = (100 * (query % 1000) + rng.permutation(12)[:10]).tolist()
        lines.append(f"{number}\tM\t{1 + number * 5 // 600}\t{number}\n" + kaggle_query(number, 0, query, docs))
        lines += [f"{number}\t5\tC\t0\t{doc}\n" for rank, doc in enumerate(docs) if rng.random() < 0.6 / (rank + 1)]
    (tmp_path / "train.txt").write_text("".join(lines))
    options = {"query": "11655238", "queries": 2, "clip": [0.5, 5.0, 40.0, 100.0, math.inf]}
    result = cs.backtest(tmp_path / "train.txt", format="yandex-kaggle", rewards=["clicks@2"], **options)
    assert result.settings["format"] == "yandex-kaggle"
    assert {line["figure"] for line in result.document.tables["published"]} == {1, 2, 3}
    shown = [section.name for section in result.document.sections if not section.page_only]
    assert "published" in shown
    assert {row["M"] for row in result.rows()} == set(options["clip"])
    ips = {row["M"]: row["rmse"] for row in result.rows() if row["estimator"] == "IP"}
    assert ips[0.5] != ips[5.0]
