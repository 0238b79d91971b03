"""Public logs by the name of their format: what `clickshift log convert` reads."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from clickshift.core.spec import resolve
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.io.qrels import Judgments
from clickshift.io.read_report import OnBadLine

FORMATS = {
    "yandex-wscd": "clickshift.io.datasets.yandex:read_wscd",
    "yandex-kaggle": "clickshift.io.datasets.yandex:read_kaggle",
    "yandex-sample": "clickshift.io.datasets.yandex:read_sample",
    "trec": "clickshift.io.datasets.trec:read_trec",
    "open-bandit": "clickshift.io.datasets.open_bandit:read_open_bandit",
}
"""Reader of each format of public logs."""
JUDGMENTS = {
    "yandex-wscd": "clickshift.io.datasets.yandex:read_relevance",
    "yandex-sample": "clickshift.io.datasets.yandex:read_relevance",
    "trec": "clickshift.io.datasets.trec:read_trec_relevance",
    "qrels": "clickshift.io.qrels:read_qrels",
}
"""Reader of each format of relevance judgments."""
YANDEX_LOGS = ("yandex-wscd", "yandex-kaggle")
"""Formats of logs that do not fit into memory: sessions are selected while they are read."""
_WITH_REGIONS = ("yandex-wscd", "yandex-sample")


def read_raw(
    path: str | Path,
    *,
    format: str,
    queries: Judgments | Collection[str | int] | None = None,
    with_clicks: bool = False,
    merge_regions: bool = False,
    on_bad_line: OnBadLine = "error",
) -> Sessions:
    """Read a log of a public format into memory.

    Parameters
    ----------
    path
        The file or folder of the log.
    format
        Name of the format, one of `FORMATS`.
    queries
        Judgments, or ids of queries: only sessions of these queries are kept; None for all.
    with_clicks
        Keep only sessions with a click.
    merge_regions
        Name queries of the WSCD 2012 log by QueryID alone, instead of QueryID_RegionID.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning.

    Returns
    -------
    Sessions
        One session per SERP.

    Raises
    ------
    SpecError
        For a format that is not known, or `merge_regions` for a log without regions ("bad-option").
    FileError
        "bad-line", "empty-file", and those of the readers.
    DataError
        "no-judged-query" or "no-clicks" if no session is left.
    """
    from clickshift.io.datasets.filters import annotated_only, drop_without_clicks

    read = resolve(format, FORMATS)
    options = regions_option(format, merge_regions)
    if format in YANDEX_LOGS:
        sessions: Sessions = read(path, queries=queries, with_clicks=with_clicks, on_bad_line=on_bad_line, **options)
        return sessions
    sessions = read(path, on_bad_line=on_bad_line, **options)
    if queries is not None:
        sessions = annotated_only(sessions, queries if isinstance(queries, Judgments) else list(queries))
    return drop_without_clicks(sessions) if with_clicks else sessions


def regions_option(format: str, merge_regions: bool) -> dict[str, bool]:
    """Return the option of readers to merge regions, if it is set.

    Parameters
    ----------
    format
        Name of the format.
    merge_regions
        Whether the regions of queries are merged.

    Raises
    ------
    SpecError
        "bad-option" for a format without regions.
    """
    if merge_regions and format not in _WITH_REGIONS:
        raise SpecError(
            f"only queries of {' and '.join(_WITH_REGIONS)} have regions to merge: the format is {format}.",
            code="bad-option",
            option="merge_regions",
            value=format,
        )
    return {"merge_regions": True} if merge_regions else {}


def read_raw_judgments(path: str | Path, *, format: str, merge_regions: bool = False) -> Judgments:
    """Read the relevance judgments that belong to a log of a public format.

    Parameters
    ----------
    path
        The file of judgments.
    format
        Name of the log's format; formats without judgments of their own are read as TREC qrels.
    merge_regions
        Name queries of the WSCD 2012 log by QueryID alone, instead of QueryID_RegionID.

    Returns
    -------
    Judgments
        The judgments.

    Raises
    ------
    SpecError
        "no-judged-query" if the file judges no query.
    """
    read = resolve(format if format in JUDGMENTS else "qrels", JUDGMENTS)
    judgments: Judgments = read(path, **(regions_option(format, merge_regions) if format in JUDGMENTS else {}))
    if not len(judgments.label):
        raise SpecError(f"{path} judges no query.", code="no-judged-query", path=str(path))
    return judgments
