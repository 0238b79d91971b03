"""Prepare logs: split a log into a training part and a test part, encode one, and convert public logs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from clickshift.core.interrupts import temporary_folder
from clickshift.core.progress import Progress, silent
from clickshift.counts.open_log import LogLike, open_log
from clickshift.counts.open_public_log import open_public_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.splits import check_split, split_sessions
from clickshift.display.result import Summary
from clickshift.errors import ClickshiftError, SpecError
from clickshift.io.datasets.filters import drop_without_clicks
from clickshift.io.datasets.registry import read_raw_judgments
from clickshift.io.encode.duckdb import DuckdbLimits
from clickshift.io.encode.writer import copy_encoded
from clickshift.io.read_log import check_different, check_output, log_files, write_log
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.extra_columns import columns_with


@final
@dataclass(frozen=True, repr=False)
class SplitLog(Summary):
    """A log split into two files.

    Parameters
    ----------
    train, test
        Number of sessions of each part.
    train_file, test_file
        File of each part.

    Notes
    -----
    Facts, as `to_dict` returns them: conclusion; train and test, numbers of sessions; train_file and test_file, paths.
    """

    title: ClassVar[str] = "Split log"

    train: int
    test: int
    train_file: Path
    test_file: Path

    @property
    def conclusion(self) -> str:
        """Number of sessions of each part, and its file."""
        return (
            f"{self.train:,} sessions were written to {self.train_file} to train on, and {self.test:,} to "
            f"{self.test_file} to test on."
        )

    def values(self) -> dict[str, Any]:
        """Return the facts that the notes of the class list."""
        files = {"train_file": str(self.train_file), "test_file": str(self.test_file)}
        return {"train": self.train, "test": self.test, **files}


def split_log(
    log: LogLike,
    train: str | Path,
    test: str | Path,
    *,
    fraction: float = 0.8,
    split: str = "random",
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> SplitLog:
    """Split a log into a training part and a test part; a log larger than memory is written part by part.

    Parameters
    ----------
    log
        Anything that :func:`open_log` opens: a path, a data frame, `Sessions`, an encoded log.
    train, test
        File of each part: .parquet, .csv or .jsonl.
    fraction
        Share of the sessions in the training part, between 0 and 1.
    split
        Method of the split: "random", "time" (chronological), "order" (in the order of the rows) or "within-query" (in
        the order of each query's rows).
    seed
        Random seed for a random split.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called while a large log is encoded.

    Returns
    -------
    SplitLog
        Number of sessions of each part, and its file.

    Raises
    ------
    SpecError
        "same-file" if two of the log, the training part and the test part are the same file.
    DataError
        "bad-option" for an unknown method, "missing-time" for a log without times, "empty-split" if a part would be
        empty.
    FileError
        "unknown-format" or "is-a-folder" for a file that cannot be written, and those of :func:`open_log`.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 100, rng=1)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = cs.split_log(log, f"{folder}/train.parquet", f"{folder}/test.parquet")
    >>> parts.train, parts.test
    (80, 20)
    """
    check_split(split)
    for output in (train, test):
        check_output(output)
    _check_other_files(log, train, test)
    opened = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    parts = split_sessions(opened, split, fraction, seed)
    for part, output in zip(parts, (train, test), strict=True):
        write_log(part, output)
    return SplitLog(parts[0].total, parts[1].total, Path(train), Path(test))


def _check_other_files(log: Any, *outputs: str | Path) -> None:
    """Check that the outputs are different files, and none of the log's own: each would replace the other."""
    named = log.partition("::")[0] if isinstance(log, str) else log  # a table of a database
    files: list[Path] = []
    if isinstance(named, str | Path | list | tuple):
        with suppress(ClickshiftError):  # not files: an encoded log, or nothing that exists
            files = log_files(named)
    check_different(files, *outputs)


@final
@dataclass(frozen=True, repr=False, eq=False)
class EncodedLogSummary(Summary):
    """An encoded log and its folder.

    Parameters
    ----------
    log
        The encoded log.

    Notes
    -----
    Facts, as `to_dict` returns them: conclusion; output, the folder; sessions, queries, documents and pairs, numbers;
    files, number of files that were read; sessions_left_out, number of bad sessions; files_left_out, names of
    unreadable files.
    """

    title: ClassVar[str] = "Encoded log"

    log: EncodedLog

    @property
    def conclusion(self) -> str:
        """Number of sessions, and the folder."""
        left_out = self.log.facts.get("sessions_left_out", 0)
        return f"{self.log.total:,} sessions are encoded in {self.log.folder}" + (
            f"; {left_out:,} bad ones were left out." if left_out else "."
        )

    def values(self) -> dict[str, Any]:
        """Return the facts that the notes of the class list."""
        recorded = {name: value for name, value in self.log.facts.items() if name not in {"key", "first_file"}}
        return {
            "output": str(self.log.folder),
            "sessions": self.log.total,
            "queries": self.log.vocabulary.n_queries,
            "documents": self.log.vocabulary.n_docs,
            "pairs": self.log.vocabulary.n_pairs,
            **recorded,
        }


def encode_log(
    log: LogLike,
    output: str | Path | None = None,
    *,
    format: str = "table",
    judgments: str | Path | None = None,
    most_frequent: int | None = None,
    with_clicks: bool = False,
    merge_regions: bool = False,
    memory: str = "4GB",
    spill: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> EncodedLogSummary:
    """Encode a log that is larger than memory once, so that every function reads it quickly.

    Functions that open a log do this automatically for logs of 256 MB and more. They also take the folder that is
    written here. DuckDB joins the rows of a session if the log has one row per result, and reads tables of databases.

    Parameters
    ----------
    log
        Anything that :func:`open_log` opens: a path, a data frame, `Sessions`, an encoded log.
    output
        Folder for the encoded log; by default, a hidden one next to the files of the log. An encoded log is checked and
        copied to it.
    format
        "table" for the layouts of clickshift, or "yandex-wscd" or "yandex-kaggle", which are encoded as they are read.
    judgments
        Relevance file of the same format, for Yandex logs; only queries that it judges are kept.
    most_frequent
        Number of most frequent queries that are kept, for Yandex logs, which are then read twice.
    with_clicks
        Whether to drop sessions without clicks, for Yandex logs.
    merge_regions
        Whether to name queries of the WSCD 2012 log by QueryID alone, instead of QueryID_RegionID.
    memory
        DuckDB memory limit, e.g. "4GB".
    spill
        Folder for DuckDB's temporary files; by default, DuckDB chooses one.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves out bad sessions and unreadable files, and warns.
    progress
        Called with the number of sessions encoded so far, as text.

    Returns
    -------
    EncodedLogSummary
        The encoded log, what was read, and what was left out.

    Raises
    ------
    SpecError
        "missing-output" for a log in memory without an output.
    FileError, DataError
        Those of :func:`open_log`.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 100, rng=1)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encoded = cs.encode_log(log, f"{folder}/encoded")
    >>> encoded.log.total
    100
    """
    selected = judgments is not None or most_frequent is not None or with_clicks or merge_regions
    if format == "table" and selected:
        raise SpecError(
            "judgments, most_frequent, with_clicks and merge_regions are for Yandex logs: the format is table.",
            code="bad-option",
            option="format",
            value=format,
        )
    if format != "table":
        regions: dict[str, Any] = {"format": format, "merge_regions": merge_regions}
        files: Any = log
        public = open_public_log(
            log_files(files),
            queries=None if judgments is None else read_raw_judgments(judgments, **regions),
            most_frequent=most_frequent,
            with_clicks=with_clicks,
            on_bad_line=on_bad_line,
            in_memory=False,
            output=output,
            progress=progress,
            **regions,
        )
        assert isinstance(public, EncodedLog)
        return EncodedLogSummary(public)
    options: dict[str, Any] = {"in_memory": False, "output": output, "spill": DuckdbLimits(memory, spill)}
    opened = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress, **options)
    if isinstance(opened, EncodedLog):
        if output is None or Path(output).resolve() == opened.folder.resolve():
            return EncodedLogSummary(opened)
        return EncodedLogSummary(copy_encoded(opened, Path(output)))
    if output is None:
        raise SpecError("a log in memory can be encoded only to a folder: pass output.", code="missing-output")
    with temporary_folder() as folder:
        write_log(opened, file := folder / "log.parquet")
        kept = columns_with(None, list(opened.signals), list(opened.segments))
        encoded = open_log(file, columns=kept, progress=progress, **options)
    assert isinstance(encoded, EncodedLog)
    return EncodedLogSummary(encoded)


@final
@dataclass(frozen=True, repr=False)
class ConvertedLog(Summary):
    """A public log converted to the layout of clickshift.

    Parameters
    ----------
    output
        File with the log.
    sessions_read, sessions_written
        Number of sessions before and after the filters.

    Notes
    -----
    Facts, as `to_dict` returns them: conclusion; output, the file; sessions_read and sessions_written, numbers.
    """

    title: ClassVar[str] = "Converted log"

    output: Path
    sessions_read: int
    sessions_written: int

    @property
    def conclusion(self) -> str:
        """Number of sessions, and the file."""
        return f"{self.sessions_written:,} of {self.sessions_read:,} sessions were written to {self.output}."

    def values(self) -> dict[str, Any]:
        """Return the facts that the notes of the class list."""
        numbers = {"sessions_read": self.sessions_read, "sessions_written": self.sessions_written}
        return {"output": str(self.output), **numbers}


def convert_log(
    raw: str | Path,
    output: str | Path,
    *,
    format: str,
    layout: str = "wide",
    judgments: str | Path | None = None,
    with_clicks: bool = False,
    merge_regions: bool = False,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> ConvertedLog:
    """Convert a public log to the layout of clickshift; the options are the policy-shift paper's preprocessing.

    Parameters
    ----------
    raw
        Raw public log, plain or gzip.
    output
        File for the log: .parquet, .csv or .jsonl.
    format
        Format of the raw log: "yandex-wscd", "yandex-sample", "yandex-kaggle", "trec" or "open-bandit".
    layout
        "wide" for one row per session, "long" for one row per result.
    judgments
        Relevance file of the same format; only queries that it judges are kept.
    with_clicks
        Whether to drop sessions without clicks.
    merge_regions
        Whether to name queries of the WSCD 2012 log by QueryID alone, as in the paper, instead of QueryID_RegionID.
    on_bad_line
        "error" stops at the first bad line; "skip" leaves bad lines out and warns.
    progress
        Called before the log is read and before it is written.

    Returns
    -------
    ConvertedLog
        Number of sessions read and written, and the file.

    Raises
    ------
    SpecError
        For an unknown format.
    FileError
        "unknown-format" or "is-a-folder" for an output that cannot be written, "bad-line", "empty-file", and those of
        the readers.
    DataError
        "bad-option" for another layout, "no-judged-query" or "no-clicks" if no session is left.

    Examples
    --------
    >>> import tempfile
    >>> query = "\\t".join(["1", "0", "Q", "7", "0", *map(str, range(10, 20))])  # ten results of query 7 in session 1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     raw = Path(folder) / "raw.txt"
    ...     _ = raw.write_text(query + "\\n1\\t5\\tC\\t12\\n")  # and a click on the third of them
    ...     convert_log(raw, Path(folder) / "log.parquet", format="yandex-wscd").sessions_written
    1
    """
    check_output(output, layout)
    regions: dict[str, Any] = {"format": format, "merge_regions": merge_regions}
    judged = None if judgments is None else read_raw_judgments(judgments, **regions)
    sessions: Any = open_public_log([raw], queries=judged, on_bad_line=on_bad_line, progress=progress, **regions)
    kept = drop_without_clicks(sessions) if with_clicks else sessions
    progress("writing")
    write_log(kept, output, layout=layout)  # type: ignore[arg-type]
    return ConvertedLog(Path(output), sessions.total, kept.total)
