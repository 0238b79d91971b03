"""Metrics of click prediction: log-likelihood, perplexity and AUROC, per rank and on average.

`Predictions` holds the click probability of every result, computed once; every metric is an aggregate of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int
from numba import njit

from clickshift.core.newton import single_threaded_products
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.metrics.calibration import calibration_of
from clickshift.metrics.predictions import PredictionKind, Predictions
from clickshift.models.base import MARGINAL_ERROR, ClickModel

PROBABILITY_FLOOR = 1e-10
"""Distance from 0 and 1 to which probabilities are clipped, as in the papers' code: a model that excludes what happens
pays 33 bits."""
_DROPPED_BITS = 13
_BINS = (0x3F800000 >> _DROPPED_BITS) + 1
"""Number of histogram bins of the streamed AUROC. Dropping the low bits of a 32-bit probability keeps about three
significant digits; probability 1 is the last bin."""


@dataclass(frozen=True, eq=False)
class Perplexity:
    """Perplexity of click predictions: 2 to the mean number of bits per result; 1 is certainty, 2 a coin flip.

    Parameters
    ----------
    at_rank
        Perplexity of each rank over all sessions that show it; NaN where no session does.
    """

    at_rank: Float[np.ndarray, " rank"]

    @property
    def average(self) -> float:
        """Unweighted mean over ranks (eq. 1 of the policy-shift paper, with the minus sign that it lacks)."""
        return float(self.at_rank[~np.isnan(self.at_rank)].mean()) if not np.isnan(self.at_rank).all() else float("nan")

    def __float__(self) -> float:
        """Return the average over ranks."""
        return self.average

    def __repr__(self) -> str:
        """Return a short text with the average."""
        return f"Perplexity({self.average:.4f})"


@dataclass(frozen=True, eq=False)
class AUROC:
    """Area under the ROC curve: the probability that a clicked result has a higher prediction than a skipped one.

    Equal predictions count one half. NaN where all results were clicked or none was.

    Parameters
    ----------
    full
        Area over the results of all ranks together: it is high for any model that knows that lower ranks get fewer
        clicks.
    at_rank
        Area over the results of each rank.
    """

    full: float
    at_rank: Float[np.ndarray, " rank"]

    def __float__(self) -> float:
        """Return the area over all ranks together."""
        return self.full

    def __repr__(self) -> str:
        """Return a short text with the area over all ranks together."""
        return f"AUROC({self.full:.4f})"


def click_bits(
    model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional", clip: float = PROBABILITY_FLOOR
) -> Float[np.ndarray, "session rank"]:
    """Compute -log2 of the probability that a model gave to each observed click or skip.

    Parameters
    ----------
    model
        Click model.
    sessions
        Log to predict.
    kind
        "conditional" predicts each click given the clicks above it, "marginal" without them.
    clip
        Distance from 0 and 1 to which probabilities are clipped.

    Returns
    -------
    Float[session, rank]
        Bits per result; 0 where nothing is shown.
    """
    return bits_of(Predictions.of(model, sessions, kind=kind), clip=clip)


def bits_of(predictions: Predictions, *, clip: float = PROBABILITY_FLOOR) -> Float[np.ndarray, "session rank"]:
    """Compute `click_bits` of given predictions.

    Parameters
    ----------
    predictions
        Predicted click probabilities of a log.
    clip
        Distance from 0 and 1 to which probabilities are clipped.

    Returns
    -------
    Float[session, rank]
        Bits per result; 0 where nothing is shown.
    """
    sessions = predictions.sessions
    prob = np.clip(predictions.prob, clip, 1 - clip)
    bits: np.ndarray = -np.log2(np.where(sessions.click, prob, 1 - prob))
    bits[~sessions.rankings.shown] = 0.0
    return bits


def perplexity_of(
    bits: Float[np.ndarray, "session rank"], shown: Bool[np.ndarray, "session rank"], count: Int[np.ndarray, " session"]
) -> Perplexity:
    """Compute the perplexity from bits per result: PPL@r = 2^(mean bits at rank r over all sessions that show it).

    Parameters
    ----------
    bits
        Bits per result, as from `click_bits`.
    shown
        Whether each result is shown; sessions that do not show rank r do not count there.
    count
        Number of sessions that each row stands for.

    Returns
    -------
    Perplexity
        Perplexity by rank; NaN at ranks that no session shows.
    """
    impressions = count @ shown
    with np.errstate(invalid="ignore"):
        return Perplexity(np.exp2((count @ bits) / np.where(impressions > 0, impressions, np.nan)))


def perplexity(
    model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional", clip: float = PROBABILITY_FLOOR
) -> Perplexity:
    """Compute the perplexity of a model on a log.

    Parameters
    ----------
    model
        Click model.
    sessions
        Log to predict.
    kind
        "conditional" predicts each click given the clicks above it, "marginal" without them.
    clip
        Distance from 0 and 1 to which probabilities are clipped.

    Returns
    -------
    Perplexity
        Perplexity per rank and on average.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> perplexity(cs.fit("PBM", log), log).average < perplexity(cs.fit("gCTR", log), log).average
    True
    """
    return _perplexity_of_predictions(Predictions.of(model, sessions, kind=kind), clip)


def log_likelihood_per_session(model: ClickModel, sessions: Sessions) -> float:
    """Compute the mean natural log-likelihood of a session, without clipping.

    Parameters
    ----------
    model
        Click model.
    sessions
        Log to predict.

    Returns
    -------
    float
        Mean over sessions; -inf if a click that happened has probability 0.
    """
    return _log_likelihood(Predictions.of(model, sessions))


def auroc(model: ClickModel, sessions: Sessions, kind: PredictionKind = "conditional") -> AUROC:
    """Compute the area under the ROC curve of a model's click predictions.

    Parameters
    ----------
    model
        Click model.
    sessions
        Log to predict.
    kind
        "conditional" predicts each click given the clicks above it, "marginal" without them.

    Returns
    -------
    AUROC
        Area over all ranks and per rank; NaN for a model that is shown the clicks it predicts.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> auroc(cs.fit("PBM", log), log).full > 0.5
    True
    """
    if model.peeks:
        return _undefined_auroc(sessions.n_ranks)
    return auroc_of(Predictions.of(model, sessions, kind=kind))


def auroc_of(predictions: Predictions) -> AUROC:
    """Compute the area under the ROC curve of given predictions, with one sort and one pass over the results.

    Parameters
    ----------
    predictions
        Predicted click probabilities of a log.

    Returns
    -------
    AUROC
        Area over all ranks and per rank; NaN for a model that is shown the clicks it predicts.
    """
    sessions = predictions.sessions
    if predictions.peeks:
        return _undefined_auroc(sessions.n_ranks)
    wins, clicked, skipped = _mann_whitney(predictions.ascending, predictions.prob, sessions.click, sessions.count)
    pairs = clicked * skipped
    area = np.where(pairs > 0, wins / np.where(pairs > 0, pairs, 1.0), np.nan)
    return AUROC(float(area[-1]), area[:-1])


def unseen_pair_share(model: ClickModel, sessions: Sessions) -> float:
    """Compute the share of impressions whose (query, document) pair the model was not trained on.

    Parameters
    ----------
    model
        Click model.
    sessions
        Log.

    Returns
    -------
    float
        Share from 0 to 1.
    """
    pair = sessions.in_vocabulary(model.vocabulary).rankings.pair
    unseen = pair == UNSEEN if model.evidence is None else model.evidence.impressions[pair] == 0
    return float((sessions.count @ (unseen & sessions.rankings.shown)).sum() / sessions.impressions_by_rank().sum())


def evaluation(model: ClickModel, log: Log, *, calibrated: bool = False, exact: bool = False) -> dict[str, Any]:
    """Compute all metrics of a model's click predictions on a log.

    The model predicts once with the clicks above each result and once without them, whatever is asked for.

    Parameters
    ----------
    model
        Click model.
    log
        Log to predict, in memory or encoded.
    calibrated
        Whether to add the rows of `calibration`, for a log in memory and a model that does not peek.
    exact
        Whether marginal probabilities of models that sum over click histories (NCM) are exact. By default, they may
        have an error of `MARGINAL_ERROR`, which is much faster.

    Returns
    -------
    dict
        Metrics by name. The baseline is the perplexity of the click-through rate of each rank in this log, the best
        prediction that ignores documents. AUROC is that of the conditional probabilities; for a log larger than
        memory, that of their first three significant digits.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> evaluation(cs.fit("rCTR", log), log)["sessions"]
    2000
    """
    if isinstance(log, Sessions):
        predictions = Predictions.of(model, log)
        facts = _metrics([(log, predictions)], model, auroc_of(predictions), exact=exact)
        return facts | {"calibration": calibration_of(predictions)} if calibrated and not model.peeks else facts
    streamed = _StreamedAUROC(log.n_ranks)

    def parts() -> Iterator[tuple[Sessions, Predictions]]:
        for part in log.in_vocabulary(model.vocabulary).chunks():
            predictions = Predictions.of(model, part)
            streamed.add(predictions)
            yield part, predictions

    facts = _metrics(parts(), model, None, exact=exact)
    area = _undefined_auroc(log.n_ranks) if model.peeks else streamed.result()
    return facts | {"auroc": area.full, "auroc_at_rank": area.at_rank.tolist()}


def _metrics(
    parts: Iterable[tuple[Sessions, Predictions]], model: ClickModel, area: AUROC | None, *, exact: bool
) -> dict[str, Any]:
    """Return the metrics of a log from sums over its parts."""
    sums = _Sums(exact)
    for sessions, predictions in parts:
        sums.add(model, sessions, predictions)
    conditional, marginal = sums.perplexity(sums.bits), sums.perplexity(sums.marginal_bits)
    baseline = sums.perplexity(sums.baseline_bits())
    return {
        "sessions": sums.sessions,
        "log_likelihood": sums.log_likelihood / sums.sessions,
        "conditional_perplexity": conditional.average,
        "conditional_perplexity_error": sums.standard_error(conditional),
        "conditional_perplexity_at_rank": conditional.at_rank.tolist(),
        "marginal_perplexity": marginal.average,
        "marginal_perplexity_at_rank": marginal.at_rank.tolist(),
        "marginal_error": MARGINAL_ERROR if model.approximate_marginals and not exact else 0.0,
        "baseline_perplexity": baseline.average,
        "baseline_perplexity_at_rank": baseline.at_rank.tolist(),
        "auroc": None if area is None else area.full,
        "auroc_at_rank": None if area is None else area.at_rank.tolist(),
        "unseen_pair_share": float(sums.unseen / sums.impressions.sum()),
    }


class _Sums:
    """Sums over the parts of a log from which its metrics are computed."""

    def __init__(self, exact: bool) -> None:
        self._exact, self._moments = exact, np.zeros((1, 1))
        self.sessions, self.log_likelihood, self.unseen = 0, 0.0, 0.0
        self.impressions = self.clicks = self.bits = self.marginal_bits = np.zeros(1)

    def add(self, model: ClickModel, sessions: Sessions, predictions: Predictions) -> None:
        """Add one part of the log."""
        by_result = bits_of(predictions)
        bits, terms = sessions.count @ by_result, np.concatenate([by_result.T, sessions.rankings.shown.T])
        self._moments = self._moments + single_threaded_products(terms * sessions.count, terms)
        self.sessions += sessions.total
        self.impressions = self.impressions + sessions.impressions_by_rank()
        self.clicks = self.clicks + sessions.count @ sessions.click
        self.bits = self.bits + bits
        self.log_likelihood += _log_likelihood(predictions) * sessions.total
        self.unseen += unseen_pair_share(model, sessions) * sessions.impressions_by_rank().sum()
        if model.peeks:
            bits = np.full_like(bits, np.nan)
        elif model.uses_history:
            bits = sessions.count @ bits_of(Predictions.of(model, sessions, kind="marginal", exact=self._exact))
        self.marginal_bits = self.marginal_bits + bits

    def baseline_bits(self) -> Float[np.ndarray, " rank"]:
        """Return the sum of bits at each rank if every click is predicted by the rank's click-through rate."""
        from scipy.special import xlogy

        skips, shown = self.impressions - self.clicks, np.maximum(self.impressions, 1)
        bits: np.ndarray = -(xlogy(self.clicks, self.clicks / shown) + xlogy(skips, skips / shown)) / np.log(2)
        return bits

    def perplexity(self, bits: Float[np.ndarray, " rank"]) -> Perplexity:
        """Return the perplexity from the sum of bits at each rank."""
        with np.errstate(invalid="ignore"):
            return Perplexity(np.exp2(bits / np.where(self.impressions > 0, self.impressions, np.nan)))

    def standard_error(self, conditional: Perplexity) -> float:
        """Return the standard error of the average perplexity over sessions, by the delta method.

        The bits and impressions of a session change the perplexity of rank r by
        ln 2 * PPL_r * (bits_r - mean bits_r * shown_r) / impressions_r; `_moments` holds their second moments.
        """
        seen = self.impressions > 0
        weight = np.where(seen, np.log(2) * conditional.at_rank / np.where(seen, self.impressions, 1) / seen.sum(), 0.0)
        mean = np.where(seen, self.bits / np.where(seen, self.impressions, 1), 0.0)
        gradient = np.concatenate([np.where(seen, weight, 0.0), np.where(seen, -weight * mean, 0.0)])
        return float(np.sqrt(max(gradient @ self._moments @ gradient, 0.0)))


class _StreamedAUROC:
    """AUROC from a histogram of probabilities, without sorting the log.

    Bins are about a thousandth of a probability wide; probabilities in one bin count as equal.
    """

    def __init__(self, n_ranks: int) -> None:
        self._counts = np.zeros((n_ranks, 2, _BINS))

    def add(self, predictions: Predictions) -> None:
        """Count the predictions of one part of the log."""
        sessions = predictions.sessions
        # the bits of non-negative floats, read as integers, are in the order of the floats
        bin_of = predictions.prob.astype(np.float32).view(np.int32) >> _DROPPED_BITS
        for rank in range(sessions.n_ranks):
            shown = sessions.rankings.shown[:, rank]
            cell = sessions.click[shown, rank] * _BINS + bin_of[shown, rank]
            counts = np.bincount(cell, sessions.count[shown], 2 * _BINS)
            self._counts[rank] += counts.reshape(2, _BINS)

    def result(self) -> AUROC:
        """Return the area over all ranks and per rank."""
        return AUROC(_histogram_area(self._counts.sum(axis=0)), np.array([_histogram_area(c) for c in self._counts]))


def _histogram_area(counts: Float[np.ndarray, "2 bin"]) -> float:
    """Return the area under the ROC curve from counts of skipped and clicked results per bin."""
    skipped, clicked = counts
    pairs = skipped.sum() * clicked.sum()
    return float(clicked @ (np.cumsum(skipped) - skipped / 2) / pairs) if pairs > 0 else float("nan")


def conditional_evaluation(model: ClickModel, log: Log) -> dict[str, Any]:
    """Compute the metrics of a model's conditional predictions as one flat row.

    Parameters
    ----------
    model
        Click model.
    log
        Log to predict, in memory or encoded.

    Returns
    -------
    dict
        Metrics by name; per-rank metrics are named "perplexity@1", "auroc@1", ..., with ranks from 1. For a log larger
        than memory, AUROC is that of the first three significant digits of the probabilities.
    """
    if isinstance(log, Sessions):
        return conditional_row(Predictions.of(model, log), unseen_pair_share(model, log))
    streamed = _StreamedAUROC(log.n_ranks)
    bits, impressions = np.zeros(log.n_ranks), np.zeros(log.n_ranks)
    log_likelihood = unseen = clicks = 0.0
    for part in log.in_vocabulary(model.vocabulary).chunks():
        predictions = Predictions.of(model, part)
        streamed.add(predictions)
        shown = part.impressions_by_rank()
        bits[: part.n_ranks] += part.count @ bits_of(predictions)
        impressions[: part.n_ranks] += shown
        log_likelihood += _log_likelihood(predictions) * part.total / log.total
        unseen += unseen_pair_share(model, part) * float(shown.sum())
        clicks += float((part.count @ part.click).sum())
    ppl = Perplexity(np.exp2(bits / np.where(impressions > 0, impressions, np.nan)))
    area = _undefined_auroc(log.n_ranks) if model.peeks else streamed.result()
    return _flat_row(ppl, area, log_likelihood, unseen / float(impressions.sum()), clicks, log.total)


def conditional_row(predictions: Predictions, unseen_pair_share: float) -> dict[str, Any]:
    """Compute the metrics of given predictions as the row of `conditional_evaluation`.

    Parameters
    ----------
    predictions
        Click probabilities given the clicks above each result.
    unseen_pair_share
        Share of the results that were not shown in training.

    Returns
    -------
    dict
        Metrics by name.
    """
    log = predictions.sessions
    ppl, area = _perplexity_of_predictions(predictions), auroc_of(predictions)
    clicks = float((log.count @ log.click).sum())
    return _flat_row(ppl, area, _log_likelihood(predictions), unseen_pair_share, clicks, log.total)


def _flat_row(
    ppl: Perplexity, area: AUROC, log_likelihood: float, unseen: float, clicks: float, total: float
) -> dict[str, Any]:
    """Return the metrics of conditional predictions by name."""
    return {
        "perplexity": ppl.average,
        **_at_ranks("perplexity", ppl.at_rank),
        "auroc": area.full,
        **_at_ranks("auroc", area.at_rank),
        "log_likelihood": log_likelihood,
        "unseen_pair_share": unseen,
        "clicks": clicks / total,
        "sessions": total,
    }


def _at_ranks(name: str, values: Float[np.ndarray, " rank"]) -> dict[str, float]:
    """Return per-rank values by name, e.g. "perplexity@1"."""
    return {f"{name}@{rank + 1}": float(value) for rank, value in enumerate(values)}


def _perplexity_of_predictions(predictions: Predictions, clip: float = PROBABILITY_FLOOR) -> Perplexity:
    """Return the perplexity of given predictions."""
    sessions = predictions.sessions
    return perplexity_of(bits_of(predictions, clip=clip), sessions.rankings.shown, sessions.count)


def _log_likelihood(conditional: Predictions) -> float:
    """Return the mean over sessions of the sum over ranks of ln P(C_r | C_<r), the log of the joint probability."""
    sessions = conditional.sessions
    with np.errstate(divide="ignore"):
        terms = np.log(np.where(sessions.click, conditional.prob, 1 - conditional.prob))
    # padding adds ln 1: its click probability is 0, and it has no click
    return float(np.average(terms.sum(axis=1), weights=sessions.count))


def _undefined_auroc(n_ranks: int) -> AUROC:
    """Return an AUROC of NaN."""
    return AUROC(float("nan"), np.full(n_ranks, np.nan))


@njit(cache=True, nogil=True)
@no_type_check
def _mann_whitney(ascending, prob, click, count):
    """Count how often a clicked result has a higher probability than a skipped one, ties counting half.

    Returns these wins and the numbers of clicked and skipped results, with one entry per rank and a last one for all
    ranks together.
    """
    ranks = prob.shape[1]
    wins, clicked, skipped = np.zeros(ranks + 1), np.zeros(ranks + 1), np.zeros(ranks + 1)
    # counts of the results that are tied at the current probability
    tied_clicked, tied_skipped, current = np.zeros(ranks + 1), np.zeros(ranks + 1), np.full(ranks + 1, -1.0)
    for cell in ascending:
        row, rank = cell // ranks, cell % ranks
        weight, p = count[row], prob[row, rank]
        for group in (rank, ranks):
            if p != current[group]:
                current[group] = p
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
