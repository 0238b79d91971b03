"""Conformance checks for off-policy estimators, in worlds so small that every list and every click is written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal, final

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.data.weighted_lists import WeightedLists
from clickshift.errors import CapabilityError
from clickshift.models.base import ClickModel, pair_table
from clickshift.models.pbm import PBM
from clickshift.ope.estimate import Estimate, evaluate_target
from clickshift.ope.estimators import Estimator
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.intervals import Bootstrap
from clickshift.ope.rewards import Reward
from clickshift.ope.weights import Weights
from clickshift.testing._rules import MAX_STANDARD_ERRORS, require

ClickAssumption = Literal["nothing", "documents-above", "item-position", "position-based", "document", "rank"]
"""What an estimator may assume a click to depend on: the whole list (nothing is assumed); its document and those above;
its document and its rank; attractiveness of the document times 1/rank; its document alone; its rank alone."""

_N_DOCS, _N_RANKS, _N_QUERIES = 4, 3, 2
_PARTS = 60
"""Click probabilities are whole numbers of sixtieths, so that a log can hold each click as often as it is expected."""
_REWARDS = ((1.0, 1.0, 1.0), (1.0, 0.25, 0.5))
"""Reward of a click by rank."""
_CLIPS = (0.5, 1.0, 2.0, 5.0, float("inf"))
_TOLERANCE = 1e-7
"""Largest accepted error where there is no sampling error; some estimators solve their equations iteratively."""
_ERROR_RATIO = (0.25, 3.0)
"""Accepted mean of the squared deviations, in squared standard errors: 1 is right."""


def check_estimator(
    estimator: Estimator | Weights | str | Callable[[ClickModel], Estimator],
    assumes: ClickAssumption,
    *,
    logs: int = 20,
    sessions: int = 2000,
    seed: int = 0,
) -> None:
    """Check that an off-policy estimator is unbiased where its assumption holds, in a world that is written out.

    The world has 2 queries with all 24 lists of 3 of 4 documents, a random logging policy, a random target policy, and
    random click probabilities that depend on what `assumes` states. On a log in which everything occurs exactly as
    often as expected, the estimate is the reward of the target policy, whether the logging policy is given or estimated
    by frequencies; a target equal to the logging policy earns the mean of the log; the order of sessions does not
    matter; the range from floor to ceiling contains the reward at every clipping constant and where lists were never
    logged. On simulated logs, the mean estimate is right within sampling error, and the reported standard errors match
    the deviations.

    Parameters
    ----------
    estimator
        Estimator, its weights, or its name; or a function that makes it of a click model. The model is the true one
        where `assumes` is "position-based", "document" or "rank"; otherwise it is a wrong one, which a doubly robust
        estimator must tolerate.
    assumes
        What a click depends on, as the estimator assumes.
    logs
        Number of simulated logs.
    sessions
        Number of sessions of a simulated log.
    seed
        Random seed.

    Raises
    ------
    AssertionError
        If a rule is broken; the message names the first one.

    Examples
    --------
    >>> from clickshift.ope import IPWeights
    >>> check_estimator(IPWeights(), "item-position", logs=5)
    >>> check_estimator("Item", "item-position", logs=5)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: Item must be unbiased where clicks depend on item-position: the target earns 1.7471, got 1.7614 ...
    """
    world = _World.random(assumes, np.random.default_rng(seed))
    chosen = _made(estimator, world.model)
    known = _known_logging(chosen, world)
    _check_population(chosen, world, known)
    _check_lost_mass(chosen, world)
    _check_samples(chosen, world, known, logs, sessions, seed)


@final
@dataclass(frozen=True, eq=False)
class _World:
    """Lists of all queries with their probabilities under both policies, and their click probabilities in sixtieths."""

    assumes: ClickAssumption
    lists: Rankings
    logged: Int[np.ndarray, " list"]
    """Sessions of each list in the expected log."""
    target: Float[np.ndarray, " list"]
    clicks: Int[np.ndarray, "list rank"]
    model: ClickModel = field(repr=False)

    @classmethod
    def random(cls, assumes: ClickAssumption, rng: np.random.Generator) -> _World:
        """Draw both policies and the click probabilities."""
        lists = np.array(list(permutations(range(_N_DOCS), _N_RANKS)), np.int32)
        pairs = np.concatenate([lists + _N_DOCS * query for query in range(_N_QUERIES)])
        query = np.repeat(np.arange(_N_QUERIES, dtype=np.int32), len(lists))
        docs = np.arange(_N_QUERIES * _N_DOCS)
        vocabulary, _, _ = Vocabulary.of(docs // _N_DOCS, docs)
        attractiveness = 6 * rng.integers(1, 10, len(docs))  # divisible by every rank
        ranks = np.arange(_N_RANKS)
        examination = 1 / (1.0 + ranks)
        if assumes == "position-based":
            clicks = attractiveness[pairs] // (1 + ranks)
        elif assumes == "document":
            clicks, examination = attractiveness[pairs], np.ones(_N_RANKS)
        elif assumes == "rank":
            by_rank = rng.integers(1, _PARTS, _N_RANKS)
            attractiveness, examination = np.full(len(docs), _PARTS), by_rank / _PARTS
            clicks = np.tile(by_rank, (len(pairs), 1))
        elif assumes == "item-position":
            clicks = rng.integers(1, _PARTS, (len(docs), _N_RANKS))[pairs, ranks]
        elif assumes == "documents-above":
            by_prefix = [np.unique(pairs[:, : rank + 1], axis=0, return_inverse=True)[1].ravel() for rank in ranks]
            clicks = np.stack([rng.integers(1, _PARTS, len(pairs))[prefix] for prefix in by_prefix], axis=1)
        else:
            clicks = rng.integers(1, _PARTS, pairs.shape)
        share = rng.integers(1, 9, (_N_QUERIES, len(lists)))
        weight = rng.integers(0, 9, (_N_QUERIES, len(lists)))
        model = PBM(vocabulary, pair_table(attractiveness / _PARTS, unseen=0.5), examination)
        return cls(
            assumes,
            Rankings(vocabulary, query, pairs),
            share.ravel(),
            (weight / weight.sum(axis=1, keepdims=True)).ravel(),
            clicks,
            model,
        )

    @property
    def target_policy(self) -> WeightedLists:
        """The target policy."""
        return WeightedLists(self.lists, self.target)

    @property
    def logging_policy(self) -> WeightedLists:
        """The logging policy."""
        return WeightedLists(self.lists, self.logged / np.bincount(self.lists.query, self.logged)[self.lists.query])

    def reward(self, by_rank: tuple[float, ...], policy: WeightedLists) -> float:
        """Reward per session of a policy, with queries as frequent as in the log."""
        by_query = np.bincount(self.lists.query, policy.weight * (self.clicks @ np.array(by_rank)) / _PARTS)
        return float(by_query @ np.bincount(self.lists.query, self.logged) / self.logged.sum())

    def expected_log(self, rng: np.random.Generator) -> Sessions:
        """A log in which each list is shown, and each result clicked, exactly as often as expected."""
        row = np.repeat(np.arange(len(self.lists)), _PARTS)
        part = np.tile(np.arange(_PARTS), len(self.lists))
        offset = rng.integers(0, _PARTS, self.clicks.shape)[row]  # which clicks come together does not matter
        click = (part[:, None] + offset) % _PARTS < self.clicks[row]
        logged = self.logged[row] > 0
        return Sessions(self.lists[row[logged]], click[logged], self.logged[row[logged]])

    def draw(self, sessions: int, rng: np.random.Generator) -> Sessions:
        """Simulate a log."""
        row = rng.choice(len(self.lists), sessions, p=self.logged / self.logged.sum())
        return Sessions(self.lists[row], rng.random((sessions, _N_RANKS)) < self.clicks[row] / _PARTS)

    def with_unlogged_lists(self) -> _World:
        """The same world with a third of the lists never logged."""
        logged = np.where(np.arange(len(self.logged)) % 3 == 0, 0, self.logged)
        return _World(self.assumes, self.lists, logged, self.target, self.clicks, self.model)


def _made(estimator: Estimator | Weights | str | Callable[[ClickModel], Estimator], model: ClickModel) -> Estimator:
    """Make the estimator of what was given."""
    if isinstance(estimator, str):
        return Estimator.named(estimator, model)
    if isinstance(estimator, Estimator):
        return estimator
    return Estimator(estimator) if isinstance(estimator, Weights) else estimator(model)


def _known_logging(estimator: Estimator, world: _World) -> list[WeightedLists | str]:
    """Return the kinds of logging policy that the estimator takes: given, and estimated by frequencies."""
    try:
        _estimates(estimator, world.expected_log(np.random.default_rng(0)), world.target_policy, world.logging_policy)
    except CapabilityError:
        return ["frequencies"]
    return [world.logging_policy, "frequencies"]


def _estimates(
    estimator: Estimator,
    log: Sessions,
    target: WeightedLists,
    logging: WeightedLists | str,
    by_rank: tuple[float, ...] = _REWARDS[0],
    *,
    seed: int = 0,
) -> tuple[Estimate, ...]:
    """Evaluate the target at all clipping constants."""
    grouped, interval = GroupedLog.of(log, Reward(weights=by_rank)), Bootstrap(replicates=40, seed=seed)
    return evaluate_target(grouped, target, [estimator], clip=_CLIPS, logging=logging, interval=interval)[0].estimates


def _check_population(estimator: Estimator, world: _World, known: list[WeightedLists | str]) -> None:
    """Check the estimate where nothing is left to chance."""
    name, rng = estimator.name, np.random.default_rng(1)
    log = world.expected_log(rng)
    for logging in known:
        kind = "estimated by frequencies" if isinstance(logging, str) else "given"
        for by_rank in _REWARDS:
            truth = world.reward(by_rank, world.target_policy)
            found = _estimates(estimator, log, world.target_policy, logging, by_rank)
            value = found[-1].value
            require(
                abs(value - truth) < _TOLERANCE,
                f"{name} must be unbiased where clicks depend on {world.assumes}: the target earns {truth:.4f}, "
                f"got {value:.4f} (logging policy {kind}, reward {by_rank})",
            )
            _check_range(name, found, truth)
            truth = world.reward(by_rank, world.logging_policy)
            value = _estimates(estimator, log, world.logging_policy, logging, by_rank)[-1].value
            require(
                abs(value - truth) < _TOLERANCE,
                f"{name} must give a target that is the logging policy the mean of the log, {truth:.4f}: "
                f"got {value:.4f} (logging policy {kind}, reward {by_rank})",
            )
    value = _estimates(estimator, log, world.target_policy, "frequencies")[-1].value
    shuffled = _estimates(estimator, log[rng.permutation(len(log))], world.target_policy, "frequencies")[-1].value
    require(
        abs(value - shuffled) < _TOLERANCE,
        f"{name} must not depend on the order of sessions: {value:.6f}, and {shuffled:.6f} when shuffled",
    )


def _check_range(name: str, found: tuple[Estimate, ...], truth: float) -> None:
    """Check that the range of partial identification holds the truth, at every clipping constant."""
    for one in found:
        if np.isnan([one.floor, one.ceiling]).all():  # the direct method has none
            continue
        require(
            one.floor - _TOLERANCE <= truth <= one.ceiling + _TOLERANCE,
            f"the range of {name} must contain what the target earns, {truth:.4f}, at clipping constant {one.clip:g}: "
            f"got {one.floor:.4f} to {one.ceiling:.4f}",
        )
        require(
            -_TOLERANCE <= one.never_logged <= one.lost <= 1 + _TOLERANCE,
            f"lost mass of {name} must be a share: got {one.never_logged:.4f} never logged, {one.clipped:.4f} clipped",
        )


def _check_lost_mass(estimator: Estimator, world: _World) -> None:
    """Check the range where a third of the lists was never logged."""
    fewer = world.with_unlogged_lists()
    log = fewer.expected_log(np.random.default_rng(2))
    found = _estimates(estimator, log, fewer.target_policy, "frequencies")
    if estimator.model is None and not estimator.self_normalised:  # else the rest is guessed from what was logged
        _check_range(estimator.name, found, fewer.reward(_REWARDS[0], fewer.target_policy))


def _check_samples(
    estimator: Estimator, world: _World, known: list[WeightedLists | str], logs: int, sessions: int, seed: int
) -> None:
    """Check the mean estimate over simulated logs, and the reported standard errors."""
    truth, rng = world.reward(_REWARDS[0], world.target_policy), np.random.default_rng([seed, 1])
    drawn = [world.draw(sessions, rng) for _ in range(logs)]
    found = [
        _estimates(estimator, log, world.target_policy, known[0], seed=number)[-1] for number, log in enumerate(drawn)
    ]
    value, error = (np.array([getattr(one, name) for one in found]) for name in ("value", "error"))
    if (error < _TOLERANCE).all():  # the direct method with a model that is given
        require(np.abs(value - truth).max() < 0.05, f"{estimator.name} has no error, and must be right")
        return
    spread = value.std(ddof=1) / np.sqrt(logs)
    require(
        abs(value.mean() - truth) < MAX_STANDARD_ERRORS * spread,
        f"{estimator.name} must be unbiased over {logs} logs of {sessions} sessions: the target earns {truth:.4f}, "
        f"got {value.mean():.4f} on average, with a standard error of {spread:.4f}",
    )
    ratio = float(np.mean(((value - value.mean()) / error) ** 2) * logs / (logs - 1))
    low, high = _ERROR_RATIO
    require(
        low < ratio < high,
        f"standard errors of {estimator.name} must match the spread of its estimates over logs: squared deviations "
        f"are {ratio:.2f} times the squared standard errors",
    )
