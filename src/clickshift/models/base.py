"""ClickModel: what every click model can be asked, and everything that need not be written twice.

A model *is* its parameters. The same class simulates users, is found by a learner, and serves as the oracle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.parallel import for_ranges
from clickshift.core.random_streams import uniforms
from clickshift.core.rng import as_generator, stream_key
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError, DataError

PairTable = Float[np.ndarray, " pair_or_unseen"]
"""One value per pair of the vocabulary, and in the last row the value of a pair that it does not hold."""
_LISTS_PER_BLOCK = 512  # few enough that both cores get their share where a list takes long


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a fitted model rests on: how much was seen of each pair, and how sure each parameter is."""

    learner: str
    """The text form of the learner that found the parameters."""
    impressions: PairTable
    clicks: PairTable
    logit_error: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Standard error of the logit of each parameter, by its name, in the shape of its table."""
    log_likelihood: float = float("nan")
    """Of the training log, penalised by the prior, in nats."""
    iterations: int = 0
    converged: bool = True
    held_out_loss: float = float("nan")
    """Cross-entropy on the sessions that decided when to stop, in nats per session."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ClickModel(ABC):
    """Subclasses are frozen dataclasses of parameters and write the private methods, which see one block of rows.

    The public methods translate row numbers from the log's vocabulary to the model's, work block by block on all
    cores, and put 0 where nothing is shown.
    """

    vocabulary: Vocabulary
    evidence: Evidence | None = None
    """How the parameters were found; None for a model that was made by hand, such as a simulated user."""

    predicts_clicks: ClassVar[bool] = True
    """False for scores that rank documents but are no probabilities of anything."""
    uses_history: ClassVar[bool] = False
    """True where the clicks above a result change its click probability."""
    ranks_documents: ClassVar[bool] = True
    """False where relevance is the same for all documents."""
    peeks: ClassVar[bool] = False
    """True for a model that is shown the click which it predicts: its likelihoods and perplexity mean nothing."""

    @abstractmethod
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """P(C_r = 1): clicks of other ranks summed out."""

    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        """P(C_r = 1 | C_1..C_{r-1}): clicks below summed out. The same as the marginal where clicks are independent."""
        return self._click_prob(sessions.rankings)

    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        """How many of each list's results are clicked on average. Models that know a quicker way write their own."""
        total: np.ndarray = self._click_prob(rankings).sum(axis=1, where=rankings.shown)
        return total

    @abstractmethod
    def _relevance(self) -> PairTable:
        """A score per pair by which the model would rank."""

    def _sample(
        self, rankings: Rankings, uniform: Float[np.ndarray, "session draw"]
    ) -> Bool[np.ndarray, "session rank"]:
        """Clicks from numbers in (0, 1), one per rank and one to spare, rank by rank from the conditional."""
        click = np.zeros(rankings.pair.shape, bool)
        for rank in range(rankings.n_ranks):
            given = self._click_prob_given_history(Sessions(rankings, click))
            click[:, rank] = (uniform[:, rank] < given[:, rank]) & rankings.shown[:, rank]
        return click

    @final
    def click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Marginal click probability. It takes rankings, so that it cannot peek at clicks."""
        self._require(self.predicts_clicks, "predict clicks")
        rankings = rankings.in_vocabulary(self.vocabulary)
        return _map_blocks(lambda rows: np.where(rankings.shown[rows], self._click_prob(rankings[rows]), 0.0), rankings)

    @final
    def expected_clicks(self, rankings: Rankings, *, tolerance: float = 0.0) -> Float[np.ndarray, " session"]:
        """How many results of each list are clicked on average: the sum of `click_prob` over its ranks.

        For a search over many lists, a model that sums over click histories (NCM) may treat those less likely than
        `tolerance` together (`gru_clicks` tells how, and how far off that is); there, lists that begin like the one
        before them cost less. The other models are exact whatever the tolerance.
        """
        self._require(self.predicts_clicks and not self.peeks, "predict the clicks of a list")
        rankings = rankings.in_vocabulary(self.vocabulary)
        out = np.empty(len(rankings))

        def work(rows: slice) -> None:
            out[rows] = self._expected_clicks(rankings[rows], tolerance)

        for_ranges(work, len(rankings), chunk=_LISTS_PER_BLOCK)
        return out

    @final
    def click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        """Click probability of each result given the clicks above it."""
        self._require(self.predicts_clicks, "predict clicks")
        sessions = sessions.in_vocabulary(self.vocabulary)
        shown = sessions.rankings.shown
        return _map_blocks(
            lambda rows: np.where(shown[rows], self._click_prob_given_history(sessions[rows]), 0.0), sessions.rankings
        )

    @final
    def log_likelihood(self, sessions: Sessions) -> Float[np.ndarray, " session"]:
        """Natural log-probability of each row's clicks (once, not `count` times)."""
        prob = self.click_prob_given_history(sessions)
        with np.errstate(divide="ignore"):
            terms = np.where(sessions.click, np.log(prob), np.log1p(-prob))
        total: np.ndarray = terms.sum(axis=1, where=sessions.rankings.shown)
        return total

    @final
    def relevance(self, pair: Int[np.ndarray, "*n"] | None = None) -> Float[np.ndarray, "*n"]:
        """The model's relevance of the given pair numbers (its own vocabulary's), or of all pairs."""
        self._require(self.ranks_documents, "rank documents")
        table = self._relevance()
        return table[:-1] if pair is None else table[pair]

    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        """Which parameter says how users move through the list, and a label for each of its entries."""
        raise CapabilityError(f"{type(self).__name__} has no examination or continuation. Try PBM, UBM, DCM or DBN.")

    @final
    def relevance_table(self, *, level: float = 0.95) -> Any:
        """A pyarrow table: query, doc, relevance, its interval (low, high), impressions and clicks, the best first.

        Intervals are Beta quantiles by the observed information (docs/intervals.md), NaN where there is no error.
        """
        import pyarrow as pa

        relevance, words, nothing = self.relevance(), self.vocabulary, np.full(self.vocabulary.n_pairs, np.nan)
        evidence = self.evidence
        error = None if evidence is None else evidence.logit_error.get("relevance")
        low, high = (nothing, nothing) if error is None else beta_interval(relevance, error[:-1], level)
        order = np.lexsort((-relevance, words.pair_query))
        columns = {
            "query": words.query_ids[words.pair_query],
            "doc": words.doc_ids[words.pair_doc],
            "relevance": relevance,
            "low": low,
            "high": high,
            "impressions": nothing if evidence is None else evidence.impressions[:-1],
            "clicks": nothing if evidence is None else evidence.clicks[:-1],
        }
        raw = {k: v[order].astype(object) if v.dtype.kind == "T" else v[order] for k, v in columns.items()}
        return pa.table(raw)

    @final
    def examination_table(self, *, level: float = 0.95) -> list[dict[str, Any]]:
        """How users move through the list: examination (PBM, UBM) or continuation (cascades), with intervals."""
        name, labels = self._curve()
        values = np.atleast_1d(getattr(self, name))
        errors = self.evidence.logit_error.get(name) if self.evidence is not None else None
        low, high = beta_interval(values, np.full(len(values), np.nan) if errors is None else errors, level)
        return [
            {**label, "parameter": name, "estimate": float(v), "low": float(lo), "high": float(hi)}
            for label, v, lo, hi in zip(labels, values, low, high, strict=True)
        ]

    @final
    def sample(self, rankings: Rankings, *, rng: int | np.random.Generator) -> Sessions:
        """Draw clicks on these lists."""
        return Sessions(rankings, self.sample_clicks(rankings, key=stream_key(as_generator(rng))))

    @final
    def sample_clicks(self, rankings: Rankings, *, key: int, first: int = 0) -> Bool[np.ndarray, "session rank"]:
        """Clicks alone, row i from stream `first + i` of `key`: the same whoever asks for which block of rows."""
        self._require(self.predicts_clicks, "predict clicks")
        rankings = rankings.in_vocabulary(self.vocabulary)

        def draw(rows: slice) -> Bool[np.ndarray, "session rank"]:
            uniform = np.empty((rows.stop - rows.start, rankings.n_ranks + 1))
            uniforms(key, first + rows.start, uniform)
            return self._sample(rankings[rows], uniform)

        return _map_blocks(draw, rankings, dtype=bool)

    def _require(self, can: bool, what: str) -> None:
        if not can:
            raise CapabilityError(
                f"{type(self).__name__} cannot {what}. Choose a model that can; see `clickshift models`."
            )


def _map_blocks(work: Callable[[slice], np.ndarray], rankings: Rankings, *, dtype: type = np.float64) -> np.ndarray:
    out: np.ndarray = np.empty(rankings.pair.shape, dtype)

    def fill(rows: slice) -> None:
        out[rows] = work(rows)

    for_ranges(fill, len(rankings))
    return out


def beta_interval(
    p: Float[np.ndarray, " n"], logit_error: Float[np.ndarray, " n"], level: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Quantiles of the Beta distribution with mean p that carries the same information about the logit of p.

    Information 1 / error^2 is that of n = 1 / (error^2 p (1 - p)) trials, hence Beta(n p, n (1 - p)). Near the middle
    this is the usual interval of the logit; near 0 and 1 that one would be absurdly wide (746 skips, no click: to .25).
    """
    from scipy.special import betaincinv

    if not 0 < level < 1:
        raise DataError(f"the level of an interval must be between 0 and 1: got {level}.")
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    with np.errstate(divide="ignore"):
        trials = np.clip(1 / (logit_error**2 * inside * (1 - inside)), 1e-6, 1e15)
    low, high = (betaincinv(trials * inside, trials * (1 - inside), q) for q in ((1 - level) / 2, (1 + level) / 2))
    fixed = logit_error == 0  # by convention, not by measurement
    return np.where(fixed, p, low), np.where(fixed, p, high)


def pair_table(values: Float[np.ndarray, " pair"], *, unseen: float) -> PairTable:
    """A table for pair numbers in which `UNSEEN` (-1) finds its value in the last row."""
    return np.append(np.asarray(values, np.float64), unseen)


def at_rank(table: Float[np.ndarray, " known_rank"], n_ranks: int) -> Float[np.ndarray, " rank"]:
    """A table over ranks for lists of any length: ranks beyond it take its last value."""
    return table[np.minimum(np.arange(n_ranks), len(table) - 1)]
