"""Filters that prepare a log for an experiment, as in the policy-shift paper.

The readers of public logs turn every SERP of a search session into a session of its own. From these the paper keeps the
queries with relevance judgments, drops SERPs without a click, and splits by time (`Sessions.split_by_time`). Each step
is a function from sessions to sessions.

References
----------
Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from jaxtyping import Bool

from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN, Raw
from clickshift.errors import DataError
from clickshift.io.qrels import Judgments

AnyLog = TypeVar("AnyLog", Sessions, EncodedLog)
"""A log in memory or on disk; filters return one of the same kind."""


def annotated_only(sessions: AnyLog, judged: Judgments | Raw) -> AnyLog:
    """Keep the sessions of the queries with relevance judgments.

    Parameters
    ----------
    sessions
        The log.
    judged
        Judgments, or the raw ids of the judged queries.

    Returns
    -------
    Sessions
        The sessions of judged queries.

    Raises
    ------
    DataError
        "no-judged-query" if no session is left.
    """
    queries = judged.queries if isinstance(judged, Judgments) else judged
    number = sessions.vocabulary.query_numbers(queries)
    keep = _rows_where(sessions, lambda part: np.isin(part.rankings.query, number[number != UNSEEN]))
    if not keep.any():
        raise DataError(
            f"at least one session must be of a judged query: got none, with {len(queries):,} judged ones. "
            "Are the query ids of the log and of the judgments the same kind?",
            code="no-judged-query",
            count=len(queries),
        )
    return sessions[keep]


def drop_without_clicks(sessions: AnyLog) -> AnyLog:
    """Keep the sessions with at least one click.

    The policy-shift paper does so for its tables. Click rates of the result are too high, and the more so the rarer
    clicks are.

    Parameters
    ----------
    sessions
        The log.

    Returns
    -------
    Sessions
        The sessions with a click.

    Raises
    ------
    DataError
        "no-clicks" if no session is left.
    """
    keep = _rows_where(sessions, lambda part: np.any(part.click, axis=1))
    if not keep.any():
        raise DataError(
            f"at least one session must have a click: got none in {sessions.total:,}.",
            code="no-clicks",
            total=sessions.total,
        )
    return sessions[keep]


def compact(sessions: AnyLog) -> AnyLog:
    """Restrict the vocabulary of a log to the pairs that its sessions show.

    Use it before a split, never after: the parts would get different numbers for the same pair.

    Parameters
    ----------
    sessions
        The log.

    Returns
    -------
    Sessions
        The same sessions, without the pairs that a filter left behind in the vocabulary.
    """
    shown = np.zeros(sessions.vocabulary.n_pairs + 1, bool)
    for part in sessions.chunks():
        shown[part.rankings.pair] = True  # UNSEEN is the last
    return sessions.in_vocabulary(sessions.vocabulary.with_pairs(np.flatnonzero(shown[:-1])))


def _rows_where(sessions: AnyLog, keep: Callable[[Sessions], np.ndarray]) -> Bool[np.ndarray, " row"]:
    """Return the mask of the rows that a filter keeps, from the masks of the log's parts."""
    return np.concatenate([keep(part) for part in sessions.chunks()])
