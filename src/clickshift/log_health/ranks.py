"""Checks of ranks: where they begin, gaps between them, and whether documents change them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from clickshift.counts.connectivity import SwapGraph, swap_graph
from clickshift.log_health._columns import LogColumns
from clickshift.log_health.finding import NOTHING, Check, CheckOptions, Evidence, Severity

_RARE_RANK = 0.05
"""Share of the lists below which a rank is too rare to matter for whether ranks are connected."""
_MIN_LIKE = 30
"""Sessions from which on the click-through rates of first results are compared."""


def rank_base(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many lists have no document at rank 1, if that is all of them."""
    late = log.first_rank > 1
    if not late.all():
        if log.first_rank_shift:  # ranks of the file begin at 0, which the others follow
            text = "Ranks begin at 0; this report counts them from 1."
            return Evidence(text, log.total, log.total)
        bases = set(_bases_by_source(options).values())
        if bases == {0}:
            text = "Ranks begin at 0. The import has corrected that."
            return Evidence(text, log.total, log.total, severity="notice")
        return Evidence("All lists begin at rank 1.", 0.0, log.total) if not late.any() else NOTHING
    first = int(np.bincount(log.first_rank, log.count).argmax())
    text = f"Ranks begin at {first - log.first_rank_shift}, not at 1."
    return Evidence(text, log.total, log.total, rows=np.ones(len(log), bool))


def mixed_rank_bases(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many lists begin below rank 1, or have ranks that are one too high.

    Lists that begin where most others have ended are further pages, whose ranks continue.
    """
    bases = _bases_by_source(options)
    if len(set(bases.values())) > 1:
        return _corrected(log, bases, options)
    late = log.first_rank > 1
    if not late.any() or late.all():
        return Evidence("All lists begin at the same rank.", 0.0, log.total)
    order = np.argsort(log.length[~late])
    until = np.cumsum(log.count[~late][order])
    usual = int(log.length[~late][order][np.searchsorted(until, until[-1] / 2)])  # median length
    pages = log.first_rank > max(usual, 2)
    late &= ~pages
    affected = log.sessions_of(pages)
    further = f"{affected / log.total:.1%} of the lists begin below rank {usual}: further pages, whose ranks continue"
    if not late.any():
        return Evidence(f"{further}.", affected, log.total, rows=pages, severity="notice")
    share = log.sessions_of(late) / log.total
    if log.first_rank_shift or set(bases.values()) == {0}:
        text = f"{1 - share:.1%} of the lists begin at rank 0 and {share:.1%} at rank 1 or below"
    else:
        text = f"{share:.1%} of the lists begin below rank 1"
    like, rates = _likeness(log, late)
    others = ~late & ~pages
    rows = late if share <= 0.5 or like == 2 else others  # ranks of the rarer lists are wrong
    if like:
        text += f"; the first result of those at rank 2 is clicked in {rates}, so "
        if like == 2:
            text += "their first result was left out"
        elif rows is late:
            text += "their ranks are probably one too high"
        else:
            text += "the ranks of the others are probably one too low"
    text += f". {further}." if affected else "."
    return Evidence(text, log.sessions_of(rows), log.total, rows=rows)


def _corrected(log: LogColumns, bases: dict[str, int], options: CheckOptions) -> Evidence:
    """Measure how many lists are of sources whose ranks began elsewhere than those of most lists."""
    lists = {source: float(options.events.numbers["lists_by_source"].get(source, 0)) for source in bases}
    by_base = {base: sum(lists[source] for source in bases if bases[source] == base) for base in bases.values()}
    named = ", ".join(f"{base} in {source or 'events without a source'}" for source, base in bases.items())
    text = f"Ranks begin at different numbers: {named}. The import has corrected that."
    shown = [{"source": source, "first rank": base, "lists": lists[source]} for source, base in bases.items()]
    affected = sum(by_base.values()) - max(by_base.values())
    return Evidence(text, affected, sum(by_base.values()), shown=shown, severity="notice")


def _likeness(log: LogColumns, late: np.ndarray) -> tuple[int, str]:
    """Return the rank whose click-through rate the first results of late lists have, 0 if unknown; and the rates.

    Those at rank 2 are clicked like rank 1 of the other lists if the base is wrong, and like their rank 2 if the first
    result is missing.
    """
    second = late & (log.first_rank == 2)
    n = log.sessions_of(second)
    clicked = log.first_click == 2
    rate_late = _mean(clicked, second, log)
    rate_first = _mean(log.first_click == 1, log.first_rank == 1, log)
    impressions, clicks = log.cells.by_rank()
    if log.cells.n_ranks < 2 or n < _MIN_LIKE or impressions[1] - n < _MIN_LIKE:
        return 0, ""
    rate_second = float((clicks[1] - log.count[second] @ clicked[second]) / (impressions[1] - n))
    like = 1 if abs(rate_late - rate_first) <= abs(rate_late - rate_second) else 2
    other = rate_second if like == 1 else rate_first
    if abs(rate_late - other) < 2 * np.sqrt(other * (1 - other) / n):
        return 0, ""
    rates = f"{rate_first:.1%} at rank 1, {rate_second:.1%} at rank 2"
    return like, f"{rate_late:.1%} of sessions, like rank {like} of the others ({rates})"


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
