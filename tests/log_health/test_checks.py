"""Each check counts what its definition says, on small logs, by a loop."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import clickshift as cs
from clickshift.log_health import list_ends, ranks, repeats, traffic
from clickshift.log_health._columns import LogColumns
from clickshift.log_health._tests import binomial_tail, chi_squared_tail, holm, poisson_tail
from clickshift.log_health.finding import CheckOptions, Evidence

OPTIONS = CheckOptions()


@pytest.fixture(scope="module")
def small() -> cs.Sessions:
    """A log in which every defect occurs by chance: few users, queries, documents and seconds."""
    rng = np.random.default_rng(3)
    n, ranks = 400, 6
    docs = np.argsort(rng.random((n, 9)), axis=1)[:, :ranks]
    docs[rng.random(n) < 0.6] = np.arange(ranks)  # many equal lists
    shown = np.arange(ranks) < rng.integers(2, ranks + 1, n)[:, None]
    shown &= rng.random(shown.shape) < 0.97
    shown[~shown.any(axis=1), 0] = True
    texts = np.array(["sh", "sho", "shoe", "test"])
    query = rng.integers(4, size=n)
    vocabulary, query_number, pair = cs.Vocabulary.of(np.repeat(texts[query], ranks).tolist(), docs.ravel().tolist())
    pair = np.where(shown, pair.reshape(n, ranks), -1).astype(np.int32)
    click = shown & (rng.random(shown.shape) < 0.4)
    click[rng.random(n) < 0.3] = False
    click[:9] = shown[:9]
    time = np.datetime64("2026-01-01", "ms") + rng.integers(40_000_000, size=n).astype("timedelta64[ms]") // 40
    rankings = cs.Rankings(vocabulary, query_number.reshape(n, ranks)[:, 0], pair, shown)
    return cs.Sessions(rankings, click, time=time, user=rng.integers(12, size=n))


def by_user(log: cs.Sessions) -> list[list[int]]:
    """Row numbers of each user, in order of time."""
    assert log.user is not None
    assert log.time is not None
    order = np.argsort(log.time, kind="stable").tolist()
    return [[row for row in order if log.user[row] == user] for user in np.unique(log.user)]


def key(log: cs.Sessions, row: int) -> tuple[int, ...]:
    return int(log.rankings.query[row]), *log.rankings.pair[row].tolist()


def gap(log: cs.Sessions, first: int, second: int) -> float:
    assert log.time is not None
    return float((log.time[second] - log.time[first]) / np.timedelta64(1, "s"))


def duplicates(log: cs.Sessions) -> set[int]:
    return {
        b
        for rows in by_user(log)
        for a, b in pairwise(rows)
        if gap(log, a, b) <= 1 and key(log, a) == key(log, b) and (log.click[a] == log.click[b]).all()
    }


def refreshed(log: cs.Sessions) -> set[int]:
    return {
        b
        for rows in by_user(log)
        for k, a in enumerate(rows)
        for b in rows[k + 1 : k + 5]
        if 1 < gap(log, a, b) <= 1800 and key(log, a) == key(log, b)
    }


def further_pages(log: cs.Sessions) -> set[int]:
    return {
        b
        for rows in by_user(log)
        for k, a in enumerate(rows)
        for b in rows[k + 1 : k + 5]
        if gap(log, a, b) <= 1800 and key(log, a)[0] == key(log, b)[0]
        if not {p for p in key(log, a)[1:] if p >= 0} & {p for p in key(log, b)[1:] if p >= 0}
        if log.rankings.shown[b].argmax() + 1 <= log.rankings.length[a]  # else ranks continue
    }


def typed(log: cs.Sessions) -> set[int]:
    texts = log.vocabulary.query_ids
    return {
        a
        for rows in by_user(log)
        for a, b in pairwise(rows)
        if gap(log, a, b) <= 10
        and texts[log.rankings.query[b]].startswith(texts[log.rankings.query[a]])
        and log.rankings.query[a] != log.rankings.query[b]
    }


def gapped(log: cs.Sessions) -> set[int]:
    """A rank without a document between two documents."""
    return {
        row
        for row, shown in enumerate(log.rankings.shown.tolist())
        if False in shown[shown.index(True) : len(shown) - shown[::-1].index(True)]
    }


def late(log: cs.Sessions) -> set[int]:
    return {row for row, shown in enumerate(log.rankings.shown.tolist()) if not shown[0]}


def all_clicked(log: cs.Sessions) -> set[int]:
    rows = zip(log.rankings.shown.tolist(), log.click.tolist(), strict=True)
    return {row for row, (shown, click) in enumerate(rows) if sum(shown) >= 5 and shown == click}


def of_tests(log: cs.Sessions) -> set[int]:
    return {row for row, query in enumerate(log.rankings.query) if log.vocabulary.query_ids[query] == "test"}


def short(log: cs.Sessions) -> set[int]:
    length, from_one = log.rankings.length.tolist(), log.rankings.shown[:, 0].tolist()
    longest: dict[int, int] = {}
    for query, end, first in zip(log.rankings.query.tolist(), length, from_one, strict=True):
        longest[query] = max(longest.get(query, 0), end * first)
    queries = enumerate(log.rankings.query.tolist())
    return {row for row, query in queries if length[row] < longest[query] and from_one[row]}


@pytest.mark.parametrize(
    ("check", "definition"),
    [
        (repeats.duplicated_sessions, duplicates),
        (repeats.refreshes, refreshed),
        (repeats.pagination, further_pages),
        (repeats.type_ahead, typed),
        (ranks.gaps, gapped),
        (ranks.mixed_rank_bases, late),
        (traffic.clicks_everything, all_clicked),
        (traffic.test_traffic, of_tests),
    ],
    ids=lambda value: value.__name__,
)
def test_affected_sessions_are_those_of_the_definition(
    small: cs.Sessions,
    check: Callable[[LogColumns, CheckOptions], Evidence],
    definition: Callable[[cs.Sessions], set[int]],
) -> None:
    if definition is duplicates:  # by chance there are none
        rows = np.r_[np.arange(400), [3, 7, 7]]
        small = small[rows]
    found, expected = check(LogColumns.of(small), OPTIONS), definition(small)
    assert expected
    assert found.rows is not None
    assert set(np.flatnonzero(found.rows).tolist()) == expected


def test_short_lists_are_compared_with_longer_ones_of_their_query_by_mantel_and_haenszel(small: cs.Sessions) -> None:
    ends = list_ends._list_ends(LogColumns.of(small))
    assert ends is not None
    assert set(np.flatnonzero(ends.short).tolist()) == short(small)
    observed = expected = variance = 0.0
    length, from_one = small.rankings.length, small.rankings.shown[:, 0]
    for query in range(4):
        for rank in range(1, 6):
            reach = (small.rankings.query == query) & small.rankings.shown[:, rank - 1] & from_one
            end = reach & (length == rank)
            n, m, total = end.sum(), (reach & (length > rank)).sum(), reach.sum()
            if not n or not m:
                continue
            clicks = small.click[reach, rank - 1].sum()
            observed += small.click[end, rank - 1].sum()
            expected += clicks * n / total
            variance += clicks * (total - clicks) * n * m / (total**2 * (total - 1))
    assert ends.z == pytest.approx((observed - expected) / np.sqrt(variance))


def test_bursts_are_thirty_sessions_within_five_minutes() -> None:
    vocabulary, _, _ = cs.Vocabulary.of(["q"], ["d"])
    time = np.r_[np.arange(40) * 8.0, np.arange(40) * 11.0, 1000 + np.arange(29)]
    user = np.repeat([0, 1, 2], [40, 40, 29])
    rankings = cs.Rankings(vocabulary, np.zeros(109, int), np.zeros((109, 1), int))
    stamps = np.datetime64("2026-01-01", "s") + time.astype("timedelta64[s]")
    log = cs.Sessions(rankings, np.zeros((109, 1), int), time=stamps, user=user)
    found = repeats.inhuman_rates(LogColumns.of(log), OPTIONS)
    assert found.rows is not None
    assert np.flatnonzero(found.rows).tolist() == list(range(40))  # 30 sessions take 232 s, then 319 s; 29 are too few


def test_the_change_point_is_the_day_of_the_change() -> None:
    rng = np.random.default_rng(0)
    table = np.array([rng.multinomial(500, [0.5, 0.3, 0.2] if day < 6 else [0.4, 0.4, 0.2]) for day in range(10)])
    p_value, split, dispersion = traffic._change_point(table.astype(float))
    assert split == 6
    assert p_value < 1e-6
    assert dispersion < 2


def test_days_that_do_not_differ_at_all_do_not_hide_a_change() -> None:
    """All lists have ten results until the sixth day, during which they become shorter."""
    table = np.array([[500, 0]] * 5 + [[250, 250]] + [[0, 500]] * 4, float)
    assert traffic._change_point(table)[0] < 1e-6


def test_groups_are_compared_within_queries_by_the_generalised_mantel_haenszel_statistic(small: cs.Sessions) -> None:
    log = LogColumns.of(small)
    group, later = log.first_click % 3, np.arange(len(small)) % 5 == 0
    statistic, degrees, distance = traffic._within_queries(log, group, later)
    difference, covariance, pairs = np.zeros(7), np.zeros((7, 7)), 0.0
    for query in np.unique(small.rankings.query):
        own = small.rankings.query == query
        n, m = (own & ~later).sum(), (own & later).sum()
        share = np.bincount(group[own], minlength=7) / (n + m)
        difference += np.bincount(group[own & ~later], minlength=7) - n * share
        covariance += n * m / (n + m - 1) * (np.diag(share) - np.outer(share, share))
        pairs += n * m / (n + m)
    assert degrees == 2
    assert statistic == pytest.approx(difference @ np.linalg.pinv(covariance) @ difference)
    assert distance == pytest.approx(np.abs(difference).sum() / 2 / pairs)


def test_tail_probabilities_are_those_of_scipy() -> None:
    from scipy import stats

    assert poisson_tail(7, 3.2) == pytest.approx(stats.poisson.sf(6, 3.2))
    assert binomial_tail(7, 20, 0.2) == pytest.approx(stats.binom.sf(6, 20, 0.2))
    assert chi_squared_tail(9.1, 4) == pytest.approx(stats.chi2.sf(9.1, 4))
    assert poisson_tail(0, 3.2) == binomial_tail(0, 20, 0.2) == 1


def test_holm_rejects_at_most_alpha_of_families_without_an_effect() -> None:
    p_values = np.random.default_rng(0).random((4000, 8))
    alarms = [bool(holm({str(k): p for k, p in enumerate(row)}, 0.1)) for row in p_values.tolist()]
    assert 0.08 < np.mean(alarms) < 0.11
