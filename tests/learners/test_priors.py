"""A good ranker puts good documents on top: a learned prior must not take that for examination."""

from __future__ import annotations

import numpy as np
import pytest

import clickshift as cs


@pytest.mark.parametrize("model", ["PBM", "UBM"])
def test_the_ranker_is_not_taken_for_examination(model: str) -> None:
    rng = np.random.default_rng(0)
    corpus = cs.builtin_corpus(150, seed=0).stratified(10, rng=rng)
    corpus = corpus.with_queries(corpus.n_candidates == 10)
    policy = cs.PlackettLuce(cs.NoisyOracle(sd=0.5, scale="label"), temperature=0.1)
    log = cs.simulate(corpus, policy, cs.users.PBM(), 100_000, rng=1)
    fitted = cs.fit(model, log)
    table = {(row["rank"], row.get("last_click")): row["estimate"] for row in fitted.examination_table()}
    second = [estimate for (rank, _), estimate in table.items() if rank == 2]
    assert np.mean(second) == pytest.approx(0.5, abs=0.04)  # .42 if all documents share a prior from the start
    truth = cs.users.PBM().on(corpus).relevance()
    relevance = fitted.relevance(fitted.vocabulary.pairs_of(corpus.vocabulary))
    low = corpus.label == 0
    assert relevance[low].mean() == pytest.approx(truth[low].mean(), abs=0.03)
