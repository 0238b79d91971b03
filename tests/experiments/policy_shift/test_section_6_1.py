"""Section 6.1 of the policy-shift paper on the real MSLR sample, as far as 84 usable queries allow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.data.sessions import Rankings, Sessions
from clickshift.models.base import ClickModel
from tests.golden import golden

GOLDEN = golden("section_6_1")


@pytest.fixture(scope="module")
def mslr(shared_data: Path) -> cs.Corpus:
    corpus = cs.read_corpus(sorted((shared_data / "mslr_sample").glob("*.txt.gz")), cache=False)
    return corpus.with_queries(corpus.usable_queries())


def oracle(corpus: cs.Corpus, user: cs.users.User) -> tuple[float, float]:
    values = []
    for seed in range(3):
        ten = corpus.ladder(10, rng=np.random.default_rng(seed))
        model = user.on(ten)
        training = cs.PlackettLuce(cs.Oracle(), temperature=0.5, scores="log")
        ind = cs.simulate(ten, training, model, 50_000, rng=seed)
        ood = cs.simulate(ten, cs.Reversed(cs.Oracle()), model, 50_000, rng=100 + seed)
        values.append((cs.perplexity(model, ind).average, cs.perplexity(model, ood).average))
    return tuple(np.mean(values, axis=0))


def exact_perplexity(model: ClickModel, lists: Rankings) -> float:
    """Expected perplexity given clicks above: 2 to the expected code length, over all click patterns of each list."""
    patterns = (np.arange(1 << lists.n_ranks)[:, None] >> np.arange(lists.n_ranks)) % 2 == 1
    bits = np.zeros(lists.n_ranks)
    for k in range(len(lists)):
        sessions = Sessions(lists[np.full(len(patterns), k)], patterns)
        given = model.click_prob_given_history(sessions)
        likelihood = np.where(patterns, given, 1 - given)
        prob = likelihood.prod(axis=1)
        assert prob.sum() == pytest.approx(1.0, abs=1e-9)
        bits -= prob @ np.log2(np.maximum(likelihood, 1e-300))
    return float(np.mean(2 ** (bits / len(lists))))


@pytest.mark.parametrize("reading", GOLDEN["CoCM"]["readings"])
def test_each_reading_of_cocm_has_its_exact_oracle(reading: str, mslr: cs.Corpus) -> None:
    ten = mslr.ladder(10, rng=np.random.default_rng(0))
    model, queries = cs.users.CoCM(reading=reading).on(ten), np.arange(ten.vocabulary.n_queries)
    assert len(queries) == 84
    training = cs.PlackettLuce(cs.Oracle(), temperature=0.5, scores="log").on(ten)
    ind = exact_perplexity(model, training.sample(queries, ranks=10, rng=1))
    ood = exact_perplexity(model, cs.Reversed(cs.Oracle()).on(ten).sample(queries, ranks=10, rng=2))
    assert (ind, ood) == pytest.approx(GOLDEN["CoCM"]["readings"][reading], abs=0.001)
    assert (ind > ood) == (reading == "reference-code"), "the published oracle has ind above ood"


def test_dbn_oracle(mslr: cs.Corpus) -> None:
    case = GOLDEN["DBN"]
    ind, ood = oracle(mslr, cs.users.DBN(satisfaction=case["satisfaction"]))
    assert (ind, ood) == pytest.approx(case["measured"], abs=0.002)
    assert (ind, ood) == pytest.approx(case["published"], abs=0.02)
    assert ind < ood, "under DBN users the reversed lists are harder to predict, as published"


def test_the_printed_sigma_does_not_give_the_published_table(mslr: cs.Corpus) -> None:
    ind, _ = oracle(mslr, cs.users.DBN(satisfaction=0.9))
    assert ind < GOLDEN["DBN"]["published"][0] - 0.05


def test_cocm_oracle(mslr: cs.Corpus) -> None:
    case = GOLDEN["CoCM"]
    found = oracle(mslr, cs.users.CoCM())
    assert found == pytest.approx(case["measured"], abs=0.002)
    assert found == pytest.approx(case["published"], abs=0.02)
