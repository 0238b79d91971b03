"""Judgments: which documents people found relevant for a query, and the qrels files they come in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.core.files import open_text
from clickshift.data.vocabulary import UNSEEN, Ids, Raw, Vocabulary
from clickshift.errors import DataError
from clickshift.io.read_report import OnBadLine, ReadReport


@final
@dataclass(frozen=True, eq=False)
class Judgments:
    """One label per judged (query, document), with raw ids: they mean the same in every vocabulary.

    >>> judged = Judgments.of(["cats", "cats", "dogs"], [7, 12, 7], [2, 0, 1])
    >>> judged.labels_for(Vocabulary.of(["cats", "dogs"], [12, 12])[0]).tolist()
    [0.0, nan]
    """

    query: Ids
    doc: Ids
    label: Float[np.ndarray, " judgment"]

    @classmethod
    def of(cls, query: Raw, doc: Raw, label: Raw) -> Judgments:
        """Judgments from aligned columns. Repeated ones count once; see `consistent_judgments` for those that differ."""
        notes = ReadReport("judgments")
        judgments = consistent_judgments(query, doc, label, notes)
        notes.report()
        return judgments

    def __len__(self) -> int:
        return len(self.label)

    @property
    def queries(self) -> Ids:
        """The raw ids of the judged queries, each once, ascending."""
        ids: np.ndarray = np.unique(self.query)
        return ids

    def labels_for(self, vocabulary: Vocabulary) -> Float[np.ndarray, " pair"]:
        """The label of every pair of a vocabulary, NaN where it is unjudged."""
        labels = np.full(vocabulary.n_pairs, np.nan)
        if len(self):
            pair = vocabulary.pair_numbers(self.query, self.doc)
            labels[pair[pair != UNSEEN]] = self.label[pair != UNSEEN]
        return labels

    @override
    def __repr__(self) -> str:
        return f"Judgments({len(self):,} pairs of {len(self.queries):,} queries)"


def read_qrels(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Judgments:
    """TREC qrels: lines of `query iteration document label` between white space. The iteration is not used.

    Ids are kept as text; a log's integers match them by their decimal text.
    """
    notes = ReadReport(path, on_bad_line)
    query, doc, label = [], [], []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.split()
            if not fields:
                continue
            if len(fields) != 4 or not _is_label(fields[3]):
                notes.bad_line(
                    number, "a line must be 'query iteration document label', with an integer label", line.strip()
                )
                continue
            query.append(fields[0])
            doc.append(fields[2])
            label.append(int(fields[3]))
    judgments = consistent_judgments(query, doc, label, notes)
    if not len(judgments):
        notes.nothing("judged pair")
    notes.report()
    return judgments


def consistent_judgments(query: Raw, doc: Raw, label: Raw, notes: ReadReport) -> Judgments:
    """The judgments of aligned columns, each pair once.

    A pair that was judged in several ways has no label that all its judges gave: it is left unjudged, and counted.
    """
    words, _, pair = Vocabulary.of(query, doc)
    label = np.asarray(label, np.float64)
    if label.shape != pair.shape:
        raise DataError(f"there must be one label per judged pair, {len(pair)}: got shape {label.shape}.")
    low, high = np.full(words.n_pairs, np.inf), np.full(words.n_pairs, -np.inf)
    np.minimum.at(low, pair, label)
    np.maximum.at(high, pair, label)
    same = low == high
    if not same.all():
        at = int(np.argmin(same))
        where = f"query {words.query_ids[words.pair_query[at]]}, document {words.doc_ids[words.pair_doc[at]]}"
        what = f"of {words.n_pairs:,} judged pairs, with different labels (as {low[at]:g} and {high[at]:g} for {where})"
        notes.left_out(int((~same).sum()), what)
    return Judgments(words.query_ids[words.pair_query[same]], words.doc_ids[words.pair_doc[same]], low[same])


def _is_label(text: str) -> bool:
    """A small integer, perhaps negative: TREC marks spam as -2."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 9
