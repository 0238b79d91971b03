"""Checks of who makes the traffic: bots, power users, tests, a dominant query, arms, and a change of the front end."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.severe_defects import LONG_LIST, MIN_QUERIES, SEVERE_BOT_SHARE, SEVERE_QUERY_SHARE
from clickshift.log_health._columns import DAY, LogColumns
from clickshift.log_health._tests import binomial_tail, chi_squared_tail, homogeneity
from clickshift.log_health.finding import Check, CheckOptions, Evidence, NeedsError

_POWER_USER_SHARE, _POWER_USER_FACTOR, _POWER_USER_SESSIONS = 0.0075, 10, 100
"""A power user has this share of the sessions, this many times the 99th percentile of users, and this many sessions."""
_DOMINANT_SHARE, _DOMINANT_FACTOR = 0.1, 4.0
"""A dominant query has half of the sessions, or this share of them and this many times those of the next query."""
_TEST_QUERIES = (
    *("test", "tests", "testing", "test1", "test2", "test123", "test query", "testquery", "test search", "test test"),
    *("asdf", "asdfasdf", "asdfgh", "qwerty", "qwertz", "foo", "bar", "foobar", "lorem", "lorem ipsum", "hello world"),
    *("xxx", "aaa", "aaaa", "abc123", "dummy", "null", "undefined", "none", "nan"),
)
_TEST_USER = (
    r"(?i)(^|[^a-z])(test|tester|qa|internal|monitor|monitoring|healthcheck|selenium|bot|crawler|dev)s?([^a-z]|$)"
)
_EQUAL_SHARES = 0.3
"""Largest relative distance of an arm's share from equal shares at which equal shares are assumed."""
_MIN_DAYS, _MAX_DAYS, _MIN_PER_DAY = 4, 1000, 50
"""Days that a change of the front end needs, and sessions of each."""
_CLICK_GROUPS = (1, 2, 3, 4, 6, 11)
"""Ranks at which the groups of first clicks begin; sessions without a click are a group of their own."""
_GROUPS = len(_CLICK_GROUPS) + 1
_MIN_CHANGE = 0.02
"""Smallest total variation distance between clicks before and after a change."""
_MIN_PER_QUERY = 10
"""Sessions from which on a query is compared with itself."""


def clicks_everything(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many sessions click every result of a list of five or more, beyond the tail of other sessions."""
    long_list = log.n_shown >= LONG_LIST
    if not long_list.any():
        return Evidence("No list has five results.", 0.0, log.total, p_value=1.0)
    rows = long_list & (log.n_clicks == log.n_shown)
    everything, but_one, but_two = (
        log.sessions_of(long_list & (log.n_clicks == log.n_shown - missing)) for missing in range(3)
    )
    # numbers of sessions with k clicks decrease towards the end of the list
    ratio = min(but_one / but_two, 1.0) if but_two else 0.0
    chance = but_one * ratio
    p_value = binomial_tail(everything, everything + but_one, 0.5) if everything else 1.0
    text = (
        f"{everything / log.total:.1%} of the sessions click every result of a list of five or more "
        f"({but_one / log.total:.1%} all but one): bots or prefetching."
    )
    return Evidence(text, max(everything - chance, 0.0), log.total, variance=chance, rows=rows, p_value=p_value)


def power_users(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure the share of users with far more sessions than nearly all others."""
    if log.user is None:
        raise NeedsError("needs the column user")
    sizes = np.bincount(log.user, log.count)
    usual = float(np.quantile(sizes, 0.99))
    limit = max(_POWER_USER_SESSIONS, _POWER_USER_SHARE * log.total, _POWER_USER_FACTOR * usual)
    found = sizes >= limit
    rows = found[log.user]
    affected = log.sessions_of(rows)
    n = int(found.sum())
    text = (
        f"{affected / log.total:.1%} of the sessions are of {n:,} user{'s' if n != 1 else ''} with {limit:,.0f} or "
        f"more sessions (99 % of users have at most {usual:,.0f})."
    )
    return Evidence(text if n else "No user has far more sessions than others.", affected, log.total, rows=rows)


def test_traffic(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many sessions have a query or a user that testers type."""
    texts = log.log.vocabulary.query_ids
    rows = np.zeros(len(log), bool)
    names: list[str] = []
    if texts.dtype.kind not in "iu":
        plain = np.strings.lower(np.strings.strip(texts.astype(np.dtypes.StringDType())))
        is_test = np.isin(plain, np.array(_TEST_QUERIES, plain.dtype))
        rows |= np.append(is_test, False)[log.query]
        names += texts[is_test].tolist()[:3]
    elif log.user is None or not _has_text_users(log):
        raise NeedsError("needs queries or users as texts")
    if log.user is not None and _has_text_users(log):
        import pyarrow.compute as pc

        is_test_user = pc.match_substring_regex(log.user_ids, _TEST_USER).to_numpy(zero_copy_only=False).astype(bool)
        rows |= is_test_user[log.user]
        names += [str(log.user_ids[int(k)]) for k in np.flatnonzero(is_test_user)[:3]]
    affected = log.sessions_of(rows)
    text = f"{affected / log.total:.1%} of the sessions have a query or a user of tests: {', '.join(names[:5])}."
    return Evidence(text if affected else "No query or user looks like a test.", affected, log.total, rows=rows)


def _has_text_users(log: LogColumns) -> bool:
    """Return whether user ids are texts."""
    return not isinstance(log.user_ids, np.ndarray)


def dominant_query(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure the share of the most frequent query, if that is half, or far ahead of the next one."""
    known = log.query >= 0
    sizes = np.bincount(log.query[known], log.count[known], log.log.vocabulary.n_queries)
    if len(sizes) < 2:
        return Evidence("The log has one query.", 0.0, log.total)
    second, first = np.partition(sizes, len(sizes) - 2)[-2:]
    top, n_queries = int(sizes.argmax()), int((sizes > 0).sum())
    share = float(first / log.total)
    dominant = share >= SEVERE_QUERY_SHARE or share >= max(_DOMINANT_SHARE, _DOMINANT_FACTOR * second / log.total)
    name = log.log.vocabulary.query_ids[top]
    text = f"The query {name} has {share:.1%} of the sessions, the next one {second / log.total:.1%}."
    if not dominant or n_queries < 2:
        return Evidence(text, 0.0, log.total)
    few = n_queries < MIN_QUERIES  # of a few queries, one easily has much of the traffic
    text += f" The log has {n_queries:,} queries." if few else ""
    return Evidence(text, float(first), log.total, rows=log.query == top, severity="notice" if few else None)


def sample_ratio(log: LogColumns, options: CheckOptions) -> Evidence:
    """Compare the sizes of the arms with the shares that they were given, in users where these are known."""
    if log.arm is None:
        raise NeedsError("needs the segment arm")
    labels = log.arm.labels
    known = log.arm.code >= 0
    unit, code, weight = "sessions", log.arm.code[known], log.count[known].astype(np.float64)
    if log.user is not None:
        # each user counts once per arm: sessions of a user are not independent
        key, _ = distinct_sorted(log.user[known].astype(np.int64) * len(labels) + code)
        unit, code, weight = "users", key % len(labels), np.ones(len(key))
    sizes = np.bincount(code, weight, len(labels))
    used = [k for k in range(len(labels)) if sizes[k] or (options.arm_shares or {}).get(labels[k])]
    if len(used) < 2:
        raise NeedsError("needs two arms")
    sizes = sizes[used]
    shares = _expected_shares([labels[k] for k in used], sizes, options)
    expected = shares * sizes.sum()
    statistic = float(((sizes - expected) ** 2 / expected).sum())
    named = ", ".join(
        f"{labels[k]} {size / sizes.sum():.2%} ({share:.2%} expected)"
        for k, size, share in zip(used, sizes, shares, strict=True)
    )
    # if sessions of an arm are missing: what must be added to the smallest one
    lost = float((sizes.max() * shares / shares[sizes.argmax()] - sizes).clip(0).sum())
    scale = log.total / sizes.sum()
    whole = sizes.sum() + lost
    text = (
        f"Of {sizes.sum():,.0f} {unit}, the arms have {named}: {lost / whole:.1%} are missing from one, or too many in "
        "another."
    )
    variance = float((expected * (1 - shares)).sum()) * 2
    return Evidence(
        text,
        lost * scale,
        whole * scale,
        variance=variance * scale**2,
        p_value=chi_squared_tail(statistic, len(used) - 1),
        shown=[{"arm": labels[k], unit: float(size)} for k, size in zip(used, sizes, strict=True)],
    )


def _expected_shares(labels: list[str], sizes: Float[np.ndarray, " arm"], options: CheckOptions) -> np.ndarray:
    """Return the shares that the arms were given, or equal ones if the arms are nearly equal."""
    if options.arm_shares is None:
        equal = np.full(len(labels), 1 / len(labels))
        if np.abs(sizes / sizes.sum() / equal - 1).max() > _EQUAL_SHARES:
            raise NeedsError("needs the shares of the arms, which are not equal: arm_shares, e.g. --arm-share new=0.1")
        return equal
    shares = np.array([float(options.arm_shares.get(label, 0)) for label in labels])
    if not (shares > 0).all():
        missing = labels[int(np.argmin(shares))]
        raise NeedsError(f"needs the share of every arm: that of {missing} is not given")
    normalised: np.ndarray = shares / shares.sum()
    return normalised


def front_end_change(log: LogColumns, options: CheckOptions) -> Evidence:
    """Test for a day from which on first clicks are at other ranks, or lists have other lengths."""
    if log.time is None:
        raise NeedsError("needs the column time")
    days, day = np.unique(np.floor(log.time / DAY), return_inverse=True)
    if not _MIN_DAYS <= len(days) <= _MAX_DAYS:
        raise NeedsError(f"needs {_MIN_DAYS} to {_MAX_DAYS:,} days: this log has {len(days):,}")
    sizes = np.bincount(day, log.count)
    found = []
    first_click = np.searchsorted(_CLICK_GROUPS, log.first_click, side="right")
    for what, group in (("first clicks", first_click), ("lengths of lists", _length_group(log))):
        table = np.bincount(day * _GROUPS + group, log.count, len(days) * _GROUPS).reshape(-1, _GROUPS)
        p_value, split, dispersion = _change_point(table)
        statistic, degrees, distance = _within_queries(log, group, day >= split)
        within = chi_squared_tail(statistic / dispersion, degrees) * (len(days) - 1) if degrees else 1.0
        found.append((what, max(p_value, within), split, distance))
    what, p_value, split, distance = min(found, key=lambda one: one[1])
    if distance < _MIN_CHANGE or sizes[:split].sum() < _MIN_PER_DAY or sizes[split:].sum() < _MIN_PER_DAY:
        return Evidence("Days do not differ.", 0.0, log.total, p_value=1.0)
    later = day >= split
    rows = later if log.sessions_of(later) <= log.total / 2 else ~later
    name = str(np.datetime64(int(days[split]), "D")) if days[0] > 1000 else f"day {days[split]:g}"
    text = (
        f"From {name} on, {what} are distributed differently: {distance:.1%} of them moved. "
        f"{log.sessions_of(later) / log.total:.1%} of the sessions are of that day or later."
    )
    return Evidence(text, log.sessions_of(rows), log.total, rows=rows, p_value=min(2 * p_value, 1.0))


def _within_queries(
    log: LogColumns, group: Int[np.ndarray, " row"], later: Bool[np.ndarray, " row"]
) -> tuple[float, int, float]:
    """Compare the groups before and after a day within queries, so that a change of the queries is not taken for one.

    Returns the generalised Mantel-Haenszel statistic, its degrees of freedom, and the mean difference of shares as a
    total variation distance. Queries with few sessions are one stratum.
    """
    sizes = np.bincount(log.query + 1, log.count)
    stratum = np.where(sizes >= _MIN_PER_QUERY, np.arange(len(sizes)), 0)[log.query + 1]
    _, stratum = distinct_sorted(stratum)
    n = int(stratum.max()) + 1
    before, after = (
        np.bincount((stratum * _GROUPS + group)[rows], log.count[rows], n * _GROUPS).reshape(n, _GROUPS)
        for rows in (~later, later)
    )
    both = before + after
    total, n_before, n_after = (counts.sum(axis=1) for counts in (both, before, after))
    share = both / total[:, None]
    difference = (before - n_before[:, None] * share).sum(axis=0)
    weight = n_before * n_after / np.maximum(total - 1, 1)
    covariance = np.diag(weight @ share) - (share * weight[:, None]).T @ share
    used = np.flatnonzero(np.diag(covariance) > 1e-9)[:-1]  # shares add up to 1
    if not len(used):
        return 0.0, 0, 0.0
    statistic = float(
        difference[used] @ np.linalg.pinv(covariance[np.ix_(used, used)], hermitian=True) @ difference[used]
    )
    distance = float(np.abs(difference).sum() / 2 / (n_before * n_after / total).sum())
    return statistic, len(used), distance


def _length_group(log: LogColumns) -> Int[np.ndarray, " row"]:
    """Return the group of each list's length, of seven: the most frequent lengths, and what is between them."""
    sizes = np.bincount(log.length, log.count)
    frequent = np.sort(np.argsort(-sizes, kind="stable")[: _GROUPS - 1])
    group: np.ndarray = np.searchsorted(frequent, log.length)
    return group


def _change_point(table: Float[np.ndarray, "day group"]) -> tuple[float, int, float]:
    """Return p-value and first day of the clearest change in a table of counts by day, and the days' dispersion.

    Days differ by more than chance without any change, e.g. because queries do; consecutive days tell how much.
    """
    steps = [homogeneity(table[d : d + 2]) for d in range(len(table) - 1)]
    dispersion = max(float(np.median([statistic / degrees if degrees else 1.0 for statistic, degrees in steps])), 1.0)
    before = np.cumsum(table, axis=0)
    best, largest = (1.0, 1), 0.0
    for split in range(1, len(table)):
        pair = np.stack([before[split - 1], before[-1] - before[split - 1]])
        if pair.sum(axis=1).min() < _MIN_PER_DAY:
            continue
        statistic, degrees = homogeneity(pair)
        if not degrees:
            continue
        p_value = chi_squared_tail(statistic / dispersion, degrees) * (len(table) - 1)
        if p_value < best[0] or (p_value == best[0] and statistic > largest):
            best, largest = (p_value, split), statistic
    return *best, dispersion


CHECKS = (
    Check(
        "clicks-everything",
        "Sessions that click everything (bots)",
        clicks_everything,
        "Leave these sessions and their users out: they make low ranks look examined.",
        0.0005,
        0.002,
        SEVERE_BOT_SHARE,
    ),
    Check(
        "power-users",
        "Power users",
        power_users,
        "Look at who they are: an internal tool, a bot, a shared account. Leave them out, or resample users "
        "(`ope --cluster user`), so that intervals are not too narrow.",
        1e-9,
        0.02,
        0.2,
    ),
    Check(
        "test-traffic",
        "Test traffic",
        test_traffic,
        "Leave these queries and users out.",
        0.0005,
        0.005,
        0.1,
    ),
    Check(
        "dominant-query",
        "One query with much of the traffic",
        dominant_query,
        "Look at the query: an empty search, a default page, a widget, or a monitor. Averages over sessions are "
        "averages over this query; fit without it, or report it apart.",
        0.1,
        0.1,
        SEVERE_QUERY_SHARE,
    ),
    Check(
        "sample-ratio",
        "Sample-ratio mismatch between arms",
        sample_ratio,
        "Do not compare the arms before the cause is known: redirects, bots, crashes or lost events of one arm.",
        0.001,
        0.005,
        0.02,
    ),
    Check(
        "front-end-change",
        "A change within the log",
        front_end_change,
        "Use one side of the change: `clickshift log drift` compares days, and models of one front end do not hold for "
        "another one.",
        0.001,
        0.02,
        0.1,
    ),
)
"""Checks of traffic."""
