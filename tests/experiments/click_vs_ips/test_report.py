"""Tables and charts of the comparison of click models and IPS rankers, from made-up rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from clickshift.display import export
from clickshift.experiments.click_vs_ips._report import (
    ClickVsIpsResult,
    _paired_difference_table,
    _quality_table,
    _values_table,
)
from clickshift.experiments.click_vs_ips._report_figures import metric_curves
from clickshift.experiments.click_vs_ips.data import IPS_TRUE, NAIVE, PBM_TRUE, PRODUCTION
from clickshift.metrics.significance import bootstrap_interval
from tests.display.browsers import look_inside

LEVEL = {PRODUCTION: 0.4, NAIVE: 0.6, PBM_TRUE: 0.9, IPS_TRUE: 0.901}


def rows_of(data: str = "one-hot", *, seeds: int = 8, collisions: tuple[float, ...] = (0.0,)) -> list[dict[str, Any]]:
    rng, rows = np.random.default_rng(0), []
    for sessions in (1000, 100_000_000):
        for rate in collisions:
            for model, level in LEVEL.items():
                for seed in range(seeds):
                    value = level - rate / 3 + 0.01 * rng.normal()
                    row = {"data": data, "sessions": sessions, "eta": 1.0, "collisions": rate, "seed": seed}
                    row |= {"kind": "trained", "model": model, "nDCG@5": value, "nDCG@10": value, "ARP": 10 - value}
                    rows.append(row)
                    if model == PBM_TRUE:
                        rows.append(row | {"kind": "limit", "nDCG@10": level - rate / 3})
    return rows


def test_table_2_marks_what_differs_from_the_click_model() -> None:
    rows = [row for row in rows_of() if row["sessions"] > 1000]
    table = {line["model"]: line for line in _quality_table(rows)}
    assert [table[model]["nDCG@10 mark"] for model in LEVEL] == ["▼", "▼", "", ""]
    assert [table[model]["ARP mark"] for model in LEVEL] == ["▲", "▲", "", ""]
    values = [row["nDCG@10"] for row in rows if row["model"] == NAIVE]
    assert table[NAIVE]["nDCG@10"].mean == pytest.approx(np.mean(values))


def test_a_mark_needs_the_corrected_p_value() -> None:
    """Two models whose p-value is below .0001, but not after Bonferroni's correction for six pairs."""
    rows = [row for row in rows_of() if row["sessions"] > 1000 and row["kind"] == "trained"]
    found = {model: np.array([row["nDCG@10"] for row in rows if row["model"] == model]) for model in LEVEL}
    for shift, mark in ((0.0, ""), (0.1, "▲")):
        for row, value in zip([row for row in rows if row["model"] == IPS_TRUE], found[IPS_TRUE], strict=True):
            row["nDCG@10"] = value + shift
        p = stats.ttest_ind(found[IPS_TRUE] + shift, found[PBM_TRUE], equal_var=False).pvalue
        assert (p * 6 < 1e-4) == bool(mark)
        assert {line["model"]: line["nDCG@10 mark"] for line in _quality_table(rows)}[IPS_TRUE] == mark


def test_the_order_of_models_is_tested_by_seed() -> None:
    rows = rows_of()
    table = _paired_difference_table(rows)
    assert len(table) == 2 * 4
    line = next(one for one in table if one["sessions"] == 1000 and one["second"] == IPS_TRUE and one["first"] == NAIVE)
    a, b = ([row["nDCG@10"] for row in rows if (row["model"], row["sessions"], row["kind"]) == (model, 1000, "trained")]
            for model in (NAIVE, IPS_TRUE))  # fmt: skip
    assert line["p"] == pytest.approx(stats.ttest_rel(b, a).pvalue)
    assert line["difference"].mean == pytest.approx(np.mean(b) - np.mean(a))


def test_bands_are_bootstrap_intervals_and_published_points_are_there() -> None:
    rows = rows_of()
    figure = metric_curves(rows, "sessions")
    (line,) = [trace for trace in figure.data if trace.name == NAIVE]
    values = [row["nDCG@10"] for row in rows if (row["model"], row["sessions"]) == (NAIVE, 1000)]
    mean, low, high = bootstrap_interval(values)
    assert line.y[0] == pytest.approx(mean)
    bands = [trace for trace in figure.data if trace.fill == "toself" and trace.legendgroup == NAIVE]
    assert (bands[0].y[0], bands[0].y[-1]) == pytest.approx((high, low))
    published = [trace for trace in figure.data if trace.name == "published"]
    assert [trace.y[-1] for trace in published] == [0.849, 1.0, 0.9997]
    assert figure.layout.xaxis.type == "log"


def test_collisions_have_the_closed_form_beside_them() -> None:
    rows = [row for row in rows_of(collisions=(0.0, 0.5)) if row["sessions"] > 1000]
    table = _values_table(rows, "collisions")
    assert [line["collisions"] for line in table] == [0.0, 0.5]
    assert table[1][f"{PBM_TRUE}, unlimited clicks"].mean == pytest.approx(0.9 - 0.5 / 3)
    dashed = [trace for trace in metric_curves(rows, "collisions").data if trace.line.dash == "dash"]
    assert [trace.name for trace in dashed] == [f"{PBM_TRUE}, unlimited clicks"]


@pytest.mark.browser
def test_the_page_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "draw", lambda figures: {})  # pictures as files: see test_export.py
    ClickVsIpsResult(rows_of(), {"protocol": "made up"}).write(tmp_path)
    measure = """
    const charts = [...document.querySelectorAll(".js-plotly-plot")];
    return { width: innerWidth, scrollWidth: document.documentElement.scrollWidth, charts: charts.length,
             empty: charts.filter((one) => !one.querySelector("svg.main-svg")).length,
             points: document.querySelectorAll(".scatterlayer .points path").length,
             tables: document.querySelectorAll("table").length };
    """
    both, console = look_inside(tmp_path / "report.html", tmp_path / "inside", widths=(390, 1280), measure=measure)
    assert not [line for line in console if "error" in line.lower()]
    for found in both:
        assert found["scrollWidth"] <= found["width"]
        assert (found["charts"], found["empty"], found["tables"]) == (1, 0, 4)
        assert found["points"] == 4 * 2 + 3 * 7, "means and published points; bands have none"


def test_few_runs_are_named_as_such() -> None:
    for runs, said in ((1, "With one run, which differences"), (2, "With two runs, intervals"), (3, "")):
        data = ClickVsIpsResult(rows_of(seeds=runs)).document.data
        assert f"{runs} run" in data
        assert (said in data) if said else ("With" not in data)
