"""Checks of consecutive sessions of a user: duplicates, refreshes, further pages, type-ahead and inhuman rates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.log_health._columns import LogColumns, Visits, same_documents
from clickshift.log_health._tests import binomial_tail, poisson_tail
from clickshift.log_health.finding import NOTHING, Check, CheckOptions, Evidence, NeedsError

_SAME_EVENT = 1.0
"""Seconds within which an equal session is the same event, logged again."""
_VISIT = 1800.0
"""Seconds within which consecutive sessions of a user belong to one visit."""
_NEXT = 4
"""Number of following sessions of the user that each session is compared with."""
_TYPING = 10.0
"""Seconds within which a query that the next one continues is still being typed."""
_BURST, _BURST_SECONDS = 30, 300.0
"""Sessions of a user, and the seconds within which no human starts as many."""
_COMPARED = 20_000
"""Number of pairs of lists of the same query from which chance is estimated."""
_ELEMENTS = 1 << 24
"""Number of document pairs that are compared at once."""


def duplicated_sessions(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many sessions repeat the list and the clicks of the user's session less than a second before."""
    pairs = log.visits.within(-1, _SAME_EVENT)
    if not len(pairs.gap):
        return NOTHING
    key = (log.list_hash ^ (log.click_hash * np.uint64(0x9E3779B97F4A7C15))).view(np.int64)
    equal = key[pairs.first] == key[pairs.second]
    rows = _mask(log, pairs.second[equal])
    expected = float(log.frequency(key)[pairs.first].sum())
    found = float(equal.sum())
    text = f"{found / log.total:.1%} of the sessions repeat the list and the clicks of a session of the same user "
    text += "within a second: they were logged twice."
    return Evidence(text, found, log.total, rows=rows, p_value=poisson_tail(found, expected))


def refreshes(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many sessions show the same list again to the same user within half an hour."""
    pairs = log.visits.followed_by(_NEXT, _SAME_EVENT, _VISIT)
    if not len(pairs.gap):
        return NOTHING
    key = log.list_hash.view(np.int64)
    equal = key[pairs.first] == key[pairs.second]
    chance = float(log.frequency(key)[pairs.first].sum())
    rows = _mask(log, pairs.second[equal])
    found = float(rows.sum())
    text = (
        f"{found / log.total:.1%} of the sessions show the user's previous list again within half an hour "
        f"({chance / log.total:.1%} by chance): refreshes, the back button, or one search logged several times."
    )
    return Evidence(
        text,
        max(found - chance, 0.0),
        log.total,
        variance=chance,
        rows=rows,
        p_value=poisson_tail(found, chance),
    )


def pagination(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many sessions show other documents for the same query to the same user within half an hour."""
    pairs = log.visits.followed_by(_NEXT, -1, _VISIT)
    same = log.query[pairs.first] == log.query[pairs.second]
    same &= log.list_hash[pairs.first] != log.list_hash[pairs.second]
    first, second = pairs.first[same], pairs.second[same]
    if not len(first):
        return NOTHING
    other = _disjoint(log, first, second)
    other &= log.first_rank[second] <= log.length[first]  # a page whose ranks continue is where it was shown
    known = log.query[pairs.first] >= 0
    frequency = log.frequency(log.query.astype(np.int64))[pairs.first[known]]
    chance = float(frequency @ _disjoint_by_chance(log)[log.query[pairs.first[known]]])
    rows = _mask(log, second[other])
    found = float(rows.sum())
    text = (
        f"{found / log.total:.1%} of the sessions show none of the documents of the user's previous list for the same "
        "query within half an hour: further pages, whose ranks begin again."
    )
    affected, variance = max(found - chance, 0.0), chance
    return Evidence(text, affected, log.total, variance=variance, rows=rows, p_value=poisson_tail(found, chance))


def _disjoint(log: LogColumns, first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return whether the lists of two rows share no document."""
    step = max(_ELEMENTS // log.log.n_ranks**2, 1)
    lists = [log.take(rows).rankings.pair for rows in (first, second)]
    parts = [same_documents(lists[0][k : k + step], lists[1][k : k + step]) for k in range(0, len(first), step)]
    return ~np.concatenate(parts)


def _disjoint_by_chance(log: LogColumns) -> Float[np.ndarray, " query"]:
    """Estimate the probability that two lists of a query share no document, for each query.

    The lists of a query that stands for many things (an empty search, a widget) share less than those of others. The
    mean over all queries counts for one pair of lists in that of each query.
    """
    n_queries = log.log.vocabulary.n_queries
    order = np.argsort(log.query, kind="stable")
    first, second = order[:-1], order[1:]
    same = np.flatnonzero((log.query[first] == log.query[second]) & (log.query[first] >= 0))
    same = same[:: max(len(same) // _COMPARED, 1)]
    if not len(same):
        return np.zeros(n_queries)
    disjoint, query = _disjoint(log, first[same], second[same]), log.query[first[same]]
    mean = (disjoint.sum() + 0.5) / (len(same) + 1)
    by_query: np.ndarray = np.bincount(query, disjoint, n_queries) + mean
    return by_query / (np.bincount(query, minlength=n_queries) + 1)


def type_ahead(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many queries are beginnings of the user's next query, a few seconds later."""
    texts = log.log.vocabulary.query_ids
    if texts.dtype.kind in "iu":
        raise NeedsError("needs queries as texts: those of this log are numbers")
    pairs = log.visits.within(-1, _VISIT)
    if not len(pairs.gap):
        return NOTHING
    begins = _is_beginning(texts, log.query[pairs.first], log.query[pairs.second])
    quick = pairs.gap <= _TYPING
    found, tried = float((begins & quick).sum()), float(quick.sum())
    slow = float((~quick).sum())
    # the share among slower pairs, with half a case more
    chance = ((begins & ~quick).sum() + 0.5) / (slow + 1)
    text = f"{found / log.total:.1%} of the queries are the beginning of the user's next one within 10 seconds: "
    text += "type-ahead states, which nobody searched for."
    expected = chance * tried
    return Evidence(
        text,
        max(found - expected, 0.0) if expected > 0.05 * found else found,
        log.total,
        variance=expected if expected > 0.05 * found else 0.0,
        rows=_mask(log, pairs.first[begins & quick]),
        p_value=binomial_tail(found, tried, min(float(chance), 1.0)) if tried else 1.0,
    )


def _is_beginning(
    texts: np.ndarray, first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Return whether a query is the beginning of another one, without regard to case and white space at its ends."""
    plain = np.strings.lower(np.strings.strip(texts.astype(np.dtypes.StringDType())))
    lengths = np.strings.str_len(plain)
    begins: np.ndarray = (first != second) & (lengths[first] <= lengths[second]) & (lengths[first] > 0)
    rows = np.flatnonzero(begins)
    begins[rows] = np.strings.startswith(plain[second[rows]], plain[first[rows]])
    return begins


def inhuman_rates(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many sessions belong to bursts of 30 sessions of a user within five minutes."""
    visits: Visits = log.visits
    assert log.user is not None
    assert log.time is not None
    order, last = visits.order, _BURST - 1
    rows = np.zeros(len(log), bool)
    if len(order) >= _BURST:
        user, time = log.user[order], log.time[order]
        starts = (user[last:] == user[:-last]) & (time[last:] - time[:-last] <= _BURST_SECONDS)
        change = np.zeros(len(order) + 1, np.int64)
        change[: len(starts)] += starts
        change[_BURST:] -= starts
        covered = np.cumsum(change[:-1])
        rows[order] = covered > 0
    found = log.sessions_of(rows)
    users = len(np.unique(log.user[rows]))
    text = (
        f"{found / log.total:.1%} of the sessions are in bursts of {_BURST} or more sessions of one user within five "
        f"minutes ({users:,} user{'s' if users != 1 else ''})."
    )
    return Evidence(text if found else "No user is faster than a human.", found, log.total, rows=rows)


def _mask(log: LogColumns, rows: Int[np.ndarray, " some"]) -> Bool[np.ndarray, " row"]:
    """Return the mask of some rows."""
    mask = np.zeros(len(log), bool)
    mask[rows] = True
    return mask


CHECKS = (
    Check(
        "duplicated-sessions",
        "Duplicated sessions",
        duplicated_sessions,
        "Keep one of them: rates hardly change, but intervals are too narrow, and two trackers may be at work.",
        0.0005,
        0.01,
        0.1,
    ),
    Check(
        "refreshes",
        "Refreshes",
        refreshes,
        "Merge sessions of the same user and list within half an hour: a click belongs to the search, whichever of its "
        "page views it came from.",
        0.002,
        0.03,
        0.15,
    ),
    Check(
        "pagination",
        "Further pages as lists of their own",
        pagination,
        "Add the results of earlier pages to ranks: `clickshift import --page-size 10` with a column `page`, or leave "
        "further pages out.",
        0.002,
        0.01,
        0.1,
    ),
    Check(
        "type-ahead",
        "Type-ahead queries",
        type_ahead,
        "Leave out queries that the same user continues within seconds, or log a search when it is submitted.",
        0.001,
        0.02,
        0.2,
    ),
    Check(
        "inhuman-rates",
        "Inhuman rates (bots)",
        inhuman_rates,
        "Leave these users out, and filter bots by their user agent before logging.",
        1e-9,
        0.005,
        0.05,
    ),
)
"""Checks of consecutive sessions."""
