"""Yandex logs: the WSCD 2012 relevance prediction log, its small packaged sample, and the 2013 personalised search log.

Queries break into pages: every query action is a session of its own in what is returned. Clicks on documents that their
page does not show are ignored, and pages that show a document twice are dropped; both are counted and reported in one
`ClickshiftWarning`. Repeated clicks on a document are one click.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Int

from clickshift.core.files import open_text
from clickshift.core.unique_rows import distinct_rows
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Raw
from clickshift.errors import DataError
from clickshift.io.datasets._serps import UNSHOWN_CLICKS, pad_lists, to_sessions
from clickshift.io.datasets._yandex_parser import FIRST, SECOND, SESSION, URL, read_serps
from clickshift.io.qrels import Judgments, consistent_judgments
from clickshift.io.read_report import OnBadLine, ReadReport

QueryFilter = Judgments | Iterable[str | int] | None

_WSCD_RULE = (
    "a line must be 'SessionID TimePassed Q QueryID RegionID' and ten URLIDs, or 'SessionID TimePassed C URLID', "
    "with tabs between whole numbers"
)
_KAGGLE_RULE = (
    "a line must be 'SessionID M Day UserID', or 'SessionID TimePassed Q (or T) SERPID QueryID Term,Term,...' and ten "
    "'URLID,DomainID', or 'SessionID TimePassed C SERPID URLID', with tabs between them"
)
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
    path: str | Path, *, queries: QueryFilter = None, limit: int | None = None, on_bad_line: OnBadLine = "error"
) -> Sessions:
    """The log of the Relevance Prediction Challenge (Internet Mathematics 2011, WSCD workshop at WSDM 2012).

    Tab-separated lines of two kinds, as described at imat-relpred.yandex.ru/en/datasets and parsed by PyClick's
    `YandexRelPredChallengeParser`:

        SessionID TimePassed Q QueryID RegionID URLID x 10
        SessionID TimePassed C URLID

    A click line does not name its query. It is given to the latest earlier query of its session that shows the URL, so
    that a click after going back to an earlier page counts there; PyClick looks at the latest query alone. Lines of one
    session follow each other. Relevance was judged per query and region, hence a query is "QueryID_RegionID". There is
    no clock across sessions, but they are in order of time: `time` is the running number of the query action. `user` is
    the session number, for pages of one session are not independent.

    `queries` keeps the pages of these queries only (those that were judged, say), while reading: the whole log has 146
    million pages and does not fit into memory. `limit` stops after so many of them.
    """
    return _read_log(path, ReadReport(path, on_bad_line), queries, limit, kaggle=False)


def read_kaggle(
    path: str | Path, *, queries: QueryFilter = None, limit: int | None = None, on_bad_line: OnBadLine = "error"
) -> Sessions:
    """The log of the Personalized Web Search Challenge (Kaggle, WSCD workshop at WSDM 2014).

    Tab-separated lines of three kinds, as described at
    kaggle.com/c/yandex-personalized-web-search-challenge/details/logs-format:

        SessionID M Day USERID
        SessionID TimePassed Q SERPID QueryID TermID,TermID,... URLID,DomainID x 10
        SessionID TimePassed C SERPID URLID

    `time` is the day, `user` the user. Test queries (T instead of Q) are left out: their clicks were withheld, and to
    read them as pages without clicks would be wrong.
    `queries` and `limit` are those of `read_wscd`.
    """
    return _read_log(path, ReadReport(path, on_bad_line), queries, limit, kaggle=True)


def read_sample(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Sessions:
    """A sample of the WSCD 2012 log as packaged in PyClick's early history: entries that end in a semicolon.

        QueryID_RegionID, a tab, URLID,URLID,... : URLID , URLID ;

    After the colon stand the clicked documents. Entries are grouped by query, so there is no time.
    """
    notes = ReadReport(path, on_bad_line)
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
        page = _sample_page(entry.strip())
        if page is None:
            notes.bad_line(start, _SAMPLE_RULE, entry.strip())
            continue
        name, shown, clicked = page
        query.append(name)
        docs.append(shown)
        click.append([int(doc in clicked) for doc in shown])
        notes.left_out(sum(doc not in shown for doc in clicked), UNSHOWN_CLICKS)
    doc_rows, shown_rows = pad_lists(docs)
    names = np.array(query, np.dtypes.StringDType())
    sessions = to_sessions(names, doc_rows, pad_lists(click)[0] > 0, shown=shown_rows, notes=notes)
    notes.report()
    return sessions


def read_relevance(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Judgments:
    """The labels of the WSCD 2012 challenge: `QueryID RegionID URLID RelevanceLabel` between tabs, label 0 or 1."""
    notes = ReadReport(path, on_bad_line)
    query, doc, label = [], [], []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            found = _RELEVANCE_LINE.fullmatch(line.strip())
            if not found or int(found[3]) > _LARGEST:
                notes.bad_line(number, _RELEVANCE_RULE, line.strip())
                continue
            query.append(f"{int(found[1])}_{int(found[2])}")
            doc.append(int(found[3]))
            label.append(int(found[4]))
    judgments = consistent_judgments(query, doc, label, notes)
    if not len(judgments):
        notes.nothing("judged pair")
    notes.report()
    return judgments


def _read_log(path: str | Path, notes: ReadReport, queries: QueryFilter, limit: int | None, *, kaggle: bool) -> Sessions:
    if limit is not None and limit < 1:
        raise DataError(f"limit must be 1 page or more, or None for all: got {limit}.")
    wanted = None if queries is None else _texts(queries)
    key = [FIRST] if kaggle else [FIRST, SECOND]
    parts: list[list[np.ndarray]] = [[] for _ in range(5)]
    seen = kept = 0
    for block in read_serps(path, kaggle=kaggle, rule=_KAGGLE_RULE if kaggle else _WSCD_RULE, notes=notes):
        notes.left_out(block.unshown, UNSHOWN_CLICKS)
        rows = _wanted_rows(block.page[:, key], wanted)[: None if limit is None else limit - kept]
        time, user = seen + rows, block.page[rows, SESSION]
        if block.meta is not None:
            time, user = block.meta[rows, FIRST], block.meta[rows, SECOND]
        columns = block.page[rows][:, key], block.page[rows, URL:], block.click[rows], time, user
        for part, column in zip(parts, columns, strict=True):
            part.append(column)
        seen, kept = seen + len(block.page), kept + len(rows)
        if kept == limit:
            break
    if not kept:
        notes.nothing("page of results" if wanted is None else "page of the queries asked for")
    queried, docs, click, times, users = map(np.concatenate, parts)
    parts.clear()  # a large log is not kept twice
    sessions = to_sessions(_query_ids(queried), docs, click, time=times, user=users, notes=notes)
    notes.report()
    return sessions


def _texts(queries: Judgments | Iterable[str | int]) -> set[str]:
    if isinstance(queries, str):
        raise DataError(f"queries must be a list of query ids: got the text {queries!r}. Give [{queries!r}].")
    return set(map(str, queries.queries if isinstance(queries, Judgments) else queries))


def _wanted_rows(keys: Int[np.ndarray, "page key"], wanted: set[str] | None) -> Int[np.ndarray, " row"]:
    if wanted is None:
        return np.arange(len(keys))
    group, first = distinct_rows(keys)
    return np.flatnonzero(np.array([name in wanted for name in _names(keys[first])], bool)[group])


def _query_ids(keys: Int[np.ndarray, "page key"]) -> Raw:
    """A number as it is, (query, region) as text. Each text is written once, however often its query was asked."""
    if keys.shape[1] == 1:
        return keys[:, 0]
    import pyarrow as pa

    group, first = distinct_rows(keys)
    return pa.DictionaryArray.from_arrays(group.astype(np.int32), pa.array(_names(keys[first]), pa.string()))


def _names(keys: Int[np.ndarray, "query key"]) -> list[str]:
    return ["_".join(map(str, key)) for key in keys.tolist()]


def _sample_page(entry: str) -> tuple[str, list[int], list[int]] | None:
    """Query, documents and clicked documents of an entry, or None where it breaks the format."""
    found = _SAMPLE_ENTRY.fullmatch(entry)
    if not found:
        return None
    query, region, shown, clicked = found.groups()
    docs, clicks = (list(map(int, part.split(","))) if part else [] for part in (shown, clicked))
    if max(docs + clicks) > _LARGEST:
        return None
    return f"{int(query)}_{int(region)}", docs, clicks
