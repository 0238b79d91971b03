"""Forecasts: how often each result of a list will be clicked, shown before or not, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.parallel import for_ranges
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError
from clickshift.models.base import ClickModel, PairTable, beta_interval
from clickshift.models.perturb import STEP, logit_errors, is_pair_table, perturbed_shared_values, shift_logit

_LISTS_PER_BLOCK = 4096  # lists whose made-up model is held at once


@final
@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected clicks on lists, by place."""

    rankings: Rankings
    """As they were asked for, in their own vocabulary."""
    click_prob: Float[np.ndarray, "list rank"]
    """Marginal click probability; 0 where nothing is shown."""
    error: Float[np.ndarray, "list rank"]
    """Standard error of each probability; NaN where the model has none."""
    total_error: Float[np.ndarray, " list"]
    """Standard error of the expected number of clicks on the list; NaN where the model has none."""
    unseen: Bool[np.ndarray, "list rank"]
    """Where the model knows nothing of the pair, and takes its prior."""

    @property
    def expected_clicks(self) -> Float[np.ndarray, " list"]:
        total: np.ndarray = self.click_prob.sum(axis=1)
        return total

    @property
    def unseen_share(self) -> float:
        """Of all places of all lists."""
        return float(self.unseen.sum() / self.rankings.shown.sum())

    def intervals(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Low and high of each click probability."""
        p = np.clip(self.click_prob, 1e-12, 1 - 1e-12).ravel()
        low, high = beta_interval(p, self.error.ravel() / (p * (1 - p)), level)
        return low.reshape(self.error.shape), high.reshape(self.error.shape)

    def total_intervals(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Low and high of the expected clicks on each list, as a share of its length."""
        length = self.rankings.length
        p = np.clip(self.expected_clicks / length, 1e-12, 1 - 1e-12)
        low, high = beta_interval(p, self.total_error / length / (p * (1 - p)), level)
        return low * length, high * length

    def table(self, *, level: float = 0.95) -> Any:
        """A pyarrow table, one row per list: query, docs, and by rank click_prob, low and high (lists); expected_clicks
        with its interval; and the share of its results that the model has not seen."""
        import pyarrow as pa

        shown, words = self.rankings.shown, self.rankings.vocabulary
        ends = pa.array(np.r_[0, np.cumsum(self.rankings.length)], pa.int32())

        def lists(values: np.ndarray) -> Any:
            return pa.ListArray.from_arrays(ends, _arrow_array(values))

        low, high = self.intervals(level)
        total_low, total_high = self.total_intervals(level)
        columns = {
            "query": _arrow_array(words.query_ids[self.rankings.query]),
            "docs": lists(words.doc_ids[words.pair_doc[self.rankings.pair[shown]]]),
            "click_prob": lists(self.click_prob[shown]),
            "low": lists(low[shown]),
            "high": lists(high[shown]),
            "expected_clicks": self.expected_clicks,
            "expected_clicks_low": _arrow_array(total_low),
            "expected_clicks_high": _arrow_array(total_high),
            "unseen_share": self.unseen.sum(axis=1) / self.rankings.length,
        }
        return pa.table(columns)


def forecast(model: ClickModel, rankings: Rankings, *, progress: Callable[[int], None] = lambda done: None) -> Forecast:
    """What a model expects of lists, shown or not. `progress` hears how many lists every finished block had.

    Errors are the delta method's, from the errors of the parameters of the list's own documents (attractiveness,
    satisfaction) and of those that all lists share (examination, continuation), taken as independent. There are none
    for models without such errors.
    """
    if (rankings.query == UNSEEN).any() or ((rankings.pair == UNSEEN) & rankings.shown).any():
        raise DataError("ids must be known to be told apart in a forecast. Give the lists in their own vocabulary.")
    prob = model.click_prob(rankings)
    known = rankings.in_vocabulary(model.vocabulary)
    unseen = known.pair == UNSEEN if model.evidence is None else model.evidence.impressions[known.pair] == 0
    error, total_error = np.full(prob.shape, np.nan), np.full(len(prob), np.nan)
    uncertain = logit_errors(model)

    def work(rows: slice) -> None:
        if uncertain:
            error[rows], total_error[rows] = _delta_method(model, uncertain, known[rows])
        progress(rows.stop - rows.start)

    for_ranges(work, len(prob), chunk=_LISTS_PER_BLOCK)
    return Forecast(rankings, prob, error, total_error, unseen & rankings.shown)


def _delta_method(
    model: ClickModel, uncertain: dict[str, np.ndarray], rankings: Rankings
) -> tuple[Float[np.ndarray, "list rank"], Float[np.ndarray, " list"]]:
    """Standard errors of each click probability and of their sums: sqrt(sum over parameters of (dp/dlogit error)^2)."""
    variance, total_variance = np.zeros(rankings.pair.shape), np.zeros(len(rankings))
    for slope in _sensitivities(model, uncertain, rankings):
        variance += slope**2
        total_variance += slope.sum(axis=1) ** 2
    return np.sqrt(variance), np.sqrt(total_variance)


def _sensitivities(
    model: ClickModel, uncertain: dict[str, np.ndarray], rankings: Rankings
) -> Iterator[Float[np.ndarray, "list rank"]]:
    """By how much one error of one parameter moves each click probability: for each place of a list, then for the rest.

    In a made-up model every place of every list has a pair of its own, so that one call moves the parameters of one
    rank in all lists at once.
    """
    shape, number = rankings.pair.shape, np.arange(rankings.pair.size)
    places = Vocabulary(np.arange(shape[0]), np.arange(shape[1]), *np.divmod(number, shape[1]))
    lists = Rankings(places, np.arange(shape[0]), number.reshape(shape), rankings.shown)
    tables = {f.name: getattr(model, f.name)[rankings.pair] for f in fields(model) if is_pair_table(f)}
    made_up = replace(
        model, vocabulary=places, evidence=None, **{name: _flat_pair_table(t) for name, t in tables.items()}
    )

    here = made_up.click_prob(lists)

    def slope(name: str, there: Any) -> np.ndarray:
        difference: np.ndarray = (replace(made_up, **{name: there}).click_prob(lists) - here) / STEP
        return difference

    for name in [name for name in uncertain if name in tables]:
        error = np.where(rankings.shown, uncertain[name][rankings.pair], 0.0)
        for rank in range(shape[1]):
            step = np.where(np.arange(shape[1]) == rank, STEP * error, 0.0)
            yield slope(name, _flat_pair_table(shift_logit(tables[name], step)))
    for name, there in perturbed_shared_values(model):
        yield slope(name, there)


def _flat_pair_table(values: Float[np.ndarray, "list rank"]) -> PairTable:
    return np.append(values.ravel(), 0.5)  # nothing is unseen: any number will do


def _arrow_array(values: np.ndarray) -> Any:
    """Ids as integers or text; numbers with nothing where they are NaN."""
    import pyarrow as pa

    if values.dtype.kind == "T":
        return pa.array(values.astype(object), pa.string())
    return pa.array(values, mask=np.isnan(values) if values.dtype.kind == "f" else None)


def forecast_facts(found: Forecast) -> dict[str, Any]:
    """A forecast on average."""
    shown = found.rankings.shown
    return {
        "lists": len(found.click_prob),
        "unseen_share": found.unseen_share,
        "mean_expected_clicks": float(found.expected_clicks.mean()),
        "mean_click_prob_by_rank": (found.click_prob.sum(axis=0) / shown.sum(axis=0)).tolist(),
        "intervals": "none" if np.isnan(found.error).any() else "delta method, 95 %",
    }


def forecast_table(found: Forecast, *, longest: int = 20) -> tuple[list[dict[str, Any]], str]:
    """The first lists of a forecast, for reading, and a note on what is not shown."""
    words, rankings = found.rankings.vocabulary, found.rankings
    low, high = found.total_intervals()
    rows = []
    for i in range(min(longest, len(rankings))):
        shown = rankings.shown[i]
        row = {
            "list": i + 1,
            "query": str(words.query_ids[rankings.query[i]]),
            "expected clicks": float(found.expected_clicks[i]),
            "low": float(low[i]),
            "high": float(high[i]),
            "by rank": " ".join(f"{prob:.3f}" for prob in found.click_prob[i][shown]),
            "unseen": int(found.unseen[i].sum()),
        }
        rows.append(row)
    more = len(rankings) - len(rows)
    return rows, f"and {more:,} more lists; --output or --json has them all" if more else ""
