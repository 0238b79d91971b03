"""Tables of events of any origin: impressions and clicks, apart or in one table with a column of event types.

| column | meaning |
|---|---|
| session, or list | what the events of a list have in common: a session, or the id of a search or of a shown list |
| query, doc | the query and the document |
| rank | the rank of the document; or `docs`, all documents of a list in order |
| event | type of the event, in a table that has several |
| click, conversion | whether the document was clicked, and bought, in a table with a row per result |
| viewed | whether the document was seen, in such a table |
| arm, device | segments: the arm of an experiment, the device |
| time, user, page, source | optional |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from clickshift.data._columns import ARM, VIEWED
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.encode.duckdb import sql_name
from clickshift.io.events._database import CLICK, IMPRESSION, SEPARATOR, SIGNAL, EventDatabase, Loaded, Reason, kind_of
from clickshift.io.events._join import UNSEEN_CLICKS, UNSEEN_CONVERSIONS
from clickshift.io.events._problems import check_rejected, located
from clickshift.io.events._sources import Source, check_types, is_list
from clickshift.io.events.options import EventOptions, signal_names
from clickshift.io.tables.extra_columns import SEGMENT as SEGMENT_PREFIX
from clickshift.io.tables.extra_columns import SIGNAL as SIGNAL_PREFIX
from clickshift.io.tables.extra_columns import chosen_extras, is_segment, plain_name

NAMES = {
    "event": ("event_type", "event_name", "action", "action_name", "type", "kind", "interaction"),
    "list": ("list_id", "serp_id", "search_id", "request_id", "impression_id", "page_view_id", "query_id"),
    "session": ("session_id", "sid", "visit_id", "search_session"),
    "query": (
        *("search_query", "user_query", "query_text", "search_term", "search_text", "keyword", "keywords", "term"),
        *("q", "qid", "query_id"),
    ),
    "doc": (
        *("doc_id", "document", "document_id", "product_id", "item", "item_id", "object_id", "product", "sku", "asin"),
        *("content_id", "result_id", "url"),
    ),
    "docs": ("results", "doc_ids", "items", "documents", "ranking", "product_ids", "item_ids"),
    "rank": ("position", "pos", "ordinal", "slot", "index"),
    "time": ("timestamp", "ts", "datetime", "event_time", "event_timestamp", "created_at", "occurred_at", "date"),
    "user": ("user_id", "uid", "visitor_id", "client_id", "customer_id", "anonymous_id"),
    "page": ("page_number", "page_no", "page_index"),
    "click": ("clicked", "is_click", "is_clicked"),
    "conversion": ("converted", "is_conversion", "purchased", "is_purchase"),
    "source": ("application", "app"),
    VIEWED: ("is_viewed", "in_viewport"),
    ARM: ("experiment_arm", "search_config"),
    "device": ("device_category", "device_type"),
}
"""Our columns of tables of events, and their common names, the most telling one first, in any case of letters."""
_IDS = ("list", "session", "query", "doc", "docs")
_EXAMPLE = "concat_ws(', ', 'session ' || key, 'query ' || query, 'document ' || doc, time)"


@cache
def snake_case(name: str) -> str:
    """Return a name of a column in lower case, its words joined by underscores.

    Examples
    --------
    >>> snake_case("Session ID"), snake_case("sessionId"), snake_case("QUERY")
    ('session_id', 'session_id', 'query')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^0-9a-z]+", "_", words.lower()).strip("_")


def recognise(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the table's names of our columns: given ones, our names, and common ones.

    Examples
    --------
    >>> recognise(["Session ID", "query", "query_id", "SKU"], {})
    {'list': 'query_id', 'session': 'Session ID', 'query': 'query', 'doc': 'SKU'}
    """
    found: dict[str, str] = {}
    given = set(columns.values())
    by_snake: dict[str, str] = {}
    for name in names:
        if name not in given:
            by_snake.setdefault(snake_case(name), name)
    for ours, common in NAMES.items():
        if ours in columns:
            if columns[ours]:
                found[ours] = columns[ours]
            continue
        theirs = next((by_snake[name] for name in (ours, *common) if name in by_snake), None)
        if theirs is not None:
            found[ours] = theirs
    found |= {ours: theirs for ours, theirs in columns.items() if _is_extra(ours) and theirs}
    if found.get("list") == found.get("query") and "list" not in columns:
        found.pop("list", None)
    if found.get("docs") == found.get("doc"):
        found.pop("docs", None)
    return found


def _is_extra(name: str) -> bool:
    """Return whether a name of a column is that of a signal or of a segment that a caller chose."""
    return name.startswith((SIGNAL_PREFIX, SEGMENT_PREFIX))


def load_generic(
    database: EventDatabase, sources: Sequence[Source], clicks: Sequence[Source], options: EventOptions
) -> Loaded:
    """Make the table `events` of tables of events; see `_database.EVENT_COLUMNS`.

    Parameters
    ----------
    database
        The database.
    sources
        Tables of impressions, or of events of all types.
    clicks
        Tables of clicks; none if the types of events tell them.
    options
        Options of reading.

    Raises
    ------
    FileError
        "missing-column" or "unknown-column" for a table without a column that is needed, "float-ids", "no-impressions",
        and "bad-json", "missing-value", "bad-id", "bad-time", "bad-rank", "bad-type" for events that break the format,
        unless they are skipped.
    SpecError
        "missing-page-size" if ranks begin again on each page.
    """
    _check_columns(options.columns)
    tables = [*((source, False) for source in sources), *((source, True) for source in clicks)]
    founds = [_columns_of(source, options, clicked=clicked, apart=bool(clicks)) for source, clicked in tables]
    names = {
        f"{source.path}{' (clicks)' * clicked}": found for (source, clicked), found in zip(tables, founds, strict=True)
    }
    known = [name for name in dict.fromkeys(name for found in founds for name in found)]
    segments = [name for name in known if is_segment(name) or name == "device"]
    flags = [name for name in known if name in {"conversion", VIEWED} or name.startswith(SIGNAL_PREFIX)]
    if both := {*map(plain_name, flags)} & {*map(plain_name, segments)}:
        raise DataError(
            f"a signal and a segment must have different names: got {min(both)} twice. Rename one of them in columns.",
            code="bad-column-name",
            value=min(both),
        )
    extra = ", ".join(f"{sql_name(f'segment {plain_name(name)}')} VARCHAR" for name in segments)
    database.execute(
        "CREATE TABLE acts (file INTEGER, source VARCHAR, key VARCHAR, query VARCHAR, doc VARCHAR, ordinal BIGINT, "
        f'time TIMESTAMP, "user" VARCHAR, page BIGINT, kind TINYINT, event VARCHAR, problem VARCHAR'
        f"{', ' * bool(extra)}{extra})"
    )
    scans, selections, amounts = list[str](), list[str](), list[tuple[str, dict[str, str]]]()
    for number, ((source, clicked), found) in enumerate(zip(tables, founds, strict=True)):
        relation = source.columns(
            database,
            list(dict.fromkeys(found.values())),
            [found[name] for name in _IDS if name in found and name != "docs"],
        )
        unnumbered = f"(SELECT *, 0 AS row FROM {relation})"
        checked = _checked(source, unnumbered, found, options, clicked=clicked, segments=segments, flags=flags)
        kinds = _kinds_of_flags(found, flags, len(options.conversions), clicked=clicked)
        selections.append(_selection(checked, number, kinds, segments))
        if "event" not in found and not clicked:
            amounts.append((relation, found))
        numbered = f"(SELECT *, row_number() OVER () AS row FROM {relation})"
        scans.append(_checked(source, numbered, found, options, clicked=clicked, segments=segments, flags=flags))
    database.execute(f"INSERT INTO acts {' UNION ALL '.join(selections)}")
    for relation, found in amounts:
        _report_amounts(database, relation, found, flags)
    check_rejected(database, [source for source, _ in tables])
    _report_problems(database, [source for source, _ in tables], scans)
    _report_other_types(database, tables)
    _number_pages(database, options)
    _name_queries(database)
    columns = f"""place, source, concat_ws({SEPARATOR}, key, query) AS list, query, doc, ordinal, time, "user", kind"""
    columns += "".join(f", {sql_name(f'segment {plain_name(name)}')}" for name in segments)
    database.execute(
        f"""CREATE VIEW events AS SELECT {columns} FROM (SELECT rowid AS place, * FROM acts WHERE query IS NOT NULL)
        UNION ALL SELECT {columns} FROM named"""
    )
    given = [(source, found) for (source, _), found in zip(tables, founds, strict=True)]
    integers = {
        "query": all(is_integer(source, found.get("query")) for source, found in given),
        "doc": all(is_integer(source, found.get("doc", found.get("docs"))) for source, found in given),
    }
    return Loaded(
        names,
        tuple(name for name, whole in integers.items() if whole),
        (*signal_names(options.conversions), *map(plain_name, flags)),
        tuple(map(plain_name, segments)),
    )


def _check_columns(columns: Mapping[str, str]) -> None:
    """Check that columns are given by our names."""
    chosen_extras(columns)
    if unknown := [name for name in columns if name not in NAMES and not _is_extra(name)]:
        raise DataError(
            f"columns must map our names to the events': {unknown[0]} is not one of ours, which are "
            f'{", ".join(NAMES)}. Pass columns={{"doc": "sku"}} for events that call the document sku.',
            code="unknown-column",
            column=unknown[0],
            known=list(NAMES),
        )


def _columns_of(source: Source, options: EventOptions, *, clicked: bool, apart: bool) -> dict[str, str]:
    """Return the table's names of our columns, or raise for a table that misses one."""
    listed = ", ".join(source.names[:50]) or "none"
    if source.kind in {"text", "json-object"} or not source.names:
        raise FileError(
            source.path,
            "events must be a table with a header, JSON lines, or Parquet: this is another kind of text.",
            code="unknown-format",
        )
    json = source.kind in {"json-lines", "json-array", "tagged-json"}
    for ours, theirs in options.columns.items():
        nested = json and "." in theirs
        if theirs and theirs not in source.names and not nested and not (apart and ours in {"rank", "docs", "click"}):
            raise FileError(
                source.path,
                f"there is no column {theirs}, which columns gives for {ours}: the table has {listed}.",
                code="unknown-column",
                column=theirs,
                known=list(source.names),
            )
    present = {
        ours: theirs
        for ours, theirs in options.columns.items()
        if theirs in source.names or "." in theirs or not theirs
    }
    found = recognise(source.names, present)
    missing = [] if {"session", "list"} & {*found} else ["session"]
    needed = ("doc",) if clicked else ("query", "doc", "rank")
    lists = "docs" in found and not clicked and not {"doc", "rank"} <= {*found}
    missing += [name for name in needed if name not in found and not (lists and name != "query")]
    if not clicked and not apart and not missing and not lists and not {"event", "click"} & {*found}:
        missing = ["event"]
    if missing:
        what = "clicks" if clicked else "impressions" if apart else "events"
        columns = ", ".join(f'"{name}": "..."' for name in missing)
        also = ", ".join(f"{theirs} as {ours}" for ours, theirs in found.items() if ours != theirs)
        hint = " Or pass the clicks as a table of their own: clicks=..." if missing == ["event"] else ""
        if {"query", "docs", "clicks"} <= {*source.names}:
            hint = " Or is it a log already, with a row per list? It needs no import."
        raise FileError(
            source.path,
            f"a table of {what} must have a column {' and '.join(missing)}: it has {listed}"
            f"{f' (recognised: {also})' if also else ''}. If they have other names, pass columns={{{columns}}}.{hint}",
            code="missing-column",
            columns=missing,
            known=list(source.names),
        )
    if lists:
        found.pop("doc", None)
        found.pop("rank", None)
    else:
        found.pop("docs", None)
    check_types(source, found, _IDS)
    return found


def _checked(
    source: Source,
    relation: str,
    found: Mapping[str, str],
    options: EventOptions,
    *,
    clicked: bool,
    segments: Sequence[str],
    flags: Sequence[str],
) -> str:
    """Return the events of a table in SQL, each with the problem that it has, and the value that is to blame."""

    def text(name: str) -> str:
        return _text(found[name]) if name in found else "CAST(NULL AS VARCHAR)"

    def parsed(name: str, function: str) -> str:
        return f"{function}({text(name)})" if name in found else "NULL"

    time = _time(source, found["time"]) if "time" in found else "CAST(NULL AS TIMESTAMP)"
    key = text("list") if "list" in found else text("session")
    query = text("query")
    for name in options.normalise:
        query = f"lower({query})" if name == "lower" else f"nullif(trim({query}), '')"
    extra = "".join(f"{text(name)} AS {sql_name(f'segment {plain_name(name)}')}, " for name in segments)
    extra += "".join(f"{_flag(text(name))} AS {sql_name(f'flag {name}')}, " for name in flags)
    nested = "nested"
    if "docs" in found and not is_list(source.types.get(found["docs"])):
        items = f"json_type(try_cast({sql_name(found['docs'])} AS JSON), '$[*]')"
        nested += f" OR coalesce(list_has_any({items}, ['ARRAY', 'OBJECT']), false)"
    query_needed = "" if clicked else f"WHEN query IS NULL AND kind = {IMPRESSION} THEN 'query'"
    click_needed = "WHEN click IS NULL THEN 'bad-click'" if _has_flag(found, clicked=clicked) else ""
    return f"""(SELECT *, CASE problem WHEN 'bad-time' THEN time_text WHEN 'bad-rank' THEN rank_text
            WHEN 'bad-click' THEN click_text ELSE {_EXAMPLE} END AS got
        FROM (SELECT *, CASE WHEN NOT readable THEN 'bad-json' WHEN kind IS NULL THEN NULL
            WHEN nested THEN 'bad-id' WHEN key IS NULL THEN 'session' WHEN doc IS NULL THEN 'doc' {query_needed}
            WHEN time IS NULL AND time_text IS NOT NULL THEN 'bad-time'
            WHEN ordinal IS NULL AND rank_text IS NOT NULL THEN 'bad-rank' {click_needed} END AS problem
        FROM (SELECT coalesce({text("source")}, '') AS source, {key} AS key, {query} AS query,
            {text("user")} AS "user", {text("event")} AS event, {_kind(found, options, clicked=clicked)} AS kind,
            {time} AS time, CASE WHEN {time} IS NULL THEN {text("time")} END AS time_text,
            {parsed("page", "integer_of")} AS page,
            {parsed("click", "flag_of")} AS click, {text("click")} AS click_text,
            {extra}readable, {nested} AS nested, row, {_documents(source, found)} FROM {relation})))"""


def _flag(text: str) -> str:
    """Return whether a value says yes, or is a number above 0, in SQL."""
    return f"coalesce(flag_of({text}) = 1, try_cast({text} AS DOUBLE) > 0, false)"


def _report_amounts(database: EventDatabase, relation: str, found: Mapping[str, str], flags: Sequence[str]) -> None:
    """Report the amounts of signals, of which a log of events keeps whether they are above 0."""
    for name in flags:
        if name not in found or not name.startswith(SIGNAL_PREFIX):
            continue
        text, plain = _text(found[name]), plain_name(name)
        database.repaired(
            relation,
            f"try_cast({text} AS DOUBLE) > 0 AND try_cast({text} AS DOUBLE) <> 1",
            f"amounts of {plain}: the log says whether there was any. A table with a row per result, with columns "
            "session, query, rank, doc and click, is a log already, whose signals keep their amounts",
            "signal-amount",
            example=f"concat('{plain.replace(chr(39), chr(39) * 2)} ', {text})",
        )


def _kinds_of_flags(found: Mapping[str, str], flags: Sequence[str], first: int, *, clicked: bool) -> str:
    """Return the kinds of events that a row has in SQL: an impression, and one for each flag of the result."""
    own = [name for name in flags if name in found] if "event" not in found and not clicked else []
    kinds = [f"CASE WHEN {sql_name(f'flag {name}')} THEN [{SIGNAL + first + flags.index(name)}] END" for name in own]
    if _has_flag(found, clicked=clicked):
        kinds.insert(0, f"CASE WHEN click = 1 THEN [{CLICK}] END")
    if not kinds:
        return "kind"
    joined = f"[{IMPRESSION}]"
    for one in kinds:
        joined = f"list_concat({joined}, coalesce({one}, []))"
    return f"unnest(CASE WHEN problem IS NULL THEN {joined} ELSE [{IMPRESSION}] END)"


def _selection(checked: str, number: int, kinds: str, segments: Sequence[str]) -> str:
    """Return the events of a table in SQL, as `acts` holds them."""
    extra = "".join(f", {sql_name(f'segment {plain_name(name)}')}" for name in segments)
    return f"""SELECT {number}, source, key, query, doc, ordinal, time, "user", page,
        {kinds}, event, problem{extra} FROM {checked}"""


def _has_flag(found: Mapping[str, str], *, clicked: bool) -> bool:
    """Return whether a column of a table of results says which of them were clicked."""
    return "click" in found and "event" not in found and not clicked


def _text(column: str) -> str:
    """Return a column as text in SQL, NULL where it is empty."""
    return f"nullif(CAST({sql_name(column)} AS VARCHAR), '')"


def _time(source: Source, column: str) -> str:
    """Return a column of times in SQL; NULL for what is no time."""
    if str(source.types.get(column, "")).startswith(("timestamp", "date")):
        return f"dated(TRY_CAST({sql_name(column)} AS TIMESTAMP))"
    return f"time_of({_text(column)})"


def _rank(source: Source, column: str) -> str:
    """Return a column of ranks in SQL; NULL for what is no rank."""
    if "int" in str(source.types.get(column, "")):
        return f"CASE WHEN abs(CAST({sql_name(column)} AS DOUBLE)) < 1e9 THEN CAST({sql_name(column)} AS BIGINT) END"
    return f"integer_of({_text(column)})"


def _documents(source: Source, found: Mapping[str, str]) -> str:
    """Return the columns doc, ordinal and rank_text in SQL; a column of lists gives one row per document."""
    if "docs" not in found:
        if "rank" not in found:
            return f"{_text(found['doc'])} AS doc, CAST(NULL AS VARCHAR) AS rank_text, CAST(NULL AS BIGINT) AS ordinal"
        ordinal = _rank(source, found["rank"])
        text = f"CASE WHEN {ordinal} IS NULL THEN {_text(found['rank'])} END"
        return f"{_text(found['doc'])} AS doc, {ordinal} AS ordinal, {text} AS rank_text"
    column = sql_name(found["docs"])
    if is_list(source.types.get(found["docs"])):
        items = f"CAST({column} AS VARCHAR[])"
    else:
        separated = f"string_split_regex({column}, '[\\s,|]+')"
        items = f"CASE WHEN {column} LIKE '[%' THEN try_cast({column} AS JSON)->>'$[*]' ELSE {separated} END"
    return (
        f"unnest({items}) AS doc, CAST(NULL AS VARCHAR) AS rank_text, "
        f"CAST(generate_subscripts({items}, 1) AS BIGINT) AS ordinal"
    )


def _kind(found: Mapping[str, str], options: EventOptions, *, clicked: bool) -> str:
    """Return the kind of an event in SQL."""
    if "event" not in found:
        return f"CAST({CLICK if clicked else IMPRESSION} AS TINYINT)"
    column = f"lower(trim(CAST({sql_name(found['event'])} AS VARCHAR)))"
    types = ([name.lower() for name in names] for names in (options.impressions, options.clicks, options.conversions))
    return kind_of(column, *types)


def _report_problems(database: EventDatabase, sources: Sequence[Source], scans: Sequence[str]) -> None:
    """Report the events that break the format, with the lines of the first ones, and drop them."""
    rules = {
        "bad-json": ("a line must be a JSON object", "bad-json"),
        "session": ("an event must have a session", "missing-value"),
        "doc": ("an event must have a document", "missing-value"),
        "query": ("an impression must have a query", "missing-value"),
        "bad-id": ("session, query and document must be text or numbers, not lists or objects", "bad-id"),
        "bad-time": ("time must be a time", "bad-time"),
        "bad-rank": ("rank must be an integer", "bad-rank"),
        "bad-click": ("click must be 0 or 1", "not-zero-or-one"),
    }
    for problem, file, count in database.rows(
        "SELECT problem, file, count(*) FROM acts WHERE problem IS NOT NULL GROUP BY ALL ORDER BY file, min(rowid)"
    ):
        rule, code = rules[problem]
        source = sources[file]
        examples = source.unreadable() if problem == "bad-json" else []
        if not examples:
            wanted = f"SELECT DISTINCT row, got FROM {scans[file]} WHERE problem = '{problem}' ORDER BY row LIMIT 3"
            rows = [(int(row), str(got or "nothing")) for row, got in database.rows(wanted)]
            examples = [located(database, source, row, got) for row, got in rows]
        advice = ""
        if code == "bad-time" and re.search(r"\d/\d", examples[0].got):
            advice = " (write 2026-03-04: a date such as 3/4/2026 does not say which number is the month)"
        database.report.bad_events(count, rule, code, examples, advice)
    database.execute("DELETE FROM acts WHERE problem IS NOT NULL")


def _report_other_types(database: EventDatabase, tables: Sequence[tuple[Source, bool]]) -> None:
    """Report events of other types, and check that there are impressions."""
    types = database.rows(
        "SELECT coalesce(event, 'nothing'), count(*) FROM acts WHERE kind IS NULL GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    if not database.number(f"SELECT count(*) FROM acts WHERE kind = {IMPRESSION}"):
        others = ", ".join(f"{name} ({count:,})" for name, count in types[:20])
        clicks = database.number(f"SELECT count(*) FROM acts WHERE kind = {CLICK}")
        bad = sum(row["count"] for row in database.report.rows() if row["outcome"] == "skipped")
        found = [f"clicks ({clicks:,})"] * (clicks > 0) + [f"events of other types: {others}"] * bool(others)
        found += [f"events that break the format ({bad:,})"] * (bad > 0)
        raise FileError(
            tables[0][0].path,
            f"there must be impressions: there are {' and '.join(found) or 'no events'}. Pass the types of events that "
            'are impressions: impression_types=["..."].',
            code="no-impressions",
            known=[name for name, _ in types],
        )
    if types:
        examples = [f"{name} ({count:,})" for name, count in types[:3]]
        database.report.left_out(
            sum(count for _, count in types), "events of other types", "other-action", examples=examples
        )
        database.execute("DELETE FROM acts WHERE kind IS NULL")


def _number_pages(database: EventDatabase, options: EventOptions) -> None:
    """Turn ranks on a page into ranks of the whole list."""
    pages = database.row(
        """SELECT count(DISTINCT page), min(ordinal) FILTER (page > first), min(ordinal) FILTER (page = first)
        FROM acts, (SELECT min(page) AS first FROM acts) WHERE ordinal >= 0"""
    )
    if options.page_size is None:
        if pages[0] > 1 and pages[1] is not None and pages[2] is not None and pages[1] <= pages[2]:
            raise SpecError(
                "ranks begin again on each page, so page_size must be given. Pass page_size=..., the number of results "
                'of a page, or columns={"page": ""} if they do not.',
                code="missing-page-size",
            )
        return
    if not pages[0]:
        raise SpecError(
            'page_size needs a column page: there is none. Pass columns={"page": "..."}.',
            code="missing-column",
            column="page",
        )
    database.execute(
        f"""UPDATE acts SET ordinal = ordinal + (page - first) * {options.page_size}
        FROM (SELECT source AS s, least(min(page), 1) AS first FROM acts GROUP BY source)
        WHERE acts.source IS NOT DISTINCT FROM s AND page IS NOT NULL"""
    )


def _name_queries(database: EventDatabase) -> None:
    """Make the table `named` of clicks without a query: on the latest impression of their document before them."""
    if not database.number("SELECT count(*) FROM acts WHERE query IS NULL"):
        database.execute("CREATE TABLE named AS SELECT rowid AS place, * FROM acts LIMIT 0")
        return
    database.execute(
        f"""CREATE TABLE named AS SELECT e.* REPLACE (coalesce(i.query, f.query) AS query)
        FROM (SELECT rowid AS place, * FROM acts WHERE query IS NULL) e
        ASOF LEFT JOIN (SELECT key, doc, time, min(query) AS query FROM acts
            WHERE kind = {IMPRESSION} AND time IS NOT NULL GROUP BY ALL) i
        ON e.key = i.key AND e.doc = i.doc AND coalesce(e.time, TIMESTAMP '9999-01-01') >= i.time
        LEFT JOIN (SELECT key, doc, arg_min(query, rowid) AS query FROM acts WHERE kind = {IMPRESSION} GROUP BY ALL) f
        ON e.key = f.key AND e.doc = f.doc"""
    )
    reasons = [
        Reason("click-without-impression", UNSEEN_CLICKS, f"query IS NULL AND kind = {CLICK}"),
        Reason("conversion-without-impression", UNSEEN_CONVERSIONS, f"query IS NULL AND kind >= {SIGNAL}"),
    ]
    database.report_reasons("named", reasons, [], example=_EXAMPLE)
    database.execute("DELETE FROM named WHERE query IS NULL")


def is_integer(source: Source, column: str | None) -> bool:
    """Return whether a column of ids may hold integers: by its type, or by the first rows."""
    if column is None:
        return True
    if source.types:
        return "int" in str(source.types[column])
    if source.kind == "csv":
        return len(source.lines) < 2 or f'"{source.sample[0].get(column, "")}"' not in source.lines[1]
    values = (one.get(column, 0) for one in source.sample)
    return all(isinstance(item, int) for value in values for item in (value if isinstance(value, list) else [value]))
