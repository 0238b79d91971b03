"""Lists of a target found among those of a log, one by one; entries, clusters and counts of logs of every kind."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.ope import Bootstrap, GroupedLog, WeightedLists, evaluate_target
from clickshift.ope.target_policy import TargetProbabilities


def random_lists(
    words: Vocabulary, rows: int, ranks: int, rng: np.random.Generator
) -> tuple[Rankings, list[tuple[str, ...]]]:
    """Of 1 to `ranks` documents, and their names, the query first."""
    query = rng.integers(words.n_queries, size=rows).astype(np.int32)
    pair = np.full((rows, ranks), -1, np.int32)
    names = []
    for i, q in enumerate(query):
        start, end = words.query_offsets[q : q + 2]
        chosen = rng.permutation(np.arange(start, end))[: rng.integers(1, ranks + 1)]
        pair[i, : len(chosen)] = chosen
        names.append((str(words.query_ids[q]), *(str(words.doc_ids[words.pair_doc[p]]) for p in chosen)))
    return Rankings(words, query, pair), names


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("ranks_there", [1, 3, 4])
def test_lists_and_beginnings_are_found_by_name(ranks: int, ranks_there: int, rng: np.random.Generator) -> None:
    """Queries a b c with documents 0 to 3 are logged; the target has b c d e, and documents 1 to 5."""
    here = Vocabulary.of(np.repeat(["a", "b", "c"], 4), np.tile(np.arange(4), 3))[0]
    there = Vocabulary.of(np.repeat(["b", "c", "d", "e"], 5), np.tile(np.arange(1, 6), 4))[0]
    log, logged_names = random_lists(here, 80, ranks, rng)
    lists, target_names = random_lists(there, 60, ranks_there, rng)
    weight = rng.random(60)
    weight /= np.bincount(lists.query, weight)[lists.query]
    logged = GroupedLog.of(Sessions(log, np.zeros(log.pair.shape, bool)))
    aim = TargetProbabilities.at(logged, WeightedLists(lists, weight), prefixes=True)
    assert len(set(logged_names)) == len(logged.lists)
    assert aim.prefix_prob is not None
    for i in range(len(logged.lists)):
        docs = here.doc_ids[here.pair_doc[logged.lists.pair[i][logged.lists.shown[i]]]]
        name = (str(here.query_ids[logged.lists.query[i]]), *map(str, docs))
        cut = [n[: ranks + 1] for n in target_names]
        assert aim.list_prob[i] == pytest.approx(sum(weight[np.flatnonzero([n == name for n in cut])]), abs=1e-12)
        for k in range(ranks):
            alike = [len(name) > k + 1 and n[: k + 2] == name[: k + 2] for n in cut]
            assert aim.prefix_prob[i, k] == pytest.approx(sum(weight[np.flatnonzero(alike)]), abs=1e-12)


def test_lists_of_a_query_stand_together(log: Sessions) -> None:
    logged = GroupedLog.of(log)
    assert (np.diff(logged.lists.query) >= 0).all()
    pair = logged.lists.pair[logged.list_of[logged.entry_of]]
    assert np.array_equal(pair, log.rankings.pair), "every row still has its list"
    assert (np.diff(logged.clusters.entry) >= 0).all()
    rows = Counter((int(e), tuple(c)) for e, c in zip(logged.entry_of, log.click.tolist(), strict=True))
    c = logged.clusters
    found = {(int(e), tuple(k)): c.size[n] for e, k, n in zip(c.entry, c.click.tolist(), c.of_row, strict=True)}
    assert found == dict(rows)


@pytest.mark.parametrize("several", [False, True])
def test_propensities_make_entries_only_where_they_differ(log: Sessions, several: bool) -> None:
    r = log.rankings
    log_prob = -1.0 - r.pair[:, 0] / 100
    if several:
        log_prob = log_prob - (np.arange(len(log)) % 2)
    log = Sessions(Rankings(r.vocabulary, r.query, r.pair, log_prob=log_prob), log.click)
    logged = GroupedLog.of(log)
    assert logged.log_prob is not None
    assert logged.log_prob[logged.entry_of].tolist() == log_prob.tolist()
    keys = {(*row, p) for row, p in zip(r.pair.tolist(), log_prob.tolist(), strict=True)}
    assert len(logged.list_of) == len(keys)
    assert (len(keys) > len(logged.lists)) == several
    assert np.array_equal(logged.by_entry(logged.lists.pair)[logged.entry_of], r.pair)
    assert (np.diff(logged.list_of) >= 0).all()


@pytest.mark.parametrize("sessions", [400, 30_000, 300_000, 30_000_000])
@pytest.mark.parametrize("cluster", ["session", "row"])
def test_counts_of_resampled_logs_never_overflow(sessions: int, cluster: str) -> None:
    """One list, of whose sessions half are clicked at the first rank and a fifth at the second, in 40 rows of a kind.

    Sessions apart have the error of a mean; rows drawn as a whole the one of 40 times three clusters.
    """
    words = Vocabulary.of([0, 0], [0, 1])[0]
    click = np.tile([[True, False], [True, True], [False, False]], (40, 1))
    count = np.tile(np.array([3, 2, 5]) * sessions // 400, 40)
    log = Sessions(Rankings(words, np.zeros(120, np.int32), np.tile([[0, 1]], (120, 1))), click, count)
    label = np.arange(120) if cluster == "row" else cluster
    logged = GroupedLog.of(log, cluster=label)
    target = Rankings(words, np.array([0]), np.array([[0, 1]]))
    found = evaluate_target(logged, target, ["IP"], interval=Bootstrap(600))[0].estimates[0]
    n, reward = count.sum(), click.sum(axis=1)
    assert found.value == pytest.approx(0.7, rel=1e-12)
    size = count if cluster == "row" else np.sqrt(count)
    expected = math.sqrt(((size * (reward - 0.7)) ** 2).sum()) / n
    assert found.error == pytest.approx(expected, rel=0.12)
