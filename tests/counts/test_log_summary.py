"""What `log_summary` says of a log, on logs that can be counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.log_summary import log_summary
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.display.document import Document
from tests.full_logs import full_log

WORDS = Vocabulary.of([1, 1, 1, 2], [10, 20, 30, 10])[0]


def summary(pair: list[list[int]], click: list[list[int]] | None = None, **fields: object) -> dict[str, Any]:
    lists = np.array(pair)
    query = np.where(lists[:, 0] == 3, 1, 0)
    clicks = np.zeros(lists.shape, int) if click is None else np.array(click)
    return log_summary(Sessions(Rankings(WORDS, query, lists), clicks, **fields)).to_dict()  # type: ignore[arg-type]


def test_counts() -> None:
    facts = summary(
        [[0, 1], [0, 1], [3, UNSEEN]], [[1, 1], [0, 0], [0, 0]], count=np.array([1, 2, 1]), time=np.array([3, 1, 2])
    )
    assert facts["sessions"] == 4
    assert facts["rows"] == 3
    assert facts["queries"] == 2
    assert facts["documents"] == 2
    assert facts["pairs"] == 3
    assert facts["mean_list_length"] == 7 / 4
    assert facts["clicks_per_session"] == 2 / 4
    assert facts["sessions_without_click"] == 3 / 4
    assert facts["ctr_by_rank"] == [1 / 4, 1 / 3]
    assert facts["distinct_lists"] == 2
    assert facts["time"] == ["1", "3"]


def test_swaps_join_ranks() -> None:
    """Document 10 stands 4 times at rank 1 and 4 times at rank 2: 4 x 4 / 8 = 2 effective swaps; so does 20."""
    facts = summary([[0, 1], [1, 0]], count=np.array([400, 400]))
    assert facts["rank_groups"] == [[1, 2]]
    assert facts["effective_swaps"] == [[0.0, 400.0], [400.0, 0.0]]
    assert facts["weakest_link"] == pytest.approx(400.0)
    assert facts["identifiability"] == "all ranks are connected"


def test_a_log_of_one_ranker_says_what_it_cannot_tell() -> None:
    facts = summary([[0, 1, 2]] * 5)
    assert facts["rank_groups"] == [[1], [2], [3]]
    assert facts["weakest_link"] == 0.0
    assert "ranks of different groups (rank 1; rank 2; rank 3)" in str(facts["identifiability"])


def test_few_swaps_are_a_weak_link() -> None:
    facts = summary([[0, 1], [1, 0]])
    assert facts["rank_groups"] == [[1, 2]]
    assert "1.0 effective swaps" in str(facts["identifiability"])


def test_the_swaps_of_a_log_in_short() -> None:
    """A table for people shows groups of ranks as ranges, and only the swaps of neighbouring ranks."""
    facts = log_summary(Sessions(Rankings(WORDS, np.zeros(2, int), np.array([[0, 1, 2], [1, 2, 0]])), np.zeros((2, 3))))
    shown = {row[""]: row[" "] for row in facts.document.sections[0].table}
    assert shown["rank groups"] == "ranks 1 to 3"
    by_rank = facts.document.tables["Click-through rate by rank"]
    assert [row["swaps with the next rank"] for row in by_rank] == [0, 0, None]
    assert facts.document.verdict == "weakly identified"
    apart = log_summary(Sessions(Rankings(WORDS, np.zeros(1, int), np.array([[0, 1]])), np.zeros((1, 2)))).document
    assert {row[""]: row[" "] for row in apart.sections[0].table}["rank groups"] == "rank 1; rank 2"
    assert apart.verdict == "not identified"


def test_rows_and_figure_show_click_rates_with_their_intervals() -> None:
    pair, click = np.array([[0, 1], [0, 1]]), np.array([[1, 0], [0, 0]])
    result = log_summary(Sessions(Rankings(WORDS, np.array([0, 0]), pair), click, np.array([30, 10])))
    first, second = result.rows()
    assert (first["ctr"], second["ctr"], second["low"]) == pytest.approx((0.75, 0.0, 0.0))
    assert first["low"] < 0.75 < first["high"]
    band, line, impressions = result.figure().data
    assert list(line.y) == [0.75, 0.0]
    assert list(band.y) == [first["low"], second["low"], second["high"], first["high"]]
    assert list(impressions.y) == [40, 40]
    assert "75.0% at rank 1" in result.conclusion
    assert result.to_dict()["conclusion"] == result.conclusion
    assert "<div" in result._repr_html_()


def test_a_table_of_long_lists_groups_ranks() -> None:
    """Rank 11 has the only click of 12 impressions of ranks 11 to 22."""
    pair, click = np.arange(22)[None], np.zeros((1, 22))
    click[0, 10] = 1
    words = Vocabulary.of([1] * 22, list(range(22)))[0]
    table = log_summary(Sessions(Rankings(words, np.zeros(1, int), pair), click)).document.tables
    *ones, last, rest = table["Click-through rate by rank"]
    assert {row[""]: row[" "] for row in table["Sizes"]}["rank groups"] == (
        "rank 1; rank 2; rank 3; rank 4; rank 5; and 17 more"
    )
    assert [row["rank"] for row in ones] == [str(rank) for rank in range(1, 11)]
    assert (last["rank"], last["impressions"], last["clicks"], last["click-through rate"]) == ("11–20", 10, 1, "10.0%")
    assert (rest["rank"], rest["clicks"]) == ("21–22", 0)


def test_holes_signals_and_segments_are_summed_over_sessions() -> None:
    lists = np.array([[0, UNSEEN, 1], [UNSEEN, 2, UNSEEN]])
    shown = lists != UNSEEN
    device = Segment.of(["phone", "desktop"])
    rankings = Rankings(WORDS, np.zeros(2, int), lists, shown, segments={"device": device})
    signals = {
        "viewed": np.where(shown, [[1, 0, np.nan], [0, 1, 0]], 0),
        "revenue": np.where(shown, [[2.5, 0, 0], [0, 4, 0]], 0),
    }
    log = Sessions(rankings, np.zeros((2, 3)), np.array([3, 1]), signals=signals)
    facts = log_summary(log).to_dict()
    assert (facts["holes"], facts["hole_share"]) == (3 * 1 + 1 * 1, 4 / (3 * 3 + 2))
    assert facts["signals"] == {
        "viewed": {"known": 4 / 7, "rate": 1.0, "total": 4.0},
        "revenue": {"known": 1.0, "rate": 4 / 7, "total": 3 * 2.5 + 4},
    }
    assert facts["segments"] == {"device": {"desktop": 1, "phone": 3}}
    document = log_summary(log).document
    assert "4 holes; views of 4 results; signals revenue; segments device" in document.data
    sizes = {row["name"]: row["value"] for row in two_columns_of(document)}
    assert sizes["holes"] == "4 (36.4% of ranks)"
    assert sizes["segment device"] == "phone 75.0%, desktop 25.0%"


def two_columns_of(document: Document) -> Any:
    """The table of sizes."""
    return [dict(zip(("name", "value"), row.values(), strict=True)) for row in document.tables["Sizes"]]


def test_a_log_without_further_columns_has_no_facts_of_them() -> None:
    assert {"holes", "signals", "segments", "propensities_by_position"}.isdisjoint(summary([[0, 1]]))


def test_an_encoded_log_has_the_same_summary(tmp_path: Path) -> None:
    log = full_log(60)
    cs.write_log(log, tmp_path / "log.parquet")
    columns = {"signal:cart": "cart", "signal:revenue": "revenue", "segment:device": "device"}
    encoded = cs.open_log(tmp_path / "log.parquet", columns=columns, in_memory=False)
    found, wanted = log_summary(encoded).to_dict(), log_summary(log).to_dict()
    assert {"holes", "signals", "segments", "propensities_by_position"} <= found.keys()
    for name in wanted.keys() - {"time"}:
        np.testing.assert_equal(found[name], wanted[name])
