"""The charts of the policy-shift report: what they show is what the rows say."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from clickshift.experiments.policy_shift._report import PolicyShiftResult
from clickshift.experiments.policy_shift._report_derived import policy_figures
from clickshift.experiments.policy_shift._report_robustness import LogName, oracle_gap_figure
from clickshift.experiments.policy_shift._report_spider import IND_LINE, OOD_LINE, spider_figures, spider_sheet
from tests.experiments.policy_shift.rows import GAIN, IND, TRAINING, USERS, Rows, shift_rows


@pytest.fixture(scope="module")
def rows() -> Rows:
    return shift_rows()


@pytest.fixture(scope="module")
def spiders(rows: Rows) -> dict[str, Any]:
    return spider_figures(rows)


def line(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name and trace.showlegend is not False)


def perplexities(rows: list[dict[str, Any]], **where: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["kind"] == "clicks" and row["model"] in IND and all(row[key] == value for key, value in where.items()):
            found.setdefault(row["model"], []).append(row["perplexity"])
    return found


def test_a_spider_has_a_spoke_for_every_change_of_policy(rows: Rows, spiders: dict[str, Any]) -> None:
    assert list(spiders) == list(IND)
    ood, ind = line(spiders["DBN"], OOD_LINE), line(spiders["DBN"], IND_LINE)
    assert len(ood.r) == len(ind.r) == 27 + 1, "and back to the first"
    assert ood.r[0] == ood.r[-1]
    assert (ood.line.dash, ind.line.dash) == ("solid", "dash")
    assert np.allclose(np.diff(ood.theta[:-1]), 360 / 27)
    there = perplexities(rows, user="DBN", training="PL-oracle", testing="random")
    means = {name: np.mean(values) for name, values in there.items()}
    lowest, highest = min(means.values()), max(means.values())

    def radius(value: float) -> float:
        return 0.2 + math.log(1 + (value - lowest) / (highest - lowest))

    assert ood.r[0] == pytest.approx(radius(means["DBN"]))
    assert list(ind.r[:3]) == [ind.r[0]] * 3, "the same log to learn from, three to be tested on"
    band = next(trace for trace in spiders["DBN"].data if trace.name == OOD_LINE and trace.fill == "toself")
    low, high = stats.t.interval(0.95, 9, loc=means["DBN"], scale=stats.sem(there["DBN"]))
    assert band.r[0] == pytest.approx(radius(high))
    assert band.r[-1] == pytest.approx(radius(low))
    assert "DBN users<br>trained on PL-oracle<br>tested on random" in ood.text[0]
    assert f"perplexity {means['DBN']:.4f}" in ood.text[0]


def test_the_labels_of_a_spider_stand_at_their_spokes(spiders: dict[str, Any]) -> None:
    labels = spiders["PBM"].layout.annotations
    texts = [label.text for label in labels]
    assert texts[:4] == ["random", "BM25", "LambdaMART", "oracle"], "PL-oracle is not tested on oracle"
    assert texts[27:36] == ["<b>PL-oracle</b>", "<b>PL-BM25</b>", "<b>PL-LambdaMART</b>"] * 3
    assert all(label.font.size >= 11 for label in labels)
    assert all(-90 <= label.textangle <= 90 for label in labels), "nothing is upside down"
    first, training = labels[0], labels[27]
    assert first.x > 0.5, "clockwise from the top"
    assert first.y > 0.5
    assert [math.dist((label.x, label.y), (0.5, 0.5)) for label in (first, training)] == pytest.approx([0.5, 0.5])
    out = [math.hypot(label.xshift, label.yshift) for label in (first, training)]
    assert out[0] < out[1], "test policies inside, training policies outside"
    margin = spiders["PBM"].layout.margin
    assert out[1] + 6 < margin.l == margin.r == margin.b < margin.t, "labels are on the chart at any size"
    longest = max(math.hypot(label.xshift, label.yshift) for label in labels[:27])
    assert longest + 6.2 * len("LambdaMART") / 2 < out[1] - 5, "rings of labels do not overlap"


def test_users_have_their_sectors(spiders: dict[str, Any]) -> None:
    sectors = [trace for trace in spiders["PBM"].data if trace.type == "barpolar"]
    assert [sector.name for sector in sectors] == ["DBN users", "CoCM users", "CoCM-mismatch users"]
    assert len({sector.marker.color for sector in sectors}) == 3
    assert sum(sum(sector.width) for sector in sectors) == pytest.approx(360)


def test_without_seeds_there_is_no_band_and_without_spokes_no_web() -> None:
    traces = spider_figures(shift_rows(["DBN"], seeds=1, models=["PBM", "UBM"]))["PBM"].data
    assert [trace.type for trace in traces] == ["barpolar"] + ["scatterpolar"] * 2
    rows = [row for row in shift_rows(["DBN"], ["PL-oracle"]) if row.get("testing") in {"ind", "random", "BM25"}]
    assert spider_figures(rows) == {}, "two changes of policy have no shape"
    assert spider_figures([]) == {}


def test_a_model_that_missed_a_log_has_a_gap() -> None:
    rows = shift_rows(USERS[:1], models=["PBM", "UBM", "DBN"], seeds=2)
    figures = spider_figures([row for row in rows if (row["model"], row.get("testing")) != ("PBM", "random")])
    assert line(figures["PBM"], OOD_LINE).r[0] is None
    assert len(line(figures["UBM"], OOD_LINE).r) == 9 + 1


def test_the_sheet_of_figure_1_has_all_charts(spiders: dict[str, Any]) -> None:
    sheet = spider_sheet(spiders)
    polars = sorted({trace.subplot for trace in sheet.data})
    assert polars == ["polar", *(f"polar{k}" for k in range(2, 7))]
    for polar, (name, chart) in zip(polars, spiders.items(), strict=True):
        ood = [trace for trace in sheet.data if (trace.subplot, trace.name) == (polar, OOD_LINE)][-1]
        assert list(ood.r) == list(line(chart, OOD_LINE).r), name
    assert len({tuple(sheet.layout[polar].domain.x + sheet.layout[polar].domain.y) for polar in polars}) == 6
    titles = [label.text for label in sheet.layout.annotations if label.font.size == 18]
    assert titles == [f"<b>{name}</b>" for name in spiders]
    legend = [trace.name for trace in sheet.data if trace.showlegend]
    assert sorted(legend) == ["CoCM users", "CoCM-mismatch users", "DBN users", OOD_LINE, IND_LINE], (
        "once for all charts"
    )
    assert spider_sheet({"PBM": spiders["PBM"]}) is None


@pytest.mark.parametrize("on_one_sheet", [True, False])
def test_no_title_touches_a_label(spiders: dict[str, Any], on_one_sheet: bool) -> None:
    """Boxes of texts in pixels, from the lower left: a bold letter of a label is 7 wide, and one of a title 13."""
    for chart in [spider_sheet(spiders)] if on_one_sheet else spiders.values():
        layout = chart.layout
        margin, titles = layout.margin, []
        width, height = (layout.width - margin.l - margin.r, layout.height - margin.t - margin.b)
        if not on_one_sheet:
            left, top = layout.title.x * layout.width, layout.title.y * layout.height
            titles = [(left, left + 13 * len("CACM-minus"), top - 22, top)]
        labels = []
        for label in layout.annotations:
            x, y = margin.l + label.x * width, margin.b + label.y * height
            if label.font.size == 18:
                titles.append((x, x + 13 * len("CACM-minus"), y - 22, y))
                continue
            x, y, letters = x + (label.xshift or 0), y + (label.yshift or 0), len(re.sub("<[^>]*>", "", label.text))
            along, turn = 3.5 * letters, math.radians(label.textangle)
            across, up = (6 + along * abs(math.cos(turn)), 6 + along * abs(math.sin(turn)))
            labels.append((x - across, x + across, y - up, y + up))
        assert len(titles) == (6 if on_one_sheet else 1)
        for title in titles:
            assert not [one for one in labels if _overlap(title, one)]
            assert 0 <= title[0] < title[1] <= layout.width
            assert 0 <= title[2] < title[3] <= layout.height


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def test_dots_are_what_is_earned_and_promises_do_not_stretch_their_axis(rows: Rows) -> None:
    figures = policy_figures(rows)
    assert list(figures) == [
        LogName(u, t) for u in ("CoCM", "CoCM-mismatch") for t in ("PL-oracle", "PL-BM25", "PL-LambdaMART")
    ]
    figure = figures[LogName("CoCM", "PL-oracle")]
    dots = {trace.name: trace for trace in figure.data if trace.type == "scatter"}
    assert list(dots) == ["Top-Down", "Max-Reward"]
    assert list(figure.layout.xaxis.ticktext) == list(IND), "the oracle is a line, not a dot"
    for i, name in enumerate(IND):
        assert dots["Max-Reward"].y[i] - dots["Top-Down"].y[i] == pytest.approx(GAIN[name], abs=0.006)
    (promised,) = (trace for trace in figure.data if trace.name == "Max-Reward, predicted")
    ncm = list(IND).index("NCM")
    assert (promised.y[ncm], promised.yaxis) == (pytest.approx(0.3), "y2")
    earned = [
        row["expected_clicks"] for row in rows
        if row["kind"] == "policy" and (row["user"], row["training"], row["model"]) == ("CoCM", "PL-oracle", "NCM")
        and row["policy"] == "Max-Reward"
    ]  # fmt: skip
    half = stats.t.ppf(0.975, 9) * stats.sem(earned)
    assert dots["Max-Reward"].error_y.array[ncm] == pytest.approx(half)
    assert figure.layout.shapes[0].y0 == 1.3, "what the oracle earns"
    (shown,) = {other.layout.yaxis.range for other in figures.values()}
    assert 1.0 < shown[0] < 1.05 < 1.3 < shown[1] < 1.35, "panels can be compared; a gain of .06 is a fifth of the axis"
    assert policy_figures([]) == {}


def test_the_distance_from_the_oracle() -> None:
    rows = shift_rows(["DBN"], ["PL-oracle"], noise=0.0)
    figure = oracle_gap_figure(rows)
    assert [trace.name for trace in figure.data] == list(IND)
    assert list(figure.data[0].y) == pytest.approx([IND["PBM"]] + [IND["PBM"] + 0.005] * 4)
    assert len({trace.marker.symbol for trace in figure.data}) == len(IND)
    assert oracle_gap_figure([row for row in rows if row["role"] != "oracle"]) is None


def test_all_charts_have_names_for_files() -> None:
    names = list(PolicyShiftResult(shift_rows(USERS[:2], TRAINING[:2], models=["PBM", "UBM"], seeds=2)).figures)
    assert len(names) == 2 + 2 + 1 + 4 + 2
    assert {"excess", "robustness", "robustness PBM", "figure 1", "oracle DBN PL-BM25", "policies CoCM PL-BM25"} <= set(
        names
    )
