"""Conformance checks for click models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
from jaxtyping import Bool

from clickshift.core.rng import stream_key
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.models._formulas import LOGIT_LIMIT
from clickshift.models.base import ClickModel
from clickshift.models.mixture import Mixture
from clickshift.models.neural import NeuralModel
from clickshift.models.perturb import is_pair_table, one_pair_per_result
from clickshift.testing._rules import MAX_STANDARD_ERRORS, require


def check_click_model(
    model: ClickModel, *, ranks: int = 5, lists: int = 12, draws: int = 20_000, seed: int = 0
) -> None:
    """Check that a click model is consistent, on random lists.

    Probabilities lie in [0, 1]; likelihoods of all click patterns sum to 1; marginals equal the sum over patterns; a
    click changes no probability at or above its own rank; sampled frequencies match; padding changes nothing; permuting
    sessions permutes the results; a model that declares not to use history does not. All of this holds on lists with
    holes, too, and a hole is a result that is never clicked: probabilities are those of the same list with a document
    of attractiveness 0 there, where the model has a table of attractiveness. Only the relevance is checked of a model
    that declares not to predict clicks, or to peek at them.

    Parameters
    ----------
    model
        Model to check.
    ranks
        Number of ranks of the lists; all 2^ranks click patterns are enumerated.
    lists
        Number of random lists.
    draws
        Number of sampled sessions.
    seed
        Random seed.

    Raises
    ------
    AssertionError
        If a rule is broken; the message names the first one.

    Examples
    --------
    >>> from clickshift import builtin_corpus, users
    >>> check_click_model(users.PBM().on(builtin_corpus(queries=5)))
    """
    rng = np.random.default_rng(seed)
    if model.ranks_documents:
        relevance = model.relevance(np.arange(UNSEEN, model.vocabulary.n_pairs))
        require(np.isfinite(relevance).all(), "relevance must be finite for every pair, unseen ones included")
    if not model.predicts_clicks or model.peeks:
        return
    for holes in (False, True):
        rankings = random_rankings(model.vocabulary, lists, ranks, rng=rng, holes=holes)
        try:
            marginal = model.click_prob(rankings)
            require(((marginal >= 0) & (marginal <= 1)).all(), "click_prob must lie in [0, 1]")
            require((marginal[~rankings.shown] == 0).all(), "click_prob must be 0 where nothing is shown")
            _check_click_patterns(model, rankings, marginal)
            _check_samples(model, rankings, draws, rng)
            _check_invariance(model, rankings, rng)
            if holes:
                _check_holes(model, rankings, rng)
        except AssertionError as broken:
            raise AssertionError(f"on lists with holes: {broken}") from None if holes else broken


def _check_click_patterns(model: ClickModel, rankings: Rankings, marginal: np.ndarray) -> None:
    """Check conditional probabilities and likelihoods of all click patterns against the marginals."""
    total, expected = np.zeros(len(rankings)), np.zeros_like(marginal)
    base = model.click_prob_given_history(Sessions(rankings, np.zeros(rankings.shown.shape, bool)))
    for pattern in _click_patterns(rankings.n_ranks):
        possible = ~(pattern & ~rankings.shown).any(axis=1)
        rows = np.flatnonzero(possible)
        if not len(rows):
            continue
        click = np.broadcast_to(pattern, (len(rows), rankings.n_ranks)).copy()
        sessions = Sessions(rankings[rows], click)
        given = model.click_prob_given_history(sessions)
        require(((given >= 0) & (given <= 1)).all(), "click_prob_given_history must lie in [0, 1]")
        if pattern.any():
            first = int(pattern.argmax())
            same = np.allclose(given[:, : first + 1], base[rows, : first + 1], atol=1e-10, rtol=0)
            require(same, f"a click at rank {first + 1} must not change a probability at or above it")
        if not model.uses_history:
            same = np.allclose(given, marginal[rows], atol=1e-12, rtol=0)
            require(same, "a model without uses_history must not change with the clicks above")
        prob = np.exp(model.log_likelihood(sessions))
        total[rows] += prob
        expected[rows] += prob[:, None] * pattern
    require(np.allclose(total, 1, atol=1e-9), f"likelihoods of all click patterns must sum to 1: got {total}")
    worst = np.abs(expected - marginal).max()
    require(worst < 1e-9, f"click_prob must equal the sum over all click patterns: differs by {worst:.2g}")


def _check_samples(model: ClickModel, rankings: Rankings, draws: int, rng: np.random.Generator) -> None:
    """Check sampled frequencies of whole click patterns on one list, which include the dependence between ranks."""
    longest = int(rankings.length.argmax())
    repeated = rankings[np.full(draws, longest)]
    sampled = model.sample(repeated, rng=rng)
    clicks, some_clicks = model.sample_clicks(repeated, key=1), model.sample_clicks(repeated[10:20], key=1, first=10)
    require((clicks[10:20] == some_clicks).all(), "clicks must depend on the key and the session's number only")
    for pattern in _click_patterns(rankings.n_ranks):
        if (pattern & ~rankings.shown[longest]).any():
            continue
        session = Sessions(rankings[longest : longest + 1], pattern[None].copy())
        prob = float(np.exp(model.log_likelihood(session))[0])
        frequency = (sampled.click == pattern).all(axis=1).mean()
        error = np.sqrt(max(prob * (1 - prob), 1 / draws) / draws)
        require(
            abs(frequency - prob) < MAX_STANDARD_ERRORS * error,
            f"clicks {pattern.astype(int)} were sampled with frequency {frequency:.4f}, "
            f"their probability is {prob:.4f}",
        )


def _check_invariance(model: ClickModel, rankings: Rankings, rng: np.random.Generator) -> None:
    """Check that permuting sessions permutes the results, and that padding changes nothing."""
    sessions = model.sample(rankings, rng=rng)
    given = model.click_prob_given_history(sessions)
    order = rng.permutation(len(rankings))
    require(
        np.allclose(model.click_prob_given_history(sessions[order]), given[order], atol=1e-12, rtol=0),
        "permuting sessions must permute the results",
    )
    pad = ((0, 0), (0, 3))
    padded = Sessions(
        Rankings(
            rankings.vocabulary,
            rankings.query,
            np.pad(rankings.pair, pad, constant_values=UNSEEN),
            np.pad(rankings.shown, pad),
        ),
        np.pad(sessions.click, pad),
    )
    ranks = rankings.n_ranks
    same = np.allclose(model.click_prob_given_history(padded)[:, :ranks], given, atol=1e-12, rtol=0) and np.allclose(
        model.click_prob(padded.rankings)[:, :ranks], model.click_prob(rankings), atol=1e-12, rtol=0
    )
    require(same, "padding must change nothing")


def _check_holes(model: ClickModel, rankings: Rankings, rng: np.random.Generator) -> None:
    """Check that a hole is a document of attractiveness 0, if a document of the model can be one."""
    if _never_clicked(model, np.zeros(model.vocabulary.n_pairs + 1, bool)) is None:
        return
    hole = (np.arange(rankings.n_ranks) < rankings.length[:, None]) & ~rankings.shown
    results, lists = one_pair_per_result(model, rankings, shown=rankings.shown | hole)
    silent = _never_clicked(results, np.append(hole.ravel(), False))
    if silent is None or (silent.click_prob(lists)[hole] > 1e-12).any():
        return
    click = model.sample_clicks(rankings, key=stream_key(rng))
    for found, expected in (
        (model.click_prob(rankings), silent.click_prob(lists)),
        (
            model.click_prob_given_history(Sessions(rankings, click)),
            silent.click_prob_given_history(Sessions(lists, click)),
        ),
    ):
        worst = np.abs(found - expected)[rankings.shown].max()
        require(worst < 1e-9, f"a hole must be a document of attractiveness 0: differs by {worst:.2g}")


def _never_clicked(model: ClickModel, pairs: Bool[np.ndarray, " pair_or_unseen"]) -> ClickModel | None:
    """Return the model with attractiveness 0 of some pairs; None if it has no table of attractiveness."""
    if isinstance(model, Mixture):
        parts = [_never_clicked(component, pairs) for component in model.components]
        silent = tuple(part for part in parts if part is not None)
        return replace(model, components=silent) if len(silent) == len(parts) else None
    if isinstance(model, NeuralModel):
        if "attractiveness" not in model.by_pair:
            return None
        logits = np.where(pairs, -LOGIT_LIMIT, model.by_pair["attractiveness"])
        return replace(model, by_pair={**model.by_pair, "attractiveness": logits})
    if not any(field.name == "attractiveness" and is_pair_table(field) for field in fields(model)):
        return None
    return replace(model, attractiveness=np.where(pairs, 0.0, model.attractiveness))  # type: ignore[attr-defined, call-arg]


def random_rankings(
    vocabulary: Vocabulary, lists: int, ranks: int, *, rng: np.random.Generator, holes: bool = False
) -> Rankings:
    """Draw random lists of different lengths, of which at least one is full if a query has enough documents.

    Parameters
    ----------
    vocabulary
        Queries and candidate documents.
    lists
        Number of lists.
    ranks
        Largest length of a list.
    rng
        Random generator.
    holes
        Whether lists have holes; the first one then begins with a hole.

    Returns
    -------
    Rankings
        The lists.

    Examples
    --------
    >>> vocabulary, _, _ = Vocabulary.of(np.zeros(3, int), np.arange(3))
    >>> random_rankings(vocabulary, 4, 2, rng=np.random.default_rng(0)).pair.shape
    (4, 2)
    """
    offsets = vocabulary.query_offsets
    size = np.diff(offsets)
    query = rng.integers(0, vocabulary.n_queries, lists).astype(np.int32)
    query[0] = size.argmax()
    pair = np.full((lists, ranks), UNSEEN, np.int32)
    for i, q in enumerate(query):
        length = min(ranks, size[q]) if i == 0 else rng.integers(1, min(ranks, size[q]) + 1)
        rank = np.arange(length)
        if holes:
            rank = np.sort(rng.permutation(ranks)[:length]) if i else np.delete(np.arange(ranks), slice(0, -1, 2))
            length = min(len(rank), size[q])
        pair[i, rank[-length:]] = offsets[q] + rng.permutation(size[q])[:length]
    return Rankings(vocabulary, query, pair)


def _click_patterns(ranks: int) -> Iterator[Bool[np.ndarray, " rank"]]:
    """Yield all click patterns on a list."""
    for code in range(2**ranks):
        yield (code >> np.arange(ranks)) % 2 == 1
