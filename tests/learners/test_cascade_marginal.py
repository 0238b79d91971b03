"""Continuation of cascade models with the parameters of documents integrated out, against integration by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

import clickshift as cs
from clickshift.counts.cascade import Cascade
from clickshift.learners import _cascade_fit, _rank_groups
from clickshift.learners._cascade_fit import CascadeFamily
from clickshift.learners._cascade_models import DBNFamily, DCMFamily
from clickshift.learners._priors import SHARED_PRIOR
from clickshift.learners._rank_groups import _MEAN_PRIOR, RankGroups

QUERIES, SESSIONS = 60, 12


def two_results(seed: int, continuation: float) -> tuple[cs.Sessions, np.ndarray]:
    """A log of one list of two results per query (DCM), and its sessions by query and clicks (first, second)."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(0.1, 0.8, (QUERIES, 2))
    query = np.repeat(np.arange(QUERIES), SESSIONS)
    first = rng.random(len(query)) < a[query, 0]
    second = (rng.random(len(query)) < a[query, 1]) & (~first | (rng.random(len(query)) < continuation))
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(QUERIES), 2), np.arange(2 * QUERIES))[0]
    pair = (2 * query[:, None] + np.arange(2)).astype(np.int32)
    click = np.stack([first, second], axis=1)
    log = cs.Sessions(cs.Rankings(vocabulary, query.astype(np.int32), pair), click)
    counts = np.zeros((QUERIES, 2, 2))
    np.add.at(counts, (query, first.astype(int), second.astype(int)), 1)
    return log, counts


def by_quadrature(counts: np.ndarray, groups: RankGroups) -> float:
    """The continuation whose likelihood is largest, with both attractivenesses of each query integrated out."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    weights = weights / weights.sum()
    own = groups.group[:2]  # all queries are alike
    sd = 1 / np.sqrt(groups.precision[:2])

    def loss(theta: np.ndarray) -> float:
        c, means = expit(theta[0]), theta[1:]
        one, two = (expit(means[own[k]] + sd[k] * nodes) for k in range(2))
        one, two = one[:, None], two[None, :]
        logs = (
            counts[:, 0, 0, None, None] * np.log((1 - one) * (1 - two))
            + counts[:, 0, 1, None, None] * np.log((1 - one) * two)
            + counts[:, 1, 0, None, None] * np.log(one * (1 - c * two))
            + counts[:, 1, 1, None, None] * np.log(one * c * two)
        )
        top = logs.max(axis=(1, 2))
        inside = np.einsum("qij,i,j->q", np.exp(logs - top[:, None, None]), weights, weights)
        prior = SHARED_PRIOR.log_density(expit(theta[:1])) + _MEAN_PRIOR.log_density(expit(means))
        return -float((top + np.log(inside)).sum() + prior)

    start = np.concatenate([[0.0], np.full(groups.n, -0.5)])
    return float(minimize(loss, start, method="BFGS").x[0])


def centre(log: cs.Sessions, monkeypatch: pytest.MonkeyPatch) -> tuple[float, RankGroups]:
    """The logit of continuation at the first rank around which its interval lies, and the groups of documents."""
    seen: list[RankGroups] = []
    group = CascadeFamily._usual_rank_groups

    def recorded(*given: object) -> RankGroups:
        seen.append(group(*given))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(CascadeFamily, "_usual_rank_groups", recorded)
    found = DCMFamily(Cascade.of(log), None).fit(tolerance=1e-6, max_steps=1000)
    assert found.counts is not None
    yes, trials = found.counts.shared[:, 0]
    return float(logit(yes / trials)), seen[0]


def test_continuation_is_that_of_the_likelihood_with_attractiveness_integrated_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twelve sessions of each of sixty queries: the joint maximum is far from the integrated one."""
    monkeypatch.setattr(_cascade_fit, "_NEUTRAL_TOLERANCE", 1e-9)
    for seed in range(3):
        log, counts = two_results(seed, 0.5)
        found, groups = centre(log, monkeypatch)
        exact = by_quadrature(counts, groups)
        monkeypatch.setattr(_cascade_fit, "_MAX_DERIVATIVES", 0)
        joint, _ = centre(log, monkeypatch)
        monkeypatch.setattr(_cascade_fit, "_MAX_DERIVATIVES", 24)
        assert abs(found - exact) < 0.25 * abs(joint - exact)


def two_results_in_both_orders(seed: int, continuation: float) -> tuple[cs.Sessions, np.ndarray]:
    """A log of two results per query in either order (DBN), and its sessions by query, order and clicks."""
    rng = np.random.default_rng(seed)
    a, s = rng.uniform(0.1, 0.8, (2, QUERIES, 2))
    query = np.repeat(np.arange(QUERIES), 10 * SESSIONS)
    order = rng.integers(0, 2, len(query))
    first = rng.random(len(query)) < a[query, order]
    goes_on = rng.random(len(query)) < continuation * np.where(first, 1 - s[query, order], 1)
    second = goes_on & (rng.random(len(query)) < a[query, 1 - order])
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(QUERIES), 2), np.arange(2 * QUERIES))[0]
    pair = (2 * query[:, None] + np.stack([order, 1 - order], axis=1)).astype(np.int32)
    log = cs.Sessions(cs.Rankings(vocabulary, query.astype(np.int32), pair), np.stack([first, second], axis=1))
    counts = np.zeros((QUERIES, 2, 2, 2))
    np.add.at(counts, (query, order, first.astype(int), second.astype(int)), 1)
    return log, counts


def dbn_by_quadrature(counts: np.ndarray, groups: RankGroups, precision: float) -> float:
    """The continuation whose likelihood is largest, with the parameters of both results of a query integrated out."""
    z = np.linspace(-4.5, 4.5, 61)
    log_weight, sd = -(z**2) / 2 - np.log(np.exp(-(z**2) / 2).sum()), 1 / np.sqrt(groups.precision[0])

    def loss(theta: np.ndarray) -> float:
        g, a, s = expit(theta[0]), expit(theta[1] + sd * z), expit(theta[2] + z / np.sqrt(precision))
        logs = np.zeros((QUERIES, len(z), len(z))) + log_weight[:, None] + log_weight  # by those of both results
        for order in range(2):
            (skips, skip_click), (left, both) = np.moveaxis(counts[:, order], 0, 2)
            # the satisfaction of the first result, integrated out for each attractiveness of the second one
            on = g * (1 - s)
            inside = left[:, None, None] * np.log(1 - np.outer(a, on)) + both[:, None, None] * np.log(on)
            follows = np.logaddexp.reduce(inside + log_weight, axis=2)
            first = np.outer(skips + skip_click, np.log(1 - a)) + np.outer(left + both, np.log(a))
            second = np.outer(skips, np.log(1 - g * a)) + np.outer(skip_click, np.log(g * a))
            second += np.outer(both, np.log(a)) + follows
            one, two = (first, second) if order == 0 else (second, first)
            logs += one[:, :, None] + two[:, None, :]
        prior = SHARED_PRIOR.log_density(expit(theta[:1])) + _MEAN_PRIOR.log_density(expit(theta[1:]))
        return -float(np.logaddexp.reduce(logs, axis=(1, 2)).sum() + prior)

    return float(minimize(loss, np.array([1.0, -0.5, -0.5]), method="BFGS", options={"gtol": 1e-3}).x[0])


def test_continuation_of_dbn_is_that_with_satisfaction_integrated_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The joint maximum, with the weak prior of satisfaction, is too low. Entries between documents matter a little."""
    monkeypatch.setattr(_cascade_fit, "_NEUTRAL_TOLERANCE", 1e-9)
    monkeypatch.setattr(_rank_groups, "_LAST_RANKS", np.array([50]))  # one group: the order is random
    seen: list[RankGroups] = []
    for name in ("of", "of_all"):
        monkeypatch.setattr(RankGroups, name, recording(getattr(RankGroups, name), seen))

    def found(log: cs.Sessions, *, repeating: bool, integrated: bool) -> float:
        seen.clear()
        monkeypatch.setattr(_cascade_fit, "lists_repeat", lambda *_: repeating)
        monkeypatch.setattr(_cascade_fit, "_MAX_DERIVATIVES", 24 if integrated else 0)
        fitted = DBNFamily(Cascade.of(log), None).fit(tolerance=1e-6, max_steps=1000)
        assert fitted.counts is not None
        yes, trials = fitted.counts.shared[:, 0]
        return float(logit(yes / trials))

    errors = []
    for seed in (0, 3, 4):
        log, counts = two_results_in_both_orders(seed, 0.8)
        joint, diagonal, full = (
            found(log, repeating=repeating, integrated=integrated)
            for repeating, integrated in ((True, False), (False, True), (True, True))
        )
        exact = dbn_by_quadrature(counts, seen[0], float(seen[1].precision[0]))
        errors.append(np.abs(np.array([joint, diagonal, full]) - exact))
    joint_error, diagonal_error, full_error = np.mean(errors, axis=0)
    assert diagonal_error < 0.5 * joint_error
    assert full_error < 0.3 * joint_error


def recording(method: Any, seen: list[RankGroups]) -> Any:
    """Make a method record what it returns."""

    def recorded(*given: object) -> RankGroups:
        seen.append(method(*given))
        return seen[-1]

    return recorded
