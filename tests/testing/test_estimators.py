"""Every registered estimator keeps the rules of `testing.check_estimator`, and estimators that do not are refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from clickshift.ope import Estimator, IPWeights
from clickshift.ope.estimators import WEIGHTS
from clickshift.testing import check_estimator, estimators
from clickshift.testing.estimators import ClickAssumption

ASSUMES: dict[str, ClickAssumption] = {
    "List": "nothing",
    "RIPS": "documents-above",
    "IP": "item-position",
    "PI": "item-position",
    "PBM": "position-based",
    "CIPS": "position-based",
    "Item": "document",
    "RCTR": "rank",
}
"""What each kind of weights assumes."""
FORMS = [
    form + name for name in WEIGHTS for form in ("", "SN-", "DR-", "DR-SN-") if not (name == "PI" and "SN" in form)
]


@pytest.mark.parametrize("name", FORMS)
def test_registered_estimators_keep_the_rules(name: str) -> None:
    check_estimator(name, ASSUMES[name.split("-")[-1]])


def test_the_direct_method_keeps_the_rules_with_the_true_model() -> None:
    check_estimator("DM", "position-based")
    check_estimator(lambda model: Estimator(None, model=model), "document")


@pytest.mark.parametrize(("name", "wider"), [("List", "rank"), ("RIPS", "item-position"), ("IP", "document")])
def test_an_estimator_is_right_under_stronger_assumptions(name: str, wider: ClickAssumption) -> None:
    check_estimator(name, wider, logs=5)


@pytest.mark.parametrize(
    ("name", "assumes"),
    [
        ("IP", "nothing"),
        ("RIPS", "nothing"),
        ("PBM", "item-position"),
        ("Item", "position-based"),
        ("RCTR", "document"),
        ("PI", "documents-above"),
        ("DM", "item-position"),
    ],
)
def test_an_estimator_is_refused_where_its_assumption_fails(name: str, assumes: ClickAssumption) -> None:
    with pytest.raises(AssertionError, match=rf"^{name} must be unbiased where clicks depend on {assumes}"):
        check_estimator(name, assumes)


@dataclass(frozen=True)
class Broken:
    """IP weights with a fault."""

    fault: str
    name: ClassVar[str] = "IP"
    assumption: ClassVar[str] = "a click depends only on the document and its rank"
    needs_linear: ClassVar[bool] = True

    def units(self, log, probabilities, logging, target=None):
        units = IPWeights().units(log, probabilities, logging, target)
        if self.fault == "scale":
            return replace(units, target=1.01 * units.target)
        if self.fault == "rank":
            return replace(units, target=probabilities.placement[log.cell_pair, (log.cell_rank + 1) % log.n_ranks])
        if self.fault == "mass":
            return replace(units, mass=0 * units.mass + 0.2)
        if self.fault == "ceiling":
            return replace(units, max_reward=0.1 * units.max_reward)
        return units


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("scale", "unbiased"),
        ("rank", "unbiased"),
        ("mass", "lost mass of IP must be a share"),
        ("ceiling", "the range of IP must contain"),
    ],
)
def test_broken_weights_are_refused(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_estimator(Broken(fault), "item-position")


def test_the_same_weights_without_a_fault_pass() -> None:
    check_estimator(Broken("none"), "item-position")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("order", "must not depend on the order of sessions"),
        ("errors", "standard errors of IP must match"),
        ("sample", "unbiased over 20 logs"),
        ("logged", "a target that is the logging policy"),
    ],
)
def test_broken_estimates_are_refused(fault: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = estimators._estimates

    def wrong(estimator, log, target, *args, **kwargs):
        one = right(estimator, log, target, *args, **kwargs)[-1]
        sampled = len(log) == 2000
        if fault == "order":
            one = replace(one, value=one.value + 1e-5 * log.rankings.pair[:20, 0].sum())
        elif fault == "errors":
            one = replace(one, error=3 * one.error)
        elif fault == "sample":
            one = replace(one, value=one.value * (1.2 if sampled else 1))
        elif fault == "logged":
            one = replace(one, value=one.value + 1e-3 * bool((target.weight > 0).all()))
        return (one,)

    monkeypatch.setattr(estimators, "_estimates", wrong)
    with pytest.raises(AssertionError, match=message):
        check_estimator("IP", "item-position")


def test_the_world_is_what_it_says() -> None:
    """The reward of a policy against a loop over lists, and a log that holds each click as often as expected."""
    world = estimators._World.random("nothing", np.random.default_rng(3))
    log = world.expected_log(np.random.default_rng(0))
    expected = 0.0
    for query in range(2):
        share = world.logged[world.lists.query == query].sum() / world.logged.sum()
        for row in np.flatnonzero(world.lists.query == query):
            expected += share * world.target[row] * (world.clicks[row] / 60 @ [1.0, 0.25, 0.5])
    assert world.reward((1.0, 0.25, 0.5), world.target_policy) == pytest.approx(expected, rel=1e-12)
    for row in range(len(world.lists)):
        same = (log.rankings.pair == world.lists.pair[row]).all(axis=1) & (log.rankings.query == world.lists.query[row])
        assert log.count[same].sum() == 60 * world.logged[row]
        assert (log.count[same] @ log.click[same] == world.clicks[row] * world.logged[row]).all()
