"""What a fitted model keeps of its training data: number of sessions, days, fingerprint, source, time and version."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from clickshift._version import __version__
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts
from clickshift.counts.fingerprint import counts_fingerprint, log_fingerprint
from clickshift.data.days import time_range
from clickshift.data.description import log_source
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.models.base import ClickModel

__all__ = ["with_provenance"]


def with_provenance(model: ClickModel, opened: Any, log: Any) -> ClickModel:
    """Return a fitted model that keeps where its parameters come from.

    Parameters
    ----------
    model
        The model, as a learner returned it.
    opened
        The log as it was opened: sessions, an encoded log, daily counts, or counts of a table of a warehouse.
    log
        What the caller passed: a path or an object.
    """
    evidence = model.evidence
    if evidence is None:
        return model
    is_log = isinstance(opened, Sessions | EncodedLog)
    if is_log and not math.isnan(evidence.held_out_loss):  # the model's own counts lack the held-out sessions
        fingerprint = log_fingerprint(opened)
    else:
        fingerprint = counts_fingerprint(model.vocabulary, evidence.impressions[:-1], evidence.clicks[:-1])
    first, last = _day_range(opened)
    kept = replace(
        evidence,
        sessions=_n_sessions(opened),
        fingerprint=fingerprint,
        source=log_source(log),
        fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        first_time=first,
        last_time=last,
    )
    return replace(model, evidence=kept)


def _n_sessions(opened: Any) -> int:
    """Return the number of sessions; 0 if the counts do not hold it."""
    if isinstance(opened, Sessions | EncodedLog):
        return opened.total
    if isinstance(opened, DayCounts):
        return round(opened.sessions)
    return round(float(opened.by_rank()[0][0])) if isinstance(opened, Cells) else 0


def _day_range(opened: Any) -> tuple[str, str]:
    """Return the time of the first and of the last session as text; "" if the log has no times."""
    first, last = None, None
    if isinstance(opened, Sessions | EncodedLog):
        first, last = time_range(opened.time)
    elif isinstance(opened, DayCounts):
        first, last = opened.first, opened.last
    return "" if first is None else str(first), "" if last is None else str(last)
