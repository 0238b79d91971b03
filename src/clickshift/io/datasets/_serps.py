"""SERPs (search engine result pages) as a file has them, with raw ids, made into Sessions."""

from __future__ import annotations

from itertools import chain

import numpy as np
from jaxtyping import Bool, Int

from clickshift.data.sessions import Rankings, Sessions, as_matrix
from clickshift.data.vocabulary import UNSEEN, Raw, Vocabulary
from clickshift.io.read_report import ReadReport

UNSHOWN_CLICKS = "click(s) on documents that their SERP does not show"
REPEATED = "SERP(s) that show a document twice"


def without_duplicates(
    docs: Int[np.ndarray, "serp rank"], shown: Bool[np.ndarray, "serp rank"]
) -> Bool[np.ndarray, " serp"]:
    """Return the mask of the SERPs that show no document twice.

    The others are dropped, not repaired: keeping the first of two equal results would move up all results below the
    second one, and a click on the second would have to be moved to the first.
    """
    # sorted, equal ids are neighbours; ids are not negative, so an empty position equals no other
    ordered = np.sort(np.where(shown, docs, -1 - np.arange(docs.shape[1])), axis=1)
    mask: np.ndarray = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
    return mask


def to_sessions(
    query: Raw,
    docs: Int[np.ndarray, "serp rank"],
    click: Bool[np.ndarray, "serp rank"],
    *,
    report: ReadReport,
    shown: Bool[np.ndarray, "serp rank"] | None = None,
    time: np.ndarray | None = None,
    user: np.ndarray | None = None,
) -> Sessions:
    """Make sessions of SERPs; those that show a document twice are left out.

    Parameters
    ----------
    query
        Raw query id of each SERP (numpy or pyarrow).
    docs
        Raw document ids, integers from 0.
    click
        Whether each result was clicked.
    report
        Where left-out SERPs are counted, under "duplicate-document".
    shown
        Positions that hold a document; by default all of them.
    time, user
        Time and user of each SERP.

    Returns
    -------
    Sessions
        One session per SERP that is kept.

    Raises
    ------
    FileError
        "empty-file" if no SERP is left.
    """
    shown = np.ones(docs.shape, bool) if shown is None else shown
    keep = np.flatnonzero(without_duplicates(docs, shown))
    report.left_out(len(docs) - len(keep), REPEATED, "duplicate-document")
    if not len(keep):
        report.fail_empty("SERP")
    docs, shown, click = docs[keep], shown[keep], click[keep]
    length = shown.sum(axis=1)
    vocabulary, query_row, pair_row = Vocabulary.of(query.take(np.repeat(keep, length)), docs[shown])
    pair = as_matrix(pair_row.astype(np.int32), shown, UNSEEN)
    return Sessions(
        Rankings(vocabulary, query_row[np.cumsum(length) - length], pair, shown),
        click,
        time=None if time is None else time[keep],
        user=None if user is None else user[keep],
    )


def pad_lists(lists: list[list[int]]) -> tuple[Int[np.ndarray, "serp rank"], Bool[np.ndarray, "serp rank"]]:
    """Arrange lists of different lengths as the rows of a matrix; also return the mask of its filled positions."""
    length = np.array([len(row) for row in lists], np.int64)
    shown = np.arange(length.max(initial=1)) < length[:, None]
    return as_matrix(np.fromiter(chain.from_iterable(lists), np.int64), shown, 0), shown
