"""Events keep the order of their files, by which events of equal times are told apart, on any number of threads."""

from __future__ import annotations

from clickshift.io.encode.duckdb import DuckdbLimits
from clickshift.io.events._database import event_database, kind_of
from clickshift.io.read_report import ReadReport


def test_many_types_of_events_do_not_become_a_join() -> None:
    """A join does not keep the order of rows where several threads read a file."""
    kind = kind_of("action", ("impression",), [f"click {k}" for k in range(20)], ("purchase",))
    with event_database(DuckdbLimits(), ReadReport("events")) as database:
        database.execute("CREATE TABLE source (action VARCHAR, clicked VARCHAR)")
        database.execute("CREATE TABLE raw (kind TINYINT, click INTEGER)")
        ((_, plan),) = database.rows(f"EXPLAIN INSERT INTO raw SELECT {kind}, flag_of(clicked) FROM source")
    assert "insert" in plan.lower()
    assert "join" not in plan.lower()
