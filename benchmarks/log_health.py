"""How often the checks of a log find planted defects, and raise false alarms: simulated logs of 20,000 sessions.

    python -m benchmarks.log_health --clean 100 --logs 20    # writes benchmarks/results/log_health.json
    python -m benchmarks.log_health --part events            # runs the defects of events only
    python -m benchmarks.log_health --table                  # writes the table of docs/log-health.md

Logs without defects and the defects are plain numpy, in tests/planted_logs.py; those of events, in
tests/planted_events.py, are planted in impressions and clicks, which are imported from a file. A defect is found if its
own check reports it with any severity.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.intervals import wilson_interval
from clickshift.log_health.check_log import check_log
from clickshift.log_health.checks import CHECKS
from tests.planted_events import EVENT_DEFECTS, clean_events, timed
from tests.planted_logs import DEFECTS, WHOLE, clean_log

RESULTS = Path(__file__).parent / "results" / "log_health.json"
PAGE = Path(__file__).parents[1] / "docs" / "log-health.md"
SHARES = (0.0, 0.01, 0.05, 0.2)
SESSIONS = 20_000


def one_log(defect: str, share: float, seed: int, sessions: int = SESSIONS) -> dict[str, Any]:
    """Plant a defect in a log of its own; return what was found."""
    rng = np.random.default_rng((seed, len(defect), round(1000 * share)))
    log, truth = clean_log(rng, sessions), 0.0
    if share:
        log, truth = (DEFECTS | WHOLE)[defect](log, share, rng)
    return found_in(log.sessions(), defect, truth)


def one_file(defect: str, share: float, seed: int, sessions: int = SESSIONS) -> dict[str, Any]:
    """Plant a defect in the events of a log of its own, and check their file; return what was found."""
    rng = np.random.default_rng((seed, len(defect), round(1000 * share)))
    events, truth = clean_events(clean_log(rng, sessions)), 0.0
    if share:
        events, truth = EVENT_DEFECTS[defect](events, share, rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        timed(events).to_parquet(path)
        return found_in(path, defect, truth)


def found_in(log: Any, defect: str, truth: float) -> dict[str, Any]:
    """Check a log; return whether the defect was found, whether its rate is in the interval, and the other findings."""
    started = time.perf_counter()
    health = check_log(log, effects=False)
    seconds = time.perf_counter() - started
    own = [finding for finding in health.findings if finding.check == defect]
    return {
        "found": bool(own),
        "severity": own[0].severity if own else "none",
        "inside": bool(own) and own[0].low <= truth <= own[0].high,
        "truth": truth,
        "rate": own[0].rate if own else 0.0,
        "others": [finding.check for finding in health.findings if finding.check != defect],
        "seconds": seconds,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the logs of one defect and share."""
    found = [row for row in rows if row["found"]]
    others = [name for row in rows for name in row["others"]]
    return {
        "logs": len(rows),
        "found": len(found),
        "inside": sum(row["inside"] for row in found),
        "truth": float(np.mean([row["truth"] for row in rows])),
        "rate": float(np.mean([row["rate"] for row in found])) if found else 0.0,
        "severities": {s: sum(row["severity"] == s for row in found) for s in ("notice", "warning", "severe")},
        "logs_with_others": sum(bool(row["others"]) for row in rows),
        "others": {name: others.count(name) for name in sorted(set(others))},
    }


def run(clean: int, logs: int, seed: int, part: str) -> dict[str, Any]:
    """Check clean logs, and logs with each defect: planted in sessions, or in events."""
    one = one_file if part == "events" else one_log
    rows = [one("", 0.0, seed + k) for k in range(clean)]
    results: dict[str, Any] = {"sessions": SESSIONS, "seed": seed, "clean": summary(rows), "defects": {}}
    results["clean"]["seconds"] = float(np.median([row["seconds"] for row in rows]))
    for defect in EVENT_DEFECTS if part == "events" else (*WHOLE, *DEFECTS):
        shares = (1.0,) if defect in WHOLE else SHARES[1:]
        results["defects"][defect] = {
            str(share): summary([one(defect, share, seed + k) for k in range(logs)]) for share in shares
        }
        print(defect, {share: (one["found"], one["inside"]) for share, one in results["defects"][defect].items()})
    return results


def table(results: dict[str, Any]) -> str:
    """The table of the page."""
    parts = {"logs": results} | ({"files of events": results["events"]} if results.get("events") else {})
    lines = [
        *(_false_alarms(name, part["clean"]) for name, part in parts.items()),
        "",
        "| planted defect | 1 % | 5 % | 20 % | interval holds the rate |",
        "|---|---|---|---|---|",
    ]
    for defect, by_share in (item for part in parts.values() for item in part["defects"].items()):
        cells = [f"{one['found']} of {one['logs']}" for one in by_share.values()]
        if len(cells) == 1:
            cells = ["–", "–", f"whole log: {cells[0]}"]
        found, inside = (sum(one[name] for one in by_share.values()) for name in ("found", "inside"))
        rate = f"{inside} of {found}" if defect != "one-rank" else "–"
        lines.append(f"| {CHECKS[defect].title} | {' | '.join(cells)} | {rate} |")
    return "\n".join(lines)


def _false_alarms(name: str, clean: dict[str, Any]) -> str:
    """A sentence on the findings in logs without defects."""
    alarms = clean["logs_with_others"]
    low, high = (float(end[0]) for end in wilson_interval(np.array([float(alarms)]), np.array([float(clean["logs"])])))
    return (
        f"Of {clean['logs']} {name} without defects, {alarms} had a finding of any severity "
        f"({alarms / clean['logs']:.1%}; 95 % interval {low:.1%} to {high:.1%})."
    )


def checks_table() -> str:
    """The checks of the page."""
    lines = ["| check | `--check` | what to do |", "|---|---|---|"]
    lines += [f"| {check.title} | `{name}` | {check.remedy} |" for name, check in CHECKS.items()]
    return "\n".join(lines)


def written(page: str, results: dict[str, Any]) -> str:
    """The page with its tables."""
    for start, end, text in (
        ("<!-- benchmarks/log_health.py -->", "<!-- end -->", table(results)),
        ("<!-- checks -->", "<!-- end of checks -->", checks_table()),
    ):
        pattern = re.compile(f"{start}.*?{end}", re.DOTALL)
        page = pattern.sub(lambda _, s=start, t=text, e=end: f"{s}\n\n{t}\n\n{e}", page)  # type: ignore[misc]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean", type=int, default=100, help="Number of logs without defects.")
    parser.add_argument("--logs", type=int, default=20, help="Number of logs per defect and share.")
    parser.add_argument("--seed", type=int, default=0, help="First random seed.")
    parser.add_argument("--part", choices=("all", "sessions", "events"), default="all", help="Which defects to plant.")
    parser.add_argument("--table", action="store_true", help="Write the table of the page from the results.")
    arguments = parser.parse_args()
    for part in ("sessions", "events") if arguments.part == "all" else (arguments.part,):
        if not arguments.table:
            new = run(arguments.clean, arguments.logs, arguments.seed, part)
            old = json.loads(RESULTS.read_text())
            results = {"events": old.get("events"), **new} if part == "sessions" else {**old, "events": new}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(written(PAGE.read_text(), json.loads(RESULTS.read_text())))
    print(table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
