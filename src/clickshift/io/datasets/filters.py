"""What is done to a log before an experiment, as in the policy-shift paper (Deffayet, Renders, de Rijke, TOIS 2022).

Readers break sessions into pages. From these the paper keeps the queries that people have judged, drops pages without
a click, and splits by time (`Sessions.split_by_time`). Each step is a function here, from sessions to sessions.
"""

from __future__ import annotations

import numpy as np

from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN, Raw
from clickshift.errors import DataError
from clickshift.io.qrels import Judgments


def annotated_only(sessions: Sessions, judged: Judgments | Raw) -> Sessions:
    """The sessions of the queries that are judged: those of the judgments, or of these raw query ids."""
    queries = judged.queries if isinstance(judged, Judgments) else judged
    number = sessions.vocabulary.query_numbers(queries)
    keep = np.isin(sessions.rankings.query, number[number != UNSEEN])
    if not keep.any():
        raise DataError(
            f"at least one session must be of a judged query: got none, with {len(queries):,} judged ones. "
            "Are the query ids of the log and of the judgments the same kind?"
        )
    return sessions[keep]


def drop_without_clicks(sessions: Sessions) -> Sessions:
    """The sessions with at least one click.

    The paper's choice, for its tables. Click rates in what is left are too high, and the more so the rarer clicks are.
    """
    keep = np.any(sessions.click, axis=1)
    if not keep.any():
        raise DataError(f"at least one session must have a click: got none in {sessions.total:,}.")
    return sessions[keep]


def compact(sessions: Sessions) -> Sessions:
    """The same sessions with the vocabulary of what they show, without the pairs that a filter left behind.

    Use it before a split, never after: the parts would get different numbers for the same pair.
    """
    shown = sessions.rankings.pair
    return sessions.in_vocabulary(sessions.vocabulary.with_pairs(shown[shown != UNSEEN]))
