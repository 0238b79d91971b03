"""What `log_summary` says of a log, on logs that can be counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clickshift.counts.connectivity import SwapGraph
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.metrics.log_summary import log_summary, short_graph

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
    short = short_graph(SwapGraph(np.array([[0, 2.4, 1], [2.4, 0, 7.6], [1, 7.6, 0]]), np.array([0, 0, 0])))
    assert short == {"effective_swaps": {"1–2": 2, "2–3": 8}, "rank_groups": "1–3"}
    apart = SwapGraph(np.zeros((9, 9)), np.array([0, 0, 0, 1, 2, 1, 3, 1, 3]))
    assert short_graph(apart)["rank_groups"] == "1–3; 4, 6, 8; 5; 7, 9"


def test_rows_and_figure_show_click_rates_with_their_intervals() -> None:
    pair, click = np.array([[0, 1], [0, 1]]), np.array([[1, 0], [0, 0]])
    result = log_summary(Sessions(Rankings(WORDS, np.array([0, 0]), pair), click, np.array([30, 10])))
    first, second = result.rows()
    assert (first["ctr"], second["ctr"], second["low"]) == pytest.approx((0.75, 0.0, 0.0))
    assert first["low"] < 0.75 < first["high"]
    assert list(result.figure().data[0].y) == [0.75, 0.0]
    assert "75.0% at rank 1" in result.conclusion
    assert result.to_dict()["conclusion"] == result.conclusion
    assert "<div" in result._repr_html_()
