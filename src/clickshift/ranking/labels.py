"""Corrected labels: relevance estimated from clicks, corrected for position bias, trust bias and the logging policy.

Every correction computes two numbers for each (query, document) pair: a positive weight W and a total weight N. The
pointwise loss is -[W log y + (N - W) log(1 - y)], the listwise loss is -W log softmax(s), and W / N estimates
relevance. With clicks c and impressions n of a document at rank k, m sessions of its query, and
P(click at k) = alpha_k x relevance + beta_k:

    by rank           N = sum_k n_k     W = sum_k (c_k - n_k beta_k) / alpha_k
    policy-aware      N = m             W = sum_k (c_k - n_k beta_k) / rho,     rho = sum_k n_k alpha_k / m
    doubly robust     N = m             W = m r + sum_k (c_k - n_k (alpha_k r + beta_k)) / rho

Without trust bias, alpha is examination and beta is 0. The first correction is then inverse propensity scoring
(Joachims et al. 2017; pointwise: Bekker et al. 2019, Saito et al. 2020); with trust bias it is the affine correction
(Vardasbi et al. 2020).

rho is the probability that a session examines the document, at any rank: policy-aware labels (Oosterhuis & de Rijke
2020, with trust bias 2021) also correct for sessions that did not show it. The doubly robust correction (Oosterhuis
2023) adds the relevance r of a regression. Because rho is counted in the log itself, r cancels out wherever rho is not
clipped: r matters only for documents that were never shown, and for the bias that clipping of rho introduces.

A correction is unbiased, but not exact for each pair: W may be above N, or below 0. Where W is above N, the pointwise
loss has no lower bound: it decreases for ever as the score grows. Early stopping and shared features limit this.

All rankers of this package learn from counts by rank of the documents of a corpus; `count_by_rank` makes them from a
log. If the log carries propensities by position, counts may be weighted by the inverse of these: then n_k and c_k
estimate what would be counted if every session showed the document at rank k. Documents that the logging policy shows
rarely weigh as much as others, also where contexts occur once.
"""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import Log
from clickshift.errors import ClickshiftWarning, DataError, SpecError, VocabularyError
from clickshift.ope.logged_propensities import PropensityKind, checked_kind
from clickshift.propensity.files import Trust

Correction = Literal["by-rank", "policy-aware", "doubly-robust"]
"""Names of the corrections, see the module's formulas."""


class Labels(NamedTuple):
    """Corrected labels of all (query, document) pairs.

    Attributes
    ----------
    positive
        Positive weight W: corrected clicks.
    total
        Total weight N: impressions, or sessions of the query.
    """

    positive: Float[np.ndarray, " pair"]
    total: Float[np.ndarray, " pair"]


def corrected_labels(
    cells: Cells,
    correction: Correction,
    examination: Float[np.ndarray, " rank"],
    *,
    false_clicks: Float[np.ndarray, " rank"] | None = None,
    clip: float | None = None,
    regression: Float[np.ndarray, " pair"] | None = None,
) -> Labels:
    """Compute corrected labels of all pairs from counts by rank.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and rank.
    correction
        "by-rank", "policy-aware" or "doubly-robust".
    examination
        Examination by rank; with trust bias, alpha.
    false_clicks
        Click probability of a non-relevant document by rank, beta; None for 0.
    clip
        Smallest propensity (alpha or rho) to divide by. Clipping makes the labels of rarely examined documents too low,
        but reduces their variance.
    regression
        Relevance r of every pair, from 0 to 1, for "doubly-robust".

    Returns
    -------
    Labels
        W and N of every pair; both are 0 for pairs without information.

    Raises
    ------
    DataError
        If examination lacks a rank or is not valid ("bad-examination"), or is 0 at a rank that the log shows
        ("zero-propensity"); if the regression is missing ("missing-regression") or not one probability per pair
        ("bad-regression").

    References
    ----------
    Joachims, T., Swaminathan, A., Schnabel, T. (2017). Unbiased learning-to-rank with biased feedback. WSDM.
    Oosterhuis, H., de Rijke, M. (2020). Policy-aware unbiased learning to rank for top-k rankings. SIGIR.
    Vardasbi, A., Oosterhuis, H., de Rijke, M. (2020). When inverse propensity scoring does not work: affine corrections
    for unbiased learning to rank. CIKM.
    Oosterhuis, H. (2023). Doubly robust estimation for correcting position bias in click feedback for unbiased learning
    to rank. ACM TOIS.

    Examples
    --------
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> vocabulary, _, pair = Vocabulary.of([1, 1], [10, 20])
    >>> cells = Cells(vocabulary, 2, "rank", pair, np.array([0, 1]), np.array([8.0, 8.0]), np.array([2.0, 1.0]))
    >>> corrected_labels(cells, "by-rank", np.array([1.0, 0.5]))
    Labels(positive=array([2., 2.]), total=array([8., 8.]))
    """
    vocabulary, rank = cells.vocabulary, cells.situation  # of a segment, if the log was counted by segment
    shown = np.bincount(rank, minlength=cells.n_situations) > 0
    smallest = clip if correction == "by-rank" else None
    alpha = propensities_at_shown_ranks(examination, shown, clip=smallest, n_ranks=cells.n_ranks)[rank]
    beta: Float[np.ndarray, " cell"] | float = 0.0
    if false_clicks is not None:
        beta = _at_shown_ranks("the probability of a false click", false_clicks, shown)[rank]
    clicks = cells.clicks - beta * cells.impressions

    def sum_by_pair(values: Float[np.ndarray, " cell"]) -> Float[np.ndarray, " pair"]:
        return np.bincount(cells.pair, values, vocabulary.n_pairs)

    if correction == "by-rank":
        return Labels(sum_by_pair(clicks / alpha), sum_by_pair(cells.impressions))
    total, examined = sessions_by_query(cells)[vocabulary.pair_query], sum_by_pair(alpha * cells.impressions)
    rho = np.maximum(examined / np.maximum(total, 1e-300), clip or 0.0)
    rho = np.where(examined > 0, rho, 1.0)
    if correction == "policy-aware":
        return Labels(sum_by_pair(clicks) / rho, np.where(examined > 0, total, 0.0))
    if regression is None:
        raise DataError(
            "the doubly robust correction needs a regression: pass the relevance of every pair.",
            code="missing-regression",
        )
    if regression.shape != (vocabulary.n_pairs,) or not ((regression >= 0) & (regression <= 1)).all():
        raise DataError(
            f"a regression must give each of the {vocabulary.n_pairs:,} pairs a relevance from 0 to 1.",
            code="bad-regression",
            pairs=vocabulary.n_pairs,
        )
    return Labels(total * regression + (sum_by_pair(clicks) - examined * regression) / rho, total)


def labels_for(
    cells: Cells,
    loss: str,
    *,
    examination: Float[np.ndarray, " rank"] | None = None,
    trust: Trust | None = None,
    clip: float | None = None,
    regression: Float[np.ndarray, " pair"] | None = None,
) -> Labels:
    """Compute the corrected labels that a loss of a learner is trained on.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and rank.
    loss
        Name of the loss: "policy-aware" and "doubly-robust" use the corrections of those names, all others correct by
        rank.
    examination, trust
        Examination by rank, or trust bias; with neither, every rank counts as examined.
    clip
        Smallest propensity to divide by.
    regression
        Relevance of every pair, from 0 to 1, for "doubly-robust".

    Returns
    -------
    Labels
        Positive and total weight of every pair.
    """
    correction: Correction = "by-rank"
    if loss in {"policy-aware", "doubly-robust"}:
        correction = "policy-aware" if loss == "policy-aware" else "doubly-robust"
    false_clicks = None
    if trust is not None:
        examination, false_clicks = trust.alpha, trust.beta
    elif examination is None:
        examination = np.ones(cells.n_situations)
    return corrected_labels(cells, correction, examination, false_clicks=false_clicks, clip=clip, regression=regression)


def check_position_bias(
    loss: str, bias: str, examination: Float[np.ndarray, " rank"] | None, trust: Trust | None
) -> None:
    """Check that a learner gets exactly the position bias or trust bias that its loss and bias need.

    Parameters
    ----------
    loss, bias
        Options of the learner, see `ClickRanker`.
    examination, trust
        Examination by rank and trust bias, where given.

    Raises
    ------
    SpecError
        If something is given that is not used ("unused-examination", "unused-trust"), or is missing ("missing-trust",
        "missing-examination").
    """
    if bias != "given":
        if examination is not None or trust is not None:
            raise SpecError(
                f"examination is not used with bias={bias!r}. Remove it, or choose bias='given'.",
                code="unused-examination",
                bias=bias,
            )
        return
    if loss == "affine" and trust is None:
        raise SpecError("loss='affine' needs trust: pass alpha and beta of every rank.", code="missing-trust")
    if trust is not None and loss in {"ips", "pbm"}:
        raise SpecError(
            f"loss={loss!r} has no correction for trust bias. Choose loss='affine', or pass examination only.",
            code="unused-trust",
            loss=loss,
        )
    if (examination is None) == (trust is None):
        raise SpecError(
            "bias='given' needs examination by rank, or trust, but not both. Estimate it with propensities(log), or "
            "choose bias='naive' or bias='estimated'.",
            code="missing-examination",
        )


def sessions_by_query(cells: Cells) -> Float[np.ndarray, " query"]:
    """Return the number of sessions of each query: the largest number of impressions at one of its ranks.

    If every rank is a hole in some session, it is too low. What labels estimate, W / N, does not depend on it.
    """
    vocabulary = cells.vocabulary
    n = vocabulary.n_queries, cells.n_segments, cells.n_ranks
    key = vocabulary.pair_query[cells.pair].astype(np.int64) * cells.n_situations + cells.situation
    impressions = np.bincount(key, cells.impressions, vocabulary.n_queries * cells.n_situations)
    sessions: np.ndarray = impressions.reshape(n).max(axis=2).sum(axis=1)
    return sessions


def propensities_at_shown_ranks(
    examination: Float[np.ndarray, " known_rank"],
    shown: Bool[np.ndarray, " rank"],
    *,
    clip: float | None = None,
    n_ranks: int | None = None,
) -> Float[np.ndarray, " rank"]:
    """Return examination by rank, checked to be above 0 wherever the log shows a document, and 1 elsewhere.

    Parameters
    ----------
    examination
        Examination by rank; may have more or fewer ranks than the log.
    shown
        Whether the log shows a document at each rank.
    clip
        Smallest propensity: smaller ones are raised to it.
    n_ranks
        Number of ranks of one curve, if those of several segments follow each other.

    Raises
    ------
    DataError
        If examination is missing or not a number ("bad-examination") or 0 ("zero-propensity") at a shown rank.
    """
    examination = _at_shown_ranks("examination", examination, shown, n_ranks)
    if clip is not None:
        examination = np.maximum(examination, clip)
    bad = shown & (examination == 0)
    if bad.any():
        rank = int(bad.argmax()) % (n_ranks or len(shown)) + 1
        raise DataError(
            f"a propensity must be above 0 where a document is shown: it is 0 at rank {rank}, and clicks cannot be "
            "divided by it. Remove such ranks from the log, or pass the smallest propensity as `clip`.",
            code="zero-propensity",
            rank=rank,
        )
    return np.where(shown, examination, 1.0)


def _at_shown_ranks(
    what: str, values: Float[np.ndarray, " known_rank"], shown: Bool[np.ndarray, " rank"], n_ranks: int | None = None
) -> Float[np.ndarray, " rank"]:
    """Fit a table over ranks to the list length of a log; every rank that the log shows must have a number.

    The curves of several segments follow each other, each with `n_ranks` ranks.
    """
    table = np.full(len(shown), np.nan)
    n_known = min(len(values), len(shown))
    table[:n_known] = values[:n_known]
    bad = shown & ~((table >= 0) & (table < np.inf))
    if bad.any():
        first = int(bad.argmax())
        rank = first % (n_ranks or len(shown)) + 1
        problem = f"it is {table[first]:g}" if first < n_known else f"it ends at rank {n_known}"
        raise DataError(
            f"{what} must be a number, 0 or more, at every rank that the log shows: {problem}, where rank {rank} "
            "is needed. Pass more ranks, or truncate the lists of the log.",
            code="bad-examination",
            rank=rank,
            ranks=n_known,
            value=float(table[first]),
        )
    return np.where(shown, table, 0.0)


def check_propensity_kind(kind: str) -> None:
    """Check that propensities by position are the probability of a document at its rank, whatever is above it.

    Parameters
    ----------
    kind
        What they are the probabilities of, see `clickshift.ope.logged_propensities`.

    Raises
    ------
    SpecError
        "bad-option" for an unknown kind, and for conditional and cascade propensities.
    """
    if checked_kind(kind) not in _KINDS_OF_RANKS:
        raise SpecError(
            f"propensity_kind must be {' or '.join(_KINDS_OF_RANKS)} to train rankers: got {kind}. Impressions are "
            "weighted by the probability of a document at its rank, whatever is above it, which propensities given the "
            'documents above are not. Log marginal propensities, or leave out logging="propensities".',
            code="bad-option",
            option="propensity_kind",
            value=kind,
            known=list(_KINDS_OF_RANKS),
        )


_KINDS_OF_RANKS: tuple[PropensityKind, ...] = ("marginal", "independent")
"""Kinds of propensities by position that are the probability of a document at its rank."""


def count_by_rank(
    corpus: Corpus,
    clicks: Cells | Log | DayCounts,
    *,
    logging: str = "frequencies",
    clip: float | None = None,
    segments: SegmentNumbers | None = None,
) -> Cells:
    """Count impressions and clicks by rank in the vocabulary of a corpus.

    Parameters
    ----------
    corpus
        Documents to count.
    clicks
        A log of any size, which is counted chunk by chunk, daily counts, or counts in the vocabulary of the corpus.
    logging
        "frequencies" counts every impression once; "propensities" weights it by the inverse of the propensity by
        position that the log carries for it.
    clip
        Smallest propensity by position to divide by.
    segments
        Segment by which a log is counted.

    Returns
    -------
    Cells
        Counts by pair and rank. Documents that the corpus does not contain are left out, with a warning
        ("unknown-documents").

    Raises
    ------
    VocabularyError
        If counts are in another vocabulary ("different-vocabulary").
    DataError
        If the log shows no document of the corpus ("no-common-documents"), lacks the propensities that are asked for
        ("missing-propensities"), or `logging` is another text ("bad-option").
    """
    if logging not in {"frequencies", "propensities"}:
        raise DataError(
            f"logging must be 'frequencies' or 'propensities': got {logging!r}.",
            code="bad-option",
            option="logging",
            value=logging,
            known=["frequencies", "propensities"],
        )
    if logging == "propensities":
        cells = _inverse_propensity_counts(clicks, clip or 0.0, segments)
    elif isinstance(clicks, Cells):
        if not clicks.vocabulary.same_as(corpus.vocabulary):
            raise VocabularyError(
                "counts must be in the vocabulary of the corpus. Pass the log instead: it is translated.",
                code="different-vocabulary",
            )
        return clicks if clicks.by == "rank" else clicks.rolled_up("rank")
    else:
        cells = clicks.cells.rolled_up("rank") if isinstance(clicks, DayCounts) else Cells.of(clicks, segments=segments)
    vocabulary, pair = cells.vocabulary, corpus.vocabulary.pairs_of(cells.vocabulary)[cells.pair]
    unknown = pair < 0
    if unknown.any():
        first = cells.pair[unknown.argmax()]
        query, doc = vocabulary.query_ids[vocabulary.pair_query[first]], vocabulary.doc_ids[vocabulary.pair_doc[first]]
        example = f"document {doc} of query {query}"
        if unknown.all():
            raise DataError(
                f"the log must show documents of the corpus: it shows none, but e.g. {example}. "
                "Check that the log and the corpus use the same query and document ids.",
                code="no-common-documents",
                example=example,
            )
        count = float(cells.impressions[unknown].sum())
        share = count / float(cells.impressions.sum())
        warnings.warn(
            ClickshiftWarning(
                f"{share:.1%} of the results in the log ({count:,.0f}) are documents that the corpus does not contain, "
                f"e.g. {example}: they are left out.",
                code="unknown-documents",
                count=count,
                share=share,
                example=example,
            ),
            stacklevel=3,
        )
    order = np.lexsort((cells.situation, pair))
    order = order[~unknown[order]]
    columns = pair[order], cells.situation[order], cells.impressions[order], cells.clicks[order]
    return Cells(corpus.vocabulary, cells.n_ranks, "rank", *columns, n_segments=cells.n_segments)


def _inverse_propensity_counts(
    log: Cells | Log | DayCounts, clip: float, segments: SegmentNumbers | None = None
) -> Cells:
    """Count impressions and clicks by rank, each divided by its logged propensity, which is at least `clip`."""
    if isinstance(log, Cells | DayCounts):
        raise _missing_propensities("counts have none")
    found, n_segments = [], 1 if segments is None else segments.n
    n_situations = n_segments * log.n_ranks
    for part in log.chunks():
        rankings = part.rankings
        start = np.zeros(len(part), np.int64) if segments is None else segments.of(part) * np.int64(log.n_ranks)
        propensity = rankings.propensity
        if propensity is None and rankings.log_prob is not None and log.n_ranks == 1:
            propensity = np.exp(rankings.log_prob)[:, None]  # a list of one document is its document
        if propensity is None:
            raise _missing_propensities("it has none")
        row, rank = np.nonzero(rankings.shown)
        weight = part.count[row] / np.maximum(propensity[row, rank], clip)
        key, index = distinct_sorted(rankings.pair[row, rank].astype(np.int64) * n_situations + start[row] + rank)
        clicked = np.bincount(index, weight * part.click[row, rank], len(key))
        found.append((key, np.bincount(index, weight, len(key)), clicked))
    keys, impressions, clicks = (np.concatenate(parts) for parts in zip(*found, strict=True))
    key, index = distinct_sorted(keys)
    pair, situation = (part.astype(np.int32) for part in np.divmod(key, n_situations))
    sums = (np.bincount(index, values, len(key)) for values in (impressions, clicks))
    return Cells(log.vocabulary, log.n_ranks, "rank", pair, situation, *sums, n_segments=n_segments)


def _missing_propensities(problem: str) -> DataError:
    """Return the error for a log without propensities by position."""
    return DataError(
        f"the log must carry the propensities of its documents by position (column propensity_at_rank): {problem}. "
        'Add them, or pass logging="frequencies".',
        code="missing-propensities",
    )
