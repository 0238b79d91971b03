"""Relevance judgments of (query, document) pairs, and the TREC qrels files that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from clickshift.core.files import open_text
from clickshift.data.vocabulary import UNSEEN, Ids, Raw, Vocabulary
from clickshift.errors import DataError
from clickshift.io.read_report import OnBadLine, ReadReport


@final
@dataclass(frozen=True, eq=False)
class Judgments:
    """Relevance judgments: one label per judged (query, document) pair.

    Ids are raw, so judgments do not depend on a vocabulary.

    Parameters
    ----------
    query
        Raw query id of each judgment.
    doc
        Raw document id of each judgment.
    label
        Relevance label of each judgment.

    Examples
    --------
    >>> judged = Judgments.of(["cats", "cats", "dogs"], [7, 12, 7], [2, 0, 1])
    >>> judged.labels_for(Vocabulary.of(["cats", "dogs"], [12, 12])[0]).tolist()
    [0.0, nan]
    """

    query: Ids
    doc: Ids
    label: Float[np.ndarray, " judgment"]

    @classmethod
    def of(cls, query: Raw, doc: Raw, label: Raw) -> Judgments:
        """Make judgments from aligned columns.

        Repeated judgments count once; pairs with different labels are left out, see `consistent_judgments`.

        Parameters
        ----------
        query, doc
            Raw ids, one per judgment.
        label
            Labels, one per judgment.

        Returns
        -------
        Judgments
            One label per pair.
        """
        report = ReadReport("judgments")
        judgments = consistent_judgments(query, doc, label, report)
        report.report()
        return judgments

    def __len__(self) -> int:
        return len(self.label)

    @property
    def queries(self) -> Ids:
        """Raw ids of the judged queries, each once, ascending."""
        ids: np.ndarray = np.unique(self.query)
        return ids

    def labels_for(self, vocabulary: Vocabulary) -> Float[np.ndarray, " pair"]:
        """Return the label of every pair of a vocabulary, NaN for unjudged pairs."""
        labels = np.full(vocabulary.n_pairs, np.nan)
        if len(self):
            pair = vocabulary.pair_numbers(self.query, self.doc)
            labels[pair[pair != UNSEEN]] = self.label[pair != UNSEEN]
        return labels

    @override
    def __repr__(self) -> str:
        return f"Judgments({len(self):,} pairs of {len(self.queries):,} queries)"


def read_qrels(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Judgments:
    """Read TREC qrels: lines of `query iteration document label`, separated by white space.

    Parameters
    ----------
    path
        The file, plain or gzip. The iteration is not used.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in a warning (code
        "skipped-input").

    Returns
    -------
    Judgments
        The labels, with ids as text: a log's integers match them by their decimal text.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no pair is judged.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "qrels.txt"
    ...     _ = file.write_text("101 0 d7 2\\n101 0 d9 0\\n")
    ...     read_qrels(file)
    Judgments(2 pairs of 1 queries)
    """
    report = ReadReport(path, on_bad_line)
    query, doc, label = [], [], []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.split()
            if not fields:
                continue
            if len(fields) != 4 or not _is_label(fields[3]):
                report.bad_line(
                    number, "a line must be 'query iteration document label', with an integer label", line.strip()
                )
                continue
            query.append(fields[0])
            doc.append(fields[2])
            label.append(int(fields[3]))
    judgments = consistent_judgments(query, doc, label, report)
    if not len(judgments):
        report.fail_empty("judged pair")
    report.report()
    return judgments


def consistent_judgments(query: Raw, doc: Raw, label: Raw, report: ReadReport) -> Judgments:
    """Make judgments from aligned columns, without the pairs that have different labels.

    Parameters
    ----------
    query, doc
        Raw ids, one per judgment.
    label
        Labels, one per judgment.
    report
        Where left-out pairs are counted, under "conflicting-labels".

    Returns
    -------
    Judgments
        One label per pair.

    Raises
    ------
    DataError
        "unequal-lengths" if there is not one label per judgment.
    """
    vocabulary, value, consistent = consistent_pairs(query, doc, label, report)
    return Judgments(
        vocabulary.query_ids[vocabulary.pair_query[consistent]],
        vocabulary.doc_ids[vocabulary.pair_doc[consistent]],
        value[consistent],
    )


def consistent_pairs(
    query: Raw, doc: Raw, value: Raw, report: ReadReport, *, name: str = "label"
) -> tuple[Vocabulary, Float[np.ndarray, " pair"], Bool[np.ndarray, " pair"]]:
    """Number the pairs of aligned columns, and mark those that have one value.

    No value of another pair is the one that all rows gave, so such pairs are counted as left out.

    Parameters
    ----------
    query, doc
        Raw ids, one per row.
    value
        Numbers, one per row.
    report
        Where pairs with different values are counted, under "conflicting-labels".
    name
        Name of the value, for the message.

    Returns
    -------
    vocabulary
        All pairs.
    value
        The smallest value of each pair.
    consistent
        Whether each pair has one value.

    Raises
    ------
    DataError
        "unequal-lengths" if there is not one value per row.
    """
    vocabulary, _, pair = Vocabulary.of(query, doc)
    label = np.asarray(value, np.float64)
    if label.shape != pair.shape:
        raise DataError(
            f"there must be one label per judged pair, {len(pair)}: got shape {label.shape}.",
            code="unequal-lengths",
            expected=len(pair),
            shape=label.shape,
        )
    low, high = np.full(vocabulary.n_pairs, np.inf), np.full(vocabulary.n_pairs, -np.inf)
    np.minimum.at(low, pair, label)
    np.maximum.at(high, pair, label)
    consistent = low == high
    if not consistent.all():
        first = int(np.argmin(consistent))
        first_query = vocabulary.query_ids[vocabulary.pair_query[first]]
        first_doc = vocabulary.doc_ids[vocabulary.pair_doc[first]]
        example = f"as {low[first]:g} and {high[first]:g} for query {first_query}, document {first_doc}"
        pairs = "judged pairs" if name == "label" else f"pairs with a {name}"
        what = f"of {vocabulary.n_pairs:,} {pairs}, with different {name}s ({example})"
        facts: dict[str, Any] = {
            "query": str(first_query),
            "document": str(first_doc),
            "labels": (float(low[first]), float(high[first])),
        }
        report.left_out(int((~consistent).sum()), what, "conflicting-labels", total=vocabulary.n_pairs, **facts)
    return vocabulary, low, consistent


def _is_label(text: str) -> bool:
    """Return whether a text is a small integer, perhaps negative: TREC marks spam as -2."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 9
