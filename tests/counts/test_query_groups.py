"""Groups of queries by text and by results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.counts import query_groups
from clickshift.counts.query_groups import normalised_texts, read_query_groups
from clickshift.errors import DataError, FileError, SpecError
from tests.codes import raises_code


def log_of(lists: dict[str, list[str]], times: dict[str, int] | None = None) -> cs.Sessions:
    """A log that shows each query's list so many times."""
    rows = [(query, docs, [0] * len(docs), (times or {}).get(query, 1)) for query, docs in lists.items()]
    return cs.read_log(pd.DataFrame(rows, columns=["query", "docs", "clicks", "count"]))


def sets(groups) -> set[frozenset[str]]:
    members: dict[str, set[str]] = {}
    for row in groups.rows():
        members.setdefault(row["group"], set()).add(row["query"])
    return {frozenset(one) for one in members.values()}


def test_texts_are_equal_up_to_case_space_punctuation_and_unicode_forms() -> None:
    same = ["Café", "cafe\u0301", "  CAFÉ ", "café!", "café?!"]
    assert len(set(normalised_texts(same))) == 1
    assert normalised_texts(["ｆｕｌｌ width", "a-b_c", "北京 大学", "???"]) == [
        "full width",
        "a b c",
        "北京 大学",
        "???",
    ]
    assert normalised_texts(["red shoes", "shoe red", "glass", "bus"], word_order=False, plurals=False) == [
        *("red shoe", "red shoe", "glass", "bus")
    ]


def test_the_most_frequent_text_names_the_group() -> None:
    lists = {text: ["a", "b"] for text in ("Red Shoes", "red shoes", "shoes red", "hats")}
    groups = cs.group_queries(log_of(lists, {"red shoes": 9}))
    assert {row["query"]: row["group"] for row in groups.rows()} == {"Red Shoes": "red shoes", "red shoes": "red shoes"}
    assert sets(cs.group_queries(log_of(lists), ignore_word_order=True)) == {
        frozenset({"Red Shoes", "red shoes", "shoes red"})
    }
    assert groups.to_dict()["grouped_queries"] == 2
    assert groups.to_dict()["grouped_impressions"] == pytest.approx(20 / 24)


def test_results_that_overlap_group_queries_without_chains() -> None:
    lists = {
        "a": ["1", "2", "3", "4"],
        "b": ["1", "2", "3", "5"],  # 3 of 5 with a
        "c": ["2", "3", "5", "6"],  # 3 of 5 with b, 2 of 6 with a
        "d": ["9", "8"],
    }
    by_size = {"a": 9, "b": 5, "c": 3}
    assert sets(cs.group_queries(log_of(lists, by_size), by="results", overlap=0.5)) == {frozenset({"a", "b"})}
    assert sets(cs.group_queries(log_of(lists, {"b": 9}), by="results", overlap=0.5)) == {frozenset({"a", "b", "c"})}
    assert not sets(cs.group_queries(log_of(lists, by_size), by="results", overlap=0.7))
    assert sets(cs.group_queries(log_of(lists, by_size), by="results", overlap=0.9, top=3)) == {frozenset("ab")}


@pytest.mark.parametrize("seed", range(5))
def test_groups_by_results_follow_their_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_groups, "_BLOCK", 7)
    rng = np.random.default_rng(seed)
    lists = {f"q{q}": [str(d) for d in rng.permutation(12)[: rng.integers(2, 7)]] for q in range(30)}
    log = log_of(lists, {query: int(rng.integers(1, 50)) for query in lists})
    groups = cs.group_queries(log, by="results", overlap=0.4)
    shown = {str(q): n for q, n in zip(log.vocabulary.query_ids, groups.impressions, strict=True)}
    names = sorted(lists, key=lambda q: (-shown[q], log.vocabulary.query_ids.tolist().index(q)))

    def jaccard(one: str, other: str) -> float:
        return len({*lists[one]} & {*lists[other]}) / len({*lists[one]} | {*lists[other]})

    near = {q: [o for o in names if o != q and jaccard(q, o) >= 0.4] for q in names}
    leads = {q for q in names if all(names.index(o) > names.index(q) for o in near[q])}
    expected = {}
    for q in names:
        leaders = [o for o in near[q] if o in leads]
        expected[q] = q if q in leads or not leaders else max(leaders, key=lambda o: (jaccard(q, o), -names.index(o)))
    ids = log.vocabulary.query_ids.tolist()
    assert {ids[q]: ids[g] for q, g in enumerate(groups.group.tolist())} == expected


def test_groups_have_a_largest_size_and_leave_the_rarest_out() -> None:
    lists = {f"shoes{'!' * k}": ["a"] for k in range(6)}
    groups = cs.group_queries(log_of(lists, {f"shoes{'!' * k}": 10 - k for k in range(6)}), max_size=3)
    assert sets(groups) == {frozenset({"shoes", "shoes!", "shoes!!"})}


def test_groups_are_written_and_read(tmp_path: Path) -> None:
    log = log_of({"Red shoes": ["a", "b"], "red shoes": ["a", "b"], "hats": ["c"]}, {"red shoes": 3})
    groups = cs.group_queries(log)
    groups.write(tmp_path / "groups.csv")
    read = read_query_groups(tmp_path / "groups.csv", log.vocabulary)
    assert sets(read) == {frozenset({"Red shoes", "red shoes"})}
    groups.write(tmp_path / "page.html")
    assert "red shoes" in (tmp_path / "page.html").read_text()
    other = log_of({"hats": ["c"], "RED shoes": ["a"], "red shoes": ["a"]}).vocabulary
    assert len(set(read.numbers_in(other).tolist())) == 3, "queries that the groups do not have are their own ones"


def test_bad_groups_and_options_are_refused(tmp_path: Path) -> None:
    log = log_of({"a": ["x"], "b": ["x"]})
    for option in ({"by": "meaning"}, {"overlap": 0}, {"top": 0}, {"max_size": 1}):
        with raises_code("bad-option", SpecError):
            cs.group_queries(log, **option)
    numbers = cs.read_log(pd.DataFrame({"query": [1, 2], "docs": [[1], [1]], "clicks": [[0], [0]]}))
    with raises_code("no-query-texts", DataError):
        cs.group_queries(numbers)
    assert cs.group_queries(numbers, by="results").to_dict()["largest"] == 2
    with raises_code("missing-column", FileError):
        read_query_groups(pd.DataFrame({"query": ["a"]}), log.vocabulary)
    with raises_code("no-shared-queries", DataError):
        read_query_groups(pd.DataFrame({"query": ["z"], "group": ["z"]}), log.vocabulary)
    with raises_code("repeated-query", DataError):
        read_query_groups(pd.DataFrame({"query": ["a", "a"], "group": ["a", "b"]}), log.vocabulary)
