"""Event logs: streams of impressions and clicks, joined into lists with their clicks by DuckDB.

`read_events` in `clickshift.counts.import_events` is the way in. A module per family of formats turns its events into
one table of the same columns (`_database.EVENT_COLUMNS`), and `_join` makes lists of them.
"""

__all__ = [
    *(
        "aggregated",
        "formats",
        "ga4",
        "generic",
        "metarank",
        "options",
        "quepid",
        "research",
        "snowplow",
        "tiangong",
        "ubi",
    ),
    "ubi_writer",  # noqa: F822 (modules)
]
