"""Open a log of a public format, keeping only what is asked for: small ones in memory, large ones encoded on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.core.progress import Progress, silent
from clickshift.counts import open_log
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.io.datasets.registry import YANDEX_LOGS, read_raw, regions_option
from clickshift.io.qrels import Judgments
from clickshift.io.read_report import OnBadLine, ReadReport


def open_public_log(
    files: Sequence[str | Path],
    *,
    format: str,
    queries: Judgments | Collection[str | int] | None = None,
    most_frequent: int | None = None,
    with_clicks: bool = False,
    merge_regions: bool = False,
    on_bad_line: OnBadLine = "error",
    in_memory: bool | None = None,
    output: str | Path | None = None,
    progress: Progress = silent,
) -> Log:
    """Open a log of a public format.

    Yandex logs of 256 MB and more are encoded on disk, next to the log and only once, with the sessions that are kept
    and nothing else. Memory then grows with the number of different documents that are kept, not with the log.

    Parameters
    ----------
    files
        The files of the log, in order of time.
    format
        Name of the format, e.g. "yandex-kaggle".
    queries
        Judgments, or ids of queries: only sessions of these queries are kept; None for all.
    most_frequent
        Keep the sessions of this number of most frequent queries, and those of `queries`. The log is read twice.
    with_clicks
        Keep only sessions with a click.
    merge_regions
        Name queries of the WSCD 2012 log by QueryID alone, instead of QueryID_RegionID.
    on_bad_line
        "error" raises at the first line that breaks the format; "skip" counts such lines in one warning.
    in_memory
        Whether to read a Yandex log into memory; by default, files below 256 MB are. Other logs always are.
    output
        Directory for the encoded log, for Yandex logs; by default a hidden one next to the log.
    progress
        Called with texts such as "65,536 sessions encoded".

    Returns
    -------
    Sessions or EncodedLog
        One session per SERP.

    Raises
    ------
    SpecError
        For a format that is not known, and "bad-option" for an option that the format does not have.
    FileError, DataError
        Those of `read_raw`.
    """
    encodable = format in YANDEX_LOGS
    if not encodable and (in_memory is False or output is not None or most_frequent is not None):
        raise SpecError(
            f"only {' and '.join(YANDEX_LOGS)} are encoded and reduced to their most frequent queries while they are "
            f"read: the format is {format}. Convert the log first: clickshift log convert.",
            code="bad-option",
            option="format",
            value=format,
        )
    options = regions_option(format, merge_regions)
    if most_frequent is not None:
        from clickshift.io.datasets._yandex_serps import most_frequent_queries

        progress("counting queries")
        kaggle = format == "yandex-kaggle"
        frequent = most_frequent_queries(files, most_frequent, kaggle=kaggle, on_bad_line=on_bad_line, **options)
        queries = [*frequent, *_names(queries)]
    if in_memory is None:
        in_memory = not encodable or (
            output is None
            and sum(os.path.getsize(file) for file in files if os.access(file, os.R_OK)) < open_log.MEMORY_LIMIT
        )
    if in_memory:
        progress("reading")
        chosen: dict[str, Any] = {"queries": queries, "with_clicks": with_clicks, **options}
        parts = [read_raw(file, format=format, on_bad_line=on_bad_line, **chosen) for file in files]
        return parts[0] if len(parts) == 1 else Sessions.concat(parts)
    from clickshift.io.datasets._yandex_serps import SerpFilter, yandex_batches

    names = None if queries is None else frozenset(_names(queries))
    kept = SerpFilter(format == "yandex-kaggle", names, with_clicks, merge_regions)
    asked = {"format": format, "with_clicks": str(with_clicks), "merge_regions": str(merge_regions)}
    if names is not None:
        asked["queries"] = hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=16).hexdigest()
    paths = list(map(Path, files))
    key = open_log.cache_key(paths, None, asked, on_bad_line)
    return open_log.encode_once(
        partial(yandex_batches, paths, kept, on_bad_line=on_bad_line),
        paths,
        key,
        report=ReadReport(str(paths[0]), on_bad_line),
        facts={"files": len(paths), "first_file": str(paths[0]), "key": key, "columns": asked},
        output=output,
        progress=progress,
    )


def _names(queries: Judgments | Collection[str | int] | None) -> list[str]:
    """Return query ids as texts."""
    return [] if queries is None else list(map(str, queries.queries if isinstance(queries, Judgments) else queries))
