"""Tables and charts as files."""

from __future__ import annotations

import csv
import struct
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from clickshift.display import _chrome as chrome
from clickshift.display._chrome import find_browser
from clickshift.display.export import _escape_latex, csv_text, latex_text, write_exports
from clickshift.display.terminal import print_document
from clickshift.display.values import Measured
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from tests.experiments.policy_shift.rows import TRAINING, USERS, shift_rows

TABLE = [
    {"model": "A_1 & <b>", "ind": Measured(1.23456, 0.0006, "best", dagger=True), "share": 0.5},
    {"model": "50 % {x}", "ind": Measured(1.3, 0.001, "=", aside=True), "share": None},
]


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch, real_pictures: None) -> None:
    monkeypatch.setattr(chrome, "find_browser", lambda: None)


def test_csv_keeps_numbers_apart(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(csv_text(TABLE), encoding="utf-8")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert float(first["ind"]) == 1.23456
    assert float(first["ind ±"]) == 0.0006
    assert first["ind mark"] == "best; not worse than the peeking model"
    assert second == {
        "model": "50 % {x}",
        "ind": "1.3",
        "ind ±": "0.001",
        "ind mark": "not worse than the best; not compared",
        "share": "",
    }
    assert csv_text([]) == "\n"


def test_latex_is_a_tabular_of_escaped_text() -> None:
    lines = latex_text(TABLE).splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert [lines[1], lines[3], lines[-2], lines[-1]] == [r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"]
    assert lines[4] == r"A\_1 \& \textless{}b\textgreater{} & $^{\dagger}$\textbf{1.2346} $\pm$ .0006 & 0.5000 \\"
    assert lines[5] == r"50 \% \{x\} & ($^{=}$$1.3000$ $\pm$ .0010) &  \\"
    assert _escape_latex("\\~^#$") == r"\textbackslash{}\textasciitilde{}\textasciicircum{}\#\$"


@pytest.mark.usefixtures("no_browser")
def test_without_a_browser_tables_are_written_and_a_note_says_so(tmp_path: Path) -> None:
    rows = shift_rows(["CoCM"], ["PL-oracle"], seeds=2, models=["PBM", "NCM"])
    document = PolicyShiftResult(rows).document
    done = write_exports(tmp_path, document.tables, document.figures)
    assert {file.suffix for file in done.files} == {".csv", ".tex"}
    assert all(file.is_file() for file in done.files)
    assert "no Chromium or Chrome was found" in done.note
    assert write_exports(tmp_path, {}, {}).note == "", "nothing to draw, nothing to complain about"


@pytest.mark.usefixtures("no_browser")
def test_names_of_files_are_safe_and_different(tmp_path: Path) -> None:
    done = write_exports(tmp_path, {"../a b": TABLE, "..\\a*b": TABLE, "é": TABLE}, {})
    assert sorted(file.name for file in done.files if file.suffix == ".csv") == ["a-b-2.csv", "a-b.csv", "unnamed.csv"]
    assert all(file.parent == tmp_path for file in done.files)


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome on the path")
def test_charts_become_pictures(tmp_path: Path) -> None:
    figures = PolicyShiftResult(shift_rows(["CoCM"], ["PL-oracle"], models=["PBM", "NCM"], seeds=2)).figures
    done = write_exports(tmp_path, {}, figures)
    assert done.note == ""
    assert len(done.files) == 2 * len(figures)
    root = ElementTree.parse(tmp_path / "robustness-pbm.svg").getroot()
    assert root.tag.endswith("svg")
    assert (root.get("width"), root.get("height")) == ("560", "586"), "with room for the title"
    texts = "".join(root.itertext())
    assert "PBM" in texts
    assert "PL-oracle" in texts
    head = (tmp_path / "policies-cocm-pl-oracle.png").read_bytes()
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == (2 * 480, 2 * 500), "fine enough for print"


@pytest.mark.parametrize(
    ("program", "note"), [("exit 3", "exit code 3"), ("echo nothing", "did not draw"), ("sleep 60", "took more than")]
)
@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the browser")
@pytest.mark.usefixtures("real_pictures")
def test_a_browser_that_fails_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, note: str
) -> None:
    fake = tmp_path / "bin" / "chromium"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\nexec {program}\n" if program != "exit 3" else "#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    monkeypatch.setattr(chrome, "SECONDS", 0.5)
    figures = PolicyShiftResult(shift_rows(["CoCM"], ["PL-oracle"], models=["PBM", "NCM"], seeds=1)).figures
    done = write_exports(tmp_path, {}, figures)
    assert note in done.note
    assert done.files == ()


GRID = PolicyShiftResult(
    shift_rows(USERS[:2], TRAINING[:2], seeds=2, models=["PBM", "NCM"]), {"seeds": 2, "users": (("DBN", "DBN"),)}
)


@pytest.mark.usefixtures("no_browser")
def test_the_whole_report(tmp_path: Path) -> None:
    """A report of four logs, on a machine without a browser."""
    written = GRID.write(tmp_path / "run")
    assert written.page is not None
    assert written.rows is not None
    page = written.page.read_text(encoding="utf-8")
    for title in ("Verdicts", "Robustness of predictions", "Derived policies", "Relevance", "Perplexity", "Settings"):
        assert f"<h2>{title}</h2>" in page
    assert pq.read_table(written.rows).num_rows == len(GRID.rows())
    assert [found["model"] for found in GRID.verdicts] == ["PBM", "NCM"]
    assert written.notes == [], "a report is complete without pictures, which the page can save"
    assert "robustness.csv" in {file.name for file in written.files}


def test_a_report_of_a_grid_shows_a_terminal_a_part_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The conclusion and the main table; without an oracle, which real logs do not have, the tables of three logs."""
    print_document(GRID.document)
    shown = capsys.readouterr().out
    assert shown.startswith(GRID.conclusion.replace("\n\n", "\n"))
    everywhere = (part for part in GRID.document.all_sections if not (part.page_only or part.file_only))
    assert [section.title for section in everywhere] == ["Perplexity above the user's own model"]
    assert GRID.document.headline is not None
    assert "which no model can beat except by chance" in GRID.document.headline.caption
    without = PolicyShiftResult([row for row in GRID.rows() if row["role"] != "oracle"]).document
    (perplexity,) = (section for section in without.sections if section.title == "Perplexity")
    assert [part.page_only for part in perplexity.parts] == [False, False, False, True]
    print_document(without)
    assert "A terminal shows the first 3 logs" in capsys.readouterr().out


def test_a_report_has_only_what_the_rows_have() -> None:
    grid = shift_rows(["DBN"], ["PL-oracle"], models=["PBM"], seeds=1)
    rows = [row for row in grid if row["kind"] == "clicks" and row["shift"] == "ind"]
    titles = {section.title for section in PolicyShiftResult(rows).document.sections}
    assert "Perplexity" in titles
    assert titles.isdisjoint({"Relevance", "Robustness in numbers"})
