"""Perplexity by arithmetic that can be checked by hand, AUROC against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from clickshift import models
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.learners import fit
from clickshift.metrics.calibration import calibration
from clickshift.metrics.click_prediction import (
    auroc,
    click_bits,
    evaluation,
    log_likelihood_per_session,
    perplexity,
    unseen_pair_share,
)
from clickshift.metrics.model_evaluation import evaluate
from clickshift.models.base import ClickModel
from clickshift.simulation import users
from tests.models.random_models import random_neural

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


def by_scikit_learn(prob: np.ndarray, log: Sessions) -> list[float]:
    """The area over all results, then of each rank."""
    weight = np.broadcast_to(log.count[:, None], log.click.shape)
    parts = [log.rankings.shown, *(log.rankings.shown & (np.arange(log.n_ranks) == r) for r in range(log.n_ranks))]
    return [float(roc_auc_score(log.click[part], prob[part], sample_weight=weight[part])) for part in parts]


@pytest.fixture
def weighted(log: Sessions, rng: np.random.Generator) -> Sessions:
    """Lists of 1 to 5 documents; rows stand for 1 to 6 sessions."""
    return Sessions(log.rankings, log.click, rng.integers(1, 7, len(log)))


def a_cascade(corpus: Corpus) -> ClickModel:
    """Probabilities depend on the clicks above."""
    return users.DBN().on(corpus)


def a_table(corpus: Corpus) -> ClickModel:
    """Five click probabilities for all pairs: most results tie with others, within a rank and across ranks."""
    return models.DCTR(corpus.vocabulary, np.append(corpus.label / 5, 0.1).astype(float))


@pytest.mark.parametrize("kind", ["conditional", "marginal"])
@pytest.mark.parametrize("make", [a_cascade, a_table])
def test_auroc_is_that_of_scikit_learn(corpus: Corpus, weighted: Sessions, make, kind) -> None:  # type: ignore[no-untyped-def]
    model = make(corpus)
    conditional = kind == "conditional"
    prob = model.click_prob_given_history(weighted) if conditional else model.click_prob(weighted.rankings)
    result = auroc(model, weighted, kind)
    assert [result.full, *result.at_rank] == pytest.approx(by_scikit_learn(prob, weighted), abs=1e-9)
    assert float(result) == result.full


def test_auroc_by_hand() -> None:
    # .75 on clicks 1, 1 (twice) and 1; .25 on skips 0 (twice) and a click: 4 + 1 clicked, 1 + 2 skipped
    model = models.RCTR(WORDS, np.array([0.75, 0.25]))
    result = auroc(model, LOG)
    # clicks at rank 1: 3 win against 2 skips at rank 2 and tie with 1 at rank 1; the one at rank 2 ties with 2, loses 1
    assert result.full == pytest.approx((3 * (2 + 0.5) + 1 * (2 * 0.5)) / (4 * 3))
    assert result.at_rank == pytest.approx([0.5, 0.5]), "the same probability for all"


def test_auroc_needs_clicks_and_skips() -> None:
    result = auroc(COIN, LOG[:1])  # a click, then a skip
    assert result.full == 1
    assert np.isnan(result.at_rank).all()
    assert np.isnan(auroc(COIN, LOG[1:2]).full), "one skip, and nothing at rank 2"


def test_a_peeking_model_has_no_auroc(corpus: Corpus, log: Sessions) -> None:
    peeking = random_neural("ARM_NC", corpus.vocabulary)
    assert np.isnan(auroc(peeking, log).full)
    assert np.isnan(auroc(peeking, log, "marginal").at_rank).all()
    facts = evaluation(peeking, log, calibrated=True)
    assert np.isnan([facts["auroc"], *facts["auroc_at_rank"], facts["marginal_perplexity"]]).all()
    assert facts["conditional_perplexity"] > 1
    assert "calibration" not in facts
    assert np.isnan(evaluate([peeking, peeking], log).facts()["auroc"])


def test_an_evaluation_says_what_each_metric_says(corpus: Corpus, weighted: Sessions) -> None:
    for model in (a_cascade(corpus), a_table(corpus)):
        facts = evaluation(model, weighted, calibrated=True)
        assert facts["log_likelihood"] == pytest.approx(log_likelihood_per_session(model, weighted), rel=1e-12)
        likelihood = np.average(model.log_likelihood(weighted), weights=weighted.count)
        assert facts["log_likelihood"] == pytest.approx(likelihood, rel=1e-12)
        assert facts["conditional_perplexity_at_rank"] == perplexity(model, weighted).at_rank.tolist()
        marginal = perplexity(model, weighted, kind="marginal")
        assert facts["marginal_perplexity_at_rank"] == pytest.approx(marginal.at_rank.tolist(), rel=1e-12)
        assert facts["auroc_at_rank"] == auroc(model, weighted).at_rank.tolist()
        assert facts["auroc"] == auroc(model, weighted).full
        assert facts["calibration"] == calibration(model, weighted)
        assert "calibration" not in evaluation(model, weighted)


@pytest.mark.parametrize(("make", "calls"), [(a_cascade, ["history", "marginal"]), (a_table, ["history"])])
def test_an_evaluation_asks_the_model_once(corpus: Corpus, log: Sessions, monkeypatch, make, calls) -> None:  # type: ignore[no-untyped-def]
    model, heard = make(corpus), []
    history, marginal = ClickModel.click_prob_given_history, ClickModel.click_prob
    monkeypatch.setattr(
        ClickModel, "click_prob_given_history", lambda self, log: (heard.append("history"), history(self, log))[1]
    )
    monkeypatch.setattr(
        ClickModel, "click_prob", lambda self, lists, **how: (heard.append("marginal"), marginal(self, lists, **how))[1]
    )
    evaluation(model, log, calibrated=True)
    assert heard == calls


def test_the_impossible_has_no_likelihood() -> None:
    never = models.RCTR(WORDS, np.array([0.0, 0.0]))
    assert evaluation(never, LOG)["log_likelihood"] == -np.inf
