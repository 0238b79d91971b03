"""How well a model predicts clicks: log-likelihood, perplexity and AUROC, per rank and on average.

Values first, averages last: `Predictions` holds the probability of every result, computed once, and everything else is
an aggregate of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int
from numba import njit

from clickshift.core.intervals import mean_interval
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.metrics.calibration import calibration_of
from clickshift.metrics.predictions import PredictionKind, Predictions
from clickshift.models.base import ClickModel

PROBABILITY_FLOOR = 1e-10
"""Probabilities are kept this far from 0 and 1, as in the papers' code: a model that rules out what happens pays 33
bits."""
_FINE = 13
_STEPS = (0x3F800000 >> _FINE) + 1
"""Of a probability's 32 bits as many are kept as tell it to a thousandth of itself; 1 is the last step."""


@dataclass(frozen=True, eq=False)
class Perplexity:
    """2 to the mean number of bits that a result's click costs: 1 is certainty, 2 is a coin."""

    at_rank: Float[np.ndarray, " rank"]
    """Perplexity of each rank over all sessions that show it; NaN where none does."""

    @property
    def average(self) -> float:
        """Unweighted mean over ranks (the policy-shift paper's eq. 1, with the minus sign that it lacks)."""
        return float(self.at_rank[~np.isnan(self.at_rank)].mean()) if not np.isnan(self.at_rank).all() else float("nan")

    def __float__(self) -> float:
        return self.average

    def __repr__(self) -> str:
        return f"Perplexity({self.average:.4f})"


@dataclass(frozen=True, eq=False)
class AUROC:
    """The probability that a clicked result was given a higher click probability than one that was not clicked.

    Equal probabilities count one half. NaN where all results were clicked or none was.
    """

    full: float
    """Over the results of all ranks together: it is high for any model that knows that lower ranks get fewer clicks."""
    at_rank: Float[np.ndarray, " rank"]
    """Over the results of each rank alone."""

    def __float__(self) -> float:
        return self.full

    def __repr__(self) -> str:
        return f"AUROC({self.full:.4f})"


def click_bits(
    model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional", clip: float = PROBABILITY_FLOOR
) -> Float[np.ndarray, "session rank"]:
    """-log2 of the probability that the model gave to what happened; 0 where nothing is shown.

    "conditional" uses the clicks above a result, "marginal" does not.
    """
    return bits_of(Predictions.of(model, sessions, kind=kind), clip=clip)


def bits_of(predictions: Predictions, *, clip: float = PROBABILITY_FLOOR) -> Float[np.ndarray, "session rank"]:
    """`click_bits` of probabilities that are there."""
    sessions = predictions.sessions
    prob = np.clip(predictions.prob, clip, 1 - clip)
    bits: np.ndarray = -np.log2(np.where(sessions.click, prob, 1 - prob))
    bits[~sessions.rankings.shown] = 0.0
    return bits


def perplexity_of(
    bits: Float[np.ndarray, "session rank"], shown: Bool[np.ndarray, "session rank"], count: Int[np.ndarray, " session"]
) -> Perplexity:
    """PPL@r = 2^(mean bits at rank r over the whole set); sessions that do not show rank r do not count there."""
    impressions = count @ shown
    with np.errstate(invalid="ignore"):
        return Perplexity(np.exp2((count @ bits) / np.where(impressions > 0, impressions, np.nan)))


def perplexity(
    model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional", clip: float = PROBABILITY_FLOOR
) -> Perplexity:
    """Perplexity of a model on a log; see `click_bits` for the options."""
    return _perplexity(Predictions.of(model, sessions, kind=kind), clip)


def log_likelihood_per_session(model: ClickModel, sessions: Sessions) -> float:
    """Mean natural log-likelihood of a session, unclipped."""
    return _log_likelihood(Predictions.of(model, sessions))


def auroc(model: ClickModel, sessions: Sessions, kind: PredictionKind = "conditional") -> AUROC:
    """Area under the ROC curve of a model's click predictions; NaN for a model that peeks at the clicks."""
    if model.peeks:
        return _no_auroc(sessions.n_ranks)
    return auroc_of(Predictions.of(model, sessions, kind=kind))


def auroc_of(predictions: Predictions) -> AUROC:
    """`auroc` of probabilities that are there: one sort, and one pass over the results in that order."""
    sessions = predictions.sessions
    if predictions.peeks:
        return _no_auroc(sessions.n_ranks)
    wins, clicked, skipped = _mann_whitney(predictions.ascending, predictions.prob, sessions.click, sessions.count)
    pairs = clicked * skipped
    area = np.where(pairs > 0, wins / np.where(pairs > 0, pairs, 1.0), np.nan)
    return AUROC(float(area[-1]), area[:-1])


def unseen_pair_share(model: ClickModel, sessions: Sessions) -> float:
    """Share of the impressions whose (query, document) pair the model knows nothing of."""
    pair = sessions.in_vocabulary(model.vocabulary).rankings.pair
    unseen = pair == UNSEEN if model.evidence is None else model.evidence.impressions[pair] == 0
    return float((sessions.count @ (unseen & sessions.rankings.shown)).sum() / sessions.impressions_by_rank().sum())


def evaluation_of_seeds(models: Sequence[ClickModel], log: Log) -> dict[str, Any]:
    """Means of `evaluation` over models of one kind, with the 95 % Student-t interval of each single number."""
    each = [evaluation(model, log) for model in models]
    if len(each) == 1:
        return each[0]
    facts: dict[str, Any] = {"sessions": log.total, "seeds": len(each)}
    for name in (name for name in each[0] if name != "sessions"):
        values = np.array([one[name] for one in each])
        facts[name] = values.mean(axis=0).tolist()
        if values.ndim == 1:
            facts[f"{name}_interval"] = mean_interval(values)[1:]
    return facts


def evaluation(model: ClickModel, log: Log, *, calibrated: bool = False) -> dict[str, Any]:
    """Everything that a model's click predictions on a log are judged by, as plain values.

    The model predicts once with the clicks above and once without them, whatever is asked. AUROC is that of the
    conditional probabilities; of a log that is larger than memory, that of their first three digits. `calibrated` adds
    the rows of `calibration`, of the same probabilities, for a model that does not peek and a log in memory.
    """
    if isinstance(log, Sessions):
        predictions = Predictions.of(model, log)
        facts = _judged([(log, predictions)], model, auroc_of(predictions))
        return facts | {"calibration": calibration_of(predictions)} if calibrated and not model.peeks else facts
    area = _StreamedAUROC(log.n_ranks)

    def parts() -> Iterator[tuple[Sessions, Predictions]]:
        for part in log.in_vocabulary(model.vocabulary).chunks():
            predictions = Predictions.of(model, part)
            area.add(predictions)
            yield part, predictions

    facts = _judged(parts(), model, None)
    found = _no_auroc(log.n_ranks) if model.peeks else area.found()
    return facts | {"auroc": found.full, "auroc_at_rank": found.at_rank.tolist()}


def _judged(parts: Iterable[tuple[Sessions, Predictions]], model: ClickModel, area: AUROC | None) -> dict[str, Any]:
    """Sums over the parts of a log, and what they come to."""
    sums = _Sums()
    for sessions, predictions in parts:
        sums.add(model, sessions, predictions)
    conditional, marginal = sums.perplexity(sums.bits), sums.perplexity(sums.marginal_bits)
    return {
        "sessions": sums.sessions,
        "log_likelihood": sums.log_likelihood / sums.sessions,
        "conditional_perplexity": conditional.average,
        "conditional_perplexity_at_rank": conditional.at_rank.tolist(),
        "marginal_perplexity": marginal.average,
        "marginal_perplexity_at_rank": marginal.at_rank.tolist(),
        "auroc": None if area is None else area.full,
        "auroc_at_rank": None if area is None else area.at_rank.tolist(),
        "unseen_pair_share": float(sums.unseen / sums.impressions.sum()),
    }


class _Sums:
    """What is added up over the parts of a log."""

    def __init__(self) -> None:
        self.sessions, self.log_likelihood, self.unseen = 0, 0.0, 0.0
        self.impressions = self.bits = self.marginal_bits = np.zeros(1)

    def add(self, model: ClickModel, sessions: Sessions, predictions: Predictions) -> None:
        bits = sessions.count @ bits_of(predictions)
        self.sessions += sessions.total
        self.impressions = self.impressions + sessions.impressions_by_rank()
        self.bits = self.bits + bits
        self.log_likelihood += _log_likelihood(predictions) * sessions.total
        self.unseen += unseen_pair_share(model, sessions) * sessions.impressions_by_rank().sum()
        if model.peeks:
            bits = np.full_like(bits, np.nan)
        elif model.uses_history:
            bits = sessions.count @ bits_of(Predictions.of(model, sessions, kind="marginal"))
        self.marginal_bits = self.marginal_bits + bits

    def perplexity(self, bits: Float[np.ndarray, " rank"]) -> Perplexity:
        with np.errstate(invalid="ignore"):
            return Perplexity(np.exp2(bits / np.where(self.impressions > 0, self.impressions, np.nan)))


class _StreamedAUROC:
    """AUROC from a histogram of probabilities, in steps of a thousandth of each: no log is sorted. Probabilities of one
    step count as equal."""

    def __init__(self, n_ranks: int) -> None:
        self._counts = np.zeros((n_ranks, 2, _STEPS))

    def add(self, predictions: Predictions) -> None:
        sessions = predictions.sessions
        step = predictions.prob.astype(np.float32).view(np.int32) >> _FINE  # a float's bits are in the order of floats
        for rank in range(sessions.n_ranks):
            shown = sessions.rankings.shown[:, rank]
            place = sessions.click[shown, rank] * _STEPS + step[shown, rank]
            counted = np.bincount(place, sessions.count[shown], 2 * _STEPS)
            self._counts[rank] += counted.reshape(2, _STEPS)

    def found(self) -> AUROC:
        return AUROC(_area(self._counts.sum(axis=0)), np.array([_area(counts) for counts in self._counts]))


def _area(counts: Float[np.ndarray, "2 step"]) -> float:
    skipped, clicked = counts
    pairs = skipped.sum() * clicked.sum()
    return float(clicked @ (np.cumsum(skipped) - skipped / 2) / pairs) if pairs > 0 else float("nan")


def conditional_evaluation(model: ClickModel, sessions: Sessions) -> dict[str, Any]:
    """What is told of a model's predictions given the clicks above, in one flat row; ranks count from 1."""
    predictions = Predictions.of(model, sessions)
    found, area = _perplexity(predictions), auroc_of(predictions)
    return {
        "perplexity": found.average,
        **_at_ranks("perplexity", found.at_rank),
        "auroc": area.full,
        **_at_ranks("auroc", area.at_rank),
        "log_likelihood": _log_likelihood(predictions),
        "unseen_pair_share": unseen_pair_share(model, sessions),
        "clicks": float((sessions.count @ sessions.click).sum() / sessions.total),
        "sessions": sessions.total,
    }


def _at_ranks(name: str, values: Float[np.ndarray, " rank"]) -> dict[str, float]:
    return {f"{name}@{rank + 1}": float(value) for rank, value in enumerate(values)}


def _perplexity(predictions: Predictions, clip: float = PROBABILITY_FLOOR) -> Perplexity:
    sessions = predictions.sessions
    return perplexity_of(bits_of(predictions, clip=clip), sessions.rankings.shown, sessions.count)


def _log_likelihood(conditional: Predictions) -> float:
    """The mean over sessions of the sum over ranks of ln P(C_r | C_<r): conditionals multiply to the likelihood."""
    sessions = conditional.sessions
    with np.errstate(divide="ignore"):
        terms = np.log(np.where(sessions.click, conditional.prob, 1 - conditional.prob))
    # nothing is shown in the padding: its probability 0 of a click that did not happen adds ln 1
    return float(np.average(terms.sum(axis=1), weights=sessions.count))


def _no_auroc(n_ranks: int) -> AUROC:
    return AUROC(float("nan"), np.full(n_ranks, np.nan))


@njit(cache=True, nogil=True)
@no_type_check
def _mann_whitney(ascending, prob, click, count):
    """How often a clicked result beats a skipped one, ties counting half, and how many there are of both.

    One entry per rank, and in the last one all ranks together.
    """
    ranks = prob.shape[1]
    wins, clicked, skipped = np.zeros(ranks + 1), np.zeros(ranks + 1), np.zeros(ranks + 1)
    # of the results whose probability is the present one
    tied_clicked, tied_skipped, present = np.zeros(ranks + 1), np.zeros(ranks + 1), np.full(ranks + 1, -1.0)
    for cell in ascending:
        row, rank = cell // ranks, cell % ranks
        weight, p = count[row], prob[row, rank]
        for group in (rank, ranks):
            if p != present[group]:
                present[group] = p
                tied_clicked[group] = tied_skipped[group] = 0.0
            if click[row, rank]:
                wins[group] += weight * (skipped[group] - tied_skipped[group] / 2)
                clicked[group] += weight
                tied_clicked[group] += weight
            else:
                wins[group] += weight * tied_clicked[group] / 2
                skipped[group] += weight
                tied_skipped[group] += weight
    return wins, clicked, skipped
