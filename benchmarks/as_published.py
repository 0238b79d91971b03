"""Tables 3 and 4 of the policy-shift paper: as printed, with users and training of the authors' code, and by default.

    python benchmarks/as_published.py               # trains three seeds: some three CPU minutes a table
    python benchmarks/as_published.py --page        # write the tables into docs/policy-shift.md

Finished tasks are kept in the work folder. A test compares the page with the results.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import clickshift as cs
from clickshift.experiments.policy_shift.published import published_differences

HERE = Path(__file__).resolve().parent
PAGE, RESULTS = HERE.parent / "docs" / "policy-shift.md", HERE / "results" / "as_published.json"
USERS = {"table3": "DBN", "table4": "CoCM"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", choices=USERS, action="append", help="table to make; by default, both")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "as-published")
    parser.add_argument("--page", action="store_true", help="write the tables into the page")
    options = parser.parse_args()
    if options.page:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_block(text, page_block(json.loads(RESULTS.read_text(encoding="utf-8")))), encoding="utf-8")
        return
    rows = []
    for table in options.table or USERS:
        user = USERS[table]
        result = cs.reproduce(table, options.work / table, as_published=True, seeds=options.seeds)
        by_default = cs.reproduce(table)
        ours = {(one.model, one.metric): one.ours.mean for one in published_differences(by_default.rows(), user)}
        for one in published_differences(result.rows(), user):
            row = {"table": table, "model": one.model, "metric": one.metric, "published": one.published.mean}
            row |= {"as_published": round(one.ours.mean, 6), "default": round(ours[one.model, one.metric], 6)}
            rows.append(row)
    lines = ",\n".join(json.dumps(row) for row in rows)
    RESULTS.write_text(f'{{"seeds": {options.seeds}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")


def page_block(results: dict) -> str:
    """The tables of the page: printed / as published / default, by model."""
    parts = []
    for table, user in USERS.items():
        own = [row for row in results["rows"] if row["table"] == table]
        if not own:
            continue
        metrics = list(dict.fromkeys(row["metric"] for row in own))
        lines = [f"| {user} users | {' | '.join(metrics)} |", "|---" * (len(metrics) + 1) + "|"]
        for model in dict.fromkeys(row["model"] for row in own):
            cells = {row["metric"]: row for row in own if row["model"] == model}
            shown = (_cell(cells[metric], 3 if "nDCG" in metric else 4) for metric in metrics)
            lines.append(f"| {model} | {' | '.join(shown)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(row: dict, digits: int) -> str:
    """A number: printed, as published, default."""
    values = (row["published"], row["as_published"], row["default"])
    return " / ".join(f"{value:.{digits}f}".removeprefix("0") for value in values)


def with_block(text: str, block: str) -> str:
    """Replace what is between the marks."""
    marks = re.compile(r"(<!-- as published -->\n).*?(<!-- end -->)", re.DOTALL)
    assert marks.search(text)
    return marks.sub(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text)


if __name__ == "__main__":
    main()
