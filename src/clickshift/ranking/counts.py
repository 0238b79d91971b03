"""A log as counts by rank of a corpus' documents: what all rankers here learn from."""

from __future__ import annotations

import warnings

import numpy as np

from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftWarning, DataError, VocabularyError


def counted(corpus: Corpus, clicks: Cells | Sessions) -> Cells:
    """Counts by rank in the vocabulary of the corpus. What it does not hold is left out, with a warning."""
    if isinstance(clicks, Cells):
        if not clicks.vocabulary.same_as(corpus.vocabulary):
            raise VocabularyError("counts must be in the vocabulary of the corpus. Give the log, which is translated.")
        return clicks if clicks.by == "rank" else clicks.rolled_up("rank")
    known = clicks.in_vocabulary(corpus.vocabulary)
    unknown = known.rankings.shown & (known.rankings.pair < 0)
    if unknown.any():
        row, rank = np.argwhere(unknown)[0]
        words, pair = clicks.vocabulary, clicks.rankings.pair[row, rank]
        name = "one that its own vocabulary does not hold"
        if pair >= 0:
            query, doc = words.query_ids[words.pair_query[pair]], words.doc_ids[words.pair_doc[pair]]
            name = f"document {doc} of query {query}"
        lost, total = (float(known.count @ which.sum(axis=1)) for which in (unknown, known.rankings.shown))
        if (unknown == known.rankings.shown).all():
            raise DataError(
                f"the log must show documents of the corpus: it shows none, but e.g. {name}. "
                "Do the log and the corpus use the same ids of queries and documents?"
            )
        warnings.warn(
            f"{lost / total:.1%} of the results in the log ({lost:,.0f}) are of documents that the corpus does not "
            f"hold, e.g. {name}: they are left out.",
            ClickshiftWarning,
            stacklevel=3,
        )
    return Cells.of(known)
