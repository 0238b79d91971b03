"""How often 95 % intervals hold the planted value of what further columns of a log tell: views, segments, conversions.

    python benchmarks/column_coverage.py                                   # all, and a Markdown table
    python benchmarks/column_coverage.py --parameters continuation --models DBN --first 900 --output dbn.json
    python benchmarks/column_coverage.py --write dbn.json              # replaces these rows of the results file

Logs are those of `interval_coverage.py`: users simulated with numpy alone, lists of ten documents, other parameters in
every log. "random" lists are in another order in every session; "noisy" ones are sorted by relevance with noise, and in
.3 of the sessions two neighbours are swapped. Two segments share attractiveness and satisfaction; their examination or
continuation differs or is equal. Purchases follow a click at a rate of the document, and their value is lognormal
around a price of the document.

Only intervals of identified parameters count: those whose support is "log".
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from interval_coverage import NAMES, Design, World, found_intervals

import clickshift as cs
from clickshift.core.files import write_atomically
from clickshift.errors import ClickshiftWarning

HERE = Path(__file__).resolve().parent
DESIGNS = {"random": Design(swaps=None, queries=20), "noisy": Design(ranker="noisy", queries=20)}
SESSIONS = (5_000, 40_000)
KNOWN = (1.0, 0.3, 0.1)
"""Shares of the sessions whose views are known."""
OTHER = {
    "PBM": 0.95 / np.arange(1, 11) ** 0.6,
    "UBM": np.concatenate([np.r_[0.7**r, 0.8 ** (r - np.arange(r))] for r in range(10)]),
    "DCM": np.linspace(0.65, 0.3, 10),
    "CCM": np.array([0.8, 0.7, 0.3]),
    "DBN": np.array([0.7]),
}
"""Examination (PBM, UBM) or continuation of the second segment where it differs."""
_PRIOR_CLICKS, _SPREAD = 20.0, 0.4


def lists(design: Design, sessions: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the query of each session, and the documents that it shows."""
    query = rng.integers(0, design.queries, sessions)
    place = np.tile(np.arange(design.ranks), (sessions, 1))
    if design.swaps is None:
        place = rng.permuted(place, axis=1)
    else:
        row = np.flatnonzero(rng.random(sessions) < design.swaps)
        rank = rng.integers(0, design.ranks - 1, len(row))
        place[row, rank], place[row, rank + 1] = rank + 1, rank
    return query, place + design.ranks * query[:, None]


def log_of(design: Design, query: np.ndarray, document: np.ndarray, click: np.ndarray, **columns: Any) -> cs.Sessions:
    """Make sessions of lists and clicks, with signals or with segments."""
    size = design.queries * design.ranks
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(design.queries), design.ranks), np.arange(size))[0]
    rankings = cs.Rankings(
        vocabulary, query.astype(np.int32), document.astype(np.int32), segments=columns.get("segments", {})
    )
    return cs.Sessions(rankings, click, signals=columns.get("signals", {}))


def fitted(name: str, log: cs.Sessions, **options: Any) -> cs.ClickModel:
    """Fit a model without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        return cs.fit(name, log, **options)


def observed_examination(user: str, design: Design, sessions: int, known: float, seed: int) -> np.ndarray:
    """Return which intervals of examination hold the truth, where views of a share of the sessions are known."""
    rng = np.random.default_rng([seed, NAMES.index(user), 1])
    world = World.drawn(user, design, rng)
    world = replace(world, browsing=0.95 * world.browsing)  # views tell that the first rank is not always examined
    query, document = lists(design, sessions, rng)
    click, examined = clicks_and_views(world, document, rng)
    viewed = np.where((rng.random(sessions) < known)[:, None], examined.astype(float), np.nan)
    model = fitted(user, log_of(design, query, document, click, signals={"viewed": viewed}))
    low, high, support = found_intervals(model, "examination")
    return hits(world.browsing, low, high, support)


def clicks_and_views(world: World, document: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Simulate what PBM and UBM users examine, and click."""
    n, ranks = document.shape
    click, examined, last = np.zeros((n, ranks), bool), np.zeros((n, ranks), bool), np.zeros(n, np.int64)
    for r in range(ranks):
        situation = r if world.user == "PBM" else r * (r + 1) // 2 + last
        examined[:, r] = rng.random(n) < world.browsing[situation]
        click[:, r] = examined[:, r] & (rng.random(n) < world.attractiveness[document[:, r]])
        last[click[:, r]] = r + 1
    return click, examined


def curves_by_segment(user: str, design: Design, sessions: int, *, equal: bool, seed: int) -> np.ndarray:
    """Return which intervals of examination, or of continuation, by segment hold the truth."""
    rng = np.random.default_rng([seed, NAMES.index(user), 2])
    world = World.drawn(user, design, rng)
    worlds = [world, world if equal else replace(world, browsing=OTHER[user])]
    query, document = lists(design, sessions, rng)
    device = rng.choice(2, sessions, p=[0.4, 0.6])
    click = np.zeros(document.shape, bool)
    for k, own in enumerate(worlds):
        click[device == k] = own.click(document[device == k], rng)
    segments = {"device": cs.Segment(("desktop", "phone"), device.astype(np.int32))}
    model = fitted(user, log_of(design, query, document, click, segments=segments), by="device")
    name = "examination" if user in {"PBM", "UBM"} else "continuation"
    low, high, support = found_intervals(model, name)
    truth = np.stack([own.browsing for own in worlds])
    use = np.ones(truth.shape, bool)
    if user == "DCM":
        use[:, -1] = False  # after the last rank there is nothing to go on to
    use = use.ravel()
    return hits(truth.ravel()[use], low[use], high[use], support[use])


def conversions(design: Design, sessions: int, seed: int) -> dict[str, np.ndarray]:
    """Return which intervals of conversion rates, of values per click and of expected values hold the truth."""
    rng = np.random.default_rng([seed, 3])
    world = World.drawn("PBM", design, rng)
    size = design.queries * design.ranks
    by_query = np.repeat(rng.beta(4, 12, design.queries), design.ranks)
    rate = rng.beta(_PRIOR_CLICKS * by_query, _PRIOR_CLICKS * (1 - by_query))
    price = np.exp(rng.normal(3, 0.5, size))
    query, document = lists(design, sessions, rng)
    click = world.click(document, rng)
    purchase = click & (rng.random(document.shape) < rate[document])
    noise = np.exp(rng.normal(-(_SPREAD**2) / 2, _SPREAD, document.shape))
    signals = {"purchase": purchase, "revenue": purchase * price[document] * noise}
    log = log_of(design, query, document, click, signals=signals)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        found = dict(zip(signals, cs.conversions(log, list(signals)).rates, strict=True))
        judged = cs.judgments(cs.fit("PBM", log), value="revenue", log=log).to_pandas()
    worth = (world.attractiveness * rate * price)[judged["doc"].to_numpy()]
    low, high = judged["low"].to_numpy(), judged["high"].to_numpy()
    clicked = [one.clicks > 0 for one in found.values()]
    return {
        "rate": between(rate, found["purchase"].low, found["purchase"].high)[clicked[0]],
        "value per click": between(rate * price, found["revenue"].low, found["revenue"].high)[clicked[1]],
        "expected value": between(worth, low, high),
    }


def between(truth: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return which intervals hold the truth."""
    return (low <= truth) & (truth <= high)


def hits(truth: np.ndarray, low: np.ndarray, high: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Return which intervals of what the log identifies hold the truth."""
    return between(truth, low, high)[support[: len(truth)] == "log"]


def rows(parameters: list[str], models: list[str], seeds: range) -> Iterator[dict[str, Any]]:
    """Yield the coverage of each parameter by model, design, sessions and case."""
    for sessions in SESSIONS:
        for ranker, design in DESIGNS.items():
            at = {"lists": ranker, "sessions": sessions, "logs": len(seeds), "first seed": seeds.start}
            if "views" in parameters:
                for user in (one for one in ("PBM", "UBM") if one in models):
                    for known in KNOWN:
                        parts = [observed_examination(user, design, sessions, known, seed) for seed in seeds]
                        yield row("observed examination", user, f"{known:.0%} of views", parts, at)
            for name, users in (("examination", ("PBM", "UBM")), ("continuation", ("DCM", "CCM", "DBN"))):
                for user in (one for one in users if name in parameters and one in models):
                    for equal in (False, True):
                        parts = [curves_by_segment(user, design, sessions, equal=equal, seed=seed) for seed in seeds]
                        case = "segments agree" if equal else "segments differ"
                        yield row(f"{name} by segment", user, case, parts, at)
            if "conversions" in parameters:
                found = [conversions(design, sessions, seed) for seed in seeds]
                for name in found[0]:
                    yield row(f"conversions: {name}", "", "", [one[name] for one in found], at)


def merged(saved: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the rows of the same parameters, models, cases and logs."""
    replaced = {_stratum(one): one for one in new}
    return [replaced.pop(_stratum(one), one) for one in saved] + list(replaced.values())


def _stratum(one: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a row describes."""
    return tuple(one[name] for name in ("parameter", "model", "case", "lists", "sessions"))


def row(parameter: str, model: str, case: str, parts: list[np.ndarray], at: dict[str, Any]) -> dict[str, Any]:
    """Return the coverage over all logs, with the standard error from the differences between logs."""
    total = sum(len(part) for part in parts)
    covered = sum(part.sum() for part in parts) / max(total, 1)
    beyond = np.array([part.sum() - covered * len(part) for part in parts])
    error = float(np.sqrt(np.square(beyond).sum()) / max(total, 1))
    return {"parameter": parameter, "model": model, "case": case} | at | {
        "coverage": float(covered),
        "standard error": error,
        "intervals": int(total),
    }  # fmt: skip


def markdown(found: list[dict[str, Any]]) -> str:
    """Return the table of docs/intervals.md."""
    columns = [(ranker, sessions) for sessions in SESSIONS for ranker in DESIGNS]
    lines = ["| parameter | model | case | " + " | ".join(f"{r}, {n:,}" for r, n in columns) + " |"]
    lines.append("|---|---|---|" + "---|" * len(columns))
    for key in dict.fromkeys((one["parameter"], one["model"], one["case"]) for one in found):
        cells = []
        for ranker, sessions in columns:
            own = [
                one
                for one in found
                if (one["parameter"], one["model"], one["case"], one["lists"], one["sessions"])
                == (*key, ranker, sessions)
            ]
            cells.append(f"{own[0]['coverage']:.3f} ± {own[0]['standard error']:.3f}".replace("0.", ".") if own else "")
        lines.append("| " + " | ".join([*key, *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names, results = ["views", "examination", "continuation", "conversions"], HERE / "results" / "column_coverage.json"
    parser.add_argument("--parameters", nargs="+", choices=names, default=names)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--logs", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--output", type=Path, default=results)
    parser.add_argument("--write", nargs="+", type=Path, default=None, help="replace rows of the results by saved ones")
    options = parser.parse_args()
    found = []
    if options.write is not None:
        found = json.loads(results.read_text())
        for path in options.write:
            found = merged(found, json.loads(path.read_text()))
        options.output = results
    else:
        for one in rows(options.parameters, options.models, range(options.first, options.first + options.logs)):
            found.append(one)
            print(one, flush=True)
    with write_atomically(options.output) as temporary:
        temporary.write_text("[\n" + ",\n".join(json.dumps(one) for one in found) + "\n]\n", encoding="utf-8")
    print(markdown(found))


if __name__ == "__main__":
    main()
