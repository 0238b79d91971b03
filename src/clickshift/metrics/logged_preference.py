"""What the logging policy thought of each document, from its log alone: where it put it, or how much it showed it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Sessions


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
