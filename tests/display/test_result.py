"""Result, terminal and progress: what every capability inherits."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from clickshift.display import progress as progress_module
from clickshift.display.document import Document, Section
from clickshift.display.progress import progress
from clickshift.display.result import Result
from clickshift.display.tables import Rows, read_rows
from clickshift.display.terminal import print_document
from clickshift.errors import CapabilityError, FileError
from tests.codes import raises_code

EVIL = "<script>alert(1)</script>[red]\x1b[31m"
made: list[str] = []


@dataclass(frozen=True, repr=False)
class Coin(Result):
    """A result with a table, a figure, a value that JSON does not have, and text that must stay text."""

    heads: int
    name: str = "coin"

    @property
    def conclusion(self) -> str:
        return f"The {self.name} shows heads {self.heads} times."

    def rows(self) -> Rows:
        return [{"side": "heads", "count": self.heads, "share": float("nan")}, {"side": "tails", "count": np.int64(1)}]

    def _document(self) -> Document:
        import plotly.graph_objects as go

        made.append(self.name)
        table = [{"side": row["side"], "count": int(row["count"])} for row in self.rows()]
        sections = [
            Section("Counts", "Each toss is counted.", table, go.Figure(), caption="Two sides."),
            Section("For the page", "Only there.", page_only=True),
        ]
        return Document("A coin", self.conclusion, sections, {"name": self.name})


def test_facts_are_plain() -> None:
    facts = Coin(3).to_dict()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["rows"][0] == {"side": "heads", "count": 3, "share": None}


def test_rows_become_tables() -> None:
    assert Coin(3).to_arrow().column("count").to_pylist() == [3, 1]
    assert list(Coin(3).to_pandas()["side"]) == ["heads", "tails"]


def test_a_repr_is_one_short_line() -> None:
    text = repr(Coin(3, "very " * 100 + "\nlong coin"))
    assert "\n" not in text
    assert len(text) < 200
    assert repr(Coin(3)) == "<Coin: The coin shows heads 3 times.>"


def test_the_document_is_made_once() -> None:
    made.clear()
    coin = Coin(3, "once")
    assert coin.document is coin.document
    assert list(coin.figures) == ["Counts"]
    assert made == ["once"]


def test_a_figure_that_is_not_there() -> None:
    assert Coin(3).figure() is not None
    with raises_code("unknown-figure", CapabilityError, name="Tails", known=["Counts"]):
        Coin(3).figure("Tails")


def test_notebooks_show_text_as_text() -> None:
    shown = Coin(3, EVIL)._repr_html_()
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert "Two sides." in shown


def test_the_terminal_shows_conclusion_table_and_caption(capsys: pytest.CaptureFixture[str]) -> None:
    print_document(Coin(3, EVIL).document)
    out = capsys.readouterr().out
    assert out.startswith("The <script>alert(1)</script>[red]\\x1b[31m shows heads 3 times.\n")
    assert out.index("Counts") < out.index("heads │") < out.index("Two sides.") < out.index("Each toss is counted.")
    assert "Only there." not in out
    assert "\x1b" not in out


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Coin(3).write(tmp_path / "report")
    assert written.page == tmp_path / "report" / "report.html"
    assert read_rows(tmp_path / "report" / "rows.parquet")[1] == {"side": "tails", "count": 1}
    assert {path.suffix for path in written.files} == {".csv", ".tex", ".svg", ".png"}
    assert {path.parent for path in written.files} == {written.exports} == {tmp_path / "report" / "exports"}
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"report.html", "rows.parquet", "exports"}
    page = Coin(3).write(tmp_path / "page.html").page
    assert page is not None
    assert "shows heads 3 times" in page.read_text(encoding="utf-8")
    with raises_code("unknown-format", FileError, known=[".html", ".htm"]):
        Coin.check_output(tmp_path / "page.docx")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_log_file_has_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(progress_module, "time", clock)
    with progress("counting", total=4) as report:
        report(1)
        assert capsys.readouterr().err == "", "short work leaves no line"
        clock.now = 16.0
        report("file [b]\x1b")
        assert capsys.readouterr().err == "clickshift: counting: file [b]\\x1b, 1 of 4 (16 s)\n"
        report(1, total=8)
        clock.now = 40.0
        report(1)
        assert capsys.readouterr().err == "clickshift: counting: file [b]\\x1b, 3 of 8 (40 s)\n"


def test_a_terminal_has_a_bar_that_reads_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()

    def console(**options: Any) -> Console:
        return Console(file=screen, force_terminal=True, width=120)

    monkeypatch.setattr("rich.console.Console", console)
    with progress("counting", total=2) as report:
        report("file [red]x")
        report("a finished line\n")
        report(2, total=2)
    assert "counting: file [red]x" in screen.getvalue()
    assert "a finished line" in screen.getvalue()
