"""First screen of an exploration: what the log is, which model predicts best, and whether it can answer questions."""

from __future__ import annotations

from pathlib import Path

from clickshift.counts.log_summary import LogSummary
from clickshift.data.description import period
from clickshift.experiments.comparison import Comparison
from clickshift.models import model_name
from clickshift.models.base import ClickModel

__all__ = ["conclusion_of", "data_line", "verdict_of"]

_VERDICTS = {
    "usable": "{sessions} sessions can separate relevance from position bias: documents changed ranks, and all ranks "
    "are connected.",
    "weak": "{sessions} sessions separate relevance from position bias only weakly: few documents changed ranks "
    "(weakest link: {link:.0f} effective swaps).",
    "not identified": "{sessions} sessions cannot separate relevance from position bias at all ranks: no document was "
    "shown at ranks of different groups, so documents of different groups cannot be compared.",
}


def verdict_of(summary: LogSummary) -> str:
    """Return whether a log separates position bias from attractiveness.

    Parameters
    ----------
    summary
        Summary of the log.

    Returns
    -------
    str
        "usable", "weak" or "not identified".
    """
    if summary.swap_graph.n_components > 1:
        return "not identified"
    return "weak" if summary.swap_graph.warning() else "usable"


def conclusion_of(summary: LogSummary, model: ClickModel, comparison: Comparison | None) -> str:
    """Conclude an exploration.

    Parameters
    ----------
    summary
        Summary of the log.
    model
        The model that the page uses.
    comparison
        Comparison of the classical models, if there is one.

    Returns
    -------
    str
        Whether the log can answer questions, and which model predicts best.
    """
    verdict = _VERDICTS[verdict_of(summary)]
    first = verdict.format(sessions=f"{summary.sessions:,}", link=summary.swap_graph.weakest_link)
    compared = {} if comparison is None else {row["model"]: row["conditional_perplexity"] for row in comparison.rows()}
    perplexity = {name: value for name, value in compared.items() if value is not None}
    name = model_name(model)
    if not perplexity:
        return f"{first} This page corrects clicks by {name}."
    best = min(perplexity, key=perplexity.__getitem__)
    used = ", which this page uses," if best == name else ""
    second = f"{best}{used} predicts held-out clicks best: perplexity {perplexity[best]:.4f}."
    if best != name:
        own = f" (perplexity {perplexity[name]:.4f})" if name in perplexity else ""
        second += f" This page uses {name}{own}."
    return f"{first} {second}"


def data_line(name: str, summary: LogSummary, model: ClickModel, fitted: bool, comparison: Comparison | None) -> str:
    """Describe the data of an exploration in one line.

    Parameters
    ----------
    name
        What the log is called.
    summary
        Summary of the log.
    model
        The model that the page uses.
    fitted
        Whether it was fitted for this page.
    comparison
        Comparison of the classical models, if there is one.

    Returns
    -------
    str
        Sizes, time, the model's training log and the sample of the comparison.
    """
    parts = [
        f"{name}: {summary.sessions:,} sessions, {summary.queries:,} queries, {summary.documents:,} documents, "
        f"{len(summary.clicks)} ranks, {summary.clicks_per_session:.2f} clicks per session"
    ]
    if summary.columns is not None and (described := summary.columns.describe()):
        parts.append(described)
    if summary.time is not None:
        parts.append(period(*summary.time))
    evidence = model.evidence
    if fitted:
        parts.append(f"{model_name(model)} fitted on all of it by maximum likelihood")
    elif evidence is not None and evidence.source:
        parts.append(f"{model_name(model)} fitted on {Path(evidence.source).name} ({evidence.sessions:,} sessions)")
    if evidence is not None and "segment=" in evidence.learner:
        parts.append("the curve is that of all segments together")
    if comparison is not None:
        rows = comparison.rows()
        n = rows[0]["train_sessions"] + rows[0]["test_sessions"]
        sample = f"a random sample of {n:,} sessions" if n < summary.sessions else "all sessions"
        parts.append(f"models compared on {sample}, a fifth of them held out")
    return "; ".join(parts) + "."
