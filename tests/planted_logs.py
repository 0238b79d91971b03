"""Realistic logs without defects, and one defect of tracking at a time, planted in plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary

CANDIDATES, RANKS, DAYS = 14, 10, 20
SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sa", "te", "vo", "wi", "zu")


@dataclass(frozen=True)
class Log:
    """A log as plain arrays: documents by rank (-1 where nothing is shown), clicks, and columns of sessions."""

    texts: np.ndarray
    query: np.ndarray
    doc: np.ndarray
    click: np.ndarray
    time: np.ndarray
    user: np.ndarray
    arm: np.ndarray
    examined: np.ndarray

    def rows(self, rows: np.ndarray) -> Log:
        """The log of some rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def plus(self, other: Log) -> Log:
        """The log with the rows of another one."""
        return replace(self, **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in COLUMNS})

    @property
    def shown(self) -> np.ndarray:
        return self.doc >= 0

    @property
    def length(self) -> np.ndarray:
        return RANKS_OF(self.doc) - self.shown[:, ::-1].argmax(axis=1)

    @property
    def last_click(self) -> np.ndarray:
        return np.where(self.click.any(axis=1), RANKS_OF(self.doc) - self.click[:, ::-1].argmax(axis=1), 0)

    def sessions(self, *, in_order: bool = True) -> Sessions:
        """The log as clickshift has it, in order of time."""
        n_queries = len(self.texts)
        vocabulary = Vocabulary(
            self.texts.astype(np.dtypes.StringDType()),
            np.arange(n_queries * CANDIDATES),
            np.repeat(np.arange(n_queries), CANDIDATES),
            np.arange(n_queries * CANDIDATES),
        )
        order = np.argsort(self.time, kind="stable") if in_order else np.arange(len(self.query))
        log = self.rows(order)
        pair = np.where(log.shown, log.query[:, None] * CANDIDATES + log.doc, UNSEEN).astype(np.int32)
        arm = Segment(("new", "old"), log.arm.astype(np.int32))
        rankings = Rankings(vocabulary, log.query.astype(np.int32), pair, log.shown, segments={"arm": arm})
        time = np.datetime64("2026-03-02", "ms") + (log.time * 1000).astype("timedelta64[ms]")
        return Sessions(rankings, log.click, time=time, user=log.user)


COLUMNS = ("query", "doc", "click", "time", "user", "arm", "examined")


def RANKS_OF(matrix: np.ndarray) -> int:
    return matrix.shape[1]


def clean_log(rng: np.random.Generator, n: int = 20_000, queries: int = 300) -> Log:
    """A log without defects: users with visits of several sessions over 20 days with a daily rhythm, queries by Zipf's
    law, two arms, lists of varying length from a ranker that varies, users that browse by a PBM or a DBN."""
    words = np.array([a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES[:3]])
    first = (
        rng.choice(words, queries, replace=False)
        if queries <= len(words)
        else np.array([f"{words[k % 300]}{k}" for k in range(queries)])
    )
    texts = np.where(rng.random(queries) < 0.5, np.char.add(np.char.add(first, " "), rng.choice(words, queries)), first)
    # beginnings of each text, and tests, are queries that only defects use
    typed = np.unique(np.array([text[: max(len(text) * 2 // 3, 2)] for text in texts]))
    all_texts = np.unique(np.concatenate([texts, typed, ["test", "asdf"]]))
    number = np.searchsorted(all_texts, texts)
    popularity = 1 / np.arange(1, queries + 1) ** 0.9
    # visits: users, times, and the sessions of each
    visits = n  # enough
    users = rng.choice(n, visits, p=_normalised(rng.lognormal(0, 1, n)))
    size = 1 + rng.geometric(0.65, visits) - 1
    hour = rng.choice(24, visits, p=_normalised(1.2 + np.sin((np.arange(24) - 9) / 24 * 2 * np.pi)))
    start = rng.integers(DAYS, size=visits) * 86400 + hour * 3600 + rng.random(visits) * 3600
    visit = np.repeat(np.arange(visits), size)[:n]
    gap = 4 + rng.exponential(90, n)
    begins = np.r_[True, visit[1:] != visit[:-1]]
    total = np.cumsum(gap)
    time = np.round(start[visit] + total - total[np.flatnonzero(begins)][np.cumsum(begins) - 1], 3)
    user = users[visit]
    query = number[rng.choice(queries, n, p=_normalised(popularity))]
    # lists: attractive documents tend to be ranked first, in an order that varies
    attractiveness = rng.beta(1, 4, (len(all_texts), CANDIDATES)) + 0.02
    score = np.log(attractiveness) + rng.normal(0, 0.7, attractiveness.shape)
    doc = np.argsort(-(score[query] + 0.5 * rng.gumbel(size=(n, CANDIDATES))), axis=1)[:, :RANKS]
    usual = rng.integers(5, RANKS + 1, len(all_texts))
    varies = rng.random(len(all_texts)) < 0.2
    length = np.where(varies[query], np.maximum(usual[query] - rng.integers(0, 4, n), 3), usual[query])
    doc = np.where(np.arange(RANKS) < length[:, None], doc, -1)
    # clicks
    attracted = rng.random(doc.shape) < np.minimum(attractiveness[query[:, None], doc] * 1.3, 0.95)
    by_rank = rng.random(doc.shape) < 1 / np.arange(1, RANKS + 1) ** np.where(user % 3 == 0, 0.6, 1.0)[:, None]
    leaves = np.where(attracted, 0.6, 0.12) > rng.random(doc.shape)
    goes_on = np.cumprod(np.c_[np.ones(n, bool), ~leaves[:, :-1]], axis=1).astype(bool)
    examined = np.where((user % 2 == 0)[:, None], by_rank, goes_on) & (doc >= 0)
    arm = (user * 2654435761 >> 7) % 2
    return Log(all_texts, query, doc, examined & attracted, time, user, arm, examined)


def _normalised(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum()


def _chosen(log: Log, share: float, rng: np.random.Generator, among: np.ndarray | None = None) -> np.ndarray:
    """Row numbers of a share of the log, drawn from some of its rows."""
    rows = np.arange(len(log.query)) if among is None else np.flatnonzero(among)
    return rng.choice(rows, min(round(share * len(log.query)), len(rows)), replace=False)


def _shifted(log: Log, rows: np.ndarray) -> Log:
    """The log with the lists of some rows one rank lower."""
    doc, click, examined = (np.pad(values, ((0, 0), (0, 1)), constant_values=fill) for values, fill in (
        (log.doc, -1), (log.click, False), (log.examined, False)
    ))  # fmt: skip
    for values, fill in ((doc, -1), (click, False), (examined, False)):
        values[rows, 1:] = values[rows, :-1].copy()
        values[rows, 0] = fill
    return replace(log, doc=doc, click=click, examined=examined)


def rank_base(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """All ranks are one too high."""
    return _shifted(log, np.arange(len(log.query))), 1.0


def mixed_rank_bases(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """The ranks of a share of the lists are one too high."""
    rows = _chosen(log, share, rng)
    return _shifted(log, rows), len(rows) / len(log.query)


def gaps(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the lists lack a result above their last one, which was not clicked."""
    rows = _chosen(log, share, rng)
    rank = 1 + (rng.random(len(rows)) * (log.length[rows] - 2)).astype(int)
    doc, click = log.doc.copy(), log.click.copy()
    doc[rows, rank], click[rows, rank] = -1, False
    return replace(log, doc=doc, click=click), len(rows) / len(log.query)


def duplicated_sessions(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the sessions are logged again within half a second."""
    rows = _chosen(log, share, rng)
    copies = log.rows(rows)
    copies = replace(copies, time=copies.time + np.round(0.5 * rng.random(len(rows)), 3))
    return log.plus(copies), len(rows) / (len(rows) + len(log.query))


def refreshes(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the lists are shown again after some seconds or minutes, without clicks."""
    rows = _chosen(log, share, rng)
    copies = log.rows(rows)
    copies = replace(copies, time=copies.time + 3 + rng.exponential(20, len(rows)), click=np.zeros_like(copies.click))
    return log.plus(copies), len(rows) / (len(rows) + len(log.query))


def pagination(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """The second page of a share of the searches is a list of its own, with ranks from 1."""
    rows = _chosen(log, share, rng)
    pages = log.rows(rows)
    rest = np.argsort(np.array([np.isin(np.arange(CANDIDATES), docs) for docs in pages.doc]), axis=1, kind="stable")
    left = CANDIDATES - pages.length
    doc = np.where(np.arange(RANKS) < left[:, None], rest[:, :RANKS], -1)
    click = (rng.random(doc.shape) < 0.05) & (doc >= 0)
    time = pages.time + 5 + rng.exponential(15, len(rows))
    return log.plus(replace(pages, doc=doc, click=click, time=time)), len(rows) / (len(rows) + len(log.query))


def type_ahead(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """The beginning of a share of the queries is logged as a query of its own, seconds before it."""
    rows = _chosen(log, share, rng)
    typed = log.rows(rows)
    beginnings = np.array([text[: max(len(text) * 2 // 3, 2)] for text in log.texts[typed.query]])
    number = np.searchsorted(log.texts, beginnings)
    time = typed.time - 0.3 - rng.random(len(rows)) * 2
    typed = replace(typed, query=number, click=np.zeros_like(typed.click), time=np.maximum(time, 0))
    return log.plus(typed), len(rows) / (len(rows) + len(log.query))


def truncated_lists(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the lists end at their last click, above their end."""
    rows = _chosen(log, share, rng, (log.last_click > 0) & (log.last_click < log.length))
    return _cut(log, rows, log.last_click[rows]), len(rows) / len(log.query)


def viewport_lists(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the lists end at the last result that was examined; the rate is that of short lists."""
    last = np.where(log.examined.any(axis=1), RANKS_OF(log.doc) - log.examined[:, ::-1].argmax(axis=1), 1)
    rows = _chosen(log, share, rng, last < log.length)
    cut = _cut(log, rows, np.maximum(last[rows], 1))
    longest = np.zeros(len(log.texts), int)
    np.maximum.at(longest, cut.query, cut.length)
    return cut, float((cut.length < longest[cut.query]).mean())


def _cut(log: Log, rows: np.ndarray, length: np.ndarray) -> Log:
    below = np.arange(RANKS_OF(log.doc)) >= length[:, None]
    doc, click = log.doc.copy(), log.click.copy()
    doc[rows], click[rows] = np.where(below, -1, doc[rows]), click[rows] & ~below
    return replace(log, doc=doc, click=click)


def clicks_everything(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the sessions click every result."""
    rows = _chosen(log, share, rng, log.length >= 5)
    click = log.click.copy()
    click[rows] = log.shown[rows]
    return replace(log, click=click), len(rows) / len(log.query)


def inhuman_rates(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """Users of 100 sessions every second or two are a share of the traffic."""
    return _users(log, share, rng, 100, 2.0)


def power_users(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """One user, around the clock, is a share of the traffic."""
    return _users(log, share, rng, len(log.query), 86400 * DAYS / max(round(share * len(log.query)), 1))


def _users(log: Log, share: float, rng: np.random.Generator, each: int, seconds: float) -> tuple[Log, float]:
    rows = _chosen(log, share, rng)
    part = log.rows(rows)
    user = log.user.max() + 1 + np.arange(len(rows)) // each
    time = (
        rng.random(len(rows) // each + 1)[np.arange(len(rows)) // each] * 86400 * (DAYS - 1) * (each < len(log.query))
    )
    time = time + (np.arange(len(rows)) % each + rng.random(len(rows))) * seconds
    others = np.setdiff1d(np.arange(len(log.query)), rows)
    return log.rows(others).plus(replace(part, user=user, time=time)), len(rows) / len(log.query)


def test_traffic(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the queries are tests."""
    rows = _chosen(log, share, rng)
    query = log.query.copy()
    query[rows] = np.searchsorted(log.texts, rng.choice(["test", "asdf"], len(rows)))
    return replace(log, query=query), len(rows) / len(log.query)


def dominant_query(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """One query has a share of the traffic."""
    top = int(np.bincount(log.query).argmax())
    rows = _chosen(log, share, rng, log.query != top)
    query = log.query.copy()
    query[rows] = top
    return replace(log, query=query), float((query == top).mean())


def sample_ratio(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """A share of the log is missing, all of it of users of one arm."""
    users = np.unique(log.user[log.arm == 0])
    gone = rng.choice(users, min(round(2 * share * len(users)), len(users)), replace=False)
    kept = np.flatnonzero(~np.isin(log.user, gone))
    return log.rows(kept), len(gone) / len(np.unique(log.user))


def front_end_change(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """The last days, a share of all, show three results above the fold: seven of ten clicks below them are gone."""
    later = log.time >= 86400 * DAYS * (1 - share)
    lost = (later[:, None] & (np.arange(RANKS) >= 3)) & (rng.random(log.click.shape) < 0.7)
    return replace(log, click=log.click & ~lost), float(later.mean())


def one_rank(log: Log, share: float, rng: np.random.Generator) -> tuple[Log, float]:
    """Each query always has the same list."""
    order = np.sort(log.doc, axis=1)
    docs = np.arange(RANKS) * np.ones((len(order), 1), int)
    return replace(log, doc=np.where(log.shown, docs, -1)), 1.0


WHOLE = {"rank-base": rank_base, "one-rank": one_rank}
"""Defects of a whole log, by the name of the check that finds them."""
DEFECTS: dict[str, Callable[[Log, float, np.random.Generator], tuple[Log, float]]] = {
    "mixed-rank-bases": mixed_rank_bases,
    "gaps": gaps,
    "duplicated-sessions": duplicated_sessions,
    "refreshes": refreshes,
    "pagination": pagination,
    "type-ahead": type_ahead,
    "inhuman-rates": inhuman_rates,
    "truncated-lists": truncated_lists,
    "viewport-lists": viewport_lists,
    "clicks-everything": clicks_everything,
    "power-users": power_users,
    "test-traffic": test_traffic,
    "dominant-query": dominant_query,
    "sample-ratio": sample_ratio,
    "front-end-change": front_end_change,
}
"""Defects of a share of a log, by the name of the check that finds them."""
