"""predict: expected clicks on each result of lists, shown before or not, with standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from clickshift.core.parallel import for_ranges
from clickshift.core.progress import Progress, silent
from clickshift.counts.open_log import LogLike, open_rankings
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN
from clickshift.display.document import Document, Section
from clickshift.display.export import Written
from clickshift.display.figures import curve_figure
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.errors import DataError
from clickshift.io.read_report import OnBadLine
from clickshift.io.table_writer import ENDINGS, table_ending, write_table
from clickshift.models import model_title
from clickshift.models.base import MARGINAL_ERROR, ClickModel, PairTable
from clickshift.models.intervals import beta_interval
from clickshift.models.mixture import KNOWN_WEIGHT, Mixture
from clickshift.models.perturb import (
    STEP,
    is_pair_table,
    logit_errors,
    one_pair_per_result,
    perturbed_shared_values,
    shift_logit,
)
from clickshift.models.segmented import Segmented
from clickshift.models.storage import ModelLike, open_model

__all__ = ["Forecast", "predict"]

_LISTS_PER_BLOCK = 4096  # lists whose expanded model is in memory at a time
_LISTS_SHOWN = 20  # lists in the table that people read


@final
@dataclass(frozen=True, repr=False, eq=False)
class Forecast(Result):
    """Click probabilities and expected clicks of lists, with standard errors.

    Parameters
    ----------
    model
        Name of the model that predicts.
    rankings
        The lists, in their own vocabulary.
    click_prob
        Marginal click probability; 0 where nothing is shown.
    error
        Standard error of each probability; NaN if the model has none.
    total_error
        Standard error of the expected number of clicks on each list; NaN if the model has none.
    unseen
        True where the model has not seen the pair and uses its prior.
    marginal_error
        Accepted error of a probability, 0 if it is exact.

    Notes
    -----
    Keys of `to_dict`, which `clickshift predict --json` prints:

    - model: name of the model;
    - n_lists: number of lists;
    - unseen_share: share of results that the model has not seen;
    - mean_expected_clicks: expected clicks of a list, on average;
    - mean_click_prob_by_rank: click probability of each rank, on average over the lists that show it;
    - marginal_error: accepted error of a probability, 0 if it is exact;
    - intervals: "delta method, 95 %", or "none" if the model has no standard errors;
    - lists: the rows of `to_arrow`, one for each list;
    - conclusion.
    """

    model: str
    rankings: Rankings
    click_prob: Float[np.ndarray, "list rank"]
    error: Float[np.ndarray, "list rank"]
    total_error: Float[np.ndarray, " list"]
    unseen: Bool[np.ndarray, "list rank"]
    marginal_error: float = 0.0

    @property
    def expected_clicks(self) -> Float[np.ndarray, " list"]:
        """Expected number of clicks on each list."""
        total: np.ndarray = self.click_prob.sum(axis=1)
        return total

    @property
    def unseen_share(self) -> float:
        """Share of unseen pairs among all results of all lists."""
        return float(self.unseen.sum() / self.rankings.shown.sum())

    def intervals(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper bounds of each click probability."""
        p = np.clip(self.click_prob, 1e-12, 1 - 1e-12).ravel()
        low, high = beta_interval(p, self.error.ravel() / (p * (1 - p)), level)
        return low.reshape(self.error.shape), high.reshape(self.error.shape)

    def total_intervals(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper bounds of the expected clicks on each list.

        They are Beta intervals of the expected clicks as a share of the number of results.
        """
        length = self.rankings.n_shown
        p = np.clip(self.expected_clicks / length, 1e-12, 1 - 1e-12)
        low, high = beta_interval(p, self.total_error / length / (p * (1 - p)), level)
        return low * length, high * length

    @override
    def to_arrow(self, *, level: float = 0.95) -> Any:
        """Return a pyarrow table with one row per list.

        Parameters
        ----------
        level
            Confidence level of the intervals.

        Returns
        -------
        pyarrow.Table
            Columns query, docs, click_prob, low and high (lists by rank, null at a hole), expected_clicks,
            expected_clicks_low, expected_clicks_high, and unseen_share: the share of its results that the model has
            not seen.
        """
        import pyarrow as pa

        shown, vocabulary, length = self.rankings.shown, self.rankings.vocabulary, self.rankings.length
        ends = pa.array(np.r_[0, np.cumsum(length)], pa.int32())
        result = None  # which result each entry of the lists has; null at a hole
        if self.rankings.has_holes:
            listed = shown[np.arange(self.rankings.n_ranks) < length[:, None]]
            result = pa.array(np.cumsum(listed) - 1, pa.int64(), mask=~listed)

        def lists(values: np.ndarray) -> Any:
            items = _arrow_array(values)
            return pa.ListArray.from_arrays(ends, items if result is None else items.take(result))

        low, high = self.intervals(level)
        total_low, total_high = self.total_intervals(level)
        columns = {
            "query": _arrow_array(vocabulary.query_ids[self.rankings.query]),
            "docs": lists(vocabulary.doc_ids[vocabulary.pair_doc[self.rankings.pair[shown]]]),
            "click_prob": lists(self.click_prob[shown]),
            "low": lists(low[shown]),
            "high": lists(high[shown]),
            "expected_clicks": self.expected_clicks,
            "expected_clicks_low": _arrow_array(total_low),
            "expected_clicks_high": _arrow_array(total_high),
            "unseen_share": self.unseen.sum(axis=1) / self.rankings.n_shown,
        }
        return pa.table(columns)

    @override
    def rows(self) -> Rows:
        """Return a row per list, as in `to_arrow`."""
        rows: Rows = self.to_arrow().to_pylist()
        return rows

    @property
    @override
    def conclusion(self) -> str:
        return (
            f"{self.model} expects {self.expected_clicks.mean():.3f} clicks on a list, on average over "
            f"{len(self.rankings):,} lists; {self.unseen_share:.1%} of their results were unseen in training."
        )

    def _mean_by_rank(self) -> list[float]:
        """Return the mean click probability of each rank over the lists that show it."""
        lists = self.rankings.shown.sum(axis=0)
        means: list[float] = (self.click_prob.sum(axis=0) / np.where(lists > 0, lists, np.nan)).tolist()
        return means

    @override
    def facts(self) -> Mapping[str, Any]:
        return {
            "model": self.model,
            "n_lists": len(self.rankings),
            "unseen_share": self.unseen_share,
            "mean_expected_clicks": float(self.expected_clicks.mean()),
            "mean_click_prob_by_rank": self._mean_by_rank(),
            "marginal_error": self.marginal_error,
            "intervals": "none" if np.isnan(self.error).any() else "delta method, 95 %",
            "lists": self.rows(),
            "conclusion": self.conclusion,
        }

    @override
    def _document(self) -> Document:
        more = len(self.rankings) - _LISTS_SHOWN
        curve = [
            {"rank": rank, "parameter": "mean click probability", "estimate": mean}
            for rank, mean in enumerate(self._mean_by_rank(), 1)
            if not np.isnan(mean)
        ]
        lists = Section(
            f"Expected clicks, by {self.model}",
            table=self._first_lists(),
            caption=f"and {more:,} more lists; `to_arrow` and the output file have them all" if more > 0 else "",
            name="expected clicks",
        )
        by_rank = Section(
            "Mean click probability by rank",
            table=[{"rank": row["rank"], "mean click probability": row["estimate"]} for row in curve],
            figure=partial(curve_figure, curve),
            page_only=True,
        )
        queries = len(np.unique(self.rankings.query))
        return Document(
            "Predicted clicks",
            self.conclusion,
            [lists],
            settings={"model": self.model},
            data=f"{len(self.rankings):,} lists of {queries:,} quer{'y' if queries == 1 else 'ies'}",
            headline=by_rank,
        )

    def _first_lists(self) -> Rows:
        """Return a table of the first lists."""
        first, vocabulary = self.rankings[:_LISTS_SHOWN], self.rankings.vocabulary
        low, high = self.total_intervals()
        return [
            {
                "list": i + 1,
                "query": str(vocabulary.query_ids[first.query[i]]),
                "expected clicks": float(self.expected_clicks[i]),
                "low": float(low[i]),
                "high": float(high[i]),
                "by rank": " ".join(
                    f"{prob:.3f}" if shown else "-"
                    for prob, shown in zip(self.click_prob[i], first.shown[i, : first.length[i]], strict=False)
                ),
                "unseen": int(self.unseen[i].sum()),
            }
            for i in range(len(first))
        ]

    @override
    @classmethod
    def check_output(cls, path: str | Path) -> None:
        if Path(path).suffix.lower() in {".html", ".htm"}:
            super().check_output(path)
        elif Path(path).suffix:
            table_ending(path)

    @override
    def write(self, path: str | Path) -> Written:
        """Write the predictions as a table, or a page or folder about them.

        Parameters
        ----------
        path
            A table with one row per list (.parquet, .csv or .jsonl), a page (.html), or a folder for both.

        Returns
        -------
        Written
            Paths of what was written.
        """
        self.check_output(path)
        if Path(path).suffix.lower() not in ENDINGS:
            return super().write(path)
        write_table(self.to_arrow(), path, notes={"model": self.model, "lists": len(self.rankings)})
        return Written(rows=Path(path))


def predict(
    model: ModelLike,
    rankings: LogLike | Rankings,
    *,
    exact: bool = False,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Forecast:
    """Predict the clicks on lists, whether they were shown before or not.

    Standard errors come from the delta method, with the errors of the parameters of the list's own documents
    (attractiveness, satisfaction) and of the parameters that all lists share (examination, continuation), taken as
    independent. They are NaN for models without standard errors. Those of a mixture are the weighted means of its
    components' standard errors, which they do not exceed however the errors of the components depend on each other;
    the weights count as known.

    Parameters
    ----------
    model
        Folder of a saved model, or a click model.
    rankings
        Lists of documents: `Rankings` in their own vocabulary, anything that :func:`open_log` opens (files, a folder, a
        glob, a table of DuckDB, a data frame, `Sessions`, an encoded log), whose clicks are not used, or such a table
        without clicks: with the columns query and docs, or session, query, rank and doc. For a model by segment, the
        table has a column of its name; lists without a known label get the curve of all sessions together.
    exact
        Whether marginal probabilities of models that sum over click histories (NCM) are exact. By default, they may
        have an error of 0.001, which is much faster.
    columns
        The table's names of our columns, e.g. ``{"docs": "results"}``. Common names are recognised.
    on_bad_line
        "error", or "skip" to leave out bad lists.
    progress
        Called with the number of lists of every finished block.

    Returns
    -------
    Forecast
        Click probabilities and expected clicks, with standard errors.

    Raises
    ------
    DataError
        If the vocabulary of the lists does not hold one of their ids ("unseen-id").
    CapabilityError
        If the model does not predict clicks ("cannot-predict-clicks").

    Examples
    --------
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> from clickshift.models.ctr import RCTR
    >>> vocabulary, _, _ = Vocabulary.of(["shoes", "shoes"], ["a", "b"])
    >>> rankings = Rankings(vocabulary, np.array([0]), np.array([[0, 1]]), np.array([[True, True]]))
    >>> predict(RCTR(vocabulary, np.array([0.5, 0.25])), rankings).expected_clicks
    array([0.75])
    """
    model = open_model(model)
    segments = [model.segment] if isinstance(model, Segmented) else []
    rankings = open_rankings(rankings, columns=columns, segments=segments, on_bad_line=on_bad_line)
    if isinstance(model, Segmented):
        model.warn_of_unknown_labels([rankings])
    if (rankings.query == UNSEEN).any() or ((rankings.pair == UNSEEN) & rankings.shown).any():
        raise DataError(
            "a forecast needs the ids of all queries and documents. Pass the lists in their own vocabulary.",
            code="unseen-id",
        )
    max_error = MARGINAL_ERROR if model.approximate_marginals and not exact else 0.0
    prob = model.click_prob(rankings, max_error=max_error)
    translated = rankings.in_vocabulary(model.vocabulary)
    unseen = translated.pair == UNSEEN if model.evidence is None else model.evidence.impressions[translated.pair] == 0
    error, total_error = np.full(prob.shape, np.nan), np.full(len(prob), np.nan)

    def work(rows: slice) -> None:
        error[rows], total_error[rows] = _standard_errors(model, translated[rows])
        progress(rows.stop - rows.start, total=len(prob))

    for_ranges(work, len(prob), chunk=_LISTS_PER_BLOCK)
    return Forecast(model_title(model), rankings, prob, error, total_error, unseen & rankings.shown, max_error)


def _standard_errors(model: ClickModel, lists: Rankings) -> tuple[np.ndarray, np.ndarray]:
    """Return standard errors of click probabilities and of their sums; NaN for models without standard errors."""
    error, total_error = np.full(lists.pair.shape, np.nan), np.full(len(lists), np.nan)
    if isinstance(model, Mixture):
        known, sums = 0.0, (np.zeros_like(error), np.zeros_like(total_error))
        for weight, component in zip(model.weights, model.components, strict=True):
            own = _standard_errors(component, lists)
            if not np.isnan(own[1]).all():
                known, sums = known + weight, (sums[0] + weight * own[0], sums[1] + weight * own[1])
        return (sums[0] / known, sums[1] / known) if known >= KNOWN_WEIGHT else (error, total_error)
    if isinstance(model, Segmented):
        for own_model, rows in model.parts(lists):
            error[rows], total_error[rows] = _standard_errors(own_model, lists[rows])
        return error, total_error
    errors = logit_errors(model)
    return _delta_method(model, errors, lists) if errors else (error, total_error)


def _delta_method(
    model: ClickModel, errors: dict[str, np.ndarray], rankings: Rankings
) -> tuple[Float[np.ndarray, "list rank"], Float[np.ndarray, " list"]]:
    """Compute standard errors of click probabilities and of their sums by the delta method.

    error = sqrt(sum over parameters of (dp/dlogit x error of the logit)^2)
    """
    variance, total_variance = np.zeros(rankings.pair.shape), np.zeros(len(rankings))
    for change in _sensitivities(model, errors, rankings):
        variance += change**2
        total_variance += change.sum(axis=1) ** 2
    return np.sqrt(variance), np.sqrt(total_variance)


def _sensitivities(
    model: ClickModel, errors: dict[str, np.ndarray], rankings: Rankings
) -> Iterator[Float[np.ndarray, "list rank"]]:
    """Yield the change of each click probability by one standard error of one parameter.

    First come the parameters of the pair at each rank, then the shared parameters. In an expanded model every result of
    every list has a pair of its own, so that one call moves the parameters of one rank in all lists at once.
    """
    ranks, (expanded, lists) = np.arange(rankings.n_ranks), one_pair_per_result(model, rankings)
    tables = {f.name: getattr(model, f.name)[rankings.pair] for f in fields(model) if is_pair_table(f)}
    prob = expanded.click_prob(lists)

    def change(name: str, value: Any) -> np.ndarray:
        difference: np.ndarray = (replace(expanded, **{name: value}).click_prob(lists) - prob) / STEP
        return difference

    for name in [name for name in errors if name in tables]:
        error = np.where(rankings.shown, errors[name][rankings.pair], 0.0)
        for rank in ranks:
            step = np.where(ranks == rank, STEP * error, 0.0)
            yield change(name, _flat_pair_table(shift_logit(tables[name], step)))
    for name, value in perturbed_shared_values(model):
        yield change(name, value)


def _flat_pair_table(values: Float[np.ndarray, "list rank"]) -> PairTable:
    """Return the pair table of the expanded model, in which no pair is unseen: the last row may have any value."""
    return np.append(values.ravel(), 0.5)


def _arrow_array(values: np.ndarray) -> Any:
    """Return ids as integers or text, and numbers with null in place of NaN."""
    import pyarrow as pa

    if values.dtype.kind == "T":
        return pa.array(values.astype(object), pa.string())
    return pa.array(values, mask=np.isnan(values) if values.dtype.kind == "f" else None)
