"""ClickModel: the interface of every click model, and everything that models share.

A model *is* its parameters: the same class simulates users, is fitted by a learner, and serves as the oracle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.parallel import for_ranges
from clickshift.core.random_streams import uniforms
from clickshift.core.rng import as_generator, stream_key
from clickshift.core.spec import resolve
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import CapabilityError
from clickshift.models.intervals import EffectiveCounts, ParameterIntervals, beta_interval, counts_interval, support_of

if TYPE_CHECKING:
    from clickshift.models.summary import ModelSummary

__all__ = ["MARGINAL_ERROR", "ClickModel", "Evidence", "PairTable", "at_rank", "at_results", "pair_table"]

PairTable = Float[np.ndarray, " pair_or_unseen"]
"""One value per pair of the vocabulary; the last row has the value of pairs that the vocabulary does not hold."""
_SUMMARY = {"ModelSummary": "clickshift.models.summary:ModelSummary"}
"""Class of summaries by name, like the registry of models: its module imports this one."""
MARGINAL_ERROR = 1e-3
"""Largest error of a marginal click probability that functions accept, unless they are asked for exact ones."""
_LISTS_PER_BLOCK = 512  # small enough that all cores get work where a list takes long


@dataclass(frozen=True, eq=False)
class Evidence:
    """The data behind a fitted model: counts by pair, and the precision of each parameter.

    Parameters
    ----------
    learner
        Text form of the learner that estimated the parameters.
    impressions
        Impressions of each pair in the training log.
    clicks
        Clicks on each pair in the training log.
    logit_error
        Standard error of the logit of each parameter, by the parameter's name and in the shape of its table.
    log_likelihood
        Log-likelihood of the training log in nats, penalised by the prior.
    iterations
        Number of evaluations or training steps that the learner needed.
    converged
        Whether the learner stopped because it had converged.
    held_out_loss
        Cross-entropy on the held-out sessions that decided when to stop, in nats per session.
    sessions
        Number of sessions of the training log; 0 if it is not known.
    fingerprint
        `log_fingerprint` of the training log; "" if it is not known.
    source
        Path of the training log, or the type of the object that was passed.
    fitted_at
        Time of the fit in UTC, in ISO format.
    version
        Version of clickshift that fitted the model.
    first_time, last_time
        Time of the first and of the last session of the training log, as text; "" if it has no times.
    effective_counts
        Effective successes and trials of each parameter in the likelihood of the log without priors, by the
        parameter's name: what intervals come from (`clickshift.models.intervals`).
    mean_rank
        Mean rank, from 1, at which each pair was shown, NaN where it was not; None if it is not known.
    views
        Of a log with views, by situation: `known`, results whose view is known; `observed` examination; `from_clicks`,
        examination inferred from clicks alone; and `z`, their difference in standard errors. And `contradicted`, the
        number of clicks on results marked as not viewed.
    sharing
        Most trials that the other queries of a group add to the attractiveness of a document; NaN if it is not shared.
    """

    learner: str
    impressions: PairTable
    clicks: PairTable
    logit_error: Mapping[str, np.ndarray] = field(default_factory=dict)
    log_likelihood: float = float("nan")
    iterations: int = 0
    converged: bool = True
    held_out_loss: float = float("nan")
    sessions: int = 0
    fingerprint: str = ""
    source: str = ""
    fitted_at: str = ""
    version: str = ""
    first_time: str = ""
    last_time: str = ""
    effective_counts: Mapping[str, EffectiveCounts] = field(default_factory=dict)
    mean_rank: PairTable | None = None
    views: Mapping[str, np.ndarray] = field(default_factory=dict)
    sharing: float = float("nan")


@dataclass(frozen=True, eq=False, kw_only=True)
class ClickModel(ABC):
    """Base class of click models.

    Subclasses are frozen dataclasses of parameters that implement the private methods, which see one block of rows.
    The public methods translate row numbers from the log's vocabulary to the model's, work block by block on all
    cores, and return 0 where nothing is shown.

    A hole, a rank above the last result at which nothing is recorded, is a result that is never clicked, like a
    document of attractiveness 0. `shown` is False there and `pair` is `UNSEEN`: `at_results` looks up a table of
    attractiveness accordingly.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs that the parameters belong to.
    evidence
        How the parameters were estimated; None for a model that was made by hand, such as a simulated user.

    Examples
    --------
    >>> import clickshift as cs
    >>> from clickshift.models.ctr import RCTR
    >>> vocabulary, query, pair = cs.Vocabulary.of(["shoes", "shoes"], ["a", "b"])
    >>> model: ClickModel = RCTR(vocabulary, np.array([0.5, 0.25]))
    >>> model.click_prob(cs.Rankings(vocabulary, query[:1], pair[None], np.ones((1, 2), bool))).tolist()
    [[0.5, 0.25]]
    """

    vocabulary: Vocabulary
    evidence: Evidence | None = None

    predicts_clicks: ClassVar[bool] = True
    """False for scores that rank documents but are not click probabilities."""
    uses_history: ClassVar[bool] = False
    """True if the clicks above a result change its click probability."""
    ranks_documents: ClassVar[bool] = True
    """False if all documents have the same relevance."""
    approximate_marginals: ClassVar[bool] = False
    """True if `click_prob` is much faster where an error is accepted."""
    peeks: ClassVar[bool] = False
    """True for a model whose input includes the click that it predicts: its likelihood and perplexity are
    meaningless."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give every model the one-line `repr`: `dataclass` writes its own only where a class has none."""
        super().__init_subclass__(**options)
        cls.__repr__ = cls.__dict__.get("__repr__", ClickModel.__repr__)  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"<{self.summary().headline}>"

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        return self.summary()._repr_html_()

    @final
    def summary(self) -> ModelSummary:
        """Return what was learned, and from how much: a result with a conclusion, facts, figures and a document.

        Returns
        -------
        ModelSummary
            The summary, which a notebook displays.
        """
        made: ModelSummary = resolve("ModelSummary", _SUMMARY)((self,))
        return made

    @property
    def conclusion(self) -> str:
        """What was learned, and from how much, in one to three sentences."""
        return self.summary().conclusion

    @final
    def to_dict(self) -> dict[str, Any]:
        """Return the facts of the fit: what `clickshift fit --json` prints.

        Returns
        -------
        dict
            Texts, numbers, lists and dicts; `ModelSummary` documents the keys.
        """
        return self.summary().to_dict()

    @abstractmethod
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Return P(C_r = 1), with the clicks at other ranks summed out."""

    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        """Return P(C_r = 1 | C_1..C_{r-1}), with clicks below summed out: the marginal if clicks are independent."""
        return self._click_prob(sessions.rankings)

    def _approximate_click_prob(self, rankings: Rankings, max_error: float) -> Float[np.ndarray, "session rank"]:
        """Return P(C_r = 1) with an error of at most `max_error`; models whose exact sum is slow override this."""
        return self.click_prob(rankings)

    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        """Return the expected number of clicks on each list; models with a faster way override this."""
        total: np.ndarray = self._click_prob(rankings).sum(axis=1, where=rankings.shown)
        return total

    @abstractmethod
    def _relevance(self) -> PairTable:
        """Return a score per pair by which the model would rank."""

    def _sample(
        self, rankings: Rankings, uniform: Float[np.ndarray, "session draw"]
    ) -> Bool[np.ndarray, "session rank"]:
        """Sample clicks rank by rank from the conditional, with numbers in (0, 1): one per rank and a spare one."""
        click = np.zeros(rankings.pair.shape, bool)
        for rank in range(rankings.n_ranks):
            prob = self._click_prob_given_history(Sessions(rankings, click))
            click[:, rank] = (uniform[:, rank] < prob[:, rank]) & rankings.shown[:, rank]
        return click

    @final
    def click_prob(self, rankings: Rankings, *, max_error: float = 0.0) -> Float[np.ndarray, "session rank"]:
        """Return the marginal click probability of each result.

        The argument is rankings, not sessions, so that the model cannot use the clicks.

        Parameters
        ----------
        rankings
            Lists of documents, in any vocabulary.
        max_error
            Largest error that is accepted; 0 computes exact probabilities. A model that sums over click histories
            (NCM) then sums over likely ones, as few as give a tenth of this error at most on a sample of 64 lists. The
            other models are exact for any value.

        Returns
        -------
        numpy.ndarray
            P(C_r = 1), of shape `session rank`; 0 where nothing is shown.

        Raises
        ------
        CapabilityError
            If the model does not predict clicks ("cannot-predict-clicks").
        """
        self._require(self.predicts_clicks, "predict clicks", code="cannot-predict-clicks")
        rankings = rankings.in_vocabulary(self.vocabulary)
        if max_error > 0 and self.approximate_marginals:
            return self._approximate_click_prob(rankings, max_error)
        return _map_blocks(lambda rows: np.where(rankings.shown[rows], self._click_prob(rankings[rows]), 0.0), rankings)

    @final
    def expected_clicks(self, rankings: Rankings, *, tolerance: float = 0.0) -> Float[np.ndarray, " session"]:
        """Return the expected number of clicks on each list: the sum of `click_prob` over its ranks.

        Parameters
        ----------
        rankings
            Lists of documents, in any vocabulary.
        tolerance
            For a search over many lists, a model that sums over click histories (NCM) may treat histories that are
            less likely than this together: `clickshift.models.ncm` describes the method and its error. Consecutive
            lists that begin with the same documents then cost less. The other models are exact for any tolerance.

        Returns
        -------
        numpy.ndarray
            Expected clicks, of shape `session`.

        Raises
        ------
        CapabilityError
            If the model does not predict the clicks on a list ("cannot-predict-clicks").
        """
        self._require(
            self.predicts_clicks and not self.peeks, "predict the clicks on a list", code="cannot-predict-clicks"
        )
        rankings = rankings.in_vocabulary(self.vocabulary)
        out = np.empty(len(rankings))

        def work(rows: slice) -> None:
            out[rows] = self._expected_clicks(rankings[rows], tolerance)

        for_ranges(work, len(rankings), chunk=_LISTS_PER_BLOCK)
        return out

    @final
    def click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        """Return the click probability of each result given the clicks above it.

        Parameters
        ----------
        sessions
            Lists and their clicks, in any vocabulary.

        Returns
        -------
        numpy.ndarray
            P(C_r = 1 | C_1..C_{r-1}), of shape `session rank`; 0 where nothing is shown.

        Raises
        ------
        CapabilityError
            If the model does not predict clicks ("cannot-predict-clicks").
        """
        self._require(self.predicts_clicks, "predict clicks", code="cannot-predict-clicks")
        sessions = sessions.in_vocabulary(self.vocabulary)
        shown = sessions.rankings.shown
        return _map_blocks(
            lambda rows: np.where(shown[rows], self._click_prob_given_history(sessions[rows]), 0.0), sessions.rankings
        )

    @final
    def log_likelihood(self, sessions: Sessions) -> Float[np.ndarray, " session"]:
        """Return the natural log-probability of each row's clicks.

        Parameters
        ----------
        sessions
            Lists and their clicks, in any vocabulary. A row with `count` above 1 is evaluated once.

        Returns
        -------
        numpy.ndarray
            Log-likelihood in nats, of shape `session`.
        """
        prob = self.click_prob_given_history(sessions)
        with np.errstate(divide="ignore"):
            terms = np.where(sessions.click, np.log(prob), np.log1p(-prob))
        total: np.ndarray = terms.sum(axis=1, where=sessions.rankings.shown)
        return total

    @final
    def relevance(self, pair: Int[np.ndarray, "*n"] | None = None) -> Float[np.ndarray, "*n"]:
        """Return the relevance of pairs: the score by which the model would rank.

        Parameters
        ----------
        pair
            Pair numbers of the model's own vocabulary; None for all pairs.

        Returns
        -------
        numpy.ndarray
            Relevance, in the shape of `pair`.

        Raises
        ------
        CapabilityError
            If the model has the same relevance for all documents ("cannot-rank-documents").
        """
        self._require(self.ranks_documents, "rank documents", code="cannot-rank-documents")
        table = self._relevance()
        return table[:-1] if pair is None else table[pair]

    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        """Return the name of the parameter that describes browsing, and a label for each of its entries."""
        raise CapabilityError(
            f"{type(self).__name__} has no examination or continuation. Choose PBM, UBM, DCM or DBN.",
            code="no-examination",
            model=type(self).__name__,
        )

    def _probability_scale(self, name: str) -> PairTable | float:
        """Return the factor from the probability that effective counts describe to a parameter that is none."""
        return 1.0

    @final
    def intervals(self, name: str, *, level: float = 0.95) -> ParameterIntervals:
        """Return confidence intervals of a parameter, and whether the log or a prior decides its estimates.

        An interval that would not contain its estimate, because the prior moved it far, is extended to it.

        Parameters
        ----------
        name
            Name of the parameter, e.g. "attractiveness", or "relevance".
        level
            Confidence level.

        Returns
        -------
        ParameterIntervals
            Bounds and support, in the shape of the parameter's table; NaN where the model has no standard error.
        """
        values = self._relevance() if name == "relevance" else np.atleast_1d(getattr(self, name))
        errors = self.evidence.logit_error.get(name) if self.evidence is not None else None
        if self.evidence is None or errors is None:
            missing = np.full(len(values), np.nan)
            return ParameterIntervals(missing, missing, np.full(len(values), "", object))
        counts = self.evidence.effective_counts.get(name)
        if counts is None:
            return ParameterIntervals(*beta_interval(values, errors, level), np.full(len(values), "", object))
        scale = self._probability_scale(name)
        low, high = (bound * scale for bound in counts_interval(counts, level))
        fixed = errors == 0  # by convention, not by measurement
        low, high = (
            np.where(fixed | ~np.isnan(bound), extreme(bound, values), bound)
            for bound, extreme in ((low, np.minimum), (high, np.maximum))
        )
        support = support_of(counts, by_trials=name in {"satisfaction", "continuation"})
        support[fixed] = "convention"
        return ParameterIntervals(np.where(fixed, values, low), np.where(fixed, values, high), support)

    @final
    def relevance_table(self, *, level: float = 0.95) -> Any:
        """Return the relevance of all pairs as a pyarrow table.

        Intervals come from the observed information of the likelihood (docs/intervals.md), NaN where the model has no
        standard error. `support` says what an estimate rests on (`intervals`).

        Parameters
        ----------
        level
            Confidence level of the intervals.

        Returns
        -------
        pyarrow.Table
            Columns query, doc, relevance, low, high, support, impressions, clicks and mean_rank (from 1); the most
            relevant document first within each query.
        """
        import pyarrow as pa

        relevance, vocabulary, evidence = self.relevance(), self.vocabulary, self.evidence
        missing = np.full(vocabulary.n_pairs, np.nan)
        intervals = ParameterIntervals(*(bound[:-1] for bound in self.intervals("relevance", level=level)))
        order = np.lexsort((-relevance, vocabulary.pair_query))
        columns = {
            "query": vocabulary.query_ids[vocabulary.pair_query],
            "doc": vocabulary.doc_ids[vocabulary.pair_doc],
            "relevance": relevance,
            "low": intervals.low,
            "high": intervals.high,
            "support": intervals.support,
            "impressions": missing if evidence is None else evidence.impressions[:-1],
            "clicks": missing if evidence is None else evidence.clicks[:-1],
            "mean_rank": missing if evidence is None or evidence.mean_rank is None else evidence.mean_rank[:-1],
        }
        raw = {k: v[order].astype(object) if v.dtype.kind == "T" else v[order] for k, v in columns.items()}
        return pa.table(raw)

    @final
    def examination_table(self, *, level: float = 0.95) -> list[dict[str, Any]]:
        """Return the parameter that describes browsing: examination (PBM, UBM) or continuation (cascade models).

        Parameters
        ----------
        level
            Confidence level of the intervals.

        Returns
        -------
        list of dict
            One row per entry of the parameter: its label (e.g. rank), parameter, estimate, low, high and support; with
            views also the observed rate and what clicks alone would suggest (from_clicks), None where unknown.

        Raises
        ------
        CapabilityError
            If the model has no such parameter ("no-examination").
        """
        name, labels = self._browsing_curve()
        values = np.atleast_1d(getattr(self, name))
        intervals = zip(*self.intervals(name, level=level), strict=True)
        rows: list[dict[str, Any]] = [
            {**label, "parameter": name, "estimate": float(v), "low": float(lo), "high": float(hi), "support": support}
            for label, v, (lo, hi, support) in zip(labels, values, intervals, strict=True)
        ]
        views = {} if self.evidence is None else self.evidence.views
        for column in ("observed", "from_clicks") if views else ():
            for row, value in zip(rows, views[column], strict=True):
                row[column] = None if np.isnan(value) else float(value)
        return rows

    @final
    def sample(self, rankings: Rankings, *, rng: int | np.random.Generator) -> Sessions:
        """Sample clicks on lists.

        Parameters
        ----------
        rankings
            Lists of documents, in any vocabulary.
        rng
            Random seed or generator.

        Returns
        -------
        Sessions
            The lists with sampled clicks.
        """
        return Sessions(rankings, self.sample_clicks(rankings, key=stream_key(as_generator(rng))))

    @final
    def sample_clicks(self, rankings: Rankings, *, key: int, first: int = 0) -> Bool[np.ndarray, "session rank"]:
        """Sample clicks on lists, row i from random stream `first + i` of `key`.

        The clicks of a row do not depend on the block of rows in which they are sampled.

        Parameters
        ----------
        rankings
            Lists of documents, in any vocabulary.
        key
            Key of the random streams.
        first
            Stream of the first row.

        Returns
        -------
        numpy.ndarray
            True where a result is clicked, of shape `session rank`.
        """
        self._require(self.predicts_clicks, "predict clicks", code="cannot-predict-clicks")
        rankings = rankings.in_vocabulary(self.vocabulary)

        def draw(rows: slice) -> Bool[np.ndarray, "session rank"]:
            uniform = np.empty((rows.stop - rows.start, rankings.n_ranks + 1))
            uniforms(key, first + rows.start, uniform)
            return self._sample(rankings[rows], uniform)

        return _map_blocks(draw, rankings, dtype=bool)

    def _require(self, capable: bool, action: str, *, code: str) -> None:
        """Raise a `CapabilityError` unless the model is capable of an action."""
        if not capable:
            raise CapabilityError(
                f"{type(self).__name__} cannot {action}. Choose a model that can; `clickshift models` lists them.",
                code=code,
                model=type(self).__name__,
            )


def _map_blocks(work: Callable[[slice], np.ndarray], rankings: Rankings, *, dtype: type = np.float64) -> np.ndarray:
    """Fill an array of shape `session rank` with the results of `work`, block by block on all cores."""
    out: np.ndarray = np.empty(rankings.pair.shape, dtype)

    def fill(rows: slice) -> None:
        out[rows] = work(rows)

    for_ranges(fill, len(rankings))
    return out


def pair_table(values: Float[np.ndarray, " pair"], *, unseen: float) -> PairTable:
    """Append the value of unseen pairs to a table over pairs, so that index `UNSEEN` (-1) finds it in the last row.

    Parameters
    ----------
    values
        One value per pair of the vocabulary.
    unseen
        Value of pairs that the vocabulary does not hold.

    Returns
    -------
    numpy.ndarray
        The table, one row longer than `values`.
    """
    return np.append(np.asarray(values, np.float64), unseen)


def at_results(table: PairTable, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
    """Return the value of a table for each result of some lists, and 0 at holes, which are never clicked.

    Below the end of a list the value is arbitrary.

    Parameters
    ----------
    table
        One value per pair, that of unseen pairs last.
    rankings
        Lists in the vocabulary of the table.

    Returns
    -------
    numpy.ndarray
        Values of shape `session rank`.

    Examples
    --------
    >>> vocabulary, _, _ = Vocabulary.of(["shoes", "shoes"], ["a", "b"])
    >>> lists = Rankings(vocabulary, np.array([0]), np.array([[0, -1, 1]]))
    >>> at_results(pair_table(np.array([0.5, 0.4]), unseen=0.1), lists)
    array([[0.5, 0. , 0.4]])
    """
    values: np.ndarray = table[rankings.pair]
    return np.where(rankings.shown, values, 0.0) if rankings.has_holes else values


def at_rank(table: Float[np.ndarray, " known_rank"], n_ranks: int) -> Float[np.ndarray, " rank"]:
    """Extend or cut a table over ranks to lists of any length: ranks beyond the table take its last value.

    Parameters
    ----------
    table
        One value per known rank.
    n_ranks
        Length of the lists.

    Returns
    -------
    numpy.ndarray
        One value per rank of the lists.
    """
    return table[np.minimum(np.arange(n_ranks), len(table) - 1)]
