"""TREC Session Track 2014 as packaged for GraphCM: one SERP per line.

    session, query, [documents], [vertical types], [clicks] and, in the labelled file, [relevance labels]

are separated by tabs; the lists are as long as the SERP. Labels are those of the track: 0 to 4, and -2 for spam.

References
----------
Lin, J. et al. (2021). A graph-enhanced click model for web search. SIGIR. (The data is published with its code.)
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


class _Serp(NamedTuple):
    """One line of the file."""

    session: int
    query: int
    docs: list[int]
    clicks: list[int]
    labels: list[int] | None


def read_trec(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Sessions:
    """Read the SERPs and clicks of the TREC Session Track 2014, from the file with labels or the one without.

    Vertical types are not used. SERPs that show a document twice (about 3 % of them) are dropped and reported.

    Parameters
    ----------
    path
        The file, plain or gzip.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning (code
        "skipped-input").

    Returns
    -------
    Sessions
        One session per SERP. Lines are not in chronological order, so there is no time. `user` is the number of the
        search session, because SERPs of one session are not independent.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no SERP is left.
    """
    report = ReadReport(path, on_bad_line)
    serps = list(_read_serps(path, report, labelled=False))
    docs, shown = pad_lists([serp.docs for serp in serps])
    sessions = to_sessions(
        np.array([serp.query for serp in serps], np.int64),
        docs,
        pad_lists([serp.clicks for serp in serps])[0] > 0,
        shown=shown,
        user=np.array([serp.session for serp in serps], np.int64),
        report=report,
    )
    report.report()
    return sessions


def read_trec_relevance(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Judgments:
    """Read the relevance labels of the TREC Session Track 2014, -2 (spam) to 4.

    Assessors judged by topic, and the same query can belong to several topics: pairs with different labels are left
    unjudged.

    Parameters
    ----------
    path
        The labelled file, plain or gzip.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning (code
        "skipped-input").

    Returns
    -------
    Judgments
        The labels.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no pair is judged.
    """
    report = ReadReport(path, on_bad_line)
    serps = list(_read_serps(path, report, labelled=True))
    query = [serp.query for serp in serps for _ in serp.docs]
    docs = [doc for serp in serps for doc in serp.docs]
    judgments = consistent_judgments(query, docs, [label for serp in serps for label in serp.labels or ()], report)
    if not len(judgments):
        report.fail_empty("judged pair")
    report.report()
    return judgments


def _read_serps(path: str | Path, report: ReadReport, *, labelled: bool) -> Iterator[_Serp]:
    """Yield the SERPs of a file; lines that break the format are reported."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                serp = _parse_line(line)
                if serp is None or (labelled and serp.labels is None):
                    report.bad_line(number, _LABELLED_RULE if labelled else _RULE, line.strip())
                else:
                    yield serp


def _parse_line(line: str) -> _Serp | None:
    """Parse the SERP of a line; None if the line breaks the format."""
    fields = line.split("\t")
    ids, lists = [_ID.fullmatch(field) for field in fields[:2]], [_LIST.fullmatch(field) for field in fields[2:]]
    if len(fields) not in {5, 6} or None in ids or None in lists:
        return None
    session, query = (int(match[1]) for match in ids if match)
    docs, types, clicks, *labels = ([int(value) for value in match[1].split(",")] for match in lists if match)
    lengths = {len(docs), len(types), len(clicks), *map(len, labels)}
    if len(lengths) > 1 or min(docs) < 0 or not set(clicks) <= {0, 1}:
        return None
    return _Serp(session, query, docs, clicks, labels[0] if labels else None)
