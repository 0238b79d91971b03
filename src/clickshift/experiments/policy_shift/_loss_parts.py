"""The parts of the loss of one fitted click model on lists of other policies, where the simulated users are known.

The fitted model keeps its structure, and its parts are exchanged for true ones: attractiveness alone, examination
alone, and both. What is left with both is the loss of the structure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Sessions
from clickshift.metrics.click_prediction import click_bits, perplexity_of
from clickshift.models import DBN, PBM, UBM, Mixture
from clickshift.models.base import ClickModel, PairTable
from clickshift.simulation.search_engine import SimulatedLogs

PARTS = ("examination", "attractiveness", "structure")
_PRIOR_RESULTS = 20
"""Number of results that the fitted examination counts for where examination is estimated on a test log."""
_STEPS = 60
"""Bisection steps, each of which halves the interval of an estimate."""


def has_known_parts(model: ClickModel, user: ClickModel) -> bool:
    """Return whether the loss of a model can be split: PBM and UBM for all users, DBN for DBN users only.

    The parameters of other users would give probability 0 to clicks that they make.
    """
    return isinstance(model, PBM | UBM) or (isinstance(model, DBN) and isinstance(user, DBN))


def sources_of_loss(model: ClickModel, logs: SimulatedLogs) -> dict[str, dict[str, float]]:
    """Split the loss of one fitted model on each test log.

    True attractiveness is the users' own. True examination of PBM and UBM is the one that describes the users best on
    the lists of the test log, given true attractiveness; it is estimated on the other half of the test log. True
    examination of DBN is the users' own satisfaction and continuation. The product of attractiveness and examination
    of PBM and UBM is all that a log shows, so where one part alone is exchanged, the scale of the product is estimated
    on the training log.

    Parameters
    ----------
    model
        A fitted PBM or UBM; or a fitted DBN, if the users are DBN users.
    logs
        The logs of simulated users and a training policy.

    Returns
    -------
    dict
        By test log: `excess` over the users' own model, and its parts `examination`, `attractiveness`, `structure`.
    """
    vocabulary = logs.train.vocabulary
    train = logs.train.in_vocabulary(vocabulary)
    user = logs.user.components[0] if isinstance(logs.user, Mixture) else logs.user
    attractiveness = _users_table(user, "attractiveness", model)
    found = {}
    for name, log in logs.test.items():
        variants = _exchanged(model, user, attractiveness, train, log.in_vocabulary(model.vocabulary))
        own = perplexity_of(click_bits(logs.user, log), log.rankings.shown, log.count).average
        excess = {
            key: perplexity_of(bits, log.rankings.shown, log.count).average - own for key, bits in variants.items()
        }
        fitted, true_a, true_e, both = (excess[key] for key in ("fitted", "attractiveness", "examination", "both"))
        found[name] = {
            "excess": fitted,
            "examination": ((fitted - true_e) + (true_a - both)) / 2,
            "attractiveness": ((fitted - true_a) + (true_e - both)) / 2,
            "structure": both,
        }
    return found


def _users_table(user: ClickModel, name: str, model: ClickModel) -> PairTable:
    """Return a parameter of the users for the pairs of a model."""
    values = np.asarray(getattr(user, name), np.float64)
    if values.ndim == 0:
        return np.full(model.vocabulary.n_pairs + 1, float(values))
    table: np.ndarray = np.append(values[user.vocabulary.pairs_of(model.vocabulary)], values[-1])
    return table


def _exchanged(
    model: ClickModel, user: ClickModel, attractiveness: PairTable, train: Sessions, log: Sessions
) -> dict[str, Float[np.ndarray, "session rank"]]:
    """Return the bits of a test log with each combination of fitted and true parts."""
    bits = {"fitted": click_bits(model, log)}
    if isinstance(model, DBN):
        browsing: dict[str, Any] = {
            "satisfaction": _users_table(user, "satisfaction", model),
            "continuation": float(np.mean(user.continuation)),  # type: ignore[attr-defined]
        }
        true_a = replace(model, attractiveness=attractiveness)
        bits["attractiveness"] = click_bits(true_a, log)
        bits["examination"] = click_bits(replace(model, **browsing), log)
        bits["both"] = click_bits(replace(true_a, **browsing), log)
        return bits
    assert isinstance(model, PBM | UBM)
    scaled = _scaled(replace(model, attractiveness=attractiveness), train)
    bits["attractiveness"] = click_bits(scaled, log)
    bits["examination"], bits["both"] = np.empty_like(bits["fitted"]), np.empty_like(bits["fitted"])
    half = np.arange(len(log)) % 2 == 0
    for own, other in ((half, ~half), (~half, half)):
        examination = _best_examination(scaled, log[np.flatnonzero(other)])
        rows = log[np.flatnonzero(own)]
        bits["both"][own] = click_bits(replace(model, attractiveness=attractiveness, examination=examination), rows)
        bits["examination"][own] = click_bits(_scaled(replace(model, examination=examination), train), rows)
    return bits


def _scaled(model: PBM | UBM, train: Sessions) -> PBM | UBM:
    """Multiply examination by the number that maximises the likelihood of the training log."""
    rows, ranks = np.nonzero(train.rankings.shown)
    prob = model.click_prob_given_history(train)[rows, ranks]
    scale = _maximum(
        prob, train.click[rows, ranks], train.count[rows].astype(np.float64), np.zeros(len(rows), np.int64), 1
    )
    return replace(model, examination=np.minimum(model.examination * scale[0], 1.0))


def _best_examination(model: PBM | UBM, log: Sessions) -> Float[np.ndarray, " situation"]:
    """Return the examination of each situation that maximises the likelihood of a log, given attractiveness.

    Where a situation is rare, the estimate stays near the examination of the model.
    """
    rows, ranks = np.nonzero(log.rankings.shown)
    situation, count = _situations(model, log)[rows, ranks], log.count[rows].astype(np.float64)
    prob, n_situations = model.attractiveness[log.rankings.pair[rows, ranks]], len(model.examination)
    estimate = np.minimum(_maximum(prob, log.click[rows, ranks], count, situation, n_situations), 1.0)
    results = np.bincount(situation, count, n_situations)
    weight = results / (results + _PRIOR_RESULTS)
    return np.where(weight > 0, weight * np.nan_to_num(estimate) + (1 - weight) * model.examination, model.examination)


def _situations(model: PBM | UBM, log: Sessions) -> Int[np.ndarray, "session rank"]:
    """Return the row of the examination table of each result: its rank, and for UBM the last click above."""
    ranks = np.arange(log.n_ranks)
    if isinstance(model, PBM):
        return np.broadcast_to(np.minimum(ranks, len(model.examination) - 1), log.click.shape)
    last = np.zeros(log.click.shape, np.int64)
    last[:, 1:] = np.maximum.accumulate(np.where(log.click, ranks + 1, 0), axis=1)[:, :-1]
    return ranks * (ranks + 1) // 2 + last


def _maximum(
    prob: Float[np.ndarray, " result"],
    click: np.ndarray,
    count: Float[np.ndarray, " result"],
    group: Int[np.ndarray, " result"],
    n_groups: int,
) -> Float[np.ndarray, " group"]:
    """Return the factor of each group that maximises the likelihood of clicks with probability factor x prob.

    The derivative of the log-likelihood falls with the factor, so bisection finds its root. NaN without results.
    """
    largest = np.full(n_groups, 0.0)
    np.maximum.at(largest, group, prob)
    with np.errstate(divide="ignore"):
        low, high = np.zeros(n_groups), (1 - 1e-9) / largest
    clicks = np.bincount(group, count * click, n_groups)
    distinct, number = np.unique(prob, return_inverse=True)  # many results share their probability and group
    cell, place = np.unique(group * len(distinct) + number, return_inverse=True)
    skipped, prob_of_cell, group_of_cell = (
        np.bincount(place, count * ~click),
        distinct[cell % len(distinct)],
        cell // len(distinct),
    )
    for _ in range(_STEPS):
        middle = (low + high) / 2
        chance = np.minimum(middle[group_of_cell] * prob_of_cell, 1 - 1e-12)
        skips = np.bincount(group_of_cell, skipped * prob_of_cell / (1 - chance), n_groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            rising = clicks / middle > skips
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return np.where(np.bincount(group, minlength=n_groups) > 0, (low + high) / 2, np.nan)
