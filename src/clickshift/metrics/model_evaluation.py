"""evaluate: how well a fitted click model predicts the clicks of a log."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from typing_extensions import override

from clickshift.core.intervals import mean_interval, normal_quantile
from clickshift.core.progress import Progress, silent
from clickshift.counts.fingerprint import log_fingerprint
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.days import time_range
from clickshift.data.description import describe_log, log_source
from clickshift.data.encoded_log import Log
from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS, SYMBOLS, rank_step
from clickshift.display.result import Result
from clickshift.display.tables import Row, Rows, facts_table
from clickshift.display.values import decimals
from clickshift.errors import ClickshiftWarning
from clickshift.io.read_report import OnBadLine
from clickshift.metrics.click_prediction import evaluation
from clickshift.models import model_title
from clickshift.models.base import ClickModel
from clickshift.models.segmented import Segmented, columns_for
from clickshift.models.storage import ModelLike, open_models

__all__ = ["ClickPrediction", "evaluate"]

_KINDS: dict[str, str] = {
    "conditional_perplexity": "the model, given the clicks above",
    "marginal_perplexity": "the model, without them",
    "baseline_perplexity": "baseline: click-through rate of the rank",
}


@final
@dataclass(frozen=True, repr=False, eq=False)
class ClickPrediction(Result):
    """Quality of a click model's predictions on a log.

    Parameters
    ----------
    model
        Name of the model.
    evaluations
        Metrics by name, as from `evaluation`: one dict for each model that differs by seed.
    peeks
        Whether the model sees the clicks that it predicts.
    on_training_log
        Whether the log is the one that the model was fitted on.
    calibration
        Rows of `calibration`: expected and observed click-through rates by rank and by decile of the prediction, of
        the first seed; empty for a log larger than memory and for a model that peeks.
    data
        What the log was, in one line.

    Notes
    -----
    Keys of `to_dict`, which `clickshift evaluate --json` prints. With several seeds, metrics are means, and each scalar
    metric has its 95 % Student-t interval as `<metric>_interval`.

    - model, sessions, seeds (if there are several);
    - log_likelihood: mean natural log-likelihood of a session;
    - conditional_perplexity, marginal_perplexity: mean over ranks of the perplexity of each click given the clicks
      above it, and without them; `..._at_rank` has one value per rank;
    - baseline_perplexity: the same for the click-through rate of each rank in this log;
    - conditional_perplexity_error: standard error of the conditional perplexity over sessions;
    - marginal_error: accepted error of a marginal probability, 0 if it is exact;
    - auroc, auroc_at_rank: area under the ROC curve, over all ranks and per rank;
    - unseen_pair_share: share of impressions of pairs that the model was not trained on;
    - calibration: expected_ctr and observed_ctr with observed_low, observed_high and impressions, by "rank" or by
      "decile" of the prediction (by, number); of the first seed, and of a log in memory;
    - on_training_log: whether the log is the one that the model was fitted on;
    - caution: why the perplexity of this model must not be compared with that of others, if so;
    - conclusion.
    """

    model: str
    evaluations: Sequence[Mapping[str, Any]]
    peeks: bool = False
    on_training_log: bool = False
    calibration: Sequence[Row] = ()
    data: str = ""

    def _mean(self, metric: str) -> Any:
        """Return the mean of a metric over seeds, by rank where it has ranks."""
        if len(self.evaluations) == 1:
            return self.evaluations[0][metric]
        return np.mean([one[metric] for one in self.evaluations], axis=0).tolist()

    def _interval(self, metric: str) -> tuple[float, float]:
        """Return the 95 % interval of a scalar metric over seeds."""
        return mean_interval([one[metric] for one in self.evaluations])[1:]

    @property
    @override
    def conclusion(self) -> str:
        perplexity, baseline = self._mean("conditional_perplexity"), self._mean("baseline_perplexity")
        half = normal_quantile(0.975) * float(self._mean("conditional_perplexity_error"))
        digits = min(decimals(half), 4) if half > 0 else 4
        interval = f" ± {half:.{digits}f}" if half > 0 else ""
        text = (
            f"{self.model} predicts the clicks of {self.evaluations[0]['sessions']:,} sessions with a perplexity of "
            f"{perplexity:.{digits}f}{interval}; 1 is certainty, 2 is a coin flip. "
        )
        if self.peeks:
            return f"{text}{self.caution}"
        if not baseline > 1:
            return text.rstrip()
        gain = (baseline - perplexity) / (baseline - 1)
        better = f"the model's excess over 1 is {gain:.0%} smaller" if gain > 0 else "the model predicts no better"
        text += f"The click-through rate of each rank alone has {baseline:.{digits}f}: {better}."
        return f"{text} The model was fitted on this log." if self.on_training_log else text

    @property
    def caution(self) -> str:
        """Why the perplexity must not be compared with that of others; empty if it may."""
        if not self.peeks:
            return ""
        return "This model sees the clicks that it predicts: its perplexity must not be compared with that of others."

    @override
    def rows(self) -> Rows:
        """Return a row per metric, and per rank where it has ranks: metric, rank, value, low and high."""
        rows: Rows = []
        for metric in self._metrics():
            values = self._mean(metric)
            if isinstance(values, list):
                name = metric.removesuffix("_at_rank")
                rows += [
                    {"metric": name, "rank": r, "value": v, "low": None, "high": None} for r, v in enumerate(values, 1)
                ]
            else:
                low, high = self._interval(metric)
                rows.append({"metric": metric, "rank": None, "value": values, "low": low, "high": high})
        return rows

    def _metrics(self) -> list[str]:
        """Return the names of the metrics."""
        return [name for name in self.evaluations[0] if name != "sessions"]

    @override
    def facts(self) -> Mapping[str, Any]:
        seeds = len(self.evaluations)
        facts: dict[str, Any] = {"model": self.model, "sessions": self.evaluations[0]["sessions"]}
        facts |= {"seeds": seeds} if seeds > 1 else {}
        for metric in self._metrics():
            facts[metric] = self._mean(metric)
            if seeds > 1 and not isinstance(facts[metric], list):
                facts[f"{metric}_interval"] = self._interval(metric)
        facts["calibration"] = [dict(row) for row in self.calibration]
        facts["on_training_log"] = self.on_training_log
        return facts | ({"caution": self.caution} if self.peeks else {}) | {"conclusion": self.conclusion}

    @override
    def _document(self) -> Document:
        facts = {name: value for name, value in self.facts().items() if name != "conclusion"}
        scalars = {name: value for name, value in facts.items() if not isinstance(value, list)}
        by_rank = [
            {"rank": rank, **dict(zip(_KINDS, values, strict=True))}
            for rank, values in enumerate(zip(*(self._mean(f"{kind}_at_rank") for kind in _KINDS), strict=True), 1)
        ]
        table = [{_HEADINGS[name]: value for name, value in row.items()} for row in by_rank]
        sections = [Section("Metrics", table=facts_table(scalars))]
        if deciles := [row for row in self.calibration if row["by"] == "decile"]:
            calibration = Section(
                "Calibration: are predictions of 10% clicked in 10% of the cases?",
                table=[_calibration_row(row) for row in deciles],
                figure=partial(_calibration_figure, deciles),
                caption="Each dot has a tenth of the results, by their predicted click probability given the clicks "
                "above, with its 95 % Wilson interval. On the diagonal, predictions are right on average.",
                name="calibration",
                page_only=True,
            )
            sections.insert(0, calibration)
        return Document(
            f"How well {self.model} predicts clicks",
            self.conclusion,
            sections,
            verdict=self._verdict(),
            data=self.data,
            headline=Section("Perplexity by rank", table=table, figure=partial(_perplexity_figure, by_rank)),
        )

    def _verdict(self) -> str:
        """Return what the comparison with the baseline is worth, where that is not much."""
        if self.peeks:
            return "not compared"
        if self.on_training_log:
            return "caution"
        better = self._mean("conditional_perplexity") < self._mean("baseline_perplexity")
        return "" if better else "no better than the baseline"


_HEADINGS = {
    "rank": "rank",
    "conditional_perplexity": "perplexity given the clicks above",
    "marginal_perplexity": "without them",
    "baseline_perplexity": "of the rank's click-through rate",
}


def _calibration_row(row: Row) -> dict[str, Any]:
    """Return a row of the table of calibration."""
    return {
        "tenth of the predictions": row["number"],
        "predicted from": f"{row['prediction_low']:.1%}",
        "to": f"{row['prediction_high']:.1%}",
        "mean prediction": f"{row['expected_ctr']:.2%}",
        "clicked": f"{row['observed_ctr']:.2%}",
        "95 % interval": f"{row['observed_low']:.2%} to {row['observed_high']:.2%}",
        "results": row["impressions"],
    }


def _calibration_figure(deciles: Sequence[Row]) -> Any:
    """Plot observed over expected click-through rates, beside the diagonal."""
    import plotly.graph_objects as go

    largest = max(max(row["observed_high"], row["expected_ctr"]) for row in deciles)
    figure = go.Figure()
    figure.add_scatter(
        name="perfect",
        x=[0, largest],
        y=[0, largest],
        mode="lines",
        line={"color": COLOURS[-1], "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )
    figure.add_scatter(
        name="tenths of the predictions",
        x=[row["expected_ctr"] for row in deciles],
        y=[row["observed_ctr"] for row in deciles],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row["observed_high"] - row["observed_ctr"] for row in deciles],
            "arrayminus": [row["observed_ctr"] - row["observed_low"] for row in deciles],
        },
        mode="markers",
        marker={"color": COLOURS[0], "size": 9},
        hovertemplate="predicted %{x:.2%}, clicked %{y:.2%}<extra></extra>",
    )
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "mean predicted click probability", "tickformat": ".0%", "rangemode": "tozero"},
        yaxis={"title": "click-through rate", "tickformat": ".0%", "rangemode": "tozero"},
        showlegend=False,
        margin={"l": 60, "r": 20, "t": 30, "b": 60},
        height=380,
    )
    return figure


def _perplexity_figure(by_rank: Rows) -> Any:
    """Plot conditional, marginal and baseline perplexity over ranks."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for (kind, meaning), colour, symbol in zip(_KINDS.items(), COLOURS, SYMBOLS, strict=False):
        figure.add_scatter(
            name=meaning,
            x=[row["rank"] for row in by_rank],
            y=[row[kind] for row in by_rank],
            mode="lines+markers",
            marker={"color": colour, "symbol": symbol, "size": 8},
            line={"dash": "dot"} if kind.startswith("baseline") else {},
            hovertemplate="rank %{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "rank", "dtick": rank_step(len(by_rank))},
        yaxis={"title": "perplexity (lower is better)"},
        legend={"orientation": "h", "y": 1.12},
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
        height=380,
    )
    return figure


def evaluate(
    model: ModelLike | Sequence[ClickModel],
    log: LogLike,
    *,
    exact: bool = False,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> ClickPrediction:
    """Evaluate how well a fitted model predicts the clicks of a log.

    Warns if the log is the one that the model was fitted on ("training-log").

    Parameters
    ----------
    model
        Folder of a saved model, with all its seeds, a click model, or several that differ by seed.
    log
        Anything that `open_log` opens: a path, a data frame, `Sessions`, an encoded log.
    exact
        Whether marginal probabilities of models that sum over click histories (NCM) are exact. By default, they may
        have an error of 0.001, which is much faster.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions.
    progress
        Called with the number of sessions read, and with the number of models evaluated.

    Returns
    -------
    ClickPrediction
        Perplexity, log-likelihood and AUROC, with a comparison with the click-through rate of each rank.

    Raises
    ------
    CapabilityError
        If the model does not predict clicks ("cannot-predict-clicks").
    FileError
        If the folder is not a model ("not-a-model"), or the log cannot be read.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 2000, rng=1)
    >>> train, test = log.split(0.8, rng=0)
    >>> prediction = cs.evaluate(cs.fit("PBM", train), test)
    >>> 1 < prediction.to_dict()["conditional_perplexity"] < 2
    True
    """
    models = open_models(model)
    opened = open_log(log, columns=columns_for(models[0], columns), on_bad_line=on_bad_line, progress=progress)
    if isinstance(models[0], Segmented):
        models[0].warn_of_unknown_labels(opened.chunks())
    evaluations = []
    for k, one in enumerate(models):
        evaluations.append(evaluation(one, opened, exact=exact, calibrated=k == 0))
        if len(models) > 1:
            progress(f"{k + 1} of {len(models)} seeds")
    calibration = evaluations[0].pop("calibration", ())
    on_training_log = _is_training_log(models[0], opened)
    if on_training_log:
        warnings.warn(
            ClickshiftWarning(
                "this log is the one that the model was fitted on: its perplexity is too low for new sessions. "
                "Evaluate on a held-out log, e.g. one of the parts that `clickshift log split` writes.",
                code="training-log",
                sessions=opened.total,
            ),
            stacklevel=2,
        )
    first, last = time_range(opened.time)
    data = describe_log(opened.total, opened.vocabulary.n_queries, source=log_source(log), first=first, last=last)
    return ClickPrediction(model_title(models[0]), evaluations, models[0].peeks, on_training_log, calibration, data)


def _is_training_log(model: ClickModel, log: Log) -> bool:
    """Return whether a model was fitted on a log, as far as the model knows."""
    evidence = model.evidence
    if evidence is None or not evidence.fingerprint or evidence.sessions not in {0, log.total}:
        return False
    return evidence.fingerprint == log_fingerprint(log)
