"""Severe defects of a log that are seen at a glance, so that every command can warn of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftWarning

LONG_LIST = 5
"""Smallest number of results of a list whose clicks on all of them are suspicious."""
SEVERE_BOT_SHARE = 0.02
"""Share of sessions that click everything from which on a log is severely wrong."""
SEVERE_QUERY_SHARE = 0.5
"""Share of the sessions of one query from which on a log is about that query."""
MIN_QUERIES = 20
"""Number of queries from which on one of them should not have half of the sessions."""
_MIN_SESSIONS = 10_000


def warn_of_severe_defects(log: Any) -> None:
    """Issue one warning ("log-health") if a log in memory is severely wrong; small logs are not looked at.

    Parameters
    ----------
    log
        The log. Nothing is done about one on disk, which would be read once more, or about counts.
    """
    if isinstance(log, Sessions) and (found := severe_defects(log)):
        warnings.warn(
            ClickshiftWarning(
                f"the log is severely wrong: {'; '.join(found.values())}. `clickshift doctor LOG` (cs.check_log) shows "
                "examples, and what to do.",
                code="log-health",
                checks=list(found),
            ),
            stacklevel=3,
        )


def severe_defects(log: Sessions) -> dict[str, str]:
    """Return what is severely wrong with a log, by the name of the check that finds it.

    Parameters
    ----------
    log
        The log; nothing is said about one of fewer than 10,000 sessions.
    """
    found: dict[str, str] = {}
    if len(log) < _MIN_SESSIONS:
        return found
    rankings, total = log.rankings, log.total
    if rankings.has_holes and not rankings.shown[:, 0].any():
        found["rank-base"] = "no list has a document at rank 1"
    sizes = np.bincount(rankings.query + 1, log.count)[1:]
    if (sizes > 0).sum() >= MIN_QUERIES and (share := sizes.max() / total) >= SEVERE_QUERY_SHARE:
        found["dominant-query"] = (
            f"the query {log.vocabulary.query_ids[sizes.argmax()]} has {share:.0%} of the sessions"
        )
    if log.n_ranks >= LONG_LIST:
        rows = np.flatnonzero(log.click[:, LONG_LIST - 1])  # a session that clicks everything clicks there
        n_clicks, n_shown = log.click[rows].sum(axis=1), rankings.shown[rows].sum(axis=1)
        everything, but_one = (float(log.count[rows[n_clicks == n_shown - missing]].sum()) for missing in range(2))
        if everything >= SEVERE_BOT_SHARE * total and everything > 2 * but_one:
            found["clicks-everything"] = f"{everything / total:.1%} of the sessions click every result (bots)"
    return found
