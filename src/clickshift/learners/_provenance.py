"""What a fitted model keeps of its training data: number of sessions, days, fingerprint, source, time and version."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from clickshift._version import __version__
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells, mean_ranks
from clickshift.counts.daily import DayCounts
from clickshift.counts.fingerprint import counts_fingerprint, log_fingerprint
from clickshift.data.days import time_range
from clickshift.data.description import log_source
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.models.base import ClickModel, Evidence, pair_table

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
        mean_rank=_mean_ranks(evidence, opened, model),
    )
    return replace(model, evidence=kept)


def _mean_ranks(evidence: Evidence, opened: Any, model: ClickModel) -> np.ndarray | None:
    """Return the mean rank of each pair, where the learner's own counts do not have it; None if it is not known."""
    if evidence.mean_rank is not None:
        return evidence.mean_rank
    if isinstance(opened, DayCounts):
        ranks = opened.cells.mean_rank()
    elif isinstance(opened, Sessions | EncodedLog):
        ranks = mean_ranks(opened)
    else:
        return None
    by_pair = pair_table(ranks, unseen=math.nan)
    if model.vocabulary is opened.vocabulary:
        return by_pair
    return pair_table(by_pair[opened.vocabulary.pairs_of(model.vocabulary)], unseen=math.nan)


def _n_sessions(opened: Any) -> int:
    """Return the number of sessions; 0 if the counts do not hold it."""
    if isinstance(opened, Sessions | EncodedLog):
        return opened.total
    if isinstance(opened, DayCounts):
        return round(opened.sessions)
    if isinstance(opened, Cells | Cascade) and opened.sessions is not None:
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
