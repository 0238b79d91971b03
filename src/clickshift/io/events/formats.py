"""Formats of events by name: how each is recognised by its content, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clickshift.errors import FileError, SpecError
from clickshift.io.events import aggregated, ga4, generic, metarank, quepid, research, snowplow, tiangong, ubi
from clickshift.io.events._database import EventDatabase, Loaded
from clickshift.io.events._sources import Source, repeated_names
from clickshift.io.events.options import EventOptions

Yield = Literal["lists", "counts", "target"]
"""What a format gives: lists with clicks, counts by rank, or a target policy."""
_Load = Callable[[EventDatabase, Sequence[Source], EventOptions], Any]


@dataclass(frozen=True)
class EventFormat:
    """A format of events.

    Parameters
    ----------
    title
        Name for people.
    recognise
        Function from the names of columns and the first documents that tells whether they are of this format.
    load
        Function that fills the table `events`, or another one that the kind of result needs.
    gives
        What the format gives.
    options
        Options that the format has beside those of all formats.
    columns
        Columns that its tables must have, where they have fixed names.
    """

    title: str
    recognise: Callable[[Source], bool]
    load: _Load
    gives: Yield = "lists"
    options: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()


def _generic(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Load a table of events of all types."""
    return generic.load_generic(database, sources, (), options)


def _is_generic(source: Source) -> bool:
    """Return whether a table has a document and a type of events, a click, or a rank."""
    found = generic.recognise(source.names, {})
    return ("doc" in found and bool({"event", "click", "rank"} & {*found})) or ("docs" in found and "query" in found)


FORMATS: dict[str, EventFormat] = {
    "ubi": EventFormat(
        "OpenSearch UBI",
        lambda source: ubi.is_ubi(source.names, source.sample),
        ubi.load_ubi,
        options=frozenset({"shown", "application"}),
    ),
    "metarank": EventFormat(
        "Metarank",
        lambda source: metarank.is_metarank(source.names, source.sample),
        metarank.load_metarank,
        options=frozenset({"columns"}),
    ),
    "ga4": EventFormat(
        "Google Analytics 4",
        lambda source: ga4.is_ga4(source.names),
        ga4.load_ga4,
        options=frozenset({"impression_types"}),
    ),
    "snowplow": EventFormat(
        "Snowplow ecommerce",
        lambda source: snowplow.is_snowplow(source.names),
        snowplow.load_snowplow,
        options=frozenset({"columns", "impression_types"}),
    ),
    "expedia": EventFormat("Expedia", research.is_expedia, research.load_expedia, columns=research.EXPEDIA_COLUMNS),
    "baidu-uva": EventFormat(
        "Baidu-ULTR-UvA", research.is_baidu_uva, research.load_baidu_uva, columns=research.BAIDU_UVA_COLUMNS
    ),
    "baidu-ultr": EventFormat("Baidu-ULTR", research.is_baidu_ultr, research.load_baidu_ultr),
    "clax": EventFormat("CLAX", research.is_clax, research.load_clax, columns=research.CLAX_COLUMNS),
    "tiangong": EventFormat("TianGong-ST", tiangong.is_tiangong, tiangong.load_tiangong),
    "graphcm": EventFormat("GraphCM text", research.is_graphcm, research.load_graphcm),
    "quepid": EventFormat(
        "Quepid",
        lambda source: quepid.is_quepid(source.names),
        quepid.load_quepid,
        gives="target",
        columns=quepid.COLUMNS,
    ),
    "aggregated": EventFormat(
        "a table of counts",
        aggregated.is_aggregated,
        aggregated.load_aggregated,
        gives="counts",
        options=frozenset({"columns"}),
    ),
    "events": EventFormat(
        "tables of events", _is_generic, _generic, options=frozenset({"columns", "page_size", "impression_types"})
    ),
}
"""Formats in the order in which they are tried."""


def find_format(sources: Sequence[Source], name: str, *, clicks: bool) -> str:
    """Return the name of the format of sources: the given one, or the one that all of them have.

    Raises
    ------
    SpecError
        "unknown-format" for a name that is not one of the formats.
    FileError
        "unknown-format" if a source is of no format, "mixed-formats" if they are of different ones.
    """
    if name != "auto" and name not in FORMATS:
        raise SpecError(
            f"format must be one of {', '.join(FORMATS)}, or auto: got {name!r}.",
            code="unknown-format",
            option="format",
            value=name,
            known=list(FORMATS),
        )
    if name != "auto":
        for source in sources:
            _check_columns(source, name)
        return name
    if clicks:
        return "events"
    found = [recognised(source) for source in sources]
    for source, one in zip(sources, found, strict=True):
        if one is None:
            raise FileError(
                source.path,
                f"the format is not recognised: it looks like {_described(source)}. The formats are "
                f"{', '.join(FORMATS)}. "
                'If it is one of these, pass format="NAME". Any table of events is of the format events: it has the '
                'columns session, query, rank, doc and event, under any names; pass columns={"doc": "..."} for names '
                "that are not recognised, or a table of impressions and one of clicks (`clicks`).",
                code="unknown-format",
                known=list(FORMATS),
            )
    if other := [one for one in found if one != found[0]]:
        at = found.index(other[0])
        raise FileError(
            sources[at].path,
            f"all sources must be of one format: this is {FORMATS[str(other[0])].title}, and {sources[0].path} is "
            f'{FORMATS[str(found[0])].title}. Import them one by one, or pass format="{found[0]}".',
            code="mixed-formats",
            known=[str(one) for one in found],
        )
    return str(found[0])


def recognised(source: Source) -> str | None:
    """Return the name of the format that a source has by its content; None for none."""
    return next((name for name, format in FORMATS.items() if format.recognise(source)), None)


def choice_advice(sources: Sequence[Source], name: str, given: str) -> str:
    """Return how to choose another format than the one by which sources could not be read.

    Parameters
    ----------
    sources
        The sources.
    name
        The format by which they were read.
    given
        The format that was given, or "auto".
    """
    if given == "auto":
        title = FORMATS[name].title
        return f' The content was recognised as {title}: pass format="..." if it is of another format.'
    other = recognised(sources[0])
    if other is None or other == name:
        return ""
    return f' The content looks like {FORMATS[other].title}: pass format="{other}".'


def _check_columns(source: Source, name: str) -> None:
    """Check that a source has the columns of a format that was chosen by name."""
    chosen = FORMATS[name]
    if missing := sorted(chosen.columns - {*source.names}):
        raise FileError(
            source.path,
            f"{chosen.title} must have the columns {', '.join(sorted(chosen.columns))}: {', '.join(missing)} not "
            f"found. It looks like {_described(source)}.{choice_advice([source], name, name)}",
            code="missing-column",
            columns=missing,
            known=list(source.names),
        )


def _described(source: Source) -> str:
    """Describe the content of a source."""
    kinds = {
        "csv": "a table",
        "json-lines": "JSON lines",
        "json-array": "a list of JSON objects",
        "json-object": "one JSON object",
        "tagged-json": "JSON lines after a tag",
        "parquet": "a Parquet table",
        "frame": "a data frame",
        "text": "text without a header",
    }
    if source.kind == "text" and (repeated := repeated_names(source)):
        return f"a table whose header has {' and '.join(repeated)} more than once"
    if source.kind == "text":
        return f"{kinds['text']}, which begins {source.lines[0][:60]!r}"
    names = ", ".join(source.names[:20]) + (" and more" if len(source.names) > 20 else "")
    return f"{kinds[source.kind]} with {'keys' if 'json' in source.kind else 'columns'} {names or 'none'}"
