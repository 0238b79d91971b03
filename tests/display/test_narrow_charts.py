"""Charts of other pages in a real browser, on a phone: marks and texts are whole, and nothing scrolls sideways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import clickshift as cs
from clickshift.display.document import Section, write_page
from clickshift.experiments._comparison_report import comparison_figure
from tests.display.browsers import look_inside
from tests.display.test_page import TEXTS_CUT_OFF

pytestmark = pytest.mark.browser

NARROW, WIDE = 390, 1400
MEASURE = (
    TEXTS_CUT_OFF
    + """
const clipped = [...document.querySelectorAll(".js-plotly-plot")].map((chart) => {
  const area = chart.querySelector(".nsewdrag").getBoundingClientRect();
  return [...chart.querySelectorAll(".scatterlayer .point, .scatterlayer .errorbar path")].filter((mark) => {
    const box = mark.getBoundingClientRect();
    return box.right > area.right + 1 || box.left < area.left - 1;
  }).length;
});
return {
  width: innerWidth, scrollWidth: document.documentElement.scrollWidth, cut: textsCutOff(), clipped,
  outside: [...document.querySelectorAll("figure")].filter((f) => f.getBoundingClientRect().right > innerWidth).length,
};
"""
)


def comparison_rows() -> list[dict[str, object]]:
    """Eleven models, of which the last is an outlier, and the one before it is at the end of the axis."""
    perplexity = [1.17, 1.175, 1.18, 1.18, 1.182, 1.188, 1.19, 1.2, 1.26, 1.46, 1.65]
    return [
        {"model": f"model {k}", "conditional_perplexity": value, "marginal_perplexity": value + 0.002}
        | {"conditional_perplexity_error": 0.004, "error": None}
        for k, value in enumerate(perplexity)
    ]


def test_charts_of_compare_and_ope_fit_a_phone(tmp_path: Path) -> None:
    corpus = cs.builtin_corpus(5)
    log = cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=0.5), cs.users.PBM(), 1000, rng=1)
    ope = cs.evaluate_policy(log, cs.Oracle().on(corpus), estimators=["auto", "RCTR"], replicates=20).document
    document = replace(ope, sections=[Section("compare", figure=comparison_figure(comparison_rows())), *ope.sections])
    write_page(tmp_path / "page.html", document)
    found, console = look_inside(tmp_path / "page.html", tmp_path / "seen", widths=(NARROW, WIDE), measure=MEASURE)
    assert console == []
    for seen in found:
        assert seen["scrollWidth"] <= seen["width"]
        assert seen["outside"] == 0
        assert seen["cut"] == []
        assert set(seen["clipped"]) == {0}
