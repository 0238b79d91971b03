"""TianGong-ST (Chen et al. 2019): sessions of a Chinese search engine, as XML.

The file is not well-formed XML: texts hold unescaped characters. It is read as a stream of the few elements that are
needed, never as a document: there are no entities and no nesting, and lines are limited. A session is a user's, an
interaction is a list, and clicks name the rank of their result.
"""

from __future__ import annotations

from collections.abc import Sequence

from clickshift.io.encode.duckdb import sql_text
from clickshift.io.events._database import CLICK, IMPRESSION, EventDatabase, Loaded, Reason
from clickshift.io.events._problems import report_problems
from clickshift.io.events._sources import Source
from clickshift.io.events.options import EventOptions

_ELEMENT = r"<(?:session|interaction|result|query_id|docid|rank)\b[^>]*>[^<]*|</(?:session|interaction)\s*>"
_RANKS = 10
"""Results of a page; those below are junk, as users of the data set report."""
_EXAMPLE = "concat('query ', query, ', rank ', rank)"


def is_tiangong(source: Source) -> bool:
    """Return whether a file has sessions with interactions."""
    head = "".join(source.lines)
    return source.kind == "text" and "<session num" in head and "<interaction num" in head and "<docid>" in head


def load_tiangong(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of the interactions; a document is a docid, a query is a query_id.

    Raises
    ------
    FileError
        "bad-line" for an interaction without a query_id, a result without a rank or a docid, and a click without a
        rank; "damaged-file" for an interaction or a session without its end, as in a file that was cut short; unless
        they are skipped. An interaction without its end is left out: its list may go on.
    """
    database.execute("CREATE TABLE tags (file INTEGER, tag VARCHAR, number BIGINT, text VARCHAR, element VARCHAR)")
    for number, source in enumerate(sources):
        database.execute(
            f"""INSERT INTO tags SELECT {number}, regexp_extract(element, '^<(/?\\w+)', 1) AS tag,
            integer_of(CASE tag WHEN 'rank' THEN trim(regexp_extract(element, '>([^<]*)$', 1))
                ELSE regexp_extract(element, '(?:num|rank)\\s*=\\s*["'']?(-?\\d+)', 1) END),
            nullif(trim(regexp_extract(element, '>([^<]*)$', 1)), ''), trim(element)
            FROM (SELECT unnest(regexp_extract_all(line, {sql_text(_ELEMENT)})) AS element
                FROM {source.text(database)})"""
        )

    def latest(value: str, tag: str) -> str:
        return f"last_value(CASE WHEN tag = '{tag}' THEN {value} END IGNORE NULLS) OVER w"

    database.execute(
        f"""CREATE TABLE placed AS SELECT *, {latest("number", "session")} AS session,
            {latest("place", "session")} AS own, {latest("element", "session")} AS head,
            {latest("place", "interaction")} AS list, {latest("place", "result")} AS result
        FROM (SELECT rowid AS place, * FROM tags) WINDOW w AS (PARTITION BY file ORDER BY place)"""
    )
    database.execute(
        """CREATE TABLE lists AS SELECT list, any_value(file) AS file, any_value(session) AS session,
            bool_or(tag = '/interaction') AS whole, any_value(own) AS own, any_value(head) AS head,
            CASE WHEN whole THEN arg_min(text, place) FILTER (tag = 'query_id') END AS query,
            arg_min(element, place) AS element
        FROM placed WHERE list IS NOT NULL GROUP BY list"""
    )
    database.execute(
        """CREATE TABLE raw AS
        SELECT file, 'interaction' AS tag, list AS place, list, session, query, CAST(NULL AS BIGINT) AS rank,
            CAST(NULL AS VARCHAR) AS doc,
            CASE WHEN NOT whole THEN 'cut' WHEN query IS NULL THEN 'interaction' END AS problem,
            CASE WHEN whole THEN element ELSE head END AS got
        FROM lists
        UNION ALL
        SELECT any_value(file), 'session', own, NULL, NULL, NULL, NULL, NULL, 'session', any_value(head) FROM placed
        WHERE own IS NOT NULL AND own NOT IN (SELECT own FROM lists WHERE NOT whole AND own IS NOT NULL)
        GROUP BY own HAVING NOT bool_or(tag = '/session')
        UNION ALL
        SELECT r.file, r.tag, r.place, r.list, lists.session, query, r.rank, r.doc,
            CASE WHEN r.list IS NULL OR (whole AND (rank IS NULL OR (tag = 'result' AND r.doc IS NULL))) THEN tag END,
            r.element
        FROM (SELECT any_value(file) AS file, 'result' AS tag, result AS place, any_value(list) AS list,
                any_value(number) FILTER (tag = 'result') AS rank, arg_min(text, place) FILTER (tag = 'docid') AS doc,
                any_value(element) FILTER (tag = 'result') AS element
            FROM placed WHERE tag IN ('result', 'docid') AND result IS NOT NULL GROUP BY result
            UNION ALL SELECT file, tag, place, list, number, NULL, element FROM placed WHERE tag = 'rank') r
        LEFT JOIN lists ON r.list = lists.list"""
    )
    database.execute("DROP TABLE tags; DROP TABLE placed; DROP TABLE lists")
    rules = {
        "cut": ("an interaction must end with </interaction>, which a file that was cut short lacks", "damaged-file"),
        "session": ("a session must end with </session>, which a file that was cut short lacks", "damaged-file"),
        "interaction": ("an interaction must have a query_id", "bad-line"),
        "result": ("a result must be in an interaction, and have a rank and a docid", "bad-line"),
        "rank": ("a click must be in an interaction, and have a rank", "bad-line"),
    }
    report_problems(database, sources, rules)
    database.execute("DELETE FROM raw WHERE query IS NULL")  # of interactions that were reported
    database.execute(
        """CREATE TABLE clicks AS SELECT c.* REPLACE (r.doc AS doc) FROM (FROM raw WHERE tag = 'rank') c
        LEFT JOIN (SELECT list, rank, min(doc) AS doc FROM raw WHERE tag = 'result' GROUP BY ALL) r
        ON c.list = r.list AND c.rank = r.rank"""
    )
    junk = Reason("rank-beyond-page", f"results and clicks beyond rank {_RANKS}, where a page ends", f"rank > {_RANKS}")
    database.report_reasons("raw", [junk], [], example=_EXAMPLE)
    lost = Reason("click-without-impression", "clicks at ranks without a result", f"doc IS NULL AND rank <= {_RANKS}")
    database.report_reasons("clicks", [lost], [], example=_EXAMPLE)
    columns = """place, '' AS source, CAST(list AS VARCHAR) AS list, query, doc, rank AS ordinal,
        CAST(NULL AS TIMESTAMP) AS time, concat_ws('.', file, session) AS "user" """
    database.execute(
        f"""CREATE TABLE events AS SELECT {columns}, CAST({IMPRESSION} AS TINYINT) AS kind FROM raw
        WHERE tag = 'result' AND rank <= {_RANKS}
        UNION ALL SELECT {columns}, {CLICK} FROM clicks WHERE doc IS NOT NULL AND rank <= {_RANKS}"""
    )
    database.execute("DROP TABLE raw; DROP TABLE clicks")
    return Loaded(integers=("query", "doc"))
