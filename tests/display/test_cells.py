"""Numbers of tables: the digits that an interval allows, the same on a page and on a terminal; verdicts as badges."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clickshift.display.cells import share, text, texts
from clickshift.display.document import Document, Section, write_page
from clickshift.display.terminal import print_document
from clickshift.display.values import Measured, decimals, percents, with_interval
from clickshift.display.verdicts import badge


@pytest.mark.parametrize(("half", "digits"), [(35.0, 0), (9.9, 1), (1.0, 1), (0.99, 2), (0.014, 3), (0.0006, 5)])
def test_a_half_width_shows_two_of_its_digits(half: float, digits: int) -> None:
    assert decimals(half) == digits
    assert len(f"{half:.{digits}f}".replace(".", "").lstrip("0")) == 2


def test_columns_in_an_interval_have_its_digits_and_others_have_four() -> None:
    rows = [
        {"rank": 1, "estimate": 1.0, "low": 1.0, "high": 1.0, "outside": 7.0},
        {"rank": 2, "estimate": 0.51234, "low": 2e-308, "high": 0.53, "outside": 0.25},
        {"rank": 3, "estimate": 0.31, "low": 0.3, "high": 0.34, "outside": 0.25},
    ]
    assert [row["estimate"] for row in texts(rows)] == ["1.00", "0.51", "0.31"]
    assert [row["low"] for row in texts(rows)] == ["1.00", "0.00", "0.30"]
    assert [row["outside"] for row in texts(rows)] == ["7.0000", "0.2500", "0.2500"]


def test_an_interval_of_two_columns_is_found_by_their_names() -> None:
    rows = [{"gain": 0.123456, "gain_low": 0.11, "gain_high": 0.14, "low price": 1.5}]
    assert texts(rows) == [{"gain": "0.123", "gain_low": "0.110", "gain_high": "0.140", "low price": "1.5000"}]


def test_shares_are_percentages_and_seconds_have_two_digits() -> None:
    assert [share(x) for x in (1.0, 0.25, 0.0015, 1e-7, 0.0)] == ["100.0%", "25.0%", "0.15%", "<0.01%", "0%"]
    assert [text(x, "fit seconds") for x in (0.081, 1.6307, 64.2)] == ["0.08", "1.6", "64"]
    facts = [{"": "unseen pair share", " ": 0.0015}, {"": "perplexity", " ": 1.5}]
    assert [row[" "] for row in texts(facts)] == ["0.15%", "1.5000"]


def test_a_long_list_is_cut() -> None:
    shown = text([0.5] * 300)
    assert shown.endswith("… (300 in all)")
    assert len(shown) < 120


def test_a_mean_has_no_more_digits_than_its_column_allows() -> None:
    shown = texts([{"ppl": Measured(1.23456, 0.097)}, {"ppl": Measured(1.5, 0.012, digits=2)}])
    assert [str(row["ppl"]) for row in shown] == ["1.235 ± .097", "1.50 ± .01"]


def test_values_with_intervals() -> None:
    assert with_interval(1234.5, 1200.0, 1270.0) == "1,234 [1,200, 1,270]"
    assert with_interval(1e-12, 0.0, 2e-12) == "0.0000 [0.0000, 0.0000]"
    assert percents(0.0, -0.031, 0.035) == ("+0%", "-3%", "+4%")


def test_page_and_terminal_show_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"n": 10000, "value": 0.51234, "low": 0.5, "high": 0.53, "share": 0.3, "seconds": 12.3, "none": None}]
    document = Document("T", "C.", [Section("S", table=[*rows, {**rows[0], "n": 7}])])
    write_page(tmp_path / "page.html", document)
    page = re.sub(r"<script.*?</script>", "", (tmp_path / "page.html").read_text(encoding="utf-8"), flags=re.DOTALL)
    print_document(document)
    printed = capsys.readouterr().out
    for cell in ("10,000", "0.512", "0.500", "0.530", "30.0%", "12"):
        assert f">{cell}</t" in page
        assert f" {cell} " in printed


def test_every_verdict_has_a_mood() -> None:
    moods = {"usable": "good", "weak": "caution", "not identified": "bad", "ship": "good", "keep": "bad"}
    moods |= {"test": "caution", "baseline": "neutral", "no change beyond chance": "good", "severe": "bad"}
    moods |= {"cannot be told apart from UBM": "neutral", "earns less, weak evidence": "caution", "nonsense": "neutral"}
    assert {word: badge(word).mood for word in moods} == moods
    assert badge("keep", spelled_out=True).text == "Keep the current ranker"
