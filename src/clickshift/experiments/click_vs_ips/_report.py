"""Results of the IPS paper's experiments: tables and figures from tidy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np

from clickshift.display.document import Document, Section
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, measured
from clickshift.experiments._protocol_settings import few_seeds_note, shown_settings
from clickshift.experiments.click_vs_ips._report_figures import (
    final_metric_figure,
    gradient_figure,
    loss_figures,
    metric_curves,
)
from clickshift.experiments.click_vs_ips._report_published import agreement, published_lines, published_section
from clickshift.experiments.click_vs_ips.data import (
    COUNTS,
    IPS_TRUE,
    NAIVE,
    PBM_ESTIMATED,
    PBM_TRUE,
    PRODUCTION,
    RANKING_METRICS,
    SESSIONS,
    PointwiseData,
    values_by_seed,
)
from clickshift.experiments.click_vs_ips.published import (
    LARGEST_LOG,
    published_rate,
    set_of_rows,
)
from clickshift.experiments.experiment import Experiment, ExperimentResult
from clickshift.metrics.significance import corrected_p_values, paired_t_test, welch

_ALPHA = 1e-4
"""Significance level of the paper, for all comparisons of a metric together."""
_COMPARED = ((PRODUCTION, NAIVE), (NAIVE, PBM_TRUE), (NAIVE, IPS_TRUE), (PBM_TRUE, IPS_TRUE))
"""Pairs of models whose difference is tested."""
_LOSS_AND_BIAS = {
    NAIVE: ("ips", "naive"),
    PBM_ESTIMATED: ("pbm", "estimated"),
    PBM_TRUE: ("pbm", "given"),
    IPS_TRUE: ("ips", "given"),
}
"""Loss and bias of the rankers of the paper, by name."""
_MAX_SHOWN_ROWS = 40
"""Largest table that the terminal shows."""

_TEXT_SIZES = """A production ranker showed documents, users of a position-based model clicked, and rankers were trained
on the clicks. nDCG@10 is computed from the true labels of other queries, where a query without a relevant document
counts as 0. Bands are 95 % bootstrap intervals of the mean over seeds, diamonds are published values. (The bands of the
published figure are called bootstrapped 95 % intervals, but are one standard error.)"""
_TEXT_TABLE = """Means over seeds with 95 % Student-t intervals. ▲ and ▼: significantly higher or lower than “PBM, true
bias”, by two-sided Welch tests at level .0001 with Bonferroni correction for all pairs of models. ARP is the average
rank of documents, weighted by grade; lower is better."""
_TEXT_DIFFERENCES = """Differences in nDCG@10 on the same seed's clicks, second minus first, and the p-value of a
two-sided paired t-test. Not corrected for multiple comparisons."""
_TEXT_COLLISIONS = """Some documents have the features of others, so that a ranker must give them one score. The click
model is biased towards the documents that users examine often, IPS takes the plain mean. Dashed: the limit with
unlimited clicks, in closed form."""
_TEXT_BIAS = """Both rankers are given the true examination, (1 / rank) to the power of eta. With unlimited clicks and a
parameter per document nothing would change; where features are shared, the click model loses."""
_TEXT_SHARED = """Two documents with the same features: relevance .1, always examined, and .9, examined one time in
ten. Alone, each has its minimum at its own relevance. Together, the IPS loss has its minimum at the mean, and the click
loss close to the relevance of the document that is always examined."""
_TEXT_RANK = """One document of relevance .5 at ranks 1 to 10, examined with probability 1 / rank, with unlimited
clicks. The minimum is always at .5, but the click loss is flatter at lower ranks."""
_TEXT_GRADIENT = """Mean absolute gradient of a document's logit in the first step of training, by the rank at which the
document was shown, on the one-hot set with all logits 0. The click loss has small gradients at low ranks. IPS has
similar gradients at all ranks, and larger ones at low ranks if there are few sessions: that is its variance."""
_TEXT_TUNING = """Means over runs of the smallest held-out loss of a run, which decides, and of nDCG@10 on the test
queries, which does not. A run that diverged has no loss."""
_TEXT_CHECKS = """nDCG@10 of rankers trained on drawn counts and on counted single sessions, with the p-value of their
difference. Distance: the largest difference between a score of the naive click model and of naive IPS on the same
clicks."""


@dataclass(frozen=True, repr=False)
class ClickVsIpsResult(ExperimentResult):
    """A table or figure of the paper on click models and IPS rankers.

    Parameters
    ----------
    task_rows
        Tidy rows of the finished tasks.
    settings
        Settings of the run, which end the page.
    failures
        Messages of the tasks that failed; the other tasks are in the rows.
    protocol
        Name of the protocol, which decides the tables and figures.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `rows`, the tidy rows of the experiment; `published`, one row per number
    of the paper: `model`, `metric`, `sessions`, `collisions` or `eta`, `published`, `sd` and `mark` (as far as the
    paper has them), `ours` with `half_width` of its 95 % interval, `our mark`, `difference` and `verdict`; `failures`,
    the messages of the tasks that failed.
    """

    protocol: str = "Pointwise"

    @property
    def published(self) -> Rows:
        """The paper's numbers beside ours, where the paper has the data set."""
        lines: Rows = []
        for row in published_lines(self._description[2]):
            numbers = {name: value.mean if isinstance(value, Measured) else value for name, value in row.items()}
            lines.append(numbers | {"half_width": row["ours"].half})
        return lines

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the rows, the published numbers and the failures."""
        return {**super().facts(), "published": self.published}

    @cached_property
    def _description(self) -> tuple[str, str, list[Section]]:
        """The title, the answer and the sections."""
        return _DESCRIPTIONS[self.protocol](self.task_rows)

    def _answer(self) -> str:
        return self._description[1]

    def _document(self) -> Document:
        title, _, sections = self._description
        headline = next((section for section in sections if section.figure is not None), None)
        if headline is not None:
            text, caption = "", " ".join((*headline.explanation.split(), *headline.text.split(), headline.caption))
            shown = replace(headline, text=text, explanation="", caption=caption.strip(), page_only=False)
        rest = [section for section in sections if section is not headline]
        published = published_lines(sections)
        verdict = "agrees" if all(line["verdict"] == "agrees" for line in published) else "differs"
        return Document(
            title,
            self.conclusion,
            rest,
            shown_settings(self.settings),
            verdict=verdict if published else "",
            data=_data_line(self.task_rows),
            headline=None if headline is None else shown,
        )


def _data_line(rows: Sequence[Row]) -> str:
    """Return what the data were, in one line; empty for losses in closed form."""
    sessions, seeds = (
        {row["sessions"] for row in rows if "sessions" in row},
        {row["seed"] for row in rows if "seed" in row},
    )
    if not sessions or "data" not in rows[0]:
        return ""
    size = f"{min(sessions):,} to {max(sessions):,}" if len(sessions) > 1 else f"{max(sessions):,}"
    runs = f", {len(seeds)} {'run' if len(seeds) == 1 else 'runs'}" if seeds else ""
    line = f"{size} simulated sessions of the data set “{rows[0]['data']}”{runs}."
    return f"{line} {few_seeds_note(len(seeds), 'run')}".rstrip()


class ClickVsIps(Experiment[ClickVsIpsResult]):
    """Base class of the protocols of the IPS paper."""

    data: PointwiseData

    def result(self, rows: Rows, settings: Mapping[str, Any], failures: tuple[str, ...] = ()) -> ClickVsIpsResult:
        """Make the result of the rows of finished tasks."""
        return ClickVsIpsResult(rows, settings, failures, type(self).__name__)

    def check_data(self) -> None:
        """Read the data set if it is in files: its name in tables depends on its content."""
        if hasattr(self, "data"):
            _ = self.data.published_set

    def sources(self) -> dict[str, Any]:
        """Return the path of the corpus."""
        return {"data": self.data.corpus} if hasattr(self, "data") else {}


def _describe_pointwise(rows: Sequence[Row]) -> tuple[str, str, list[Section]]:
    """Describe models by sessions, collisions or eta: figures 1, 4 and 5, table 2."""
    sections, data = [], rows[0]["data"]
    varied = [axis for axis in ("sessions", "collisions", "eta") if len({row[axis] for row in rows}) > 1]
    texts = {"sessions": _TEXT_SIZES, "collisions": _TEXT_COLLISIONS, "eta": _TEXT_BIAS}
    for axis in varied:
        sections.append(Section(f"nDCG@10 by {axis}", texts[axis], figure=metric_curves(rows, axis), page_only=True))
    most = max(row["sessions"] for row in rows)
    if set(varied) <= {"sessions"}:
        last = [row for row in rows if row["sessions"] == most]
        differences = _paired_difference_table(rows)
        figure = None if varied else partial(final_metric_figure, last)
        sections.append(Section(f"After {most:,} sessions", _TEXT_TABLE, _quality_table(last), figure))
        sections.append(Section("Order of models", _TEXT_DIFFERENCES, differences, page_only=_is_long(differences)))
    else:
        table = _values_table(rows, varied[-1])
        sections.append(
            Section("In numbers", _TEXT_TABLE.split(" ▲")[0], table, name="values", page_only=_is_long(table))
        )
    largest = [row for row in rows if row["kind"] == "trained" and row["sessions"] == LARGEST_LOG]
    compared = list(dict.fromkeys(row["model"] for row in largest))
    marks = {metric: _marks(largest, compared, metric) for metric in RANKING_METRICS} if largest else {}
    published = published_section(rows, varied, marks, page_only=_MAX_SHOWN_ROWS)
    sections += [published] if published.table else []
    trained = [row for row in rows if row["kind"] == "trained" and row["sessions"] == most]
    means = {
        model: float(np.mean([row["nDCG@10"] for row in trained if row["model"] == model]))
        for model in dict.fromkeys(row["model"] for row in trained)
    }
    best = max(means, key=means.__getitem__)
    others = ", ".join(f"{model} {mean:.3f}" for model, mean in means.items() if model != best)
    where = f"on average over {' and '.join(varied)}" if set(varied) - {"sessions"} else f"after {most:,} sessions"
    answer = f"Highest nDCG@10 {where}: {best} ({means[best]:.3f}). The others: {others}."
    answer = "\n\n".join(filter(None, (agreement(published.table), answer)))
    return f"Click models and IPS rankers on the data set “{data}”", answer, sections


def _describe_losses(rows: Sequence[Row]) -> tuple[str, str, list[Section]]:
    """Describe the expected losses: figures 2 and 3."""
    table = [
        {
            "loss": row["model"],
            **({"rank": row["rank"]} if "rank" in row else {"document": row["document"] or "both"}),
            "minimum at": row["relevance"],
            "minimum loss": row["loss"],
        }
        for row in rows
        if row["kind"] == "least"
    ]
    by_rank = "rank" in rows[0]
    first, *others = [Section(name, figure=figure) for name, figure in loss_figures(rows).items()]
    sections = [
        replace(first, text=_TEXT_RANK if by_rank else _TEXT_SHARED, page_only=True),
        Section("The other loss", parts=others, page_only=True),
        Section("Minima of the losses", table=table, name="minima"),
    ]
    answer = "Both losses have their minimum at the document's relevance at every rank."
    if not by_rank:
        minima = [f"{line['loss']} at {line['minimum at']:.4f}" for line in table if line["document"] == "both"]
        answer = f"For two documents with the same features, the losses have their minima at: {', '.join(minima)}."
    return "Click loss and IPS loss", answer, sections


def _describe_gradients(rows: Sequence[Row]) -> tuple[str, str, list[Section]]:
    """Describe gradients by rank: section 4.2."""
    table: Rows = []
    for rank in sorted({row["rank"] for row in rows}):
        line: dict[str, Any] = {"rank": rank}
        for row in (row for row in rows if row["rank"] == rank):
            count = row.get("sessions_per_query")
            line[f"{row['model']}, {'unlimited' if count is None else f'{count:,} sessions'}"] = row["gradient"]
        table.append(line)
    answer = "The click loss has small gradients at low ranks; the IPS loss has similar gradients at all ranks."
    sections = [Section("Gradients", _TEXT_GRADIENT, table, gradient_figure(rows))]
    return "Gradients of the click loss and the IPS loss by rank", answer, sections


def _describe_tuning(rows: Sequence[Row]) -> tuple[str, str, list[Section]]:
    """Describe the search for optimisers and learning rates: appendix C.2."""
    lines = best_settings(rows)
    table = [
        {
            "model": line["model"],
            "optimiser": line["optimiser"],
            "rate": f"{line['rate']:g}",
            "held-out loss": Measured(line["held_out_loss"], standing="best" if line["best"] else ""),
            "nDCG@10": line["nDCG@10"],
            "rounds": line["rounds"],
        }
        for line in lines
    ]
    best: list[dict[str, Any]] = [
        {"model": line["model"], "optimiser": line["optimiser"], "rate": f"{line['rate']:g}"}
        for line in lines
        if line["best"]
    ]
    for line in best:
        loss, bias = _LOSS_AND_BIAS.get(line["model"], ("", ""))
        published = published_rate(set_of_rows(rows), loss=loss, bias=bias)
        if published is not None:
            line["published"] = f"adam, {published:g}"
    chosen = "; ".join(f"{line['model']}: {line['optimiser']}, rate {line['rate']}" for line in best)
    sections = [
        Section("Chosen", _TEXT_TUNING, best),
        Section("Settings of rankers", table=table, name="settings", page_only=_is_long(table)),
    ]
    return "Optimiser and learning rate of each ranker", f"Lowest held-out loss: {chosen}.", sections


def _describe_checks(rows: Sequence[Row]) -> tuple[str, str, list[Section]]:
    """Describe the checks of drawn counts and of naive rankers."""
    table = check_table(rows)
    lowest = min((line["p"] for line in table if not np.isnan(line["p"])), default=float("nan"))
    distance = max((line["distance"] for line in table if line["distance"] is not None), default=float("nan"))
    answer = (
        f"Lowest p-value of a difference between drawn counts and single sessions: {lowest:.3f}. Largest difference "
        f"between scores of the two naive rankers: {distance:.2g}."
    )
    title = "Checks: drawn counts against sessions, naive PBM against naive IPS"
    return title, answer, [Section("Checks", _TEXT_CHECKS, table)]


_DESCRIPTIONS = {
    "Pointwise": _describe_pointwise,
    "SharedFeatures": _describe_losses,
    "LossByRank": _describe_losses,
    "GradientByRank": _describe_gradients,
    "Tuning": _describe_tuning,
    "PointwiseChecks": _describe_checks,
}
"""Function that describes the rows of each protocol: title, answer and sections."""


def _is_long(table: Rows) -> bool:
    """Return whether a table is too long for a terminal."""
    return len(table) > _MAX_SHOWN_ROWS


def _quality_table(rows: Sequence[Row]) -> Rows:
    """Return table 2: one line per model."""
    trained = [row for row in rows if row["kind"] == "trained"]
    models = list(dict.fromkeys(row["model"] for row in trained))
    table: Rows = []
    marks = {metric: _marks(trained, models, metric) for metric in RANKING_METRICS}
    for model in models:
        line: dict[str, Any] = {"model": model}
        for metric in RANKING_METRICS:
            line[metric] = measured([*values_by_seed(trained, metric, model=model).values()], digits=3)
            line[f"{metric} mark"] = marks[metric][model]
        table.append(line)
    return table


def _marks(rows: Sequence[Row], models: Sequence[str], metric: str) -> dict[str, str]:
    """Mark models that differ significantly from the click model with the true bias.

    All marks are "" without that model, or with a single seed.
    """
    values = {model: [*values_by_seed(rows, metric, model=model).values()] for model in models}
    marks = dict.fromkeys(models, "")
    if PBM_TRUE not in models or min(map(len, values.values())) < 2:
        return marks
    pairs = list(combinations(models, 2))
    p_values = corrected_p_values([welch(values[a], values[b]) for a, b in pairs], "bonferroni")
    for (a, b), p in zip(pairs, p_values, strict=True):
        if PBM_TRUE in (a, b) and p < _ALPHA:
            other = b if a == PBM_TRUE else a
            marks[other] = "▲" if np.mean(values[other]) > np.mean(values[PBM_TRUE]) else "▼"
    return marks


def _paired_difference_table(rows: Sequence[Row]) -> Rows:
    """Return paired differences in nDCG@10 between models on the same clicks, by number of sessions."""
    trained, table = [row for row in rows if row["kind"] == "trained"], []
    for sessions in sorted({row["sessions"] for row in trained}):
        for first, second in _COMPARED:
            a, b = (values_by_seed(trained, "nDCG@10", model=model, sessions=sessions) for model in (first, second))
            seeds = sorted(a.keys() & b.keys())
            if not seeds:
                continue
            differences = [b[seed] - a[seed] for seed in seeds]
            p = (
                paired_t_test([b[seed] for seed in seeds], [a[seed] for seed in seeds])
                if len(seeds) > 1
                else float("nan")
            )
            table.append(
                {
                    "sessions": sessions,
                    "first": first,
                    "second": second,
                    "difference": measured(differences, signed=True),
                    "p": p,
                }
            )
    return table


def _values_table(rows: Sequence[Row], axis: str) -> Rows:
    """Return nDCG@10 by collisions or eta, with the limit of unlimited clicks where it is known."""
    table: Rows = []
    for point in sorted({row[axis] for row in rows}):
        line: dict[str, Any] = {axis: point}
        for model in dict.fromkeys(row["model"] for row in rows):
            where = {"model": model, axis: point}
            line[model] = measured([*values_by_seed(rows, "nDCG@10", kind="trained", **where).values()])
            limit = [*values_by_seed(rows, "nDCG@10", kind="limit", **where).values()]
            if limit:
                line[f"{model}, unlimited clicks"] = measured(limit)
        table.append(line)
    return table


def best_settings(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the means over runs of each model and setting, marked where the held-out loss of a model is smallest.

    Parameters
    ----------
    rows
        Rows of a `Tuning`.

    Returns
    -------
    list of dict
        One line per model and setting; "best" is True for the chosen setting of each model. The means are infinite if
        a run failed.
    """
    groups: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["optimiser"], row["rate"]), []).append(row)
    lines: list[dict[str, Any]] = []
    for (model, optimiser, rate), group in groups.items():
        finished = [row for row in group if "failed" not in row]
        means = {
            name: sum(row[name] for row in finished) / len(finished) if len(finished) == len(group) else float("inf")
            for name in ("held_out_loss", "nDCG@10", "rounds")
        }
        lines.append({"model": model, "optimiser": optimiser, "rate": rate, "runs": len(group)} | means)
    for model in dict.fromkeys(line["model"] for line in lines):
        best = min((line for line in lines if line["model"] == model), key=lambda line: line["held_out_loss"])
        best["best"] = True
    return [{**line, "best": line.get("best", False)} for line in lines]


def check_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarise the checks, one line per model.

    Parameters
    ----------
    rows
        Rows of `PointwiseChecks`.

    Returns
    -------
    list of dict
        Mean nDCG@10 by both kinds of clicks and the p-value of their difference; for the naive click model also the
        largest difference of its scores to those of naive IPS.
    """
    lines = []
    for name in dict.fromkeys(row["model"] for row in rows):
        by_kind = {
            kind: [*values_by_seed(rows, "nDCG@10", model=name, clicks=kind).values()] for kind in (COUNTS, SESSIONS)
        }
        distance = [row["distance"] for row in rows if row["model"] == name and "distance" in row]
        lines.append(
            {"model": name}
            | {kind: float(np.mean(values)) for kind, values in by_kind.items()}
            | {"p": welch(by_kind[COUNTS], by_kind[SESSIONS]), "distance": max(distance) if distance else None}
        )
    return lines
