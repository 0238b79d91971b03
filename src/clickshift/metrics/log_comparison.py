"""How the lists of one log differ from those of another, before any model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.core.unique_rows import distinct_rows
from clickshift.counts.cells import Cells
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN


def log_difference(train: Sessions, test: Sessions) -> dict[str, Any]:
    """How far the lists of one log are from those of another, as plain values.

    `displacement` is by how many ranks the mean rank of a result changes, as a root mean square over the results of
    `test` that both logs show twice or more, less what chance explains: about 0 for two logs of one ranker, also of one
    that varies its lists.
    """
    lists = test.in_vocabulary(train.vocabulary)
    here, there = MeanRanks.of(train), MeanRanks.of(lists)
    results = test.impressions_by_rank().sum()
    changed = (here.mean - there.mean) ** 2 - here.error - there.error
    both = np.isfinite(changed)
    moved = np.average(changed[both], weights=there.times[both]) if both.any() else np.nan
    known = np.append(np.bincount(train.rankings.query, minlength=train.vocabulary.n_queries) > 0, False)
    return {
        "train_sessions": train.total,
        "sessions": test.total,
        "unseen_pair_share": 1 - float(there.times[here.times > 0].sum() / results),
        "unseen_query_share": float(test.count[~known[lists.rankings.query]].sum() / test.total),
        "displacement": float(np.sqrt(np.maximum(moved, 0.0))),
        "lists_in_common": _lists_in_common(train, lists),
    }


class MeanRanks(NamedTuple):
    """Where each pair of a vocabulary was shown."""

    times: Float[np.ndarray, " pair"]
    mean: Float[np.ndarray, " pair"]
    """Rank from 0; NaN for a pair that was never shown."""
    error: Float[np.ndarray, " pair"]
    """Squared standard error of the mean; NaN for a pair that was not shown twice."""

    @classmethod
    def of(cls, sessions: Sessions) -> MeanRanks:
        lists, n = sessions.rankings, sessions.vocabulary.n_pairs
        row, rank = np.nonzero(lists.pair != UNSEEN)
        pair, weight = lists.pair[row, rank], sessions.count[row].astype(np.float64)
        times, first, second = (np.bincount(pair, weight * rank**power, n) for power in range(3))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = first / times
            error = np.where(times > 1, (second / times - mean**2) / (times - 1), np.nan)
        return cls(times, mean, error)


def _lists_in_common(train: Sessions, test: Sessions) -> float:
    """The share of test sessions, in the vocabulary of training, whose very list was shown in training."""
    ranks = max(train.n_ranks, test.n_ranks)
    lists = [
        np.concatenate([log.rankings.query[:, None], np.pad(log.rankings.pair, pad, constant_values=UNSEEN)], axis=1)
        for log in (train, test)
        for pad in [((0, 0), (0, ranks - log.n_ranks))]
    ]
    group, first = distinct_rows(np.concatenate(lists))
    in_train = np.zeros(len(first), bool)
    in_train[group[: len(train)]] = True
    # a document that training does not know has no number: the list would look like its own beginning
    whole = ((test.rankings.pair != UNSEEN) == test.rankings.shown).all(axis=1)
    return float(test.count[whole & in_train[group[len(train) :]]].sum() / test.total)


def logged_rank(sessions: Sessions) -> Float[np.ndarray, " pair"]:
    """Minus the mean rank of every pair over its impressions, so that higher is better; NaN where it was not shown."""
    cells = Cells.of(sessions)
    impressions, _ = cells.by_pair()
    ranks = np.bincount(cells.pair, cells.impressions * cells.rank(), len(impressions))
    mean: np.ndarray = np.divide(ranks, impressions, out=np.full(len(ranks), np.nan), where=impressions > 0)
    return -mean


def logged_exposure(sessions: Sessions) -> Float[np.ndarray, " pair"]:
    """How much attention a session of its query gives to every pair; NaN where the query has no session.

    Attention to a rank is its click rate relative to the first rank's. Unlike the mean rank this tells a document that
    is always shown from one that is shown now and then.
    """
    cells = Cells.of(sessions)
    shown, clicks = cells.by_rank()
    rate = np.divide(clicks, shown, out=np.zeros(len(shown)), where=shown > 0)
    attention = rate / rate[0] if rate[0] > 0 else np.ones(len(rate))
    words, query = sessions.vocabulary, sessions.rankings.query
    exposure = np.bincount(cells.pair, cells.impressions * attention[cells.rank()], words.n_pairs)
    sessions_of = np.bincount(query[query >= 0], sessions.count[query >= 0], words.n_queries)[words.pair_query]
    mean: np.ndarray = np.divide(exposure, sessions_of, out=np.full(len(exposure), np.nan), where=sessions_of > 0)
    return mean
