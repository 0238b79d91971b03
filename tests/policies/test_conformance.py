"""Every policy of the registry keeps the rules of `testing.check_policy`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.policies import POLICIES
from clickshift.policies.base import Policy, RankingDistribution
from clickshift.policies.basic import BM25, Feature, NoisyOracle, Oracle, Reversed, Uniform
from clickshift.policies.by_exposure import Placed
from clickshift.policies.lambdamart import LambdaMART
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.testing import check_policy
from tests.policies.small_corpora import small_corpus

CORPUS = small_corpus(4, 30, 3, 1, 12, 7)
CASES = [
    Uniform(),
    Oracle(),
    Feature(1),
    NoisyOracle(sd=0.5, scale="label"),
    Reversed(Oracle("label")),
    LambdaMART(trees=3, n_queries=2, rescale=False),
    PlackettLuce(Uniform()),
    PlackettLuce(Oracle(), 0.1, "log"),
    PlackettLuce(NoisyOracle(sd=0.5, scale="label"), 0.5),
    PlackettLuce(Feature(1), 0.002),
    PlackettLuce(Oracle("label"), 0),
    Placed(PlackettLuce(Feature(2), 0.3), tuple(1 / (1 + abs(k - 3)) for k in range(10))),
    Placed(Oracle(), tuple(range(10)), as_published=True),
]


@pytest.mark.parametrize("policy", CASES, ids=repr)
def test_policies_keep_the_rules(policy: Policy) -> None:
    """Of 8,000 draws, a list of 4 documents that is drawn twice as often as it should is 18 standard errors off."""
    check_policy(policy, CORPUS, draws=8000)


def test_the_registry_names_what_exists() -> None:
    classes = {name: getattr(import_module(path.split(":")[0]), path.split(":")[1]) for name, path in POLICIES.items()}
    assert [cls.__name__ for cls in classes.values()] == list(POLICIES)
    assert {type(policy) for policy in [*CASES, BM25()]} == set(classes.values())


class Lying(RankingDistribution):
    """A distribution that breaks one rule."""

    def __init__(self, inner: RankingDistribution, rule: str) -> None:
        self.inner, self.rule, self.vocabulary = inner, rule, inner.vocabulary

    def draw(self, query, *, ranks, key, first=0):
        other = Uniform().on(Corpus(self.vocabulary, np.zeros(self.vocabulary.n_pairs, np.float32)))
        source = other if self.rule == "draws" else self.inner
        return source.draw(query, ranks=ranks, key=key + (first if self.rule == "blocks" else 0), first=first)

    def log_prob(self, rankings):
        log_prob = self.inner.log_prob(rankings)
        return log_prob + 0.01 if self.rule == "probabilities" else log_prob

    def placement(self, query=None, *, ranks=10):
        placed = self.inner.placement(query, ranks=ranks)
        return placed[:, ::-1].copy() if self.rule == "placement" else placed


@dataclass(frozen=True)
class LyingPolicy:
    rule: str

    def on(self, corpus: Corpus) -> RankingDistribution:
        return Lying(PlackettLuce(Oracle(), 0.5).on(corpus), self.rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("probabilities", "must sum to 1"),
        ("placement", "placement must equal the sum"),
        ("draws", "drawn too often"),
        ("blocks", "must depend on the key"),
    ],
)
def test_a_policy_that_lies_is_caught(rule: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_policy(LyingPolicy(rule), CORPUS, draws=8000)


def test_a_policy_that_tells_the_truth_is_not() -> None:
    check_policy(LyingPolicy("nothing"), CORPUS)
