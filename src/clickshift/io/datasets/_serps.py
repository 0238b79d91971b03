"""Pages of results as a file has them, raw ids and all, made into Sessions."""

from __future__ import annotations

from itertools import chain

import numpy as np
from jaxtyping import Bool, Int

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Raw, Vocabulary
from clickshift.io.read_report import ReadReport

UNSHOWN_CLICKS = "click(s) on documents that their page does not show"
_REPEATED = "page(s) that show a document twice"


def _without_duplicates(
    docs: Int[np.ndarray, "page rank"], shown: Bool[np.ndarray, "page rank"]
) -> Bool[np.ndarray, " page"]:
    """Pages in which no document stands twice.

    The others are dropped, not mended: to keep the first of two equal results would move up all that is below the
    second, and a click on the second would have to be given to the first.
    """
    # sorted, equal ids are neighbours; ids are not negative, so a place that shows nothing equals no other
    ranked = np.sort(np.where(shown, docs, -1 - np.arange(docs.shape[1])), axis=1)
    once: np.ndarray = (ranked[:, 1:] != ranked[:, :-1]).all(axis=1)
    return once


def to_sessions(
    query: Raw,
    docs: Int[np.ndarray, "page rank"],
    click: Bool[np.ndarray, "page rank"],
    *,
    notes: ReadReport,
    shown: Bool[np.ndarray, "page rank"] | None = None,
    time: np.ndarray | None = None,
    user: np.ndarray | None = None,
) -> Sessions:
    """Sessions of pages with raw query ids, one per page (numpy or pyarrow), and raw document ids, integers from 0."""
    shown = np.ones(docs.shape, bool) if shown is None else shown
    keep = np.flatnonzero(_without_duplicates(docs, shown))
    notes.left_out(len(docs) - len(keep), _REPEATED)
    if not len(keep):
        notes.nothing("page of results")
    docs, shown, click = docs[keep], shown[keep], click[keep]
    length = shown.sum(axis=1)
    vocabulary, query_row, pair_row = Vocabulary.of(query.take(np.repeat(keep, length)), docs[shown])
    pair = np.full(docs.shape, UNSEEN, np.int32)
    pair[shown] = pair_row
    return Sessions(
        Rankings(vocabulary, query_row[np.cumsum(length) - length], pair, shown),
        click,
        time=None if time is None else time[keep],
        user=None if user is None else user[keep],
    )


def pad_lists(rows: list[list[int]]) -> tuple[Int[np.ndarray, "page rank"], Bool[np.ndarray, "page rank"]]:
    """Lists of different lengths as the rows of one matrix, and where it holds a value."""
    length = np.array([len(row) for row in rows], np.int64)
    shown = np.arange(length.max(initial=1)) < length[:, None]
    values = np.zeros(shown.shape, np.int64)
    values[shown] = np.fromiter(chain.from_iterable(rows), np.int64)
    return values, shown
