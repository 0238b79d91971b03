"""What is known of a query is what a loop over its sessions counts, and what the model says of its documents."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.exploration._log_index import LogIndex
from clickshift.exploration._queries import DOCUMENTS_SHOWN, LISTS_SHOWN, ExploredLog, conversions_of
from tests.codes import raises_code
from tests.grading.test_conversions import shop_log


def sessions_of(log: cs.Sessions, query: int) -> list[tuple[tuple[int, ...], tuple[bool, ...], int]]:
    """The lists of a query with their clicks and counts, one by one."""
    r = log.rankings
    return [
        (tuple(r.pair[i][r.shown[i]].tolist()), tuple(log.click[i][r.shown[i]].tolist()), int(log.count[i]))
        for i in range(len(log))
        if r.query[i] == query
    ]


@pytest.fixture(scope="module")
def pbm(uneven: cs.Sessions) -> cs.ClickModel:
    model = cs.fit("PBM", uneven)
    assert isinstance(model, cs.ClickModel)
    return model


def test_counts_of_every_query_are_those_of_a_loop(uneven: cs.Sessions, pbm: cs.ClickModel) -> None:
    explored, vocabulary = ExploredLog(LogIndex.of(uneven), pbm), uneven.vocabulary
    shown_queries = explored.index.by_frequency.tolist()
    assert len(shown_queries) > 20
    for query in shown_queries:
        rows, facts = sessions_of(uneven, query), explored.query(query)
        lists: Counter[tuple[int, ...]] = Counter()
        list_clicks: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        impressions: dict[int, Counter[int]] = defaultdict(Counter)
        clicks: dict[int, Counter[int]] = defaultdict(Counter)
        for pairs, clicked, count in rows:
            lists[pairs] += count
            for rank, (pair, click) in enumerate(zip(pairs, clicked, strict=True)):
                impressions[pair][rank + 1] += count
                clicks[pair][rank + 1] += count * click
                list_clicks[pairs][rank] += count * click
        assert facts["sessions"] == sum(lists.values())
        assert facts["clicks"] == sum(sum(of.values()) for of in clicks.values())
        assert (facts["n_lists"], facts["n_documents"]) == (len(lists), len(impressions))
        pair_at = [document["pair"] for document in facts["documents"]]
        assert sorted(pair_at) == sorted(impressions)
        for document in facts["documents"]:
            pair = document["pair"]
            assert document["doc"] == str(vocabulary.doc_ids[vocabulary.pair_doc[pair]])
            assert document["by_rank"] == [[r, n, clicks[pair][r]] for r, n in sorted(impressions[pair].items())]
            total = sum(impressions[pair].values())
            assert (document["impressions"], document["clicks"]) == (total, sum(clicks[pair].values()))
            assert document["mean_rank"] == pytest.approx(sum(r * n for r, n in impressions[pair].items()) / total)
            assert document["ctr"] == pytest.approx(document["clicks"] / total)
        kept = [(tuple(pair_at[k] for k in one["documents"]), one) for one in facts["lists"]]
        assert [one["sessions"] for _, one in kept] == sorted(lists.values(), reverse=True)[:LISTS_SHOWN]
        for pairs, one in kept:
            assert one["sessions"] == lists[pairs]
            assert one["clicks"] == [list_clicks[pairs][rank] for rank in range(len(pairs))]


def test_holes_keep_the_ranks_and_clicks_of_the_documents_below_them() -> None:
    words, _, _ = cs.Vocabulary.of([0] * 3, ["a", "b", "c"])
    pair = np.array([[-1, 0, -1, 1], [0, 1, -1, -1], [-1, 0, -1, 1]])
    log = cs.Sessions(cs.Rankings(words, np.zeros(3, int), pair), np.array([[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 1]]))
    facts = ExploredLog(LogIndex.of(log), cs.fit("rCTR", log)).query(0)
    assert facts["lists"] == [
        {"documents": [0, 1], "sessions": 2, "clicks": [1, 2], "ranks": [2, 4]},
        {"documents": [0, 1], "sessions": 1, "clicks": [1, 0]},
    ]
    assert [one["by_rank"] for one in facts["documents"]] == [[[1, 1, 1], [2, 2, 1]], [[2, 1, 0], [4, 2, 2]]]


def test_examinations_of_pbm_are_impressions_times_examination(uneven: cs.Sessions, pbm: Any) -> None:
    explored = ExploredLog(LogIndex.of(uneven), pbm)
    for document in explored.query(3)["documents"]:
        expected = sum(n * pbm.examination[rank - 1] for rank, n, _ in document["by_rank"])
        assert document["examined"] == pytest.approx(expected)


def test_examinations_of_ubm_depend_on_the_last_click_of_each_session(uneven: cs.Sessions) -> None:
    model: Any = cs.fit("UBM", uneven)
    facts, examined = ExploredLog(LogIndex.of(uneven), model).query(5), Counter[int]()
    by_rank, shown = np.zeros(5), np.zeros(5)
    matrix = model.examination_matrix(5)
    for query in range(uneven.vocabulary.n_queries):
        for pairs, clicked, count in sessions_of(uneven, query):
            last = 0
            for rank, pair in enumerate(pairs):
                if query == 5:
                    examined[pair] += count * matrix[rank, last]
                by_rank[rank] += count * matrix[rank, last]
                shown[rank] += count
                last = rank + 1 if clicked[rank] else last
    for document in facts["documents"]:
        assert document["examined"] == pytest.approx(examined[document["pair"]])
    mean = ExploredLog(LogIndex.of(uneven), model).examination_by_rank()
    np.testing.assert_allclose(mean, by_rank / shown)


def test_relevance_intervals_and_support_are_those_of_the_model(uneven: cs.Sessions, pbm: Any) -> None:
    table = {(row["query"], row["doc"]): row for row in pbm.relevance_table().to_pylist()}
    facts = ExploredLog(LogIndex.of(uneven), pbm).query(8)
    for document in facts["documents"]:
        row = table[8, int(document["doc"])]
        assert document["support"] == row["support"]
        for name in ("relevance", "low", "high"):
            assert document[name] == pytest.approx(row[name], nan_ok=True)


def test_a_model_of_another_log_says_its_prior_of_unknown_documents(
    uneven: cs.Sessions, simulated: cs.Sessions
) -> None:
    model: Any = cs.fit("PBM", simulated)
    facts = ExploredLog(LogIndex.of(uneven), model).query(29)
    unseen = facts["documents"][0]
    assert unseen["relevance"] == pytest.approx(model.attractiveness[-1])
    assert unseen["examined"] == pytest.approx(sum(n * model.examination[rank - 1] for rank, n, _ in unseen["by_rank"]))


def test_an_encoded_log_gives_the_same_facts(uneven: cs.Sessions, pbm: cs.ClickModel, tmp_path: Path) -> None:
    cs.write_log(uneven, tmp_path / "log.parquet")
    encoded = cs.open_log(tmp_path / "log.parquet", in_memory=False)
    here, there = ExploredLog(LogIndex.of(uneven), pbm), ExploredLog(LogIndex.of(encoded), pbm)
    assert isinstance(encoded, cs.EncodedLog)
    for query in (0, 7):
        raw = str(uneven.vocabulary.query_ids[query])
        (number,), _ = there.index.search(raw, 1)
        mine, other = (
            {one["doc"]: {k: v for k, v in one.items() if k != "pair"} for one in explored.query(int(q))["documents"]}
            for explored, q in ((here, query), (there, number))
        )
        assert mine == other


def test_rows_that_wait_are_merged_as_at_once(uneven: cs.Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    class Chunks(cs.EncodedLog):  # type: ignore[misc]
        """The log in parts of seven rows."""

        def __init__(self) -> None: ...

        def chunks(self) -> Any:
            return (uneven[i : i + 7] for i in range(0, len(uneven), 7))

    monkeypatch.setattr("clickshift.exploration._log_index._WAITING_ROWS", 20)
    whole, parts = LogIndex.of(uneven), LogIndex.of(Chunks())
    assert parts.frequency.tolist() == whole.frequency.tolist()
    assert len(parts.sessions) == len(whole.sessions) < len(uneven)


def test_search_puts_the_same_id_first_and_then_the_most_frequent(uneven: cs.Sessions) -> None:
    index = LogIndex.of(uneven)
    sessions = Counter[int]()
    for i in range(len(uneven)):
        sessions[int(uneven.rankings.query[i])] += int(uneven.count[i])
    found, total = index.search("2", 30)
    containing = [q for q in sessions if "2" in str(q)]
    assert total == len(containing) == len(found)
    assert found[0] == 2
    rest = [sessions[int(q)] for q in found[1:]]
    assert rest == sorted(rest, reverse=True)
    assert sorted(found.tolist()) == sorted(containing)
    first, all_queries = index.search(" ", 4)
    assert (len(first), all_queries) == (4, len(sessions))
    assert [sessions[int(q)] for q in first] == sorted(sessions.values(), reverse=True)[:4]
    assert index.search("x", 5)[1] == 0


def test_search_ignores_case(hostile: cs.Sessions) -> None:
    (number,), total = LogIndex.of(hostile).search("IMG SRC", 5)
    assert total == 1
    assert str(hostile.vocabulary.query_ids[number]).startswith("<img")


def test_many_documents_are_cut_to_the_most_shown_and_those_of_the_lists() -> None:
    n = DOCUMENTS_SHOWN + 40
    vocabulary, query, pair = cs.Vocabulary.of(np.zeros(n, int), np.arange(n))
    rankings = cs.Rankings(vocabulary, query, pair[:, None])
    log = cs.Sessions(rankings, np.ones((n, 1), bool), np.arange(1, n + 1))
    facts = ExploredLog(LogIndex.of(log), cs.fit("dCTR", log)).query(0)
    assert facts["n_documents"] == n
    assert [one["doc"] for one in facts["documents"]] == [str(k) for k in range(n - 1, 39, -1)]
    assert len(facts["lists"]) == LISTS_SHOWN


def test_a_log_without_ids_is_refused(uneven: cs.Sessions, simulated: cs.Sessions) -> None:
    with raises_code("missing-id"):
        LogIndex.of(uneven.in_vocabulary(simulated.vocabulary))


def test_documents_show_what_follows_their_clicks() -> None:
    log = shop_log(600, 1)
    explored = ExploredLog(LogIndex.of(log), cs.fit("dCTR", log), conversions_of(log))
    rates = cs.conversions(log, "revenue").rates[0]
    for document in explored.query(3)["documents"]:
        purchase, revenue = document["conversions"]
        assert (purchase["signal"], revenue["signal"]) == ("purchase", "revenue")
        assert purchase["clicks"] == document["clicks"]
        assert revenue["value"] == rates.value[document["pair"]]
    assert not conversions_of(replace(log, signals={}))
