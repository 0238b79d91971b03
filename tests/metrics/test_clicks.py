"""Perplexity by arithmetic that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift import models
from clickshift.learners import fit
from clickshift.metrics.clicks import click_bits, evaluation, perplexity, unseen_pair_share
from clickshift.sessions import Rankings, Sessions
from clickshift.vocabulary import UNSEEN, Vocabulary

WORDS = Vocabulary.of([1, 1, 2], [1, 2, 3])[0]
LOG = Sessions(
    Rankings(WORDS, np.array([0, 1, 0]), np.array([[0, 1], [2, UNSEEN], [1, 0]])),
    np.array([[1, 0], [0, 0], [1, 1]]),
    np.array([2, 1, 1]),
)
COIN = models.RCTR(WORDS, np.array([0.5, 0.25]))


def test_perplexity_is_two_to_the_mean_bits_per_rank() -> None:
    result = perplexity(COIN, LOG)
    # rank 1: 4 sessions, 1 bit each; rank 2: 3 sessions, twice -log2(.75) and once -log2(.25)
    assert result.at_rank == pytest.approx([2.0, 2 ** ((2 * -np.log2(0.75) + 2) / 3)])
    assert result.average == pytest.approx(result.at_rank.mean())
    assert float(result) == result.average


def test_sessions_that_do_not_show_a_rank_do_not_count_there() -> None:
    assert click_bits(COIN, LOG)[1, 1] == 0
    short = LOG[1:2]
    result = perplexity(COIN, short)
    assert result.at_rank[0] == 2
    assert np.isnan(result.at_rank[1])
    assert result.average == 2, "ranks that nobody saw are left out of the mean"


def test_merged_sessions_count_with_their_weight() -> None:
    apart = LOG[np.array([0, 0, 1, 2])]
    apart = Sessions(apart.rankings, apart.click)
    assert perplexity(COIN, apart).at_rank == pytest.approx(perplexity(COIN, LOG).at_rank)
    assert evaluation(COIN, apart)["log_likelihood"] == pytest.approx(evaluation(COIN, LOG)["log_likelihood"])


def test_the_clip_decides_what_the_impossible_costs() -> None:
    never = models.RCTR(WORDS, np.array([0.0, 0.0]))
    one = LOG[:1]
    assert perplexity(never, one, clip=1e-10).at_rank[0] == pytest.approx(1e10)
    assert perplexity(never, one, clip=1e-3).at_rank == pytest.approx([1e3, 1 / (1 - 1e-3)])


def test_conditional_and_marginal_differ_where_history_matters() -> None:
    cascade = models.CM(WORDS, np.array([0.5, 0.5, 0.5, 0.5]))
    log = LOG[:1]  # a click, then a skip
    assert perplexity(cascade, log).at_rank == pytest.approx([2, 1], rel=1e-6)
    assert perplexity(cascade, log, kind="marginal").at_rank == pytest.approx([2, 1 / 0.75])


def test_unseen_pairs_are_counted_by_impressions() -> None:
    model = fit("dCTR", LOG[:1])
    assert unseen_pair_share(model, LOG) == pytest.approx(1 / 7), "of 7 impressions, the one of document 3"
    assert unseen_pair_share(COIN, LOG) == 0


def test_log_likelihood_is_per_session() -> None:
    facts = evaluation(COIN, LOG)
    total = 4 * np.log(0.5) + 2 * np.log(0.75) + np.log(0.25)
    assert facts["log_likelihood"] == pytest.approx(total / 4)
    assert facts["sessions"] == 4
