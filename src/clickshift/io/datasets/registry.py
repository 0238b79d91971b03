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
JUDGMENTS = {
    "yandex-wscd": "clickshift.io.datasets.yandex:read_relevance",
    "yandex-sample": "clickshift.io.datasets.yandex:read_relevance",
    "trec": "clickshift.io.datasets.trec:read_trec_relevance",
    "qrels": "clickshift.io.qrels:read_qrels",
}
_LARGE = ("yandex-wscd", "yandex-kaggle")  # too large to be read whole: queries are chosen while reading


def read_raw(
    path: str | Path, *, format: str, judged: Judgments | None = None, on_bad_line: OnBadLine = "error"
) -> Sessions:
    """A log of a public format; with `judged`, only its queries that were judged."""
    from clickshift.io.datasets.filters import annotated_only

    read = resolve(format, FORMATS)
    if judged is not None and format in _LARGE:
        sessions: Sessions = read(path, queries=judged, on_bad_line=on_bad_line)
        return sessions
    sessions = read(path, on_bad_line=on_bad_line)
    return sessions if judged is None else annotated_only(sessions, judged)


def read_raw_judgments(path: str | Path, *, format: str) -> Judgments:
    """The relevance file that belongs to a log of this format; TREC qrels where the format has none."""
    judgments: Judgments = resolve(format if format in JUDGMENTS else "qrels", JUDGMENTS)(path)
    if not len(judgments.label):
        raise SpecError(f"{path} judges no query.")
    return judgments
