"""Checks of ranks: where they begin, gaps between them, and whether documents change them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from clickshift.counts.connectivity import SwapGraph, swap_graph
from clickshift.log_health._columns import LogColumns
from clickshift.log_health.finding import NOTHING, Check, CheckOptions, Evidence, Severity

_WHOLE_LOG = 0.99
"""Share of the lists from which on another first rank is that of the whole log."""

_RARE_RANK = 0.05
"""Share of the lists below which a rank is too rare to matter for whether ranks are connected."""


def rank_base(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many lists have no document at rank 1, if that is all of them."""
    late = log.first_rank > 1
    share = log.sessions_of(late) / log.total
    if share < _WHOLE_LOG:
        if log.first_rank_shift:  # ranks of the file begin at 0, which the others follow
            text = "Ranks begin at 0; this report counts them from 1."
            return Evidence(text, log.total, log.total)
        return Evidence("All lists begin at rank 1.", 0.0, log.total) if not late.any() else NOTHING
    first = int(np.bincount(log.first_rank, log.count).argmax())
    text = f"Ranks begin at {first - log.first_rank_shift}, not at 1."
    return Evidence(text, log.total, log.total, rows=np.ones(len(log), bool))


def mixed_rank_bases(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many lists begin below rank 1, or have ranks that are one too high."""
    late = log.first_rank > 1
    share = log.sessions_of(late) / log.total
    bases = _bases_by_source(options)
    if len(set(bases.values())) > 1:
        named = ", ".join(f"{base} in {source or 'events without a source'}" for source, base in bases.items())
        text = f"Ranks begin at different numbers: {named}. The import has corrected that."
        shown = [{"source": source, "first rank": base} for source, base in bases.items()]
        return Evidence(text, 0.0, log.total, shown=shown, severity="notice")
    if not share or share >= _WHOLE_LOG:
        return Evidence("All lists begin at the same rank.", 0.0, log.total)
    shift = log.first_rank_shift
    text = (
        f"{share:.1%} of the lists begin below rank 1"
        if not shift
        else (f"{1 - share:.1%} of the lists begin at rank 0 and {share:.1%} at rank 1 or below")
    )
    affected = late if share <= 0.5 or not shift else ~late
    text += _likeness(log, late)
    return Evidence(text, log.sessions_of(affected), log.total, rows=affected)


def _likeness(log: LogColumns, late: np.ndarray) -> str:
    """Say whether the first results of late lists are clicked like those at rank 1, which shows a wrong base."""
    second = late & (log.first_rank == 2)
    clicked = log.first_click == 2
    rate_late = _mean(clicked, second, log)
    rate_first = _mean(log.first_click == 1, ~late, log)
    at_rank = log.cells.by_rank()
    if log.cells.n_ranks < 2 or not np.isfinite(rate_late) or not np.isfinite(rate_first):
        return "."
    late_clicks = float(log.count[second] @ clicked[second])
    impressions = at_rank[0][1] - log.sessions_of(second)
    rate_second = (at_rank[1][1] - late_clicks) / impressions if impressions > 0 else np.nan
    if not np.isfinite(rate_second):
        return "."
    like = 1 if abs(rate_late - rate_first) <= abs(rate_late - rate_second) else 2
    meaning = "so their ranks are probably one too high" if like == 1 else "so their first result was left out"
    return (
        f"; the first result of those at rank 2 is clicked in {rate_late:.1%} of sessions, like rank {like} of the "
        f"others ({rate_first:.1%} at rank 1, {rate_second:.1%} at rank 2), {meaning}."
    )


def _mean(values: np.ndarray, rows: np.ndarray, log: LogColumns) -> float:
    """Return a mean over the sessions of some rows; NaN without rows."""
    total = log.sessions_of(rows)
    return float(log.count[rows] @ values[rows]) / total if total else float("nan")


def _bases_by_source(options: CheckOptions) -> dict[str, int]:
    """Return the number at which ranks begin, by source, as an import has found it."""
    return {} if options.events is None else dict(options.events.numbers.get("first_ranks", {}))


def gaps(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many lists have a rank without a document between two documents."""
    rows = log.length - log.first_rank + 1 > log.n_shown
    affected = log.sessions_of(rows)
    if options.events is not None:
        found = _count(options, "gap-closed", "gap-truncated", "gap", "no-first-rank")
        if found:
            lists = float(options.events.numbers["lists"])
            text = f"{found / lists:.1%} of the lists had a rank without a result; {_gap_treatment(options)}."
            return Evidence(text, found, lists, shown=_examples(options, "gap-closed", "gap-truncated", "gap"))
    text = f"{affected / log.total:.1%} of the lists have a rank without a result between two results."
    return Evidence(text if affected else "No list has a gap between its ranks.", affected, log.total, rows=rows)


def _gap_treatment(options: CheckOptions) -> str:
    """Say what the import has made of gaps."""
    treatments = {
        "close": "the import moved the results below it up, which shifts their examination",
        "drop": "the import left these lists out",
        "truncate": "the import ended these lists above it",
    }
    return treatments.get(str(options.events.numbers.get("gaps")), "the import kept the ranks of the others")


def _count(options: CheckOptions, *codes: str) -> float:
    """Return how often an import left something out or repaired it for one of some reasons."""
    return float(sum(row["count"] for row in options.events.reasons if row["reason"] in codes))


def _examples(options: CheckOptions, *codes: str) -> list[dict[str, str]]:
    """Return the examples of an import for some reasons."""
    texts = [row["examples"] for row in options.events.reasons if row["reason"] in codes and row["examples"]]
    return [{"event": text} for part in texts for text in part.split("; ")][:5]


def one_rank(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure whether documents were shown at several ranks, without which examination is not identified."""
    cells = log.cells
    impressions, _ = cells.by_rank()
    often = impressions >= _RARE_RANK * log.total
    graph = _graph_of(swap_graph(cells), often)
    ranks_of_pair = np.bincount(cells.pair)
    alone = float(cells.impressions[ranks_of_pair[cells.pair] == 1].sum())
    warning = graph.warning()
    severity: Severity = {"not identified": "severe", "weakly identified": "warning"}.get(graph.verdict, "none")  # type: ignore[assignment]
    sentence = (warning or "all ranks are connected by documents that were shown at several ranks").partition(". ")[0]
    text = (
        f"{sentence[0].upper()}{sentence[1:]}. {alone / impressions.sum():.1%} of the results are of pairs of a query "
    )
    text += "and a document that were shown at one rank only."
    return Evidence(text, alone, float(impressions.sum()), unit="results", severity=severity)


def _graph_of(graph: SwapGraph, ranks: Bool[np.ndarray, " rank"]) -> SwapGraph:
    """Return the graph of some ranks; all ranks if they are fewer than two."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    if ranks.all() or ranks.sum() < 2 or not ranks[: int(ranks.sum())].all():
        return graph
    swaps = graph.swaps[np.ix_(ranks, ranks)]
    return SwapGraph(swaps, connected_components(csr_array(swaps > 0), directed=False)[1])


CHECKS = (
    Check(
        "rank-base",
        "Base of ranks",
        rank_base,
        "Make ranks begin at 1: `clickshift import LOG -o log.parquet` detects the base, `--rank-base` states it.",
        0.5,
        0.5,
        0.5,
    ),
    Check(
        "mixed-rank-bases",
        "Mixed bases of ranks",
        mixed_rank_bases,
        "Find the source (application, page, version) whose ranks begin elsewhere, and import it with its own "
        "`--rank-base`, or name its column: `clickshift import --column source=COLUMN`.",
        1e-9,
        0.002,
        0.02,
    ),
    Check(
        "gaps",
        "Gaps between ranks",
        gaps,
        "If advertisements stand there, nothing: a rank without a result is a hole, and ranks below it are true. If "
        "results were not tracked, fix the tracking; `clickshift import --gaps` chooses what becomes of such lists.",
        1e-9,
        0.02,
        0.2,
    ),
    Check(
        "one-rank",
        "Documents at one rank only",
        one_rank,
        "Position bias and relevance cannot be separated by this log. Swap a few results at random now and then, or "
        "log several rankers.",
        0.05,
        0.05,
        0.5,
    ),
)
"""Checks of ranks."""
