"""What an audit holds models against, from files: the true relevance, and what the logging policy thought."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float

from clickshift.data.sessions import Sessions
from clickshift.debiasedness.label_grades import grades
from clickshift.debiasedness.relevance_from_preferences import relevance_from_orderings
from clickshift.debiasedness.relevance_from_random_traffic import relevance_from_random_log
from clickshift.errors import SpecError
from clickshift.io.pair_values import read_pair_values
from clickshift.io.qrels import read_qrels
from clickshift.io.rankings import read_rankings
from clickshift.io.read_log import read_log
from clickshift.io.tables.formats import ending
from clickshift.metrics.logged_preference import logged_exposure, logged_rank
from clickshift.models.base import pair_table

LOGGED = {"rank": logged_rank, "exposure": logged_exposure}
"""What a log alone says about its policy."""


def logging_of(log: Sessions, scores: Path | None, *, otherwise: str = "rank") -> Float[np.ndarray, " pair"]:
    """The logging policy's score of every pair of the log, NaN where the file has none."""
    if otherwise not in LOGGED:
        raise SpecError(f"without scores, logging must be one of {', '.join(LOGGED)}: got {otherwise!r}.")
    return LOGGED[otherwise](log) if scores is None else read_pair_values(scores).labels_for(log.vocabulary)


def labels_of(
    log: Sessions,
    *,
    labels: Path | None = None,
    random_log: str | None = None,
    orderings: Path | None = None,
    groups: int = 5,
) -> Float[np.ndarray, " pair"]:
    """The true relevance of every pair of the log, NaN where it is not known, from one of three sources.

    Labels are taken as they are. Clicks on random lists and orderings give numbers, which are parted into groups.
    """
    if sum(source is not None for source in (labels, random_log, orderings)) != 1:
        raise SpecError("the true relevance must come from one source: give labels, a random log or orderings.")
    if labels is not None:
        found = read_pair_values(labels, "label") if ending(labels) else read_qrels(labels)
        return found.labels_for(log.vocabulary)
    if orderings is not None:
        lists = read_rankings(orderings)
        words, relevance = lists.vocabulary, relevance_from_orderings(lists)
    else:
        traffic = read_log(str(random_log))
        words, relevance = traffic.vocabulary, relevance_from_random_log(traffic)
    return grades(pair_table(relevance, unseen=np.nan)[words.pairs_of(log.vocabulary)], groups)
