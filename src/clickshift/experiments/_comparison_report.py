"""Report of a comparison of click models on one log: conclusion, chart and table."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from clickshift.core.intervals import normal_quantile
from clickshift.core.text import join_words
from clickshift.display.document import Document, Section
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured
from clickshift.experiments._dots import grouped_dots
from clickshift.metrics.click_prediction import PROBABILITY_FLOOR

BASELINES = ("gCTR", "rCTR", "dCTR", "drCTR")
"""Models that only count clicks: the click-through rate overall, by rank, by document, and by both."""
STACKING = "Stacking"
"""The stacked mixture of classical models."""
_Z = normal_quantile(0.975)
_MARGINAL, _CONDITIONAL = "without knowing any click", "each click from those above it"


def comparison_document(rows: Sequence[Row], conclusion: str, settings: Mapping[str, Any]) -> Document:
    """Return the document of a comparison.

    Parameters
    ----------
    rows
        Rows of the models, the best first.
    conclusion
        The conclusion.
    settings
        Settings of the comparison, by name.

    Returns
    -------
    Document
        The conclusion, the chart of the models as its headline, and their table.
    """
    caption = (
        "Lower perplexity is better, and 1 is perfect. ± and bars: 95 % interval over test sessions. All models "
        "predict the same sessions, so differences between models are more precise than the intervals. Filled marks: "
        "each click is predicted from the clicks above it; open marks: without them."
    )
    if error := max((row["marginal_error"] or 0.0 for row in rows), default=0.0):
        caption += f" Marginal probabilities of NCM have an error of at most {error:g}."
    errors = "\n\n".join(f"{row['model']} failed: {row['error']}" for row in rows if row["error"])
    has_numbers = any(row["conditional_perplexity"] is not None for row in rows)
    headline = Section(
        "Models",
        errors,
        comparison_table(rows),
        partial(comparison_figure, rows) if has_numbers else None,
        caption=caption,
        name="models",
    )
    settings = {**settings, "probability clip": PROBABILITY_FLOOR}
    return Document(
        "Click models on one log",
        conclusion,
        settings=settings,
        verdict=comparison_verdict(rows) if has_numbers else "",
        data=_data_line(rows, settings),
        headline=headline,
    )


def _data_line(rows: Sequence[Row], settings: Mapping[str, Any]) -> str:
    """Return what the data were, in one line."""
    sizes = f"{rows[0]['train_sessions']:,} training sessions and {rows[0]['test_sessions']:,} test sessions"
    log, test = settings.get("log"), settings.get("test")
    if test:
        return f"{sizes}: trained on {log}, tested on {test}."
    how = {
        "random": "at random",
        "time": "by time, the later ones for testing",
        "order": "in their order, the last ones for testing",
        "within-query": "at random within each query",
    }
    of = f" of {log}" if log else ""
    split = how.get(str(settings.get("split")), "")
    return f"{sizes}{of}{f', split {split}' if split else ''}."


def comparison_conclusion(rows: Sequence[Row]) -> str:
    """Conclude a comparison of click models on one log.

    Parameters
    ----------
    rows
        Rows of the comparison, one per model.

    Returns
    -------
    str
        Which model to use, its improvement over the best baseline, which models are as good, and which failed.
    """
    compared = _compared(rows)
    sentences = []
    if compared:
        best, baseline = _recommended(compared), _best_baseline(compared)
        lowest = best["conditional_perplexity"]
        if baseline is None:
            sentences.append(f"{best['model']} predicts these clicks best (perplexity {lowest:.4f}; 1 is perfect).")
        elif baseline is best:
            sentences.append(
                f"No click model predicts these clicks better than the click rates of {best['model']} (perplexity "
                f"{lowest:.4f}; 1 is perfect)."
            )
        else:
            against = f"(perplexity {lowest:.4f} against {baseline['conditional_perplexity']:.4f}; 1 is perfect)"
            name = f"those of {baseline['model']}, the best of the models that only count clicks"
            if _is_clear(best, baseline):
                gain = (baseline["conditional_perplexity"] - lowest) / (baseline["conditional_perplexity"] - 1)
                sentences.append(
                    f"Use {best['model']}: its click predictions are {gain:.1%} closer to perfect than {name} "
                    f"{against}."
                )
            else:
                sentences.append(
                    f"{best['model']} is first, but its click predictions are not better beyond chance than {name} "
                    f"{against}."
                )
        if is_stacked(best["model"]):
            sentences.append(_lead_sentence(best, compared))
        if tied := [row["model"] for row in compared if row is not best and _is_tied(best, row)]:
            sentences.append(f"{join_words(tied)} {'is' if len(tied) == 1 else 'are'} as good within chance.")
    failed = [row["model"] for row in rows if row["error"]]
    if failed:
        sentences.append(f"Not compared: {', '.join(failed)}.")
    impossible = [row["model"] for row in rows if row["log_likelihood"] == -math.inf]
    if impossible:
        whose = "its" if len(impossible) == 1 else "their"
        sentences.append(
            f"{', '.join(impossible)} gave probability 0 to clicks that happened: {whose} perplexity depends on the "
            f"probability floor {PROBABILITY_FLOOR:g}."
        )
    first = sentences[:1] if compared else []
    return "\n\n".join(filter(None, (*first, " ".join(sentences[len(first) :]))))


def comparison_verdict(rows: Sequence[Row]) -> str:
    """Return "usable" if the best click model is better than the baselines beyond chance, otherwise "weak".

    Parameters
    ----------
    rows
        Rows of the comparison; at least one model was compared.
    """
    compared = _compared(rows)
    best, baseline = _recommended(compared), _best_baseline(compared)
    return "weak" if baseline is best or (baseline is not None and not _is_clear(best, baseline)) else "usable"


def _compared(rows: Sequence[Row]) -> Rows:
    """Return the rows of models with a perplexity, the best first."""
    return [row for row in best_first(rows) if row["conditional_perplexity"] is not None]


def is_stacked(model: str) -> bool:
    """Whether a model is a stacked mixture, by its name."""
    return model.startswith(STACKING)


def recommended(rows: Sequence[Row]) -> str | None:
    """Return the name of the model to use; None if all failed.

    It is the best model. A stacked mixture has no parameters of its own to look at: it is recommended only if it is
    better than the best other model beyond chance.
    """
    compared = _compared(rows)
    return str(_recommended(compared)["model"]) if compared else None


def _recommended(compared: Sequence[Row]) -> Row:
    """Return the row of the model to use."""
    best = compared[0]
    single = next((row for row in compared if not is_stacked(row["model"])), best)
    if best.get("difference_error") is not None:  # it was found not to be better than the single model
        return single
    return best if single is best or _is_clear(best, single) else single


def _lead_sentence(best: Row, compared: Sequence[Row]) -> str:
    """Say how far a stacked mixture is ahead of the best other model; empty if that is not known."""
    single = next((row for row in compared if not is_stacked(row["model"])), None)
    if single is None or single.get("difference_error") is None:
        return ""
    ahead, half = single["conditional_perplexity"] - best["conditional_perplexity"], _Z * single["difference_error"]
    return f"It is ahead of {single['model']}, the best single model, by {ahead:.4f} ± {half:.4f}."


def _best_baseline(compared: Sequence[Row]) -> Row | None:
    """Return the row of the best baseline; None without baselines."""
    return next((row for row in compared if row["model"] in BASELINES), None)


def _is_clear(best: Row, other: Row) -> bool:
    """Return whether the best model is better than another one beyond chance; by its value if chance is not known."""
    error = other.get("difference_error")
    difference = float(other["conditional_perplexity"] - best["conditional_perplexity"])
    return difference > (0.0 if error is None else _Z * error)


def _is_tied(best: Row, other: Row) -> bool:
    """Return whether a model is as good as the best within chance, or in three decimals if chance is not known."""
    if other.get("difference_error") is not None:
        return not _is_clear(best, other)
    return round(float(other["conditional_perplexity"]), 3) == round(float(best["conditional_perplexity"]), 3)


def comparison_figure(rows: Sequence[Row]) -> Any:
    """Plot conditional and marginal perplexity of every model, the best first; outliers are numbers at the edge.

    Parameters
    ----------
    rows
        Rows of the comparison; at least one model was compared.
    """
    compared = _compared(rows)
    kinds = {_MARGINAL: "marginal_perplexity", _CONDITIONAL: "conditional_perplexity"}
    limit = _axis_limit([row[column] for row in compared for column in kinds.values()])
    dots = []
    for kind, column in kinds.items():
        for row in compared:
            half = _Z * row["conditional_perplexity_error"] if column == "conditional_perplexity" else None
            value = min(row[column], limit)
            ends = (None, None) if half is None or row[column] > limit else (value - half, value + half)
            dots.append({"label": row["model"], "value": value, "low": ends[0], "high": ends[1], "predicted": kind})
    figure = grouped_dots(dots, axis="perplexity (lower is better)", group="predicted", hollow=(_MARGINAL,))
    for (kind, column), trace in zip(kinds.items(), figure.data, strict=True):
        perplexity = [row[column] for row in compared]
        trace.update(
            customdata=perplexity,
            text=[f"{value:.3f} →" if value > limit else "" for value in perplexity],
            mode="markers+text",
            textposition="middle left",
            hovertemplate=f"%{{y}}, {html.escape(kind)}: %{{customdata:.4f}}<extra></extra>",
            cliponaxis=False,  # a mark at the end of the axis is drawn whole
        )
    reached = [end for dot in dots for end in (dot["value"], dot["low"], dot["high"]) if end is not None]
    margin = 0.04 * (max(reached) - min(reached)) + 1e-6
    figure.update_layout(xaxis={"range": [min(reached) - margin, max(reached) + margin]})
    return figure


def _axis_limit(values: Sequence[float]) -> float:
    """Return the upper limit of the axis: the largest value that is not an outlier.

    An outlier is more than ten times as far from the smallest value as the median is.
    """
    ascending = sorted(values)
    lowest, median = ascending[0], ascending[len(ascending) // 2]
    inside = [value for value in ascending if value - lowest <= 10 * (median - lowest) + 1e-9]
    return inside[-1]


def best_first(rows: Sequence[Row]) -> Rows:
    """Return the rows sorted by conditional perplexity; failed models are last."""
    return sorted(map(dict, rows), key=lambda row: _sort_key(row["conditional_perplexity"]))


def comparison_table(rows: Sequence[Row]) -> Rows:
    """Return one line per model, sorted by conditional perplexity; failed models are last.

    Parameters
    ----------
    rows
        Rows of the comparison, one per model.
    """
    return [
        {
            "model": row["model"],
            "conditional perplexity": _measured(row),
            "marginal perplexity": row["marginal_perplexity"],
            "log-likelihood": row["log_likelihood"],
            "unseen pairs": None if (share := row["unseen_pair_share"]) is None else f"{share:.2%}",
            "fit (s)": _seconds(row["fit_seconds"]),
            "whole time (s)": _seconds(row["seconds"]),
        }
        for row in best_first(rows)
    ]


def _seconds(value: float | None) -> Measured | None:
    """Return a time with one decimal."""
    return None if value is None else Measured(value, digits=1)


def _measured(row: Row) -> Measured | None:
    """Return the conditional perplexity with its interval."""
    perplexity, error = row["conditional_perplexity"], row["conditional_perplexity_error"]
    return None if perplexity is None else Measured(perplexity, _Z * error)


def _sort_key(value: float | None) -> float:
    """Return the value for sorting; unknown values are last."""
    return math.inf if value is None or math.isnan(value) else value
