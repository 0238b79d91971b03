"""Result of an audit: which models depend on the logging policy, as verdicts, tables and charts."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np

from clickshift.core.intervals import normal_quantile
from clickshift.core.text import join_words
from clickshift.debiasedness.scored_pairs import ScoredPairs, mid_ranks
from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS
from clickshift.display.result import Result
from clickshift.display.tables import Rows

_TITLE = "Debiasedness: does the relevance of click models depend on the logging policy?"
SIGNIFICANCE_LEVEL = 0.05
"""A dependence with a p-value up to this is significant."""
_NEGLIGIBLE_SHARE = 0.05
"""A significant dependence that explains less than this share of the variance is negligible."""
_POINTS = 400
"""Number of points of each label in a chart: more would hide each other."""
_BINS = 8
"""Largest number of means along a line."""
_TEXT = """Given the true relevance of a document, the estimate of a debiased model is independent of the score of the
logging policy. Mean dependence tests the mean of the estimates; look at it first. CMIP (conditional mutual information,
in nats) tests the whole distribution, and so also detects that estimates are noisier where users rarely looked, which
is not bias. Debiasedness is necessary for a model to hold under another ranker, but not sufficient: random scores are
debiased, too. Read it together with nDCG and perplexity."""
_TEXT_TABLE = """With 95 % confidence intervals over random halves of the queries. Null 95 %: the 95 % quantile with
logging scores permuted within queries and labels; p: the p-value of this permutation test. Slope: difference of the
estimate between the most and the least favoured document of a label. Lower perplexity and higher nDCG are better."""
_TEXT_CHARTS = """Documents of equal label, from the one that the logging policy favoured least to the one it favoured
most. The lines are means with two standard errors. A line that rises or falls is bias; points that spread more on one
side are noise."""


class ModelAudit(NamedTuple):
    """Audit of one model.

    Parameters
    ----------
    facts
        Numbers by name: mean dependence and CMIP with intervals and null distributions, perplexity, nDCG@10.
    rows
        The scored pairs of the model's first seed.
    halves
        Mean dependence in random halves of the queries, which are the same for all models of an audit.
    """

    facts: dict[str, Any]
    rows: ScoredPairs
    halves: np.ndarray


@final
@dataclass(frozen=True, repr=False, eq=False)
class AuditResult(Result):
    """Audit of click models: which of them depend on the logging policy, and which one to choose.

    Parameters
    ----------
    models
        Audits of the models.
    strategy
        Strategy that chooses among several models.
    chosen
        Name of the chosen model; None if there is only one.
    cautions
        Warnings for readers: labels made by a model, coarse labels, pairs left out, too few queries.
    settings
        Settings of the computation, by name.
    noisy_source
        Source of the relevance if it is not labels: "random traffic" or "orderings". Verdicts are then relative.
    circular
        Names of the models that may have made the labels themselves.

    Notes
    -----
    Facts, as `to_dict` returns them:

    - conclusion: the answer, as text.
    - rows: for each model its name (model), seeds, pairs and queries; mean_dependence and cmip, each with the suffixes
      _low and _high (95 % interval), _null_mean and _null_high (under independence), _slope, _p_value and
      _skipped_rows; perplexity and nDCG@10; untestable: why independence cannot be tested, empty if it can.
    - verdicts: for each model its name (model), a short verdict, and a text with the evidence.
    - relative: whether verdicts compare the models with each other only, as relevance from random traffic and from
      orderings requires.
    - circular: names of the models that may have made the labels themselves.
    - chosen: strategy and model; empty for one model, and where the dependence that the strategy needs is not tested.
    - cautions: warnings, as texts.
    """

    models: tuple[ModelAudit, ...]
    strategy: str
    chosen: str | None
    cautions: tuple[str, ...]
    settings: Mapping[str, Any]
    noisy_source: str = ""
    circular: tuple[str, ...] = ()

    @property
    def verdicts(self) -> list[dict[str, str]]:
        """Verdict on each model: "model", "verdict" and "text"."""
        if self.noisy_source:
            return [_relative_verdict(one, self.models, self.noisy_source) for one in self.models]
        return [verdict(one.facts) for one in self.models]

    @property
    def conclusion(self) -> str:
        """The chosen model, the verdict on each model, and how to read them."""
        named = [f"{_named(one, verdict)}" for one, verdict in zip(self.models, self.verdicts, strict=True)]
        verdicts = f"{'; '.join(named)}."
        tested = [one for one in self.models if not one.facts["untestable"]]
        notes = []
        if not tested:
            notes.append(str(self.models[0].facts["untestable"]))
        if self.circular:
            notes.append(f"The labels may come from {join_words(self.circular)}: see the warnings.")
        if tested and self.noisy_source:
            notes.append(
                f"Relevance from {self.noisy_source} is noisy, which makes every model look dependent: these verdicts "
                "hold among the audited models only."
            )
        if tested:
            notes += filter(None, [_disagreement(tested)])
            predicts = any(not math.isnan(one.facts["perplexity"]) for one in self.models)
            beside = "perplexity and nDCG" if predicts else "nDCG"
            notes.append(f"Random scores would be debiased too: read this together with {beside}.")
        chosen = f"Recommended by the strategy “{self.strategy}”: {self.chosen}." if self.chosen else ""
        return "\n\n".join(filter(None, (chosen, verdicts, " ".join(notes))))

    def rows(self) -> Rows:
        """Return the facts of each model."""
        return [one.facts for one in self.models]

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that the notes of the class list."""
        return {
            "conclusion": self.conclusion,
            "rows": self.rows(),
            "verdicts": self.verdicts,
            "relative": bool(self.noisy_source),
            "circular": list(self.circular),
            "chosen": {"strategy": self.strategy, "model": self.chosen} if self.chosen else {},
            "cautions": self.cautions,
        }

    def _document(self) -> Document:
        """Show numbers, verdicts with their evidence, and a chart for each model."""
        figures = [
            Section(str(one.facts["model"]), figure=partial(_scatter_figure, one), page_only=True)
            for one in self.models
        ]
        tested = [one for one in self.models if not one.facts["untestable"]]
        headline = Section(
            "Dependence on the logging policy",
            table=_audit_table(self.rows()),
            figure=partial(_dependence_figure, tested) if tested else None,
            caption=" ".join(_TEXT_TABLE.split()),
            name="dependence",
        )
        verdicts = [
            Section(_named(one, verdict), verdict["text"])
            for one, verdict in zip(self.models, self.verdicts, strict=True)
        ]
        return Document(
            _TITLE,
            self.conclusion,
            [
                Section("Verdicts", "\n\n".join(self.cautions), parts=verdicts),
                Section("Within labels", parts=figures, explanation=_TEXT_CHARTS, page_only=True),
                Section("Method", _TEXT, page_only=True, folded=True),
            ],
            self.settings,
            verdict=self._verdict,
            data=self._data,
            headline=headline,
        )

    @property
    def _verdict(self) -> str:
        """Verdict on the chosen model, or on the only one; "weak" if the labels may be the model's own."""
        if self.circular:
            return "weak"
        name = self.chosen if len(self.models) > 1 else str(self.models[0].facts["model"])
        return next((one["verdict"] for one in self.verdicts if one["model"] == name), "")

    @property
    def _data(self) -> str:
        """What was audited, in one line."""
        facts, source = self.models[0].facts, self.noisy_source or f"labels of {self.settings.get('labels', 'a file')}"
        return (
            f"{facts['pairs']:,} judged pairs of {facts['queries']:,} queries; relevance from {source}, the logging "
            f"policy's preference from {self.settings.get('logging', 'the log')}."
        )


def _named(one: ModelAudit, verdict: Mapping[str, str]) -> str:
    """Return the verdict on a model with its name and the share that tells it from others of the same verdict."""
    text = f"{verdict['model']}: {verdict['verdict']}"
    value = one.facts["mean_dependence"]
    return text if one.facts["untestable"] else f"{text} ({value:.1%} of the variance within labels)"


def _disagreement(models: Sequence[ModelAudit]) -> str:
    """Explain why mean dependence and CMIP order two models differently; empty if they do not.

    The two models are those that differ most by mean dependence, of which CMIP detects a dependence of the one that
    depends less: two values within chance have no order.
    """
    pairs = [
        (two.facts["mean_dependence"] - one.facts["mean_dependence"], one.facts["model"], two.facts["model"])
        for one in models
        for two in models
        if one.facts["mean_dependence"] < two.facts["mean_dependence"]
        and one.facts["cmip"] > two.facts["cmip"]
        and one.facts["cmip_p_value"] <= SIGNIFICANCE_LEVEL
    ]
    if not pairs:
        return ""
    _, less, more = max(pairs)
    return (
        f"CMIP orders {less} and {more} the other way round: it also counts estimates that are noisier where users "
        "rarely looked, which is no bias, so mean dependence decides."
    )


def _dependence_figure(models: Sequence[ModelAudit]) -> Any:
    """Plot mean dependence and CMIP of each model with intervals, one above the other, and what chance explains."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    ordered = sorted(models, key=lambda one: float(one.facts["mean_dependence"]))
    names = [html.escape(str(one.facts["model"])) for one in ordered]
    metrics = {"mean_dependence": "mean dependence (share of variance)", "cmip": "CMIP (nats)"}
    panel = 40 + 34 * len(ordered)
    figure = make_subplots(len(metrics), 1, vertical_spacing=60 / (len(metrics) * panel + 60))
    for number, (metric, title) in enumerate(metrics.items(), 1):
        values = [float(one.facts[metric]) for one in ordered]
        ends = [(one.facts[f"{metric}_low"], one.facts[f"{metric}_high"]) for one in ordered]
        known = [not math.isnan(low) for low, _ in ends]
        place = {"row": number, "col": 1}
        figure.add_scatter(
            name="with 95 % interval" if any(known) else "estimate",
            legendgroup="estimate",
            showlegend=number == 1,
            x=values,
            y=names,
            mode="markers",
            marker={"color": COLOURS[0], "size": 11},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [high - value if ok else 0 for value, (_, high), ok in zip(values, ends, known, strict=True)],
                "arrayminus": [
                    value - low if ok else 0 for value, (low, _), ok in zip(values, ends, known, strict=True)
                ],
            },
            hovertemplate="%{y}: %{x:.4f}<extra></extra>",
            **place,
        )
        figure.add_scatter(
            name="independent scores stay left of this in 95 %",
            legendgroup="chance",
            showlegend=number == 1,
            x=[one.facts[f"{metric}_null_high"] for one in ordered],
            y=names,
            mode="markers",
            marker={"symbol": "line-ns", "size": 20, "line": {"width": 3, "color": COLOURS[6]}, "color": COLOURS[6]},
            hovertemplate="%{y}: 95 % of permuted scores below %{x:.4f}<extra></extra>",
            **place,
        )
        figure.add_trace(go.Scatter(x=[0], y=names[:1], mode="markers", marker_opacity=0, hoverinfo="skip"), **place)
        figure.data[-1].showlegend = False
        figure.update_xaxes(title=title, **place)
        figure.update_yaxes(autorange="reversed", automargin=True, **place)
    figure.update_layout(
        template="plotly_white",
        height=len(metrics) * panel + 160,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        margin={"l": 20, "r": 20, "t": 50, "b": 50},
    )
    return figure


def _audit_table(facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one line per model from the facts of the audit."""
    return [
        {
            "model": one["model"],
            "mean dependence": _with_interval(one, "mean_dependence"),
            "null 95 %": _digits(one["mean_dependence_null_high"]),
            "p": _digits(one["mean_dependence_p_value"], 2),
            "slope": _digits(one["mean_dependence_slope"], signed=True),
            "CMIP": _with_interval(one, "cmip"),
            "CMIP null 95 %": _digits(one["cmip_null_high"]),
            "perplexity": one["perplexity"],
            "nDCG@10": one["nDCG@10"],
        }
        for one in facts
    ]


def verdict(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the verdict on one model: a short one, and a text with its evidence.

    Parameters
    ----------
    facts
        Facts of the audited model.

    Returns
    -------
    dict
        "model", "verdict" and "text".
    """
    if facts["untestable"]:
        return {"model": str(facts["model"]), "verdict": "cannot be tested", "text": facts["untestable"]}
    value, slope = facts["mean_dependence"], facts["mean_dependence_slope"]
    biased = facts["mean_dependence_p_value"] <= SIGNIFICANCE_LEVEL
    noisy = facts["cmip_p_value"] <= SIGNIFICANCE_LEVEL
    if biased:
        short = "favours what the logging policy favoured" if slope > 0 else "overcorrects"
        short = "hardly depends on the logging policy" if value < _NEGLIGIBLE_SHARE else short
        text = (
            "Among documents with the same label, the estimate of the one that the logging policy favoured most "
            f"differs from that of the one it favoured least by {slope:+.3f}. The ranking of the logging policy "
            f"explains {value:.1%} of the variance of the estimates within labels; with its scores permuted "
            f"within queries and labels, it explains less than {facts['mean_dependence_null_high']:.1%} in 95 % of "
            "cases."
        )
    elif noisy:
        short = "no bias detected, but uneven noise"
        text = (
            "The mean of its estimates does not depend significantly on the logging policy "
            f"(p = {facts['mean_dependence_p_value']:.2f}). Their distribution does (CMIP {facts['cmip']:.3f} nats): "
            "usually because estimates are noisier for documents that users rarely examined."
        )
    else:
        short = "no dependence detected"
        text = (
            "Neither the mean nor the distribution of its estimates depends significantly on the logging policy "
            f"(p = {facts['mean_dependence_p_value']:.2f} and {facts['cmip_p_value']:.2f}). With "
            f"{facts['pairs']:,} judged pairs a small dependence may go undetected, and random scores would pass."
        )
    return {"model": str(facts["model"]), "verdict": short, "text": text}


def _relative_verdict(one: ModelAudit, models: Sequence[ModelAudit], source: str) -> dict[str, str]:
    """Return the verdict on one model in comparison with the least dependent of the audited models.

    The same random halves of the queries are used for all models, so differences are paired.
    """
    facts, name, value = one.facts, str(one.facts["model"]), one.facts["mean_dependence"]
    if facts["untestable"]:
        return verdict(facts)
    least = min(models, key=lambda other: float(other.facts["mean_dependence"]))
    known = (
        f"The ranking of the logging policy explains {value:.1%} of the variance of its estimates within grades that "
        f"were made from {source}. Those grades miss part of the relevance, which a good logging policy and a good "
        "model both know: this number is not the bias of the model."
    )
    if len(models) == 1:
        return {"model": name, "verdict": "nothing to compare with", "text": f"{known} Audit a second model with it."}
    if one is least:
        return {"model": name, "verdict": "depends least of the audited models", "text": known}
    difference = value - least.facts["mean_dependence"]
    other = str(least.facts["model"])
    if len(one.halves) < 2:
        return {
            "model": name,
            "verdict": f"depends more than {other}, by an unknown margin of error",
            "text": f"{known} It explains {difference:.1%} less for {other}; there is no interval.",
        }
    half_width = normal_quantile(0.975) * float((one.halves - least.halves).std(ddof=1))
    short = "depends more on the logging policy than" if difference > half_width else "cannot be told apart from"
    text = (
        f"{known} For {other} it explains {difference:.1%} less, with a 95 % interval of the difference from "
        f"{difference - half_width:.1%} to {difference + half_width:.1%}."
    )
    return {"model": name, "verdict": f"{short} {other}", "text": text}


def _scatter_figure(audited: ModelAudit) -> Any:
    """Plot the estimates of one model against the logging policy's ranking within each label."""
    import plotly.graph_objects as go

    rows, figure = audited.rows, go.Figure()
    labels = np.unique(rows.label)
    for i, label in enumerate(labels):
        colour = COLOURS[i % len(COLOURS)]
        with_label = np.flatnonzero(rows.label == label)
        rank = mid_ranks(np.zeros(len(with_label), np.int64), rows.logging[with_label])
        estimate = rows.estimate[with_label]
        # rows are sorted by query, so that every k-th row is a representative sample
        sample = slice(None, None, max(len(with_label) // _POINTS, 1))
        group = {"legendgroup": str(label), "name": f"label {label:g}", "hoverinfo": "skip"}
        figure.add_scatter(
            x=rank[sample],
            y=estimate[sample],
            mode="markers",
            showlegend=False,
            marker={"color": colour, "size": 3, "opacity": 0.3},
            **group,
        )
        centre, mean, error = _binned_means(rank, estimate)
        figure.add_scatter(
            x=centre,
            y=mean,
            error_y={"type": "data", "array": 2 * error, "thickness": 1.2, "width": 2},
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 6},
            **group,
        )
    name = html.escape(str(audited.facts["model"]))
    figure.update_layout(
        title={"text": name, "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        width=480,
        height=430,
        xaxis={"title": "logging policy's ranking within the label", "range": [-0.02, 1.02]},
        yaxis={"title": "relevance by the model", "range": _axis_range(rows)},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "yref": "container", "y": 0.0, "yanchor": "bottom"},
        margin={"l": 55, "r": 32, "t": 58, "b": 105},
    )
    return figure


def _binned_means(rank: np.ndarray, estimate: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean rank, mean estimate and its standard error, in bins of equally many documents."""
    bins = np.array_split(np.argsort(rank, kind="stable"), min(_BINS, max(len(rank) // 5, 1)))
    centre, mean = (np.array([values[part].mean() for part in bins]) for values in (rank, estimate))
    error = np.array([estimate[part].std() / math.sqrt(len(part)) for part in bins])
    return centre, mean, error


def _axis_range(rows: ScoredPairs) -> list[float]:
    """Return the range of all but the most extreme estimates, a single one of which would flatten the chart."""
    low, high = np.quantile(rows.estimate, [0.002, 0.998])
    margin = 0.05 * (high - low) or 0.5
    return [float(low - margin), float(high + margin)]


def _with_interval(facts: Mapping[str, Any], name: str) -> str:
    """Format an estimate with its confidence interval, if it has one."""
    value, low, high = (facts[part] for part in (name, f"{name}_low", f"{name}_high"))
    return f"{value:.4f}" if math.isnan(low) else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _digits(value: float, digits: int = 4, *, signed: bool = False) -> str:
    """Format a number; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:{'+' if signed else ''}.{digits}f}"
