"""Import events: impressions and clicks as they were tracked become a log, counts or a target policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Int

from clickshift.core.files import write_atomically
from clickshift.core.progress import Progress, silent
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts
from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import Log
from clickshift.data.vocabulary import Vocabulary
from clickshift.data.weighted_lists import WeightedLists
from clickshift.display.document import Document, Section
from clickshift.display.result import Result, two_columns
from clickshift.display.tables import Rows
from clickshift.errors import CapabilityError, FileError, SpecError
from clickshift.io.encode.duckdb import DuckdbLimits, sql_text
from clickshift.io.events.options import EventOptions
from clickshift.io.read_log import check_different, check_output, read_log, write_log
from clickshift.io.read_report import OnBadLine, ReadReport
from clickshift.io.table_writer import table_ending, write_table
from clickshift.io.tables.columns import FLOAT_TEXT, float_ids
from clickshift.io.tables.extra_columns import columns_with
from clickshift.io.target_files import read_target

if TYPE_CHECKING:
    from clickshift.data._arrow import Layout
    from clickshift.io.events._database import EventDatabase, Loaded
    from clickshift.io.events._join import Joined

_SHOWN_REASONS = 3
_OF_OTHER_FORMATS = {"missing-column", "unknown-column", "no-impressions", "empty-log", "not-an-event", "bad-type"}
"""Codes of errors that events of another format than the supposed one cause."""
_DOCUMENTS = "(SELECT unnest(docs) AS doc FROM lists)"  # in SQL


@final
@dataclass(frozen=True, repr=False, eq=False)
class ImportedEvents(Result):
    """A log that was made of events, with what was left out or repaired, by reason.

    Parameters
    ----------
    format
        Name of the format that was read.
    log
        The log as an Arrow table in the wide layout, or the file that it was written to.
    numbers
        Numbers and settings of the import, by name; see the notes.
    reasons
        The rows of the result.
    gives
        What the format gives: "lists", "counts" or "target".
    affected
        Results of the log that a reason affects, by reason: an array of their rows, ranks from 0 (-1 if the list was
        written without the document) and numbers of events. Empty if the log was written to a file.

    Notes
    -----
    Keys of `to_dict`, which `clickshift import --json` prints:

    - conclusion: what was read and written, and the most frequent reasons for which something was left out.
    - format: the format that was read.
    - output: the file that was written; null if there is none.
    - impressions, clicks, conversions: numbers of events of each kind that belong to a list.
    - lists, results, clicked: numbers of lists, of results with a rank of their own, and of the clicked ones among
      them, before gaps between ranks are treated; converted: number of results with a conversion.
    - lists_written, results_written, clicks_written: the same in the log.
    - queries, documents: numbers of different ones in the log.
    - gaps: how gaps were treated.
    - signals, segments: names of the log's further signals of results, such as conversions, and of its segments.
    - first_ranks: the number at which ranks begin, by source, as it was detected; lists_by_source: number of lists.
    - columns: the column that was read as each of ours, by file; for tables of events only.
    - rows: one dict per reason: reason (a stable name), outcome ("skipped", "left out" or "repaired"), count, what, and
      up to three examples.
    """

    format: str
    log: Any
    numbers: Mapping[str, Any]
    reasons: Rows = field(default_factory=list)
    gives: str = "lists"
    affected: Mapping[str, Int[np.ndarray, "3 result"]] = field(default_factory=dict)

    @cached_property
    def sessions(self) -> Log:
        """The log: `Sessions`, or an `EncodedLog` if it was written to a file that is too large for memory."""
        if self.gives != "lists":
            raise CapabilityError(
                f"{self.numbers['title']} has no sessions: it gives {self._what}.",
                code="no-sessions",
                format=self.format,
            )
        columns = columns_with(None, self.numbers["signals"], self.numbers["segments"])
        return (
            open_log(self.log, columns=columns) if isinstance(self.log, Path) else read_log(self.log, columns=columns)
        )

    @cached_property
    def counts(self) -> DayCounts:
        """Daily counts, which `fit` takes: of a table of counts, by rank only."""
        if self.gives != "counts":
            return DayCounts.of(self.sessions)
        return DayCounts.load(self.log) if isinstance(self.log, Path) else self.log

    @cached_property
    def target(self) -> WeightedLists:
        """The target policy of a snapshot, for off-policy evaluation."""
        if self.gives != "target":
            raise CapabilityError(
                f"{self.numbers['title']} is no target policy: it gives {self._what}.",
                code="no-target",
                format=self.format,
            )
        target = read_target(self.log)
        assert isinstance(target, WeightedLists)
        return target

    @property
    def _what(self) -> str:
        """What the format gives, in words."""
        return {"lists": "a log: sessions", "counts": "counts", "target": "a target policy: target"}[self.gives]

    def write_log(self, path: str | Path, *, layout: Layout = "wide") -> None:
        """Write the log to a file; see :func:`write_log`.

        Parameters
        ----------
        path
            The file: .parquet, .csv or .jsonl.
        layout
            "wide" for one row per list, "long" for one row per result.
        """
        write_log(self.sessions, path, layout=layout)

    @property
    def conclusion(self) -> str:
        """What was read and written, and the most frequent reasons for which something was left out."""
        n = self.numbers
        place = f" written to {self.log}" if isinstance(self.log, Path) else " read"
        if self.gives == "lists":
            what = (
                f"{_number(n['lists_written'], 'list')} with {_number(n['results_written'], 'result')} and "
                f"{_number(n['clicks_written'], 'click')}"
            )
        elif self.gives == "counts":
            what = (
                f"Counts of {_number(n['pairs'], 'pair')} with {_number(n['impressions'], 'impression')} and "
                f"{_number(n['clicks'], 'click')}"
            )
        else:
            what = f"{_number(n['lists'], 'list')} of a target policy"
        text = f"{what}{place}, from {n['title']}."
        if self.gives == "lists" and n["results_written"] < n["results"]:
            text += (
                f" Gaps between ranks cost {n['lists'] - n['lists_written']:,} of {n['lists']:,} lists, "
                f"{n['results'] - n['results_written']:,} of {n['results']:,} results and "
                f"{n['clicked'] - n['clicks_written']:,} of {n['clicked']:,} clicks."
            )
        lost = [row for row in self.reasons if row["outcome"] != "repaired" and "gap" not in row["reason"]]
        lost.sort(key=lambda row: -row["count"])
        if lost:
            shown = ", ".join(f"{row['what']} ({row['count']:,})" for row in lost[:_SHOWN_REASONS])
            more = len(lost) - _SHOWN_REASONS
            text += f" Left out: {shown}{f', and {more} more' if more > 0 else ''}."
        return text

    def rows(self) -> Rows:
        """Return one row per reason for which something was left out or repaired."""
        return self.reasons

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that the notes of the class list."""
        numbers = {name: value for name, value in self.numbers.items() if name != "title"}
        output = str(self.log) if isinstance(self.log, Path) else None
        return {"conclusion": self.conclusion, "format": self.format, "output": output, **numbers, "rows": self.rows()}

    def _document(self) -> Document:
        """Show the numbers, and the reasons."""
        hidden = {"title", "columns", "first_ranks", "lists_by_source", "signals", "segments"}
        shown = {name: value for name, value in self.numbers.items() if name not in hidden}
        bases = ", ".join(f"{base} in {source}" if source else str(base) for source, base in self._bases.items())
        if bases:
            shown["first rank"] = bases
        sections = [Section("Imported events", table=two_columns(shown))]
        if self.reasons:
            # a terminal has no room for three examples
            brief = [{**row, "examples": row["examples"].partition("; ")[0]} for row in self.reasons]
            sections.append(Section("Left out or repaired", table=brief))
        return Document("Imported events", self.conclusion, sections)

    @property
    def _bases(self) -> Mapping[str, int]:
        """The number at which ranks begin, by source."""
        bases: Mapping[str, int] = self.numbers.get("first_ranks", {})
        return bases


def read_events(
    events: str | Path | Sequence[Any] | Any,
    *,
    clicks: str | Path | Sequence[Any] | Any = None,
    format: str = "auto",
    output: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    click_types: Sequence[str] | None = None,
    conversion_types: Sequence[str] | None = None,
    impression_types: Sequence[str] | None = None,
    window: str | float | None = None,
    impression: str = "first",
    rank_base: int | None = None,
    page_size: int | None = None,
    gaps: str = "keep",
    shown: str = "impressions",
    application: Sequence[str] | None = None,
    normalise: Sequence[str] = (),
    on_bad_line: OnBadLine = "error",
    memory: str = "4GB",
    spill: str | Path | None = None,
    progress: Progress = silent,
) -> ImportedEvents:
    """Make a log of tracked events: impressions and clicks are joined into lists with their clicks.

    DuckDB joins the events, which may be larger than memory; pass `output` then. What the events have and a list cannot
    represent is left out, and counted by reason with examples.

    Parameters
    ----------
    events
        Events, or their impressions only: a file, a folder, a pattern, a data frame (pandas, Polars, Arrow, DuckDB), or
        a list of those. Files are recognised by their content, plain or gzip.
    clicks
        The clicks, if they are in a table of their own.
    format
        "auto" to recognise the format by its content, or one of the names that docs/input-columns.md lists, e.g. "ubi"
        or "events".
    output
        File for the log: .parquet, .csv or .jsonl. By default, the log is kept in memory.
    columns
        The events' names of our columns (event, list, session, query, doc, docs, rank, time, user, page, click,
        conversion, viewed, arm, device, source, signal:NAME, segment:NAME), e.g. ``{"doc": "sku"}``, for tables of
        events. Common names are recognised.
    click_types, conversion_types, impression_types
        Types of events that are clicks, conversions and impressions; by default the usual ones. Each type of conversion
        that occurs is a signal of the log, 0 or 1 for each result.
    window
        Longest time from an impression to a click on it, e.g. "30min" or seconds. By default, clicks count whenever
        they come.
    impression
        Whether the "first" or the "last" impression of a document in a list gives its rank.
    rank_base
        The number at which ranks begin, 0 or 1; by default it is the smallest rank of a source, at most 1.
    page_size
        Number of results of a page, if ranks begin again on each page.
    gaps
        What to do with a list in which a rank has no result: "keep" makes it a hole, so that all ranks are true;
        "truncate" keeps the results above it only; "close" moves the results below it up, which shifts their
        examination; "drop" leaves the list out.
    shown
        For UBI: "impressions" takes what was seen, "hits" what the engine returned.
    application
        For UBI: names of the applications to read; by default, all.
    normalise
        "lower" and "strip", to write query texts in lower case and without surrounding white space.
    on_bad_line
        "error" stops at the first event that breaks the format; "skip" leaves such events out and counts them.
    memory
        DuckDB memory limit, e.g. "4GB".
    spill
        Folder for temporary files; by default, that of the operating system.
    progress
        Called with texts such as "joining events".

    Returns
    -------
    ImportedEvents
        The log (`sessions`, `write_log`), and what was left out or repaired.

    Raises
    ------
    SpecError
        "bad-option", "unknown-format" for another name of a format, "missing-page-size", "same-file" for an output that
        is one of the events' files.
    FileError
        "unknown-format" if the format is not recognised, "mixed-formats", "missing-column", "unreadable-line",
        "bad-json", "bad-id", "bad-time", "bad-rank", "missing-value" for an event that breaks the format, "empty-log"
        if no list is left, and those of files that cannot be read or written.

    Examples
    --------
    >>> import pandas as pd
    >>> events = pd.DataFrame(
    ...     {
    ...         "session_id": ["s1", "s1", "s1", "s2", "s2"],
    ...         "event": ["impression", "impression", "click", "impression", "impression"],
    ...         "query": ["shoes"] * 5,
    ...         "product_id": ["a", "b", "b", "b", "a"],
    ...         "position": [0, 1, 1, 0, 1],
    ...     }
    ... )
    >>> imported = read_events(events)
    >>> imported.sessions.click.tolist()
    [[False, True], [False, False]]
    >>> imported.to_dict()["first_ranks"]
    {'': 0}
    """
    from clickshift.io.events._affected_results import affected_results
    from clickshift.io.events._database import event_database
    from clickshift.io.events._sources import open_sources
    from clickshift.io.events.formats import FORMATS, choice_advice, find_format
    from clickshift.io.events.generic import load_generic

    options = EventOptions(
        dict(columns or {}),
        click_types,
        impression_types,
        conversion_types,
        window,
        impression,
        rank_base,
        page_size,
        gaps,
        shown,
        application,
        normalise,
    )
    sources = open_sources(events)
    others = [] if clicks is None else open_sources(clicks)
    name = find_format(sources, format, clicks=bool(others))
    chosen = FORMATS[name]
    _check_options(name, options, chosen.options, clicks=bool(others))
    if output is not None and chosen.gives != "counts":
        check_output(output) if chosen.gives == "lists" else table_ending(output)
    if output is not None:
        check_different([source.path for source in (*sources, *others)], output)
    report = ReadReport(f"{sources[0].path}" + (f" and {len(sources) - 1} more" if sources[1:] else ""), on_bad_line)
    try:
        with event_database(DuckdbLimits(memory, spill), report, keep_results=output is None) as database:
            progress("reading events")
            if others:
                loaded = load_generic(database, sources, others, options)
            else:
                loaded = chosen.load(database, sources, options)
            progress("joining events")
            make = {"lists": _lists, "counts": _counts, "target": _target}[chosen.gives]
            log, numbers = make(database, options, loaded, output)
            affected = affected_results(database) if chosen.gives == "lists" else {}
    except FileError as error:
        if not others and (format != "auto" or error.code in _OF_OTHER_FORMATS):
            error.args = (f"{error}{choice_advice(sources, name, format)}",)
        raise
    if report.skip:
        report.warn_bad()
    facts: dict[str, Any] = {"title": chosen.title, **numbers}
    if loaded.columns:
        facts["columns"] = loaded.columns
    return ImportedEvents(name, log, facts, report.rows(), chosen.gives, affected)


def _lists(
    database: EventDatabase, options: EventOptions, loaded: Loaded, output: str | Path | None
) -> tuple[Any, dict[str, Any]]:
    """Join events into lists, and write them; return the log and its numbers."""
    from clickshift.io.events._join import join_events

    joined = join_events(database, options, loaded)
    if not joined.written_lists:
        database.report.fail_empty("list with a result that has a rank", "empty-log")
    _check_no_floats(database, {"query": "written", "doc": _DOCUMENTS})
    queries, documents = database.row(
        f"SELECT (SELECT count(DISTINCT query) FROM written), (SELECT count(DISTINCT doc) FROM {_DOCUMENTS})"
    )
    log = _write(database, _selection(database, joined, loaded.integers), joined, output)
    return log, {
        **joined.events,
        "lists": joined.lists,
        "results": joined.results,
        "clicked": joined.clicked,
        "converted": joined.converted,
        "lists_written": joined.written_lists,
        "results_written": joined.written_results,
        "clicks_written": joined.written_clicks,
        "queries": queries,
        "documents": documents,
        "gaps": options.gaps,
        "signals": list(joined.signals),
        "segments": list(joined.segments),
        "first_ranks": joined.bases,
        "lists_by_source": dict(database.rows("SELECT source, count(*) FROM written GROUP BY source ORDER BY source")),
    }


def _counts(
    database: EventDatabase, options: EventOptions, loaded: Loaded, output: str | Path | None
) -> tuple[Any, dict[str, Any]]:
    """Make daily counts of a table of counts; return them and their numbers."""
    if not database.number("SELECT count(*) FROM cells"):
        database.report.fail_empty("row with impressions", "empty-log")
    _check_no_floats(database, dict.fromkeys(("query", "doc"), "cells"))
    types = {name: "BIGINT" if name in loaded.integers else "VARCHAR" for name in ("query", "doc")}
    table = database.connection.sql(
        f"SELECT CAST(query AS {types['query']}) AS query, CAST(doc AS {types['doc']}) AS doc, rank, impressions, "
        "clicks FROM cells"
    ).to_arrow_table()
    query, doc = (table[name].combine_chunks() for name in ("query", "doc"))
    vocabulary, _, pair = Vocabulary.of(query, doc)
    rank, impressions, clicks = (table[name].to_numpy() for name in ("rank", "impressions", "clicks"))
    order = np.lexsort((rank, pair))
    n_ranks = int(rank.max())
    cells = Cells(
        vocabulary, n_ranks, "rank", pair[order].astype(np.int64), rank[order] - 1, impressions[order], clicks[order]
    )
    cells.validate()
    sessions = float(
        database.row(
            "SELECT sum(n) FROM (SELECT max(n) AS n FROM (SELECT query, rank, sum(impressions) AS n FROM cells "
            "GROUP BY query, rank) GROUP BY query)"
        )[0]
    )
    first, last = (
        None if value is None else np.datetime64(value)
        for value in database.row("SELECT min(time), max(time) FROM raw")
    )
    day = DayCounts(cells, None, sessions, first, last)
    numbers = {
        "impressions": float(impressions.sum()),
        "clicks": float(clicks.sum()),
        "pairs": vocabulary.n_pairs,
        "queries": vocabulary.n_queries,
        "documents": vocabulary.n_docs,
        "ranks": n_ranks,
    }
    if output is None:
        return day, numbers
    day.save(output)
    return Path(output), numbers


def _target(
    database: EventDatabase, options: EventOptions, loaded: Loaded, output: str | Path | None
) -> tuple[Any, dict[str, Any]]:
    """Write a target policy as a table; return it and its numbers."""
    if not database.number("SELECT count(*) FROM lists"):
        database.report.fail_empty("list with a document", "empty-log")
    _check_no_floats(database, {"query": "lists", "doc": _DOCUMENTS})
    table = database.connection.sql("FROM lists ORDER BY query").to_arrow_table()
    numbers = {"lists": len(table), "results": database.number("SELECT sum(len(docs)) FROM lists")}
    if output is None:
        return table, numbers
    write_table(table, output)
    return Path(output), numbers


def _check_no_floats(database: EventDatabase, tables: Mapping[str, str]) -> None:
    """Check that the ids of a column, which a table has, are not all floats: no reader of logs takes them."""
    for name, table in tables.items():
        text = f"regexp_full_match({name}, {sql_text(FLOAT_TEXT)})"
        if not database.rows(f"SELECT 1 FROM {table} WHERE NOT {text} LIMIT 1"):
            example = database.row(f"SELECT {name} FROM {table} LIMIT 1")[0]
            problem = float_ids(name, f"text such as {example}")
            path = Path(database.report.path)
            raise FileError(path, f"column {name} {problem}.", code=problem.code, column=name)


def _number(count: float, noun: str) -> str:
    """Format a number of things."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def _check_options(name: str, options: EventOptions, allowed: frozenset[str], *, clicks: bool) -> None:
    """Check that the options that were given are options of the format."""
    defaults = EventOptions()
    special = ("columns", "page_size", "impression_types", "shown", "application")
    given = [option for option in special if getattr(options, option) != getattr(defaults, option)]
    if wrong := [option for option in given if option not in allowed]:
        raise SpecError(
            f"{wrong[0]} is not an option of the format {name}. Leave it out, or choose another format.",
            code="bad-option",
            option=wrong[0],
            value=name,
        )
    if clicks and name != "events":
        raise SpecError(
            f"clicks apart are an option of the format events: got {name}. Leave one of the two out.",
            code="bad-option",
            option="clicks",
            value=name,
        )


def _selection(database: EventDatabase, joined: Joined, integers: Sequence[str]) -> str:
    """Return the statement that selects the log, in order of time."""
    from clickshift.io.encode.duckdb import sql_name
    from clickshift.io.events._affected_results import LOG_ORDER
    from clickshift.io.events._join import segment_column, signal_column

    canonical = "regexp_full_match({}, '0|-?[1-9][0-9]{{0,17}}')"
    query = doc = "VARCHAR"
    if "query" in integers and not database.number(
        f"SELECT count(*) FROM written WHERE NOT {canonical.format('query')}"
    ):
        query = "BIGINT"
    if "doc" in integers and not database.number(
        f"SELECT count(*) FROM {_DOCUMENTS} WHERE NOT {canonical.format('doc')}"
    ):
        doc = "BIGINT"
    columns = [f"CAST(query AS {query}) AS query", f"CAST(docs AS {doc}[]) AS docs", "clicks"]
    columns += ["time"] * joined.has_time + ['"user"'] * joined.has_user
    columns += [f"{signal_column(name)} AS {sql_name(name)}" for name in joined.signals]
    columns += [f"{segment_column(name)} AS {sql_name(name)}" for name in joined.segments]
    return f"SELECT {', '.join(columns)} FROM written ORDER BY {LOG_ORDER}"


def _write(database: EventDatabase, selection: str, joined: Joined, output: str | Path | None) -> Any:
    """Write the log to its file, complete or not at all, or return it as an Arrow table."""
    if output is None:
        return database.connection.sql(selection).to_arrow_table()
    if Path(output).suffix.lower() == ".parquet":
        with write_atomically(output) as temporary:
            database.execute(f"COPY ({selection}) TO {sql_text(temporary)} (FORMAT parquet)")
        return Path(output)
    whole = database.folder / "log.parquet"
    database.execute(f"COPY ({selection}) TO {sql_text(whole)} (FORMAT parquet)")
    write_log(open_log(whole, columns=columns_with(None, joined.signals, joined.segments)), output)
    return Path(output)
