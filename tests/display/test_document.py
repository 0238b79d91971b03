"""Tables, words, plots and pages made from rows; text from logs is never markup."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from clickshift.data.vocabulary import Vocabulary
from clickshift.display.document import Document, Section, check_page, write_page
from clickshift.display.figures import curve_figure
from clickshift.errors import FileError
from clickshift.learners import DEFAULT
from clickshift.learners.model_list import list_models
from clickshift.models import CCM, DBN, MODELS, PBM, RCTR, UBM, model_name
from clickshift.models.base import Evidence
from clickshift.models.summary import examination
from tests.codes import raises_code

WORDS = Vocabulary.of([1, 1], [10, 20])[0]
EVIL = "<script>alert('[bold]')</script>"


def errors(**tables: list[float]) -> Evidence:
    return Evidence("by hand", np.ones(3), np.ones(3), {name: np.array(error) for name, error in tables.items()})


A = np.array([0.5, 0.2, 0.1])
CURVES = {
    "PBM": PBM(WORDS, A, np.array([1.0, 0.5]), evidence=errors(examination=[0.0, 0.2])),
    "UBM": UBM(WORDS, A, np.array([1.0, 0.5, 0.7]), evidence=errors(examination=[0.0, 0.2, 0.3])),
    "DBN": DBN(WORDS, A, A, 0.8, evidence=errors(continuation=[0.1])),
    "CCM": CCM(WORDS, A, np.array([0.8, 0.7, 0.2]), evidence=errors(continuation=[0.1, 0.1, 0.1])),
    "rCTR": RCTR(WORDS, np.array([0.3, 0.2])),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves_have_a_table_and_a_plot(name: str) -> None:
    rows = CURVES[name].examination_table()
    lines = [line for line in curve_figure(rows).data if line.fill is None]
    assert sum(len(line.x) for line in lines) == len(rows)
    estimates = [value for line in lines for value in (line.y if "rank" in rows[0] else line.x)]
    assert sorted(estimates) == sorted(r["estimate"] for r in rows)


def test_intervals_are_drawn_where_they_are() -> None:
    rows = CURVES["PBM"].examination_table()
    band, line = curve_figure(rows).data
    assert list(zip(band.x, band.y, strict=True)) == [
        *((row["rank"], row["low"]) for row in rows),
        *((row["rank"], row["high"]) for row in reversed(rows)),
    ]
    assert line.customdata[1] == f" [{rows[1]['low']:.3f}, {rows[1]['high']:.3f}]"
    dot = curve_figure(CURVES["DBN"].examination_table()).data[0]
    (row,) = CURVES["DBN"].examination_table()
    assert dot.x[0] + dot.error_x.array[0] == pytest.approx(row["high"])


def test_the_user_browsing_model_has_a_line_per_last_click() -> None:
    figure = curve_figure(CURVES["UBM"].examination_table())
    assert {line.name: list(line.y) for line in figure.data if line.fill is None} == {
        "no click above": [1.0, 0.5],
        "last click at rank 1": [0.7],
    }
    table = examination(CURVES["UBM"]).document.tables["examination"]
    assert [line["last click"] for line in table] == ["none", "none", 1]
    assert "parameter" not in table[0]


def test_the_registry_as_a_table() -> None:
    table = {line["model"]: line for line in list_models().rows()}
    assert list(table) == list(MODELS)
    assert {name: line["learner"] for name, line in table.items() if line["learner"]} == DEFAULT
    assert table["TopPop"]["predicts_clicks"] is False
    assert table["UBM"]["uses_history"] is True
    assert table["rCTR"]["ranks_documents"] is False


def test_a_model_is_called_by_its_registered_name() -> None:
    assert model_name(CURVES["rCTR"]) == "rCTR"
    assert model_name(CURVES["PBM"]) == "PBM"


def test_a_page_shows_text_as_text(tmp_path: Path) -> None:
    figure = curve_figure([{"parameter": EVIL, "rank": 1, "estimate": 0.5, "low": 0.4, "high": 0.6}])
    table = [{EVIL: EVIL, "value": math.nan}]
    document = Document(EVIL, EVIL, [Section(EVIL, EVIL, table, figure)], {EVIL: EVIL})
    write_page(tmp_path / "page.html", document)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    body = page[page.index("<body") :]
    assert "<script>alert" not in body
    escaped = "&lt;script&gt;alert(&#39;[bold]&#39;)&lt;/script&gt;"
    assert body.count(escaped) == 12, (
        "headings, conclusion, link, words, table with its header, labels of table and of figure, settings"
    )
    assert "–" in body
    assert 'src="http' not in page, "the page must open without a network"


def test_a_page_has_a_name_of_its_kind(tmp_path: Path) -> None:
    with raises_code("unknown-format", FileError, known=[".html", ".htm"]):
        check_page(tmp_path / "page.pdf")
    (tmp_path / "page.html").mkdir()
    with raises_code("is-a-folder", FileError):
        check_page(tmp_path / "page.html")


def test_an_option_of_a_command_stays_on_one_line(tmp_path: Path) -> None:
    """Whatever else the text holds is escaped."""
    text = f"Pass --merge-regions, or -o; a--b is none. {EVIL} --onerror"
    write_page(tmp_path / "page.html", Document("title", "conclusion", [Section("section", text)]))
    page = (tmp_path / "page.html").read_text()
    assert f'Pass <span class="option">--merge-regions</span>, or -o; a--b is none. {escape(EVIL)} ' in page
    assert '<span class="option">--onerror</span></p>' in page
    assert EVIL not in page
