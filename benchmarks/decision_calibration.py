"""How often decisions about a new ranker are right, over simulated shops whose gain is known exactly.

    python benchmarks/decision_calibration.py run ROWS [--first 0] [--shops 300]
    python benchmarks/decision_calibration.py table ROWS [ROWS2 ...] [--write]

`run` draws shops (benchmarks/shops.py: plain numpy, no code of clickshift), asks `cs.decide` about each, and appends
one JSON line per shop to ROWS; shops that ROWS has already are left out: a run can be resumed. The same question is
answered for an analyst who knows the family of the users, but not its parameters: the same machinery with that family
alone. `table` prints the tables; with --write, it puts them into docs/calibration.md and
benchmarks/results/decision_calibration.json.

Seeds below 1,000,000 are for tuning. Seeds above are run once, after all constants are set: those of
docs/calibration.md begin at 5,000,000 and at 5,010,000, in two processes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import beta
from shops import Shop, make_shop

import clickshift as cs

RESULTS = Path(__file__).parent / "results" / "decision_calibration.json"
PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
STRATA = ("family", "users", "sessions", "ranker", "target", "days", "gain")
FAMILIES = ("PBM", "UBM", "DBN", "CCM")
"""Families of users that an analyst may know by name, and that the package considers."""
MIN_SESSIONS = 5_000
"""Sessions of the logs on which settled decisions are compared with the analyst's."""
GOALS = {"coverage": 0.93, "losers shipped": 0.05, "ships that lose": 0.05, "settled": 2 / 3}

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "table"])
    parser.add_argument("rows", type=Path, nargs="+", help="Files of one JSON line per shop; `run` takes one.")
    parser.add_argument("--first", type=int, default=0, help="First seed.")
    parser.add_argument("--shops", type=int, default=300, help="Number of seeds.")
    parser.add_argument("--minutes", type=float, default=math.inf, help="Time after which no further shop is begun.")
    parser.add_argument("--no-analyst", action="store_true", help="Leave the analyst out, which halves the time.")
    parser.add_argument("--write", action="store_true", help="With `table`: write the results file.")
    options = parser.parse_args()
    if options.action == "run":
        run(options.rows[0], range(options.first, options.first + options.shops), ask_decision, options)
        return
    rows = [row for path in options.rows for row in read_rows(path)]
    tables = markdown(rows)
    print(tables)
    if options.write:
        write_results(rows)
        begin, end = "<!-- tables: made by benchmarks/decision_calibration.py -->", "<!-- end of tables -->"
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text[: text.index(begin) + len(begin)], text[text.index(end) :]
        PAGE.write_text(f"{head}\n\n{tables}\n\n{tail}", encoding="utf-8")


def run(path: Path, seeds: Sequence[int], ask: Callable[..., Row], options: Any) -> None:
    """Append the rows of shops that a file does not have yet."""
    done, began = {row["seed"] for row in read_rows(path)}, time.monotonic()
    with path.open("a") as lines:
        for seed in seeds:
            if seed in done:
                continue
            if time.monotonic() - began > 60 * options.minutes:
                break
            shop = make_shop(seed)
            row = {
                "seed": seed,
                "strata": shop.strata,
                "log_value": shop.log_value,
                "target_value": shop.target_value,
                "gain": shop.gain,
                "next_day_gain": shop.next_day_gain,
                **ask(shop, analyst=not options.no_analyst),
            }
            lines.write(json.dumps(row) + "\n")
            lines.flush()


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def log_table(shop: Shop) -> pa.Table:
    """Return the log as the package reads it: one row per distinct session."""
    n, ranks = shop.docs.shape
    offsets = pa.array(range(0, (n + 1) * ranks, ranks), pa.int32())
    columns = {
        "query": shop.query,
        "docs": pa.ListArray.from_arrays(offsets, pa.array(shop.docs.ravel())),
        "clicks": pa.ListArray.from_arrays(offsets, pa.array(shop.clicks.ravel())),
        "count": shop.count,
    }
    return pa.table(columns | ({} if shop.day is None else {"day": shop.day}))


def target_table(shop: Shop) -> pa.Table:
    """Return the candidate as the package reads it."""
    docs = pa.array(shop.target_docs.tolist())
    return pa.table({"query": shop.target_query, "docs": docs, "weight": shop.target_weight})


def ask_decision(shop: Shop, *, analyst: bool) -> Row:
    """Ask `cs.decide`, and an analyst who knows the family."""
    log, target = log_table(shop), target_table(shop)
    family = str(shop.strata["family"])
    answers = {"ours": decided(log, target, FAMILIES)}
    if analyst and family in FAMILIES and shop.strata["sessions"] >= MIN_SESSIONS:
        # where the log rejects all other families, the analyst's question is the same
        same = answers["ours"]["kept"] == [family]
        answers["analyst"] = answers["ours"] if same else decided(log, target, (family,))
    return answers


def decided(log: pa.Table, target: pa.Table, families: Sequence[str]) -> Row:
    """Ask `cs.decide`, which considers these click-model families."""
    began = time.process_time()
    with warnings.catch_warnings(), only(families):
        warnings.simplefilter("ignore")
        decision = cs.decide(log, target)
    answer = decision.best.answer
    names = ("verdict", "estimator", "low", "high", "today", "difference", "difference_low", "difference_high")
    return {
        "decision": decision.decision,
        **{name: getattr(answer, name) for name in names},
        "parts": dict(answer.parts),
        "kept": [f.name for f in answer.families if f.kept],
        "cause": decision.best.cause,
        "seconds": time.process_time() - began,
    }


@contextmanager
def only(families: Sequence[str]) -> Iterator[None]:
    """Let answers consider these click-model families alone; the estimator PBM then has a curve of its own."""
    answers = import_module("clickshift.ope._answer_targets")
    everything, curve = answers.FAMILIES, answers.LogModels.examination
    answers.FAMILIES = tuple(families)
    if "PBM" not in families:
        answers.LogModels.examination = property(lambda models: 1 / np.arange(1.0, models.log.n_ranks + 1))
    try:
        yield
    finally:
        answers.FAMILIES, answers.LogModels.examination = everything, curve


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share."""
    low = float(beta.ppf(0.025, hits, n - hits + 1)) if hits else 0.0
    return low, float(beta.ppf(0.975, hits + 1, n - hits)) if hits < n else 1.0


def share(flags: Sequence[bool]) -> Row:
    """Return a share with its interval and its counts."""
    hits, n = sum(flags), len(flags)
    low, high = clopper_pearson(hits, n) if n else (math.nan, math.nan)
    return {"share": hits / n if n else math.nan, "low": low, "high": high, "hits": hits, "n": n}


def holds(row: Row, low: str, high: str, truth: float) -> bool:
    """Whether the interval of a row holds the truth."""
    return bool(row["ours"][low] <= truth <= row["ours"][high])


def statistics(rows: Sequence[Row]) -> Row:
    """Return coverage, errors of decisions and settled shares of some shops."""
    usable = [r for r in rows if r["ours"]["verdict"] == "usable"]
    losers = [r for r in rows if r["gain"] < 0]
    ships = [r for r in rows if r["ours"]["decision"] == "ship"]
    settled = {"ship", "keep"}
    larger = [r for r in rows if r["strata"]["sessions"] >= MIN_SESSIONS and "analyst" in r]
    analyst = [r for r in larger if r["analyst"]["decision"] in settled]
    keeps = [r for r in rows if r["ours"]["decision"] == "keep"]
    return {
        "shops": len(rows),
        "coverage of weak differences": share(
            [
                holds(r, "difference_low", "difference_high", r["gain"])
                for r in rows
                if r["ours"]["verdict"] == "weak" and r["ours"]["difference_low"] is not None
            ]
        ),
        "usable": share([r["ours"]["verdict"] == "usable" for r in rows]),
        "coverage of value": share([holds(r, "low", "high", r["target_value"]) for r in usable]),
        "coverage of difference": share([holds(r, "difference_low", "difference_high", r["gain"]) for r in usable]),
        "losers shipped": share([r["ours"]["decision"] == "ship" for r in losers]),
        "ships that lose": share([r["gain"] < 0 for r in ships]),
        "ships that lose the next day": share([r["next_day_gain"] < 0 for r in ships]),
        "keeps that gain": share([r["gain"] > 0 for r in keeps]),
        "settled": share([r["ours"]["decision"] in settled for r in rows]),
        "settled by the analyst": share([r["analyst"]["decision"] in settled for r in larger]),
        "settled of what the analyst settles": share([r["ours"]["decision"] in settled for r in analyst]),
        "unclear": share([r["ours"]["decision"] == "unclear" for r in rows]),
    }


def by_stratum(rows: Sequence[Row]) -> Iterator[tuple[str, str, Row]]:
    """Yield the statistics of all shops and of each marginal stratum."""
    yield "all", "", statistics(rows)
    for name in STRATA:
        for value in sorted({r["strata"][name] for r in rows}, key=lambda v: (isinstance(v, str), v)):
            part = [r for r in rows if r["strata"][name] == value]
            if name == "users" and not str(value).startswith("PBM"):
                continue
            yield name, f"{value:,}" if isinstance(value, int) else value, statistics(part)


def share_text(of: Row, goal: float | None = None, *, at_most: bool = False) -> str:
    """Format a share with its interval; bold where the interval excludes the goal."""
    if not of["n"]:
        return "–"
    shown = f"{of['share']:.3f} [{of['low']:.3f}, {of['high']:.3f}]"
    failed = goal is not None and (of["low"] > goal if at_most else of["high"] < goal)
    return f"**{shown}**" if failed else shown


def markdown(rows: Sequence[Row]) -> str:
    """Return the tables: coverage, errors and power, by marginal stratum."""
    strata = list(by_stratum(rows))
    settled = "settled of what the analyst settles"
    coverage = [
        (
            label(name, value),
            s["shops"],
            f"{s['usable']['share']:.2f}",
            share_text(s["coverage of difference"], GOALS["coverage"]),
            share_text(s["coverage of value"], GOALS["coverage"]),
            share_text(s["coverage of weak differences"]),
        )
        for name, value, s in strata
    ]
    errors = [
        (
            label(name, value),
            s["losers shipped"]["n"],
            share_text(s["losers shipped"], GOALS["losers shipped"], at_most=True),
            s["ships that lose"]["n"],
            share_text(s["ships that lose"], GOALS["ships that lose"], at_most=True),
            s["keeps that gain"]["n"],
            share_text(s["keeps that gain"]),
        )
        for name, value, s in strata
    ]
    power = [
        (
            label(name, value),
            f"{s['settled']['share']:.2f}",
            f"{s['unclear']['share']:.2f}",
            f"{s['settled by the analyst']['share']:.2f}" if s["settled by the analyst"]["n"] else "–",
            f"{s[settled]['hits']} of {s[settled]['n']}",
            share_text(s[settled], GOALS["settled"]),
        )
        for name, value, s in strata
    ]
    parts = [
        "## Coverage\n\nShare of intervals that hold the truth. Goal: at least .93 of usable ones.\n",
        table(("shops", "n", "usable", "difference, usable", "value, usable", "difference, weak"), coverage),
        "\n## Errors\n\nGoal: at most 5 % of losing candidates are shipped, and at most 5 % of all that is shipped "
        "loses.\n",
        table(("shops", "losing", "shipped", "ships", "of these lose", "keeps", "of these gain"), errors),
        "\n## Power\n\nSettled: ship or keep. The analyst knows the family of the users, but not its parameters. "
        "Compared on logs of 5,000\nsessions and more whose users are PBM, UBM, DBN or CCM. Goal: two thirds.\n",
        table(("shops", "settled", "unclear", "settled by the analyst", "of these settled", "share"), power),
    ]
    return "\n".join(parts)


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines).replace("| --- ", "|---").replace("--- |", "---|")


def label(name: str, value: str) -> str:
    """Name a stratum."""
    return "all" if name == "all" else f"{name}: {value}"


def write_results(rows: Sequence[Row]) -> None:
    """Write the statistics, and the decision about every shop."""
    made = [{"stratum": label(name, value), **s} for name, value, s in by_stratum(rows)]
    seeds = [r["seed"] for r in rows]
    seconds = sum(r["ours"]["seconds"] for r in rows) / len(rows)
    columns = ("decision", "verdict", "difference_low", "difference_high", "low", "high")
    shops = [[r["seed"], r["gain"], r["target_value"], *(r["ours"][name] for name in columns)] for r in rows]
    facts = {
        "first_seed": min(seeds),
        "last_seed": max(seeds),
        "seconds_per_shop": seconds,
        "strata": made,
        "columns": ["seed", "gain", "target_value", *columns],
        "shops": shops,
    }
    text = json.dumps(facts).replace("NaN", "null").replace("}, {", "},\n{").replace("], [", "],\n[")
    RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
