"""Metrics of logs with holes, against loops over the results that are shown."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import clickshift as cs
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.metrics.calibration import calibration
from clickshift.metrics.click_prediction import auroc, click_bits, evaluation, log_likelihood_per_session, perplexity
from clickshift.metrics.log_comparison import log_difference, logged_rank
from clickshift.metrics.weighted_perplexity import weighted_perplexity
from tests.holes import log_with_holes


@pytest.fixture(scope="module")
def holed() -> Sessions:
    rng = np.random.default_rng(5)
    log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.DBN(), 300, ranks=4, rng=1)
    log = Sessions(log.rankings, log.click, rng.integers(1, 4, 300))
    return log_with_holes(log, rng, share=0.3)


@pytest.fixture(scope="module")
def model(holed: Sessions) -> cs.ClickModel:
    fitted = cs.fit("DBN", holed)
    assert isinstance(fitted, cs.ClickModel)
    return fitted


def results(log: Sessions) -> list[tuple[int, int]]:
    return [(i, k) for i, k in product(range(len(log)), range(log.n_ranks)) if log.rankings.shown[i, k]]


def test_a_hole_costs_no_bits_and_counts_at_no_rank(holed: Sessions, model: cs.ClickModel) -> None:
    prob = model.click_prob_given_history(holed)
    bits, shown, nats = np.zeros(4), np.zeros(4), 0.0
    for i, k in results(holed):
        p = prob[i, k] if holed.click[i, k] else 1 - prob[i, k]
        bits[k] -= holed.count[i] * np.log2(p)
        shown[k] += holed.count[i]
        nats += holed.count[i] * np.log(p)
    assert perplexity(model, holed).at_rank == pytest.approx(2 ** (bits / shown))
    assert log_likelihood_per_session(model, holed) == pytest.approx(nats / holed.total)
    facts = evaluation(model, holed)
    assert facts["conditional_perplexity_at_rank"] == pytest.approx(2 ** (bits / shown))
    ctr = (holed.count @ holed.click) / shown
    entropy = -(ctr * np.log2(ctr) + (1 - ctr) * np.log2(1 - ctr))
    assert facts["baseline_perplexity_at_rank"] == pytest.approx(2**entropy)


def test_pairs_of_auroc_and_deciles_are_of_results(holed: Sessions, model: cs.ClickModel) -> None:
    prob = model.click_prob_given_history(holed)
    clicked, skipped = (
        [(prob[i, k], holed.count[i]) for i, k in results(holed) if holed.click[i, k] == wanted]
        for wanted in (True, False)
    )
    wins = sum(n * m * ((p > q) + (p == q) / 2) for p, n in clicked for q, m in skipped)
    pairs = sum(n for _, n in clicked) * sum(m for _, m in skipped)
    assert auroc(model, holed).full == pytest.approx(wins / pairs)
    rows = [row for row in calibration(model, holed) if row["by"] == "rank"]
    assert [row["impressions"] for row in rows] == holed.impressions_by_rank().tolist()
    deciles = [row["impressions"] for row in calibration(model, holed) if row["by"] == "decile"]
    assert sum(deciles) == holed.impressions_by_rank().sum()


def test_empty_ranks_below_all_lists_change_nothing(holed: Sessions, model: cs.ClickModel) -> None:
    r = holed.rankings
    wider = Sessions(
        Rankings(
            r.vocabulary,
            r.query,
            np.pad(r.pair, ((0, 0), (0, 2)), constant_values=UNSEEN),
            np.pad(r.shown, ((0, 0), (0, 2))),
        ),
        np.pad(holed.click, ((0, 0), (0, 2))),
        holed.count,
    )
    for metric in (lambda log: perplexity(model, log).average, lambda log: auroc(model, log).full):
        assert metric(wider) == metric(holed)
    assert log_difference(holed, wider)["lists_in_common"] == 1
    assert calibration(model, wider) == calibration(model, holed)


def test_lists_with_holes_at_other_ranks_are_not_in_common() -> None:
    words, _, _ = cs.Vocabulary.of([0, 0], ["a", "b"])
    shown = (np.array([[0, -1, 1], [0, -1, 1]]), np.array([[0, -1, 1], [0, 1, -1]]))
    train, test = (Sessions(Rankings(words, np.zeros(2, int), pair), np.zeros((2, 3))) for pair in shown)
    assert log_difference(train, test)["lists_in_common"] == 0.5
    assert logged_rank(test).tolist() == [0, -1.5], "ranks are those of the list with its holes, from 0"


def test_weighted_perplexity_weighs_results_by_their_true_ranks(holed: Sessions, model: cs.ClickModel) -> None:
    rng = np.random.default_rng(2)
    logging, target = rng.random((2, holed.vocabulary.n_pairs, holed.n_ranks))
    bits, weights = np.zeros(4), np.zeros(4)
    of_result = click_bits(model, holed)
    for i, k in results(holed):
        weight = holed.count[i] * target[holed.rankings.pair[i, k], k] / logging[holed.rankings.pair[i, k], k]
        bits[k] += weight * of_result[i, k]
        weights[k] += weight
    found = weighted_perplexity(of_result, holed, logging=logging, target=target)
    assert found.perplexity.at_rank == pytest.approx(2 ** (bits / weights))
