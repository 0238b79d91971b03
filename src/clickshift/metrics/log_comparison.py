"""Differences between the lists of two logs, and the logging policy's preferences estimated from its log.

A logging policy whose scores are not known still shows its preferences: by the rank at which it shows each document, or
by how much exposure it gives it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt64

from clickshift.core.unique_rows import row_hashes
from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN


def log_difference(train: Log, test: Log) -> dict[str, Any]:
    """Measure how much the lists of a test log differ from those of a training log.

    Parameters
    ----------
    train
        Training log, in memory or encoded.
    test
        Test log, likewise.

    Returns
    -------
    dict
        `train_sessions` and `sessions` (of the test log); `unseen_pair_share` and `unseen_query_share`, the shares of
        test results and test sessions that training does not have; `lists_in_common`, the share of test sessions whose
        list was shown in training; and `displacement`, the root mean square change of a result's mean rank, over the
        test results that both logs show at least twice, corrected for sampling noise: about 0 for two logs of one
        ranker, also of a stochastic one.
    """
    lists = test.in_vocabulary(train.vocabulary)
    train_ranks, test_ranks = MeanRanks.of(train), MeanRanks.of(lists)
    squared_change = (train_ranks.mean - test_ranks.mean) ** 2 - train_ranks.error - test_ranks.error
    comparable = np.isfinite(squared_change)
    mean_square = (
        np.average(squared_change[comparable], weights=test_ranks.times[comparable]) if comparable.any() else np.nan
    )
    ranks = max(train.n_ranks, test.n_ranks)
    in_train, hashes = np.zeros(train.vocabulary.n_queries + 1, bool), []
    for part in train.chunks():
        in_train[part.rankings.query] = True
        hashes.append(_list_hashes(part, ranks))
    in_train[-1] = False  # the number of unseen queries
    shown, n_results, unseen, common = np.unique(np.concatenate(hashes)), 0, 0, 0
    for part in lists.chunks():
        # a document unknown to the training vocabulary has no number: its list would equal a shorter one
        whole = ((part.rankings.pair != UNSEEN) == part.rankings.shown).all(axis=1)
        n_results += int(part.impressions_by_rank().sum())
        unseen += int(part.count[~in_train[part.rankings.query]].sum())
        common += int(part.count[whole & np.isin(_list_hashes(part, ranks), shown)].sum())
    return {
        "train_sessions": train.total,
        "sessions": test.total,
        "unseen_pair_share": 1 - float(test_ranks.times[train_ranks.times > 0].sum() / n_results),
        "unseen_query_share": unseen / test.total,
        "displacement": float(np.sqrt(np.maximum(mean_square, 0.0))),
        "lists_in_common": common / test.total,
    }


class MeanRanks(NamedTuple):
    """Mean rank of each pair of a vocabulary in a log.

    Parameters
    ----------
    times
        Number of impressions.
    mean
        Mean rank, from 0; NaN for a pair that was never shown.
    error
        Squared standard error of the mean; NaN for a pair that was not shown at least twice.
    """

    times: Float[np.ndarray, " pair"]
    mean: Float[np.ndarray, " pair"]
    error: Float[np.ndarray, " pair"]

    @classmethod
    def of(cls, log: Log) -> MeanRanks:
        """Compute the mean ranks of a log."""
        cells, n = Cells.of(log), log.vocabulary.n_pairs
        times, first, second = (np.bincount(cells.pair, cells.impressions * cells.rank() ** p, n) for p in range(3))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = first / times
            error = np.where(times > 1, (second / times - mean**2) / (times - 1), np.nan)
        return cls(times, mean, error)


def _list_hashes(part: Sessions, ranks: int) -> UInt64[np.ndarray, " session"]:
    """Return a hash of the query and list of each session, as for lists of this many ranks."""
    lists = part.rankings
    pairs = np.pad(lists.pair, ((0, 0), (0, ranks - lists.n_ranks)), constant_values=UNSEEN)
    return row_hashes(np.concatenate([lists.query[:, None], pairs], axis=1))


def logged_rank(log: Log) -> Float[np.ndarray, " pair"]:
    """Compute minus the mean rank of every pair over its impressions, so that higher is better.

    Parameters
    ----------
    log
        Log of the logging policy, in memory or encoded.

    Returns
    -------
    Float[pair]
        Minus the mean rank; NaN for a pair that was not shown.
    """
    return -MeanRanks.of(log).mean


def logged_exposure(log: Log) -> Float[np.ndarray, " pair"]:
    """Compute the mean exposure of every pair in a session of its query.

    The exposure of a rank is its click-through rate relative to that of the first rank. Unlike the mean rank, this
    separates a document that is always shown from one that is shown occasionally.

    Parameters
    ----------
    log
        Log of the logging policy, in memory or encoded.

    Returns
    -------
    Float[pair]
        Exposure per session of the query; NaN where the query has no session.
    """
    cells = Cells.of(log)
    impressions, clicks = cells.by_rank()
    rate = np.divide(clicks, impressions, out=np.zeros(len(impressions)), where=impressions > 0)
    rank_exposure = rate / rate[0] if rate[0] > 0 else np.ones(len(rate))
    vocabulary, by_query = log.vocabulary, np.zeros(log.vocabulary.n_queries)
    exposure = np.bincount(cells.pair, cells.impressions * rank_exposure[cells.rank()], vocabulary.n_pairs)
    for part in log.chunks():
        query = part.rankings.query
        by_query += np.bincount(query[query >= 0], part.count[query >= 0], len(by_query))
    n_sessions = by_query[vocabulary.pair_query]
    mean: np.ndarray = np.divide(exposure, n_sessions, out=np.full(len(exposure), np.nan), where=n_sessions > 0)
    return mean
