"""Every policy of the registry keeps the rules of `conformance`."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from conformance import check_policy, small_corpus

from clickshift.policies import POLICIES
from clickshift.policies.base import Policy
from clickshift.policies.lambdamart import LambdaMART
from clickshift.policies.placed import Placed
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.policies.scored import BM25, Feature, NoisyOracle, Oracle, Reversed, Uniform

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
def test_policies_keep_the_rules(policy: Policy, rng: np.random.Generator) -> None:
    check_policy(policy, small_corpus(4, 30, 3, 1, 12, 7), rng)


def test_the_registry_names_what_exists() -> None:
    classes = {name: getattr(import_module(path.split(":")[0]), path.split(":")[1]) for name, path in POLICIES.items()}
    assert [cls.__name__ for cls in classes.values()] == list(POLICIES)
    assert {type(policy) for policy in [*CASES, BM25()]} == set(classes.values())
