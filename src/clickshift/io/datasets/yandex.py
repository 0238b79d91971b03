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
"""Queries to keep: those of judgments, or raw query ids; None for all."""

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
    return _read_log(path, ReadReport(path, on_bad_line), queries, limit, kaggle=False)


def read_kaggle(
    path: str | Path, *, queries: QueryFilter = None, limit: int | None = None, on_bad_line: OnBadLine = "error"
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
        Keep only the SERPs of these queries, while reading.
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
    return _read_log(path, ReadReport(path, on_bad_line), queries, limit, kaggle=True)


def read_sample(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Sessions:
    """Read a sample of the WSCD 2012 log as packaged in PyClick's early history: entries that end in a semicolon.

        QueryID_RegionID, a tab, URLID,URLID,... : URLID , URLID ;

    The clicked documents follow the colon.

    Parameters
    ----------
    path
        The file, plain or gzip.
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
    sessions = to_sessions(names, doc_rows, pad_lists(click)[0] > 0, shown=shown_rows, report=report)
    report.report()
    return sessions


def read_relevance(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Judgments:
    """Read the relevance labels of the WSCD 2012 challenge: `QueryID RegionID URLID RelevanceLabel`, label 0 or 1.

    Parameters
    ----------
    path
        The file, plain or gzip, with tabs between the fields.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning (code
        "skipped-input").

    Returns
    -------
    Judgments
        The labels, with "QueryID_RegionID" as the query.

    Raises
    ------
    FileError
        "bad-line", or "empty-file" if no pair is judged.
    """
    report = ReadReport(path, on_bad_line)
    query, doc, label = [], [], []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            match = _RELEVANCE_LINE.fullmatch(line.strip())
            if not match or int(match[3]) > _LARGEST:
                report.bad_line(number, _RELEVANCE_RULE, line.strip())
                continue
            query.append(f"{int(match[1])}_{int(match[2])}")
            doc.append(int(match[3]))
            label.append(int(match[4]))
    judgments = consistent_judgments(query, doc, label, report)
    if not len(judgments):
        report.fail_empty("judged pair")
    report.report()
    return judgments


def _read_log(
    path: str | Path, report: ReadReport, queries: QueryFilter, limit: int | None, *, kaggle: bool
) -> Sessions:
    """Read a log of query and click lines, block by block."""
    if limit is not None and limit < 1:
        raise DataError(
            f"limit must be 1 SERP or more, or None for all: got {limit}.",
            code="bad-option",
            option="limit",
            value=limit,
        )
    wanted = None if queries is None else _query_texts(queries)
    key = [FIRST] if kaggle else [FIRST, SECOND]
    parts: list[list[np.ndarray]] = [[] for _ in range(5)]
    n_read = n_kept = 0
    for block in read_serps(path, kaggle=kaggle, rule=_KAGGLE_RULE if kaggle else _WSCD_RULE, report=report):
        report.left_out(block.unshown, UNSHOWN_CLICKS, "unshown-click")
        rows = _wanted_rows(block.serp[:, key], wanted)[: None if limit is None else limit - n_kept]
        time, user = n_read + rows, block.serp[rows, SESSION]
        if block.meta is not None:
            time, user = block.meta[rows, FIRST], block.meta[rows, SECOND]
        columns = block.serp[rows][:, key], block.serp[rows, URL:], block.click[rows], time, user
        for part, column in zip(parts, columns, strict=True):
            part.append(column)
        n_read, n_kept = n_read + len(block.serp), n_kept + len(rows)
        if n_kept == limit:
            break
    if not n_kept:
        report.fail_empty("SERP" if wanted is None else "SERP of the chosen queries")
    query_keys, docs, click, times, users = map(np.concatenate, parts)
    parts.clear()  # a large log is not held in memory twice
    sessions = to_sessions(_query_ids(query_keys), docs, click, time=times, user=users, report=report)
    report.report()
    return sessions


def _query_texts(queries: Judgments | Iterable[str | int]) -> set[str]:
    """Return query ids as texts; DataError for a single text, which would be taken for its letters."""
    if isinstance(queries, str):
        raise DataError(
            f"queries must be a list of query ids: got the text {queries!r}. Pass [{queries!r}].",
            code="bad-option",
            option="queries",
            value=queries,
        )
    return set(map(str, queries.queries if isinstance(queries, Judgments) else queries))


def _wanted_rows(keys: Int[np.ndarray, "serp key"], wanted: set[str] | None) -> Int[np.ndarray, " row"]:
    """Return the rows whose query is wanted."""
    if wanted is None:
        return np.arange(len(keys))
    group, first = distinct_rows(keys)
    return np.flatnonzero(np.array([name in wanted for name in _key_texts(keys[first])], bool)[group])


def _query_ids(keys: Int[np.ndarray, "serp key"]) -> Raw:
    """Return query ids: a number as it is, (query, region) as text, which is written once per distinct query."""
    if keys.shape[1] == 1:
        return keys[:, 0]
    import pyarrow as pa

    group, first = distinct_rows(keys)
    return pa.DictionaryArray.from_arrays(group.astype(np.int32), pa.array(_key_texts(keys[first]), pa.string()))


def _key_texts(keys: Int[np.ndarray, "query key"]) -> list[str]:
    """Join the numbers of each key by an underscore."""
    return ["_".join(map(str, key)) for key in keys.tolist()]


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
