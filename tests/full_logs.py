"""Logs that have everything a log may have, and their content as text: an independent way to compare two logs."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickshift.data.encoded_log import Log
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary

SIGNALS, SEGMENTS = ["cart", "revenue"], ["device"]
"""Names of the signals and segments of `full_log` that a reader must be told."""


def full_log(n: int = 200, *, ranks: int = 6, seed: int = 0, counts: bool = True) -> Sessions:
    """Sessions of random lists with holes, views, two signals, a segment, arms, users, times and both propensities."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 7, n)
    shown = rng.random((n, ranks)) < 0.7
    shown &= np.arange(ranks) < rng.integers(1, ranks + 1, n)[:, None]
    shown[np.arange(n), rng.integers(0, ranks, n)] = True
    doc = rng.permuted(np.tile(np.arange(10), (n, 1)), axis=1)[:, :ranks]
    row, _ = np.nonzero(shown)
    queries = np.char.add("query ", query.astype(str))
    vocabulary, _, number = Vocabulary.of(queries[row], doc[shown])
    pair = np.full((n, ranks), UNSEEN)
    pair[shown] = number
    click = shown & (rng.random((n, ranks)) < 0.3)
    viewed = np.where(rng.random((n, ranks)) < 0.2, np.nan, rng.random((n, ranks)) < 0.6)
    revenue = np.where(rng.random((n, ranks)) < 0.1, np.nan, np.round(rng.lognormal(size=(n, ranks)), 2) * click)
    device = rng.choice(np.array(["phone", "desktop", ""]), n)
    rankings = Rankings(
        vocabulary,
        vocabulary.pair_query[pair.max(axis=1)].astype(np.int32),
        pair,
        shown,
        log_prob=np.log(rng.uniform(0.01, 1, n)),
        propensity=np.where(shown, rng.uniform(0.01, 1, (n, ranks)), 0),
        segments={"arm": Segment.of(rng.choice(["a", "b"], n)), "device": Segment.of(device)},
    )
    return Sessions(
        rankings,
        click,
        count=rng.integers(1, 4, n) if counts else np.ones(n, np.int64),
        time=np.datetime64("2026-05-01", "s") + rng.integers(0, 10**6, n),
        user=np.char.add("user ", rng.integers(1, 50, n).astype(str)).astype(np.dtypes.StringDType()),
        signals={"viewed": np.where(shown, viewed, 0), "cart": shown & (rng.random((n, ranks)) < 0.1)}
        | {"revenue": np.where(shown, revenue, 0)},
    )


def content(log: Log) -> list[tuple[Any, ...]]:
    """Return everything that each session of a log has, by raw ids, one tuple per row."""
    return [row for part in log.chunks(user_ids=True) for row in _rows(part)]


def _rows(log: Sessions) -> list[tuple[Any, ...]]:
    rankings, vocabulary = log.rankings, log.vocabulary
    rows = []
    for i in range(len(log)):
        results = []
        for rank in np.flatnonzero(rankings.shown[i]).tolist():
            pair = rankings.pair[i, rank]
            signals = tuple((name, repr(float(values[i, rank]))) for name, values in sorted(log.signals.items()))
            propensity = None if rankings.propensity is None else float(rankings.propensity[i, rank])
            doc = str(vocabulary.doc_ids[vocabulary.pair_doc[pair]])
            results.append((rank + 1, doc, bool(log.click[i, rank]), propensity, *signals))
        labels = {name: seg.labels[seg.code[i]] if seg.code[i] >= 0 else "" for name, seg in log.segments.items()}
        rows.append(
            (
                str(vocabulary.query_ids[rankings.query[i]]),
                tuple(results),
                int(log.count[i]),
                None if log.time is None else str(np.datetime64(log.time[i], "s")),
                None if log.user is None else str(log.user[i]),
                None if rankings.log_prob is None else round(float(rankings.log_prob[i]), 12),
                tuple(sorted(labels.items())),
            )
        )
    return rows
