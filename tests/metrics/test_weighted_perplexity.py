"""Importance weights: exact on a log that holds every list as often as its policy shows it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.metrics.weighted_perplexity import weighted_perplexity
from clickshift.policies.plackett_luce import PlackettLuceRankings
from tests.codes import raises_code

SCORE = np.array([2.0, 1.0, 0.5, -1.0])
ORDERS = np.array(list(permutations(range(4))), np.int32)


@pytest.fixture
def small() -> Corpus:
    vocabulary, _, _ = Vocabulary.of(np.zeros(4, int), np.arange(4))
    return Corpus(vocabulary, np.array([3, 2, 1, 0], np.float32))


def _log(corpus: Corpus, count: np.ndarray) -> Sessions:
    kept = count > 0
    lists = Rankings(corpus.vocabulary, np.zeros(kept.sum(), np.int32), ORDERS[kept])
    return Sessions(lists, np.zeros((kept.sum(), 4), bool), count[kept])


def test_every_list_in_its_share_gives_the_target_policys_own_mean(small: Corpus, rng: np.random.Generator) -> None:
    """Bits that depend on document and rank alone; the target's mean by enumeration of its lists."""
    policies = [PlackettLuceRankings(small.vocabulary, score) for score in (SCORE, -SCORE)]
    every = Rankings(small.vocabulary, np.zeros(24, np.int32), ORDERS)
    logging_prob, target_prob = (np.exp(policy.log_prob(every)) for policy in policies)
    bits = rng.random((4, 4))  # document x rank
    of_list = bits[ORDERS, np.arange(4)]
    log = _log(small, np.rint(logging_prob * 1e12).astype(np.int64))
    logging, target = (policy.placement(ranks=4) for policy in policies)
    found = weighted_perplexity(of_list, log, logging=logging, target=target)
    np.testing.assert_allclose(found.perplexity.at_rank, np.exp2(target_prob @ of_list), rtol=1e-8)
    assert found.unseen_mass == pytest.approx(0, abs=1e-12)
    # the chi-squared divergence of both placements, rank by rank
    share = 1 / (target**2 / logging).sum(axis=0)
    np.testing.assert_allclose(found.effective_sessions / log.total, share, rtol=1e-8)


def test_toward_its_own_policy_nothing_changes(small: Corpus, rng: np.random.Generator) -> None:
    count = rng.integers(1, 9, 24)
    placement = PlackettLuceRankings(small.vocabulary, SCORE).placement(ranks=4)
    bits = rng.random((24, 4))
    found = weighted_perplexity(bits, _log(small, count), logging=placement, target=placement)
    np.testing.assert_allclose(found.perplexity.at_rank, np.exp2(count @ bits / count.sum()))
    np.testing.assert_allclose(found.effective_sessions, count.sum())


def test_what_the_log_never_shows(small: Corpus) -> None:
    """One order only: a uniform target has three of four documents elsewhere at every rank."""
    count = np.zeros(24, np.int64)
    count[0] = 7
    uniform, sorted_once = np.full((4, 4), 0.25), np.eye(4)
    log, bits = _log(small, count), np.full((1, 4), 2.0)
    found = weighted_perplexity(bits, log, logging=sorted_once, target=uniform)
    assert found.unseen_mass == pytest.approx(0.75)
    assert found.perplexity.average == pytest.approx(4)
    elsewhere = weighted_perplexity(bits, log, logging=sorted_once, target=np.roll(np.eye(4), 1, axis=0))
    assert elsewhere.unseen_mass == 1
    assert np.isnan(elsewhere.perplexity.average)
    assert (elsewhere.effective_sessions == 0).all()


def test_placements_must_fit_the_log(small: Corpus) -> None:
    log = _log(small, np.ones(24, np.int64))
    with raises_code("wrong-shape", DataError, expected=(4, 4)):
        weighted_perplexity(np.zeros((24, 4)), log, logging=np.ones((5, 4)), target=np.ones((5, 4)))
