"""Every report in a real browser, as wide as a desk and as a phone, in light and in dark."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clickshift.display.document import Document, Section, write_page
from clickshift.display.export import csv_text
from tests.display.browsers import Shown, window
from tests.display.pages import EVIL, PAGES, document_of

pytestmark = pytest.mark.browser

WINDOWS = {"desk": (1400, 1000, ("light", "dark")), "phone": (390, 844, ("dark", "light"))}
"""Width, height, and the colours in which a page is opened and to which it is changed."""
MEASURE = (Path(__file__).parent / "measure.js").read_text(encoding="utf-8")
HOSTILE = ("backtest", "hostile_policy_shift", "judgments", "forecast", "log_health")
"""Pages that show hostile ids."""
OPEN_ALL = "() => document.querySelectorAll('details').forEach((one) => one.setAttribute('open', ''))"
WAIT_FOR_CHARTS = """() => {
  if (document.querySelector("figure[data-chart]")) document.body.dataset.charts = "drawing";
}"""
"""Marks the charts as not drawn, until they are drawn again."""
ALL_DRAWN = """() => document.body.dataset.charts !== "drawing"
  && [...document.querySelectorAll("figure[data-chart]")].every((one) => "drawn" in one.dataset)"""
LARGEST = 3_000_000
"""Most bytes of a page."""


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Document, Path]]:
    """Make a page once per session, and return its document and its path."""
    folder = tmp_path_factory.mktemp("pages")
    made: dict[str, tuple[Document, Path]] = {}

    def page(name: str) -> tuple[Document, Path]:
        if name not in made:
            document = document_of(PAGES[name]())
            write_page(folder / f"{name}.html", document)
            made[name] = document, folder / f"{name}.html"
        return made[name]

    return page


def _nothing_wrong(shown: Shown) -> None:
    """Check everything that a script can see, and that the page has complained of nothing."""
    found = shown.page.evaluate(MEASURE)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert shown.complaints == []


@pytest.mark.parametrize("device", WINDOWS)
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_a_page_is_whole(written: Callable[[str], tuple[Document, Path]], name: str, device: str) -> None:
    """No scroll sideways, no errors, the headline in sight, no label cut off or on another one; so are folded parts."""
    document, path = written(name)
    assert path.stat().st_size < LARGEST
    width, height, (scheme, other) = WINDOWS[device]
    with window(path, width=width, height=height, scheme=scheme) as shown:
        _nothing_wrong(shown)
        shown.page.evaluate(OPEN_ALL)
        shown.page.evaluate(WAIT_FOR_CHARTS)
        shown.page.emulate_media(color_scheme=other)
        shown.page.wait_for_function(ALL_DRAWN)
        _nothing_wrong(shown)
        text = shown.page.inner_text("body")
        for sentence in document.conclusion.split("\n\n"):
            assert " ".join(sentence.split()) in text
        assert (EVIL in text) == (name in HOSTILE)
        assert "Settings" in shown.page.inner_text("nav li:last-child")


ROWS = [
    {"name": "=SUM(A1)", "value": 10000.5, "count": 12},
    {"name": EVIL, "value": 0.123456789, "count": 3},
    {"name": "b", "value": -2.0, "count": None},
    {"name": "c", "value": float("nan"), "count": 100},
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A page with a figure, whose table is folded, and an open table of the same rows."""
    from clickshift.display.figures import dot_plot

    dots = [{"label": row["name"], "value": k, "low": k - 0.5, "high": k + 0.5} for k, row in enumerate(ROWS)]
    headline = Section("Dots", table=ROWS, figure=dot_plot(dots, axis="value", reference=0.0, reference_name="zero"))
    sections = [Section("Open", table=ROWS), Section("Folded", table=ROWS, folded=True)]
    path = tmp_path_factory.mktemp("small") / "page.html"
    settings = {"protocol": {"users": ["DBN"], "seeds": 3}, EVIL: EVIL, "spec": f"Shift(a=1, b={('x',) * 50})"}
    write_page(path, Document("Small", "A conclusion.", sections, settings, "ship", "Data: none.", headline))
    with window(path, width=1400, height=1000) as shown:
        yield shown
        assert shown.complaints == []


def _column(shown: Shown, place: str, number: int) -> list[str]:
    cells = f"{place} tbody tr > :nth-child({number})"
    found: list[str] = shown.page.eval_on_selector_all(cells, "cells => cells.map((cell) => cell.textContent)")
    return found


def test_a_table_is_sorted_by_its_header(small: Shown) -> None:
    button = small.page.locator("#section-1 th", has_text="value").locator("button")
    orders = []
    for direction in ("ascending", "descending"):
        button.click()
        assert small.page.locator("#section-1 th", has_text="value").get_attribute("aria-sort") == direction
        orders.append(_column(small, "#section-1", 2))
    assert orders == [["-2.0000", "0.1235", "10,000.5", "–"], ["10,000.5", "0.1235", "-2.0000", "–"]]
    small.page.locator("#section-1 th", has_text="count").locator("button").click()
    assert _column(small, "#section-1", 3) == ["3", "12", "100", ""]
    assert small.page.locator("#section-1 th", has_text="value").get_attribute("aria-sort") == "none"
    heads = small.page.locator("#section-1 th button")
    heights = [heads.nth(k).bounding_box()["height"] for k in range(heads.count())]
    assert max(heights) < 30, "the arrow stays on the line of its word"


def test_the_table_of_a_figure_is_folded_and_a_link_opens_a_section(small: Shown) -> None:
    numbers = small.page.locator("header details.numbers")
    assert small.page.locator("header details.numbers table").is_hidden()
    assert "(4 rows)" in numbers.locator("summary").inner_text()
    numbers.locator("summary").click()
    assert small.page.locator("header details.numbers table").is_visible()
    assert small.page.locator("#section-2 table").is_hidden()
    small.page.locator("nav a", has_text="Folded").click()
    small.page.locator("#section-2 table").wait_for(state="visible")


def test_a_table_is_copied_as_csv_with_exact_numbers_and_no_formula(small: Shown) -> None:
    small.page.locator("#section-1 button[data-copy]").click()
    small.page.locator("#section-1 button", has_text="Copied").wait_for()
    copied = small.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == csv_text(ROWS)
    rows = list(csv.reader(io.StringIO(copied)))
    assert rows[1][:2] == ["'=SUM(A1)", "10000.5"]
    assert rows[2][:2] == [EVIL, "0.123456789"]


def test_settings_are_spread_over_rows(small: Shown) -> None:
    small.page.locator("nav a", has_text="Settings").click()
    rows = dict(zip(_column(small, "#section-3", 1), _column(small, "#section-3", 2), strict=True))
    assert rows["protocol › users"] == "DBN"
    assert rows["protocol › seeds"] == "3"
    assert rows["spec › a"] == "1"
    assert max(len(value) for value in rows.values()) < 200


def test_the_colours_follow_the_reader(small: Shown) -> None:
    """Charts and text change when the system turns dark, and the figure is drawn again."""
    read = (
        """() => [getComputedStyle(document.body).backgroundColor, document.querySelector(".xtick text").style.fill]"""
    )
    light = small.page.evaluate(read)
    small.page.emulate_media(color_scheme="dark")
    small.page.wait_for_function(f"(light) => ({read})()[1] !== light[1]", arg=light)
    dark = small.page.evaluate(read)
    small.page.emulate_media(color_scheme="light")
    assert light[0] != dark[0]


def test_a_verdict_has_a_colour_an_icon_and_a_word(small: Shown) -> None:
    badge = small.page.locator(".answer .badge")
    assert badge.inner_text() == "Ship"
    assert badge.locator("svg").is_visible()
    assert "good" in badge.get_attribute("class")


def test_pictures_are_saved_beside_a_chart_and_no_bar_is_over_it(small: Shown) -> None:
    assert small.page.locator(".modebar").count() == 0
    with small.page.expect_download() as saving:
        small.page.locator("header button[data-save=svg]").click()
    assert saving.value.suggested_filename == "dots.svg"


def test_scripts_of_others_do_not_run(small: Shown) -> None:
    """The policy names the scripts of the page, so that nothing else runs, even if it were markup."""
    small.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.hacked = 1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<i onclick='window.hacked=1' id='trap'>x</i>");
          document.getElementById("trap").click();
        }"""
    )
    assert small.page.evaluate("() => typeof window.hacked") == "undefined"
    refused = [one for one in small.complaints if "Content Security Policy" in one]
    assert len(refused) == 2
    small.complaints.clear()


def test_without_the_means_to_inflate_a_message_takes_the_place_of_charts(tmp_path: Path, small: Shown) -> None:
    context: Any = small.page.context.browser.new_context()
    try:
        page = context.new_page()
        page.add_init_script("delete window.DecompressionStream")
        page.goto(small.page.url.split("#")[0])
        page.locator(".chart.missing").wait_for()
        assert "browser of 2023 or newer" in page.inner_text(".chart.missing")
    finally:
        context.close()


def test_a_notebook_shows_two_results_with_one_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clickshift.display import _page
    from clickshift.display.document import page_fragment
    from clickshift.display.figures import dot_plot

    monkeypatch.setattr(_page, "_chart_library_sent", False)
    dots = [{"label": "a", "value": 1.0, "low": 0.5, "high": 1.5}]
    document = Document("T", "C.", [Section("S", table=ROWS)], headline=Section("H", figure=dot_plot(dots, axis="x")))
    fragments = [page_fragment(document) for _ in range(2)]
    assert ['class="chart-library"' in fragment for fragment in fragments] == [True, False]
    (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{''.join(fragments)}</body>", encoding="utf-8")
    with window(tmp_path / "notebook.html", width=800, height=900) as shown:
        assert shown.page.locator(".js-plotly-plot .scatterlayer .point").count() == 2
        shown.page.locator("summary").first.click()
        assert shown.page.locator("table").first.is_visible()
        assert shown.complaints == []
