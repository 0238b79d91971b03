"""Attractiveness shared between queries: against its formula, on planted variants, and on unrelated queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom

import clickshift as cs
from benchmarks.query_groups import measure
from clickshift.errors import CapabilityError
from clickshift.learners import shared_attractiveness
from tests.codes import raises_code

COUNTS = {("q", "a"): (20, 8), ("q!", "a"): (4, 0), ("q?", "a"): (10, 5), ("q", "b"): (30, 3), ("other", "a"): (9, 1)}


def log_of(counts: dict[tuple[str, str], tuple[int, int]]) -> pd.DataFrame:
    rows = [(query, [doc], [int(k < clicks)]) for (query, doc), (shown, clicks) in counts.items() for k in range(shown)]
    return pd.DataFrame(rows, columns=["query", "docs", "clicks"])


@pytest.mark.parametrize("strength", [0.0, 3.0, 50.0])
def test_others_add_trials_at_their_rate(strength: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_attractiveness, "_strength", lambda *_: strength)
    log = log_of(COUNTS)
    model = cs.fit("dCTR", log)
    shared = cs.share_attractiveness(model, cs.group_queries(log))
    rate = (17 + 0.5) / (73 + 1)
    prior, vocabulary = (1.0, 1 / rate), model.vocabulary
    for p in range(vocabulary.n_pairs):
        query, doc = (
            str(ids[n])
            for ids, n in (
                (vocabulary.query_ids, vocabulary.pair_query[p]),
                (vocabulary.doc_ids, vocabulary.pair_doc[p]),
            )
        )
        others = [n for (q, d), n in COUNTS.items() if d == doc and q != query and "other" not in {q, query}]
        trials, successes = sum(n for n, _ in others), sum(y for _, y in others)
        added = strength * trials / (strength + trials) if trials else 0.0
        n, y = COUNTS[query, doc]
        expected = (y + prior[0] + (added * successes / trials if trials else 0)) / (n + prior[1] + added)
        assert shared.ctr[p] == pytest.approx(expected)
        assert shared.evidence.effective_counts["relevance"][1][p] == pytest.approx(n + added)
    assert shared.evidence.sharing == strength


def test_the_strength_maximises_the_likelihood_of_each_pair_given_the_others() -> None:
    rng = np.random.default_rng(0)
    rate = np.repeat(rng.beta(1, 4, 300), 4)
    own = np.clip(rng.beta(20 * rate + 1e-3, 20 * (1 - rate) + 1e-3), 1e-3, 1 - 1e-3)
    trials = rng.integers(1, 40, 1200).astype(float)
    successes = rng.binomial(trials.astype(int), own).astype(float)
    sums = [np.repeat(values.reshape(-1, 4).sum(1), 4) - values for values in (successes, trials)]
    prior = (np.full(1200, 0.2), np.full(1200, 1.0))
    found = shared_attractiveness._strength(successes, trials, *sums, *prior)

    def log_likelihood(s: float) -> float:
        t = s * sums[1] / (s + sums[1])
        a, b = 0.2 + t * sums[0] / sums[1], 0.8 + t * (1 - sums[0] / sums[1])
        return float(betabinom.logpmf(successes, trials, a, b).sum())

    assert log_likelihood(found) >= max(log_likelihood(s) for s in (0.1, found / 1.5, found * 1.5, 1000.0))
    assert 5 < found < 60, "the planted spread is that of 20 trials"


@pytest.mark.parametrize("model", ["PBM", "dCTR"])
def test_variants_gain_and_unrelated_queries_lose_nothing(model: str) -> None:
    alone, groups, at_random = measure(30, 5, 4000, 0.3, model, seed=1)
    assert groups["log_likelihood"] > alone["log_likelihood"] + 0.02
    assert groups["tail_ndcg"] > alone["tail_ndcg"] + 0.1
    assert at_random["log_likelihood"] > alone["log_likelihood"] - 0.002
    assert at_random["sharing"] < 1
    assert groups["sharing"] > 5


@pytest.mark.parametrize("name", ["PBM", "UBM", "DBN", "DCM", "dCTR"])
def test_models_keep_their_other_parameters_and_are_saved(name: str, tmp_path: Path) -> None:
    corpus = cs.builtin_corpus(queries=6)
    frame = cs.simulate(corpus, cs.Uniform(), cs.users.DBN(), 3000, rng=0).to_pandas()
    rng = np.random.default_rng(0)
    frame["query"] = [f"{'Query' if rng.random() < 0.3 else 'query'} {q}" for q in frame["query"]]
    groups = cs.group_queries(frame)
    assert groups.to_dict()["grouped_queries"] == 12
    model = cs.fit(name, frame, groups=groups)
    alone = cs.fit(name, frame)
    assert model.evidence.sharing > 0
    assert np.isnan(alone.evidence.sharing)
    for parameter in ("examination", "satisfaction", "continuation"):
        if hasattr(model, parameter):
            assert np.array_equal(getattr(model, parameter), getattr(alone, parameter))
    low, high, _ = model.intervals("relevance")
    own = np.diff(alone.intervals("relevance")[:2], axis=0)[0][:-1]
    assert np.nanmean((high - low)[:-1]) < np.nanmean(own), "others add information"
    assert cs.judgments(model).table.num_rows > cs.judgments(alone).table.num_rows
    cs.save_model(model, tmp_path / "model")
    loaded = cs.load_model(tmp_path / "model")
    assert loaded.evidence.sharing == model.evidence.sharing
    assert np.array_equal(loaded.relevance(), model.relevance())


def test_models_without_attractiveness_say_so() -> None:
    log = log_of(COUNTS)
    for name in ("rCTR", "COEC", "TopPop"):
        with raises_code("no-attractiveness", CapabilityError, model=name):
            cs.fit(name, log, groups=pd.DataFrame({"query": ["q", "q!"], "group": ["q", "q"]}))
