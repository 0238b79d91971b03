"""TREC Session Track 2014 as packaged for GraphCM (Lin et al., WSDM 2021): one page of results a line.

    session, query, [documents], [vertical types], [clicks] and, in the labelled file, [relevance labels]

stand between tabs; the lists are as long as the page. Labels are those of the track: 0 to 4, and -2 for spam.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clickshift.core.files import open_text
from clickshift.data.sessions import Sessions
from clickshift.io.datasets._serps import pad_lists, to_sessions
from clickshift.io.qrels import Judgments, consistent_judgments
from clickshift.io.read_report import OnBadLine, ReadReport

_RULE = "a line must be 'session query [documents] [types] [clicks]', lists of the same length with clicks 0 or 1"
_LABELLED_RULE = f"{_RULE}, and a list of labels"
_ID = re.compile(r"\s*(\d{1,18})\s*", re.ASCII)
_LIST = re.compile(r"\s*\[\s*(-?\d{1,18}(?:\s*,\s*-?\d{1,18})*)\s*\]\s*", re.ASCII)


class _Page(NamedTuple):
    session: int
    query: int
    docs: list[int]
    clicks: list[int]
    labels: list[int] | None


def read_trec(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Sessions:
    """The pages and clicks, of the files with and without labels; vertical types are not used.

    Lines are not in order of time, so there is none. `user` is the number of the search session, for pages of one
    session are not independent. Pages that show a document twice (about 3 % of them) are dropped and reported.
    """
    notes = ReadReport(path, on_bad_line)
    pages = list(_pages(path, notes, labelled=False))
    docs, shown = pad_lists([page.docs for page in pages])
    sessions = to_sessions(
        np.array([page.query for page in pages], np.int64),
        docs,
        pad_lists([page.clicks for page in pages])[0] > 0,
        shown=shown,
        user=np.array([page.session for page in pages], np.int64),
        notes=notes,
    )
    notes.report()
    return sessions


def read_trec_relevance(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Judgments:
    """The labels of the labelled file, -2 (spam) to 4.

    Judges worked by topic, and the same query can belong to several: pairs with different labels are left unjudged.
    """
    notes = ReadReport(path, on_bad_line)
    pages = list(_pages(path, notes, labelled=True))
    query = [page.query for page in pages for _ in page.docs]
    docs = [doc for page in pages for doc in page.docs]
    judgments = consistent_judgments(query, docs, [label for page in pages for label in page.labels or ()], notes)
    if not len(judgments):
        notes.nothing("judged pair")
    notes.report()
    return judgments


def _pages(path: str | Path, notes: ReadReport, *, labelled: bool) -> Iterator[_Page]:
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                page = _page(line)
                if page is None or (labelled and page.labels is None):
                    notes.bad_line(number, _LABELLED_RULE if labelled else _RULE, line.strip())
                else:
                    yield page


def _page(line: str) -> _Page | None:
    """The page of a line, or None where it breaks the format."""
    fields = line.split("\t")
    ids, lists = [_ID.fullmatch(field) for field in fields[:2]], [_LIST.fullmatch(field) for field in fields[2:]]
    if len(fields) not in {5, 6} or None in ids or None in lists:
        return None
    session, query = (int(found[1]) for found in ids if found)
    docs, types, clicks, *labels = ([int(value) for value in found[1].split(",")] for found in lists if found)
    lengths = {len(docs), len(types), len(clicks), *map(len, labels)}
    if len(lengths) > 1 or min(docs) < 0 or not set(clicks) <= {0, 1}:
        return None
    return _Page(session, query, docs, clicks, labels[0] if labels else None)
