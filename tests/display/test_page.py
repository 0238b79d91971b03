"""The page of the policy-shift report in a real browser, as wide as a phone and as a desk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clickshift.display.document import write_page
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from tests.display.browsers import look_inside
from tests.experiments.policy_shift.rows import IND, TRAINING, USERS, shift_rows

pytestmark = pytest.mark.browser

TEXTS_CUT_OFF = """
const textsCutOff = () => [...document.querySelectorAll(".js-plotly-plot svg.main-svg text")].filter((text) => {
  const [inner, outer] = [text.getBoundingClientRect(), text.closest("figure").getBoundingClientRect()];
  return inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.right > innerWidth);
}).map((text) => text.textContent);
"""
MEASURE = (
    TEXTS_CUT_OFF
    + """
const opened = () => {
  all("nav a")[1].click();
  dispatchEvent(new HashChangeEvent("hashchange"));
  return all("details").map((one) => one.open);
};
const all = (what, inside = document) => [...inside.querySelectorAll(what)];
const root = document.documentElement;
const charts = all(".js-plotly-plot");
const table = all("table").find((one) => one.textContent.includes("mean difference"));
const header = all("th", table).find((one) => one.textContent === "mean difference");
const order = () => all("tbody th", table).map((one) => one.textContent);
const sorts = [];
for (let i = 0; i < 2; i++) {
  all("button", header)[0].click();
  sorts.push([header.getAttribute("aria-sort"), order()]);
}
const box = (one) => one.getBoundingClientRect();
const values = all("tbody tr", table).map((row) => Number(row.cells[header.cellIndex].dataset.value));
all("button", table.rows[0].cells[0])[0].click();
const link = all("nav a").at(-1);
return {
  width: innerWidth, scrollWidth: root.scrollWidth,
  wide: all("h1, h2, h3, p, nav, figure, .scroll").filter((one) => box(one).right > innerWidth + 1).length,
  charts: charts.length,
  empty: charts.filter((one) => !one.querySelector("svg.main-svg")).length,
  webs: all(".js-plotly-plot .polar").length,
  lines: all(".polar .scatterlayer path.js-line").length,
  bars: all(".barlayer .bars:not(.polar *) path").length,
  across: new Set(all("figure", all(".grid")[0]).map((one) => box(one).left)).size,
  smallest: Math.min(...all("text", all(".grid")[0]).map((one) => parseFloat(getComputedStyle(one).fontSize))),
  sorts, values, other: header.getAttribute("aria-sort"), byName: order(),
  focusable: all("th button").every((one) => one.tabIndex === 0),
  jumps: all("nav a").every((one) => document.querySelector(one.getAttribute("href"))), last: link.textContent,
  share: all(".modebar-btn").filter((one) => /share|cloud/i.test(one.dataset.title || "")).length,
  loaded: performance.getEntriesByType("resource").length,
  first: all("main > section:first-child .heatmaplayer .hm").length,
  cut: textsCutOff(),
  folded: all("details").map((one) => one.open),
  opened: opened(),
  hacked: typeof window.hacked,
  text: document.body.innerText,
};
"""
)
NARROW, WIDE = 390, 1280


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    rows = shift_rows(USERS[:2], TRAINING[:2], seeds=2)
    write_page(path, PolicyShiftResult(rows, {"seeds": 2}).document)
    return path


@pytest.fixture(scope="module")
def both(page: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("seen") / "inside"
    found, console = look_inside(page, folder, widths=(NARROW, WIDE), measure=MEASURE)
    return {one["width"]: one | {"console": console} for one in found}


@pytest.fixture(params=[NARROW, WIDE])
def seen(request: pytest.FixtureRequest, both: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return both[request.param]


def test_every_chart_is_drawn(seen: dict[str, Any]) -> None:
    assert seen["console"] == []
    assert seen["charts"] == 1 + 6 + 4 + 2, "heat map, spiders, distances from the oracle, derived policies"
    assert seen["empty"] == 0
    assert seen["webs"] == 6
    assert seen["lines"] >= 6 * 2
    assert seen["bars"] >= 2 * len(IND) * 2


def test_nothing_is_wider_than_the_window(seen: dict[str, Any]) -> None:
    assert seen["scrollWidth"] <= seen["width"]
    assert seen["wide"] == 0
    assert seen["across"] == (1 if seen["width"] == NARROW else 3)
    assert seen["smallest"] >= 9


def test_no_text_of_a_chart_is_cut_off(seen: dict[str, Any]) -> None:
    assert seen["cut"] == []


def test_the_heat_map_comes_first_and_the_verdicts_are_folded(seen: dict[str, Any]) -> None:
    assert seen["first"] == 1 + 2 * 2, "the mean, and one per training log"
    assert seen["folded"] == [False]
    assert seen["opened"] == [True], "a link to a folded section opens it"


def test_tables_are_sorted_by_their_headers(seen: dict[str, Any]) -> None:
    (first, rising), (second, falling) = seen["sorts"]
    assert (first, second) == ("ascending", "descending")
    assert sorted(rising) == sorted(falling) == sorted(IND)
    assert rising[0] == "PBM"
    assert falling[0] == "NCM"
    assert seen["values"] == sorted(seen["values"], reverse=True)
    assert seen["other"] == "none", "one column at a time says that it is sorted"
    assert seen["byName"] == sorted(IND)
    assert seen["focusable"]


def test_links_lead_to_sections(seen: dict[str, Any]) -> None:
    assert seen["jumps"]
    assert seen["last"] == "Settings"


def test_nothing_leaves_the_page(seen: dict[str, Any]) -> None:
    assert seen["loaded"] == 0
    assert seen["share"] == 0


def test_names_are_never_markup(tmp_path: Path) -> None:
    evil = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
    rows = shift_rows([evil], [f"PL-{evil}"], seeds=2, models=["PBM", "NCM"])
    for row in rows:
        row["model"] = f"{row['model']}{evil}"
    path = tmp_path / "report.html"
    write_page(path, replace(PolicyShiftResult(rows, {evil: evil}).document, title=evil))
    (found,), console = look_inside(path, tmp_path / "inside", widths=(WIDE,), measure=MEASURE)
    assert found["hacked"] == "undefined"
    assert console == []
    assert found["charts"] == 1 + 2 + 1 + 1
    assert evil in found["text"]
