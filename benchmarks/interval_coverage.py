"""How often 95 % intervals of click models hold the true parameter, by design of the log.

    python benchmarks/interval_coverage.py --models DBN --rankers sorted --swaps 0.3 --impressions 100 --logs 50
    python benchmarks/interval_coverage.py --first 3000000 --save one.json    # all strata
    python benchmarks/interval_coverage.py --write one.json two.json          # the results file, and docs/intervals.md

The columns "before" of the page are those of the version whose intervals had the learned prior; the results file keeps
them.

Every query has one list of ten documents; in some sessions two neighbours are swapped. A stratum is a design: how the
list follows relevance (random order, sorted by noisy relevance, sorted exactly), swaps per session, and sessions per
query, which are the impressions of each document. Within a stratum, intervals are divided by the number of clicks that
the true model expects on what they describe, given the lists: never by the clicks that were observed. Examination and
continuation have enough clicks only if, besides, three quarters of all clicks are expected on documents that do.

Users are simulated with numpy alone: the code shares nothing with the click models that are fitted. Every log has other
parameters. Seeds are those of the log's number.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import clickshift as cs
from clickshift.errors import ClickshiftWarning

RESULTS = Path(__file__).parent / "results" / "interval_coverage.json"
PAGE = Path(__file__).parents[1] / "docs" / "intervals.md"
NAMES = ("PBM", "UBM", "DCM", "CCM", "SDBN", "DBN")
RANKERS = ("random", "noisy", "sorted")
SWAPS = (0.05, 0.3, 1.0)
QUERIES = {5: 150, 20: 60, 100: 20, 1000: 6}
"""Number of queries by impressions per document."""
ENOUGH = 5.0
"""Expected clicks from which on coverage should be between .93 and .98."""
_NOISE = 0.15
"""Standard deviation of the noise in relevance by which the noisy ranker sorts."""


@dataclass(frozen=True)
class Design:
    """How a log comes about.

    Parameters
    ----------
    ranker
        "random" order, sorted by "noisy" relevance, or "sorted" by relevance.
    swaps
        Share of sessions in which two neighbours of the list are swapped; None for a random order in every session.
    impressions
        Sessions per query, each of which shows all documents of the query.
    queries
        Number of queries.
    ranks
        Length of the lists.
    """

    ranker: str = "random"
    swaps: float | None = 0.3
    impressions: int = 100
    queries: int = 20
    ranks: int = 10


@dataclass(frozen=True)
class World:
    """True parameters: documents are numbered by their place in the usual list of their query.

    Parameters
    ----------
    user
        Name of the click model.
    attractiveness, satisfaction
        Parameters of documents.
    browsing
        Examination by situation (PBM, UBM) or continuation (the other models; none for SDBN).
    """

    user: str
    attractiveness: np.ndarray
    satisfaction: np.ndarray
    browsing: np.ndarray

    @classmethod
    def drawn(cls, user: str, design: Design, rng: np.random.Generator) -> World:
        """Draw the parameters."""
        shape, ranks = (design.queries, design.ranks), design.ranks
        a, s = rng.uniform(0.1, 0.8, shape), rng.uniform(0.1, 0.8, shape)
        noise = {"random": 1e6, "noisy": _NOISE, "sorted": 0.0}[design.ranker]
        order = np.argsort(-(a + rng.normal(0, noise, shape)), axis=1)
        browsing = {
            "PBM": 0.8 ** np.arange(ranks),
            "UBM": np.concatenate([np.r_[0.8**r, 0.9 ** (r - np.arange(r))] for r in range(ranks)]),
            "DCM": np.linspace(0.8, 0.4, ranks),
            "CCM": np.array([0.9, 0.8, 0.4]),
            "SDBN": np.empty(0),
            "DBN": np.array([0.85]),
        }[user]
        a, s = (np.take_along_axis(table, order, axis=1).ravel() for table in (a, s))
        return cls(user, a, s, browsing)

    def steps(self, document: np.ndarray, rank: int) -> tuple[np.ndarray | float, np.ndarray]:
        """Return the probabilities to go on after a skip and after a click (models that read from the top)."""
        a, s = self.attractiveness[document], self.satisfaction[document]
        if self.user == "DCM":
            return 1.0, np.full(len(a), self.browsing[rank])
        if self.user == "CCM":
            return self.browsing[0], self.browsing[1] * (1 - a) + self.browsing[2] * a
        g = self.browsing[0] if self.user == "DBN" else 1.0
        return g, g * (1 - s)

    def click(self, document: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Simulate the clicks on lists."""
        n, ranks = document.shape
        click, examines, last = np.zeros((n, ranks), bool), np.ones(n, bool), np.zeros(n, np.int64)
        for r in range(ranks):
            if self.user == "PBM":
                examines = rng.random(n) < self.browsing[r]
            elif self.user == "UBM":
                examines = rng.random(n) < self.browsing[r * (r + 1) // 2 + last]
            click[:, r] = examines & (rng.random(n) < self.attractiveness[document[:, r]])
            last[click[:, r]] = r + 1
            if self.user not in {"PBM", "UBM"}:
                after_skip, after_click = self.steps(document[:, r], r)
                examines &= rng.random(n) < np.where(click[:, r], after_click, after_skip)
        return click

    def expected_clicks(self, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected clicks on each document, and on what each entry of `browsing` describes."""
        n, ranks = document.shape
        clicks, by_browsing = np.zeros(len(self.attractiveness)), np.zeros(len(self.browsing))
        examined, last = np.ones(n), np.zeros((n, ranks + 1))
        last[:, 0] = 1.0
        for r in range(ranks):
            a = self.attractiveness[document[:, r]]
            if self.user == "UBM":
                first = r * (r + 1) // 2
                parts = last[:, : r + 1] * self.browsing[first : first + r + 1] * a[:, None]
                by_browsing[first : first + r + 1] = parts.sum(axis=0)
                clicked = parts.sum(axis=1)
                last[:, : r + 1] -= parts
                last[:, r + 1] = clicked
            else:
                clicked = a * (self.browsing[r] if self.user == "PBM" else examined)
                if self.user in {"PBM", "DCM"}:
                    by_browsing[r] = clicked.sum()
                else:
                    by_browsing += clicked.sum()
                if self.user != "PBM":
                    after_skip, after_click = self.steps(document[:, r], r)
                    examined = examined * ((1 - a) * after_skip + a * after_click)
            clicks += np.bincount(document[:, r], clicked, minlength=len(clicks))
        return clicks, by_browsing


def draw(user: str, design: Design, seed: int) -> tuple[World, np.ndarray, np.ndarray, np.ndarray]:
    """Draw parameters, and a log: query, document and click by session."""
    rng = np.random.default_rng([seed, NAMES.index(user)])
    world = World.drawn(user, design, rng)
    query = np.repeat(np.arange(design.queries), design.impressions)
    place = np.tile(np.arange(design.ranks), (len(query), 1))
    if design.swaps is None:
        place = rng.permuted(place, axis=1)
    else:
        row = np.flatnonzero(rng.random(len(query)) < design.swaps)
        rank = rng.integers(0, design.ranks - 1, len(row))
        place[row, rank], place[row, rank + 1] = rank + 1, rank
    document = place + design.ranks * query[:, None]
    return world, query, document, world.click(document, rng)


def intervals_of(user: str, design: Design, seed: int) -> Iterator[dict[str, Any]]:
    """Fit one log and yield, for each parameter: truth, estimate, interval, support and expected clicks as arrays."""
    world, query, document, click = draw(user, design, seed)
    size = design.queries * design.ranks
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(design.queries), design.ranks), np.arange(size))[0]
    log = cs.Sessions(cs.Rankings(vocabulary, query.astype(np.int32), document.astype(np.int32)), click)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        found = cs.fit(user, log)
    assert found.evidence is not None
    of_document, of_browsing = world.expected_clicks(document)
    if of_document[of_document >= ENOUGH].sum() < 0.75 * of_document.sum():
        of_browsing = np.minimum(of_browsing, 0.99 * ENOUGH)  # browsing is learned from hardly known documents
    browsing = "examination" if user in {"PBM", "UBM"} else "continuation"
    truths = {"attractiveness": world.attractiveness, "satisfaction": world.satisfaction, browsing: world.browsing}
    rank = np.tile(np.arange(design.ranks), design.queries)
    for name, truth in truths.items():
        if name not in found.evidence.logit_error:
            continue
        low, high, support = found_intervals(found, name)
        estimate = np.atleast_1d(getattr(found, name))
        by_document = len(truth) == size
        use = np.isfinite(low[: len(truth)]) & (low < high)[: len(truth)]
        if user == "DCM" and not by_document:
            use[-1] = False  # after the last rank there is nothing to go on to
        yield {
            "parameter": name,
            "truth": truth[use],
            "estimate": estimate[: len(truth)][use],
            "low": low[: len(truth)][use],
            "high": high[: len(truth)][use],
            "support": support[: len(truth)][use],
            "expected": (of_document if by_document else of_browsing)[use],
            "rank": (rank if by_document else np.full(len(truth), -1))[use],
        }


def found_intervals(found: cs.ClickModel, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return bounds and support of a parameter's intervals."""
    if hasattr(found, "intervals"):
        low, high, support = found.intervals(name)
        return low, high, support
    from clickshift.models.base import beta_interval  # versions without effective counts

    assert found.evidence is not None
    estimate, error = np.atleast_1d(getattr(found, name)), found.evidence.logit_error[name]
    low, high = beta_interval(estimate, error, 0.95)
    return low, high, np.full(len(low), "", object)


def coverage(user: str, design: Design, logs: int, first: int = 0) -> list[dict[str, Any]]:
    """Return a row per parameter and whether enough clicks are expected: coverage, bias, width, flagged share."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for seed in range(first, first + logs):
        for part in intervals_of(user, design, seed):
            parts.setdefault(part["parameter"], []).append(part)
    rows = []
    for parameter, every in parts.items():
        joined = {key: np.concatenate([part[key] for part in every]) for key in every[0] if key != "parameter"}
        for enough in (True, False):
            use = (joined["expected"] >= ENOUGH) == enough
            if not use.any():
                continue
            truth, estimate, low, high = (joined[key][use] for key in ("truth", "estimate", "low", "high"))
            last = joined["rank"][use] == design.ranks - 1
            rows.append(
                {
                    "model": user,
                    "parameter": parameter,
                    "enough": enough,
                    "coverage": float(((truth >= low) & (truth <= high)).mean()),
                    "bias": float((estimate - truth).mean()),
                    "bias_last_rank": float((estimate - truth)[last].mean()) if last.any() else None,
                    "width": float((high - low).mean()),
                    "flagged": float((joined["support"][use] != "log").mean()),
                    "intervals": int(use.sum()),
                }
            )
    return rows


def study(
    models: Sequence[str], rankers: Sequence[str], swaps: Sequence[float], impressions: Sequence[int], logs: int,
    first: int = 0,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the rows of all strata."""
    for user in models:
        for ranker in rankers:
            for share in swaps:
                for shown in impressions:
                    design = Design(ranker, share, shown, QUERIES[shown])
                    for row in coverage(user, design, logs, first):
                        yield {"ranker": ranker, "swaps": share, "impressions": shown} | row


Rows = list[dict[str, Any]]
_MIN_INTERVALS = 40
"""Intervals of a stratum for which its coverage is shown."""


def mean_of(rows: Rows, key: str) -> float:
    """Return the mean over intervals."""
    return float(np.average([row[key] for row in rows], weights=[row["intervals"] for row in rows]))


def rate(value: float) -> str:
    """Format a rate, e.g. ".943"."""
    return f"{value:.3f}".removeprefix("0")


def combined(rows: Rows) -> Rows:
    """Return one row per stratum and parameter: the means over those of several runs."""
    keys = ("model", "ranker", "swaps", "impressions", "parameter", "enough")
    strata: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        strata.setdefault(tuple(row[key] for key in keys), []).append(row)
    means = ("coverage", "bias", "width", "flagged")
    return [
        dict(zip(keys, stratum, strict=True))
        | {key: round(mean_of(own, key), 4) for key in means}
        | {"intervals": sum(row["intervals"] for row in own)}
        for stratum, own in strata.items()
    ]


def by_stratum(rows: Rows) -> list[float]:
    """Return the coverage of each stratum; of a single shared parameter, that of all swaps together."""
    found = [row["coverage"] for row in rows if row["intervals"] >= _MIN_INTERVALS]
    if found:
        return found
    keys = {(row["ranker"], row["impressions"]) for row in rows}
    return [mean_of([r for r in rows if (r["ranker"], r["impressions"]) == key], "coverage") for key in keys]


def coverage_table(rows: Rows, before: dict[str, Any], *, enough: bool) -> str:
    """Return the table of coverage by model and parameter, with enough expected clicks or with fewer."""
    lines = ["| model | parameter | before: mean | lowest | now: mean | lowest | highest | flagged | intervals |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for model in NAMES:
        for parameter in ("attractiveness", "satisfaction", "examination", "continuation"):
            key = (model, parameter, enough)
            own = [row for row in rows if (row["model"], row["parameter"], row["enough"]) == key]
            if own:
                old = before["coverage"][f"{model} {parameter}"]["enough" if enough else "fewer"]
                strata = by_stratum(own)
                values = (*old, mean_of(own, "coverage"), min(strata), max(strata), mean_of(own, "flagged"))
                cells = [model, parameter, *map(rate, values), f"{sum(row['intervals'] for row in own):,}"]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ranker_table(rows: Rows, before: dict[str, Any]) -> str:
    """Return the table of the coverage of attractiveness by ranker and impressions: before, now."""
    lines = ["| model | ranker | " + " | ".join(f"{n:,} impressions" for n in QUERIES) + " |"]
    lines += ["|---" * (2 + len(QUERIES)) + "|"]
    for model in NAMES:
        for ranker in RANKERS:
            cells = [model, ranker]
            for old, n in zip(before["attractiveness"][f"{model} {ranker}"], QUERIES, strict=True):
                key = (model, ranker, n, "attractiveness")
                own = [r for r in rows if (r["model"], r["ranker"], r["impressions"], r["parameter"]) == key]
                cells.append(f"{rate(old)}, {rate(mean_of(own, 'coverage'))}")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_tables(text: str, results: dict[str, Any]) -> str:
    """Return the text of docs/intervals.md with its tables made from the results."""
    rows, before = results["rows"], results["before"]
    tables = {
        "enough": coverage_table(rows, before, enough=True),
        "fewer": coverage_table(rows, before, enough=False),
        "by ranker": ranker_table(rows, before),
    }
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, tail = text[: text.index(begin) + len(begin)], text[text.index(end) :]
        text = f"{head}\n\n{table}\n\n{tail}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=NAMES)
    parser.add_argument("--rankers", nargs="+", default=RANKERS)
    parser.add_argument("--swaps", nargs="+", type=float, default=SWAPS)
    parser.add_argument("--impressions", nargs="+", type=int, default=tuple(QUERIES))
    parser.add_argument("--logs", type=int, default=20, help="logs of each stratum")
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--save", type=Path, default=None, help="JSON file for the rows")
    parser.add_argument("--write", nargs="+", type=Path, default=None, help="write results and page from saved rows")
    args = parser.parse_args()
    if args.write is not None:
        results = json.loads(RESULTS.read_text())
        results["rows"] = combined([row for path in args.write for row in json.loads(path.read_text())])
        RESULTS.write_text(json.dumps(results).replace("}, {", "},\n{") + "\n")
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
        return
    rows = []
    for row in study(args.models, args.rankers, args.swaps, args.impressions, args.logs, args.first):
        rows.append(row)
        print(
            f"{row['model']:5} {row['ranker']:7} swaps {row['swaps']:<5} shown {row['impressions']:<5} "
            f"{row['parameter']:15} {'>=5' if row['enough'] else '<5 '} {row['coverage']:.3f} "
            f"bias {row['bias']:+.3f} width {row['width']:.3f} flagged {row['flagged']:.2f} ({row['intervals']:,})",
            flush=True,
        )
    if args.save is not None:
        args.save.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
