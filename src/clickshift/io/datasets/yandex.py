"""Yandex logs: the WSCD 2012 relevance prediction log, its small packaged sample, and the 2013 personalised search log.

Every query action is one SERP, and becomes a session of its own in the result. Clicks on documents that their SERP does
not show are ignored, and SERPs that show a document twice are dropped; both are counted and reported in one
`ClickshiftWarning`. Repeated clicks on a document are one click.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from clickshift.core.files import open_text
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError
from clickshift.io.datasets._serps import UNSHOWN_CLICKS, pad_lists, to_sessions
from clickshift.io.datasets._yandex_serps import SerpFilter, kept_serps, query_ids
from clickshift.io.qrels import Judgments, consistent_judgments
from clickshift.io.read_report import OnBadLine, ReadReport

QueryFilter = Judgments | Iterable[str | int] | None
"""Queries to keep: those of judgments, or raw query ids; None for all."""

_SAMPLE_RULE = (
    "an entry must be 'query_region', a tab, documents between commas, ':', clicked documents between commas, ';'"
)
_SAMPLE_ENTRY = re.compile(
    r"\s*(\d{1,19})_(\d{1,19})\s*\t\s*(\d{1,19}(?:\s*,\s*\d{1,19})*)\s*:\s*(\d{1,19}(?:\s*,\s*\d{1,19})*)?\s*",
    re.ASCII,
)
_RELEVANCE_RULE = "a line must be 'QueryID RegionID URLID RelevanceLabel', whole numbers with tabs between them"
_RELEVANCE_LINE = re.compile(r"(\d{1,19})\t(\d{1,19})\t(\d{1,19})\t(\d{1,9})", re.ASCII)
_LARGEST = np.iinfo(np.int64).max


def read_wscd(
    path: str | Path,
    *,
    queries: QueryFilter = None,
    with_clicks: bool = False,
    merge_regions: bool = False,
    limit: int | None = None,
    on_bad_line: OnBadLine = "error",
) -> Sessions:
    """Read the log of the Relevance Prediction Challenge (Internet Mathematics 2011, WSCD workshop at WSDM 2012).

    Lines are of two kinds, separated by tabs, as described at imat-relpred.yandex.ru/en/datasets and parsed by
    PyClick's `YandexRelPredChallengeParser`:

        SessionID TimePassed Q QueryID RegionID URLID x 10
        SessionID TimePassed C URLID

    A click line does not name its query. It is assigned to the latest earlier query of its session that shows the URL,
    so that a click after going back to an earlier SERP counts there; PyClick looks at the latest query alone. Lines of
    one session are consecutive. Relevance was judged per query and region, hence a query is "QueryID_RegionID".

    Parameters
    ----------
    path
        The file, plain or gzip.
    queries
        Keep only the SERPs of these queries, e.g. the judged ones, while reading: the whole log has 146 million SERPs
        and does not fit into memory.
    with_clicks
        Keep only SERPs with a click, while reading.
    merge_regions
        Name queries by QueryID alone, as in the policy-shift paper; `queries` must then be such names.
    limit
        Stop after this many SERPs.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning (code
        "skipped-input").

    Returns
    -------
    Sessions
        One session per SERP. There is no clock across search sessions, but they are in chronological order: `time` is
        the running number of the query action. `user` is the number of the search session, because SERPs of one
        session are not independent.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no SERP is left.
    DataError
        "bad-option" for a limit below 1, or a single text as `queries`.
    """
    kept = SerpFilter(False, _query_texts(queries), with_clicks, merge_regions)
    return _read_log(path, ReadReport(path, on_bad_line), kept, limit)


def read_kaggle(
    path: str | Path,
    *,
    queries: QueryFilter = None,
    with_clicks: bool = False,
    limit: int | None = None,
    on_bad_line: OnBadLine = "error",
) -> Sessions:
    """Read the log of the Personalized Web Search Challenge (Kaggle, WSCD workshop at WSDM 2014).

    Lines are of three kinds, separated by tabs, as described at
    kaggle.com/c/yandex-personalized-web-search-challenge/details/logs-format:

        SessionID M Day USERID
        SessionID TimePassed Q SERPID QueryID TermID,TermID,... URLID,DomainID x 10
        SessionID TimePassed C SERPID URLID

    Test queries (T instead of Q) are left out: their clicks were withheld, and reading them as SERPs without clicks
    would be wrong.

    Parameters
    ----------
    path
        The file, plain or gzip.
    queries
        Keep only the SERPs of these queries, while reading; `most_frequent_queries` finds the most frequent ones.
    with_clicks
        Keep only SERPs with a click, while reading.
    limit
        Stop after this many SERPs.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning (code
        "skipped-input").

    Returns
    -------
    Sessions
        One session per SERP; `time` is the day, `user` the user.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no SERP is left.
    DataError
        "bad-option" for a limit below 1, or a single text as `queries`.
    """
    return _read_log(path, ReadReport(path, on_bad_line), SerpFilter(True, _query_texts(queries), with_clicks), limit)


def read_sample(path: str | Path, *, merge_regions: bool = False, on_bad_line: OnBadLine = "error") -> Sessions:
    """Read a sample of the WSCD 2012 log as packaged in PyClick's early history: entries that end in a semicolon.

        QueryID_RegionID, a tab, URLID,URLID,... : URLID , URLID ;

    The clicked documents follow the colon.

    Parameters
    ----------
    path
        The file, plain or gzip.
    merge_regions
        Name queries by QueryID alone.
    on_bad_line
        "error" raises at the first entry that breaks the format; "skip" counts such entries in one warning (code
        "skipped-input").

    Returns
    -------
    Sessions
        One session per entry. Entries are grouped by query, so there is no time.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no SERP is left.
    """
    report = ReadReport(path, on_bad_line)
    query: list[str] = []
    docs: list[list[int]] = []
    click: list[list[int]] = []
    line = 1
    with open_text(path) as file:
        *entries, tail = file.read().split(";")
    if tail.strip():
        entries.append(tail + " (and no semicolon)")
    for entry in entries:
        start = line + entry[: len(entry) - len(entry.lstrip())].count("\n")
        line += entry.count("\n")
        serp = _parse_sample_entry(entry.strip())
        if serp is None:
            report.bad_line(start, _SAMPLE_RULE, entry.strip())
            continue
        name, shown, clicked = serp
        query.append(name)
        docs.append(shown)
        click.append([int(doc in clicked) for doc in shown])
        report.left_out(sum(doc not in shown for doc in clicked), UNSHOWN_CLICKS, "unshown-click")
    doc_rows, shown_rows = pad_lists(docs)
    names = np.array(query, np.dtypes.StringDType())
    if merge_regions:
        names = np.array([int(name.partition("_")[0]) for name in query])
    sessions = to_sessions(names, doc_rows, pad_lists(click)[0] > 0, shown=shown_rows, report=report)
    report.report()
    return sessions


def read_relevance(path: str | Path, *, merge_regions: bool = False, on_bad_line: OnBadLine = "error") -> Judgments:
    """Read the relevance labels of the WSCD 2012 challenge: `QueryID RegionID URLID RelevanceLabel`, label 0 or 1.

    Parameters
    ----------
    path
        The file, plain or gzip, with tabs between the fields.
    merge_regions
        Name queries by QueryID alone. Documents with different labels in different regions are then left out.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning (code
        "skipped-input").

    Returns
    -------
    Judgments
        The labels, with "QueryID_RegionID" as the query, or the number QueryID with `merge_regions`.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no pair is judged.
    """
    report = ReadReport(path, on_bad_line)
    query: list[str | int] = []
    doc, label = [], []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            match = _RELEVANCE_LINE.fullmatch(line.strip())
            if not match or max(int(match[1]), int(match[3])) > _LARGEST:
                report.bad_line(number, _RELEVANCE_RULE, line.strip())
                continue
            query.append(int(match[1]) if merge_regions else f"{int(match[1])}_{int(match[2])}")
            doc.append(int(match[3]))
            label.append(int(match[4]))
    judgments = consistent_judgments(query, doc, label, report)
    if not len(judgments):
        report.fail_empty("judged pair")
    report.report()
    return judgments


def _read_log(path: str | Path, report: ReadReport, kept: SerpFilter, limit: int | None) -> Sessions:
    """Read a log of query and click lines into memory, block by block."""
    if limit is not None and limit < 1:
        raise DataError(
            f"limit must be 1 SERP or more, or None for all: got {limit}.",
            code="bad-option",
            option="limit",
            value=limit,
        )
    parts: list[list[np.ndarray]] = [[] for _ in range(5)]
    n_kept = 0
    for serps in kept_serps([path], [report], kept):
        some = serps[: None if limit is None else limit - n_kept]
        for part, column in zip(parts, some.columns(), strict=True):
            part.append(column)
        n_kept += len(some.docs)
        if n_kept == limit:
            break
    if not n_kept:
        report.fail_empty(kept.noun)
    keys, docs, click, times, users = map(np.concatenate, parts)
    parts.clear()  # a large log is not held in memory twice
    sessions = to_sessions(query_ids(keys), docs, click, time=times, user=users, report=report)
    report.report()
    return sessions


def _query_texts(queries: QueryFilter) -> frozenset[str] | None:
    """Return query ids as texts; DataError for a single text, which would be taken for its letters."""
    if queries is None:
        return None
    if isinstance(queries, str):
        raise DataError(
            f"queries must be a list of query ids: got the text {queries!r}. Pass [{queries!r}].",
            code="bad-option",
            option="queries",
            value=queries,
        )
    return frozenset(map(str, queries.queries if isinstance(queries, Judgments) else queries))


def _parse_sample_entry(entry: str) -> tuple[str, list[int], list[int]] | None:
    """Parse query, documents and clicked documents of an entry; None if it breaks the format."""
    match = _SAMPLE_ENTRY.fullmatch(entry)
    if not match:
        return None
    query, region, shown, clicked = match.groups()
    docs, clicks = (list(map(int, part.split(","))) if part else [] for part in (shown, clicked))
    if max(docs + clicks) > _LARGEST:
        return None
    return f"{int(query)}_{int(region)}", docs, clicks
