from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.errors import DataError
from clickshift.metrics.click_prediction import perplexity
from clickshift.policies.basic import NoisyOracle, Oracle, Uniform
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.simulation import users
from clickshift.simulation.simulate import ObservedFrequencies, PowerLaw, simulate
from tests.codes import raises_code

POLICY = PlackettLuce(NoisyOracle(), temperature=0.1)


@pytest.mark.parametrize("user", [users.DBN(), users.CoCM(), users.PBM()])
def test_the_same_seed_gives_the_same_log_on_any_number_of_threads(
    user: users.User, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("CLICKSHIFT_THREADS", threads)
        logs.append(simulate(corpus, POLICY, user, 70_000, queries=PowerLaw(), rng=3))
    for other in logs[1:]:
        for part in ("query", "pair", "shown", "log_prob"):
            assert (getattr(other.rankings, part) == getattr(logs[0].rankings, part)).all()
        assert (other.click == logs[0].click).all()
    assert (simulate(corpus, POLICY, user, 70_000, queries=PowerLaw(), rng=4).click != logs[0].click).any()


def test_propensities_are_those_of_the_policy(corpus: Corpus) -> None:
    log = simulate(corpus, POLICY, users.DBN(), 500, rng=0)
    assert log.rankings.log_prob == pytest.approx(POLICY.on(corpus).log_prob(log.rankings), abs=1e-9)


def test_lists_are_as_long_as_there_are_candidates(corpus: Corpus) -> None:
    log = simulate(corpus, Uniform(), users.DBN(), 500, ranks=5, rng=0)
    assert (log.rankings.length == np.minimum(corpus.n_candidates, 5)[log.rankings.query]).all()


def test_clicks_follow_the_user(corpus: Corpus) -> None:
    model = users.MixtureDBN().on(corpus)
    log = simulate(corpus, Oracle(), model, 200_000, rng=0)
    expected = model.click_prob(log.rankings).sum(axis=0) / log.impressions_by_rank()
    error = np.sqrt(expected * (1 - expected) / log.impressions_by_rank())
    assert (np.abs(log.ctr_by_rank() - expected) < 5 * error).all()


def test_the_user_predicts_its_own_clicks_best(corpus: Corpus) -> None:
    makers = {"DBN": users.DBN(), "CoCM": users.CoCM(), "PBM": users.PBM(), "Carousel": users.Carousel(columns=3)}
    for name, user in makers.items():
        log = simulate(corpus, POLICY, user, 50_000, rng=1)
        value = {other: perplexity(maker.on(corpus), log).average for other, maker in makers.items()}
        assert min(value, key=value.__getitem__) == name


def test_queries_arrive_by_their_law(corpus: Corpus) -> None:
    law = PowerLaw(1.12, seed=5)
    probs = law.probs(corpus.n_queries)
    assert np.sort(probs)[::-1] == pytest.approx(np.arange(1, 31.0) ** -1.12 / (np.arange(1, 31.0) ** -1.12).sum())
    log = simulate(corpus, Uniform(), users.DBN(), 100_000, queries=law, rng=0)
    share = np.bincount(log.rankings.query, minlength=30) / 100_000
    assert (np.abs(share - probs) < 5 * np.sqrt(probs / 100_000)).all()
    again = simulate(corpus, Uniform(), users.DBN(), 100, queries=ObservedFrequencies(np.eye(30)[7]), rng=0)
    assert (again.rankings.query == 7).all()
    with raises_code("unequal-lengths", DataError, expected=30, count=2):
        simulate(corpus, Uniform(), users.DBN(), 100, queries=ObservedFrequencies(np.ones(2)), rng=0)


def test_progress_is_told(corpus: Corpus) -> None:
    done: list[int] = []
    simulate(corpus, Uniform(), users.DBN(), 100_000, rng=0, progress=done.append)
    assert sum(done) == 100_000
    assert len(done) > 1


def test_a_log_has_at_least_one_session(corpus: Corpus) -> None:
    with raises_code("no-sessions", DataError, sessions=0):
        simulate(corpus, Uniform(), users.DBN(), 0, rng=0)
    with raises_code("too-many-sessions", DataError, sessions=10**29):
        simulate(corpus, Uniform(), users.DBN(), 10**29, rng=0)
