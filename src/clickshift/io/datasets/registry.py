"""Public logs by the name of their format: what `clickshift log convert` reads."""

from __future__ import annotations

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
_FILTERED_WHILE_READING = ("yandex-wscd", "yandex-kaggle")  # too large for memory: queries are selected while reading


def read_raw(
    path: str | Path, *, format: str, judged: Judgments | None = None, on_bad_line: OnBadLine = "error"
) -> Sessions:
    """Read a log of a public format.

    Parameters
    ----------
    path
        The file or folder of the log.
    format
        Name of the format, one of `FORMATS`.
    judged
        Judgments; if they are given, only sessions of judged queries are kept.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning.

    Returns
    -------
    Sessions
        One session per SERP.

    Raises
    ------
    SpecError
        For a format that is not known.
    FileError
        "bad-line", "empty-file", and those of the readers.
    DataError
        "no-judged-query" if no session is left.
    """
    from clickshift.io.datasets.filters import annotated_only

    read = resolve(format, FORMATS)
    if judged is not None and format in _FILTERED_WHILE_READING:
        sessions: Sessions = read(path, queries=judged, on_bad_line=on_bad_line)
        return sessions
    sessions = read(path, on_bad_line=on_bad_line)
    return sessions if judged is None else annotated_only(sessions, judged)


def read_raw_judgments(path: str | Path, *, format: str) -> Judgments:
    """Read the relevance judgments that belong to a log of a public format.

    Parameters
    ----------
    path
        The file of judgments.
    format
        Name of the log's format; formats without judgments of their own are read as TREC qrels.

    Returns
    -------
    Judgments
        The judgments.

    Raises
    ------
    SpecError
        "no-judged-query" if the file judges no query.
    """
    judgments: Judgments = resolve(format if format in JUDGMENTS else "qrels", JUDGMENTS)(path)
    if not len(judgments.label):
        raise SpecError(f"{path} judges no query.", code="no-judged-query", path=str(path))
    return judgments
