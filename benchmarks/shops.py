"""Simulated shops with exact truth: users, a logging ranker, a log, and a candidate ranker whose gain is known.

Plain numpy, so that no error of clickshift can hide in its own examination: a test forbids this file to import the
package. Lists have at most six results, so that the probabilities of all click patterns (2^6) can be written out: the
expected clicks of the log and of the candidate are sums, not simulations. A log is drawn as multinomial counts of
(query, list, click pattern), so that its cost follows the distinct rows and not the sessions.

    shop = make_shop(seed)
    shop.query, shop.docs, shop.clicks, shop.count, shop.day    # the log: one row per distinct session (and day)
    shop.target_query, shop.target_docs, shop.target_weight     # the candidate: lists by query, with weights
    shop.log_value, shop.target_value, shop.gain                # exact clicks per session on the days of the log
    shop.strata                                                 # what the shop is like, by name
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np

USERS = {
    "PBM 1/k": 0.05,
    "PBM k^-.3": 0.06,
    "PBM k^-1.5": 0.05,
    "PBM flat": 0.03,
    "UBM": 0.165,
    "DBN": 0.165,
    "CCM": 0.16,
    "mixture": 0.16,
    "unknown": 0.16,
}
"""Families of users, with their share of shops; "unknown" browses as no click model of the field does."""
SESSIONS = {500: 0.25, 5_000: 0.30, 50_000: 0.29, 1_000_000: 0.16}
RANKERS = {"nearly deterministic": 0.33, "middle": 0.34, "nearly random": 0.33}
TARGETS = {"near": 0.22, "far": 0.2, "better": 0.19, "worse": 0.19, "unseen": 0.2}
DAYS = {"no days": 0.5, "alike days": 0.3, "drift": 0.2}
CLOSE_LOSS = (-0.02, 0.0)
"""Relative gain of a third of the candidates: they lose so little that only a sharp and honest interval tells."""
MAX_LISTS = 100
"""Number of draws that make the logging policy of a query and day: its lists and their probabilities, exactly."""

Array = np.ndarray


@cache
def patterns(ranks: int) -> Array:
    """Return all click patterns of a list: (2^ranks, ranks), of 0 and 1."""
    return np.array(list(product((0, 1), repeat=ranks)))


def independent(click: Array) -> Array:
    """Return the probability of each pattern where clicks at ranks are independent: (list, 2^ranks)."""
    clicked = patterns(click.shape[1])[None]
    return np.prod(np.where(clicked == 1, click[:, None], 1 - click[:, None]), axis=2)


def by_last_click(attractiveness: Array, examination: Array) -> Array:
    """Return the probability of each pattern where examination depends on rank and last clicked rank (UBM).

    Parameters
    ----------
    attractiveness
        (list, rank).
    examination
        (rank, 1 + last clicked rank), 0 for none.
    """
    clicked = patterns(attractiveness.shape[1])
    prob = np.ones((len(attractiveness), len(clicked)))
    last = np.zeros(len(clicked), int)
    for k in range(attractiveness.shape[1]):
        click = attractiveness[:, [k]] * examination[k, last]
        prob *= np.where(clicked[:, k] == 1, click, 1 - click)
        last = np.where(clicked[:, k] == 1, k + 1, last)
    return prob


def cascade(attractiveness: Array, after_click: Array, after_skip: Array) -> Array:
    """Return the probability of each pattern where users scan top-down and go on with these probabilities."""
    clicked = patterns(attractiveness.shape[1])
    going, gone = np.ones((len(attractiveness), len(clicked))), np.zeros((len(attractiveness), len(clicked)))
    for k in range(attractiveness.shape[1]):
        a, click = attractiveness[:, [k]], clicked[:, k] == 1
        here = going * np.where(click, a, 1 - a)
        stays = np.where(click, after_click[:, [k]], after_skip[:, [k]])
        gone = np.where(click, 0.0, gone) + here * (1 - stays)
        going = here * stays
    return going + gone


@dataclass(frozen=True)
class Users:
    """Users of one family.

    Parameters
    ----------
    family
        Name of the family.
    parameters
        What they are like, for the record.
    probabilities
        Probability of each click pattern, of attractiveness and satisfaction by list and rank.
    """

    family: str
    parameters: dict[str, Any]
    probabilities: Callable[[Array, Array], Array] = field(repr=False)


def make_users(family: str, ranks: int, rng: np.random.Generator) -> Users:
    """Draw the parameters of a family of users."""
    k = np.arange(1, ranks + 1)
    if family.startswith("PBM"):
        curve = {"1/k": k**-1.0, "k^-.3": k**-0.3, "k^-1.5": k**-1.5, "flat": k**0.0}[family.split()[1]]
        return Users(family, {"examination": curve.tolist()}, lambda a, s: independent(a * curve))
    if family == "UBM":
        start, decay = rng.uniform(0.2, 1.2), rng.uniform(0.3, 1.2)
        distance = np.maximum(k[:, None] - np.arange(ranks)[None], 1)
        examination = np.where(np.arange(ranks)[None] == 0, k[:, None] ** -start, distance**-decay)
        return Users(family, {"start": start, "decay": decay}, lambda a, s: by_last_click(a, examination))
    if family == "DBN":
        going_on = float(rng.choice([0.6, 0.8, 0.95, 1.0]))
        return Users(
            family,
            {"continuation": going_on},
            lambda a, s: cascade(a, going_on * (1 - s), np.full_like(a, going_on)),
        )
    if family == "CCM":
        skip, poor, good = rng.uniform(0.6, 0.98), rng.uniform(0.5, 0.95), rng.uniform(0.1, 0.6)
        return Users(
            family,
            {"after skip": skip, "after a poor click": poor, "after a good click": good},
            lambda a, s: cascade(a, poor * (1 - a) + good * a, np.full_like(a, skip)),
        )
    if family == "mixture":
        one = make_users(str(rng.choice(["PBM 1/k", "PBM k^-.3"])), ranks, rng)
        other, share = make_users("DBN", ranks, rng), rng.uniform(0.3, 0.7)
        return Users(
            family,
            {"share of DBN": share, "PBM": one.family, **other.parameters},
            lambda a, s: (1 - share) * one.probabilities(a, s) + share * other.probabilities(a, s),
        )
    kind = str(rng.choice(["bottom-up", "neighbour"]))
    if kind == "bottom-up":
        going_on, up = rng.uniform(0.7, 0.95), patterns(ranks)
        turned = np.array([int("".join(map(str, row[::-1])), 2) for row in up])  # number of the reversed pattern
        return Users(
            "unknown",
            {"kind": kind, "continuation": going_on},
            lambda a, s: cascade(a[:, ::-1], going_on * (1 - s[:, ::-1]), np.full_like(a, going_on))[:, turned],
        )
    curve, strength = k ** -rng.uniform(0.2, 1.0), rng.uniform(0.4, 0.9)

    def beside_attractive(a: Array, s: Array) -> Array:
        """An attractive result draws the eye away from the one below it, and from the one above it half as much."""
        above = np.concatenate([np.zeros((len(a), 1)), a[:, :-1]], axis=1)
        below = np.concatenate([a[:, 1:], np.zeros((len(a), 1))], axis=1)
        return independent(a * curve * (1 - strength * above) * (1 - strength / 2 * below))

    return Users("unknown", {"kind": kind, "strength": strength}, beside_attractive)


@dataclass(frozen=True)
class Shop:
    """A log, a candidate, and the truth about both. Documents and queries are numbers; rows of the log are distinct."""

    seed: int
    strata: dict[str, Any]
    users: Users
    query: Array
    docs: Array
    clicks: Array
    count: Array
    day: Array | None
    target_query: Array
    target_docs: Array
    target_weight: Array
    log_value: float
    target_value: float
    next_day_gain: float

    @property
    def gain(self) -> float:
        """Clicks per session that the candidate earns more than the log, on the days of the log."""
        return self.target_value - self.log_value

    @property
    def relative_gain(self) -> float:
        """The same, as a share of the clicks of the log."""
        return self.gain / self.log_value


@dataclass(frozen=True)
class World:
    """Users and documents of a shop, by query, candidate document and day."""

    users: Users
    frequency: Array
    attractiveness: Array
    satisfaction: Array

    @property
    def n_days(self) -> int:
        """Number of days, without the day after the log."""
        return self.attractiveness.shape[0] - 1

    def click_patterns(self, day: int, query: Array, docs: Array) -> Array:
        """Return the probability of each click pattern of lists on a day."""
        a, s = self.attractiveness[day, query[:, None], docs], self.satisfaction[query[:, None], docs]
        return self.users.probabilities(a, s)

    def value(self, day: int, query: Array, docs: Array) -> Array:
        """Return the expected clicks of lists on a day."""
        return self.click_patterns(day, query, docs) @ patterns(docs.shape[1]).sum(axis=1)

    def period_value(self, query: Array, docs: Array) -> Array:
        """Return the expected clicks of lists, mean of the days of the log."""
        return np.mean([self.value(d, query, docs) for d in range(self.n_days)], axis=0)


def make_shop(
    seed: int,
    *,
    users: str | None = None,
    sessions: int | None = None,
    ranker: str | None = None,
    target: str | None = None,
    days: str | None = None,
    close_loss: bool | None = None,
) -> Shop:
    """Draw a shop; what is not given is drawn, too.

    Parameters
    ----------
    seed
        Random seed: the same shop for the same seed and arguments.
    users, sessions, ranker, target, days
        One of USERS, SESSIONS, RANKERS, TARGETS and DAYS.
    close_loss
        Whether the candidate loses between 0 and 2 %.
    """
    rng = np.random.default_rng([26, seed])
    drawn = [_one_of(rng, shares) for shares in (USERS, SESSIONS, RANKERS, TARGETS, DAYS)]
    family, n_sessions, ranker, target, days = (
        given if given is not None else value
        for given, value in zip((users, sessions, ranker, target, days), drawn, strict=True)
    )
    close = bool(rng.random() < 0.27) if close_loss is None else close_loss
    ranks, n_queries = int(rng.integers(4, 7)), int(rng.integers(5, 41))
    n_docs = int(rng.integers(max(6, ranks + 1), 11))
    world = _make_world(str(family), str(days), ranks, n_queries, n_docs, rng)
    policy = _make_ranker(world, str(ranker), ranks, n_docs, rng, retrained=days != "no days" and rng.random() < 0.5)
    log_value = _log_value(world, policy, range(world.n_days))
    chosen = _choose_target(world, policy, str(target), ranks, n_docs, log_value, rng, close=close)
    share = world.frequency[chosen.query] * chosen.weight
    target_value = float(share @ world.period_value(chosen.query, chosen.docs))
    tomorrow = float(share @ world.value(world.n_days, chosen.query, chosen.docs))
    log = _sample(world, policy, int(n_sessions), rng)
    shown = {(int(q), int(d)) for lists in policy for q, row in zip(lists.query, lists.docs, strict=True) for d in row}
    unshown = [[(int(q), int(d)) not in shown for d in row] for q, row in zip(chosen.query, chosen.docs, strict=True)]
    gain = (target_value - log_value) / log_value
    strata = {
        "users": family,
        "family": str(family).split()[0],
        "sessions": int(n_sessions),
        "ranker": ranker,
        "target": target,
        "days": days,
        "gain": _gain_label(gain),
        "queries": n_queries,
        "ranks": ranks,
        "documents": n_docs,
        "never shown": round(float(share @ np.mean(unshown, axis=1)), 4),
        **{f"user {name}": value for name, value in world.users.parameters.items()},
    }
    stride = world.attractiveness.shape[2]
    return Shop(
        seed,
        strata,
        world.users,
        log.query,
        log.query[:, None] * stride + log.docs,
        log.clicks,
        log.count,
        None if days == "no days" else log.day,
        chosen.query,
        chosen.query[:, None] * stride + chosen.docs,
        chosen.weight,
        log_value,
        target_value,
        tomorrow - _log_value(world, policy, [world.n_days]),
    )


def _gain_label(gain: float) -> str:
    """Return the stratum of a relative gain."""
    low, high = CLOSE_LOSS
    return (
        "loses > 2 %"
        if gain < low
        else "loses 0-2 %"
        if gain < high
        else "gains 0-2 %"
        if gain < -low
        else "gains > 2 %"
    )


def _one_of(rng: np.random.Generator, shares: dict[Any, float]) -> Any:
    """Draw a key."""
    share = np.array(list(shares.values()))
    return list(shares)[rng.choice(len(shares), p=share / share.sum())]


def _make_world(family: str, days: str, ranks: int, n_queries: int, n_docs: int, rng: np.random.Generator) -> World:
    """Draw users, queries and documents. Two more documents per query are there for candidates only."""
    shape = n_queries, n_docs + 2
    frequency = np.arange(1, n_queries + 1) ** -rng.uniform(0.2, 1.3)
    logit = rng.uniform(-2.2, 0.0) + rng.uniform(0.6, 1.6) * rng.standard_normal(shape)
    satisfaction = rng.beta(*((1, 4), (4, 3), (2, 2))[rng.integers(3)], shape)
    n_days = 1 if days == "no days" else int(rng.choice([7, 10]))
    slope = np.zeros(shape)
    season = np.zeros(n_days + 1)
    if days == "drift":
        slope = rng.uniform(0.6, 2.4) * rng.standard_normal(shape)  # from the first day to the last
        season = rng.uniform(0, 0.2) * rng.standard_normal(n_days + 1)
    progress = (np.arange(n_days + 1) - (n_days - 1) / 2) / max(n_days - 1, 1)
    attractiveness = 1 / (1 + np.exp(-(logit + slope * progress[:, None, None] + season[:, None, None])))
    if days == "no days":
        attractiveness[1] = attractiveness[0]
    return World(make_users(family, ranks, rng), frequency / frequency.sum(), attractiveness, satisfaction)


@dataclass(frozen=True)
class Lists:
    """Lists of queries: probabilities (of a policy), or sessions with clicks (of a log)."""

    query: Array
    docs: Array
    weight: Array


def _make_ranker(
    world: World, ranker: str, ranks: int, n_docs: int, rng: np.random.Generator, *, retrained: bool
) -> list[Lists]:
    """Return the lists of the logging ranker with their probabilities, day by day.

    Plackett-Luce lists of scores that follow attractiveness more or less, or one list whose neighbours are swapped now
    and then. The probabilities are the shares of `MAX_LISTS` draws per query: that is the ranker.
    """
    n_queries = len(world.frequency)
    base = world.attractiveness[: world.n_days].mean(axis=0)[:, :n_docs]
    quality = np.log(base / (1 - base))
    quality = (quality - quality.mean(axis=1, keepdims=True)) / quality.std(axis=1, keepdims=True)
    follows = rng.choice([0.0, 0.5, 0.9])
    score = follows * quality + np.sqrt(1 - follows**2) * rng.standard_normal(quality.shape)
    swaps = ranker != "nearly random" and rng.random() < 0.4
    temperature = {
        "nearly deterministic": rng.uniform(0.05, 0.2),
        "middle": rng.uniform(0.3, 0.8),
        "nearly random": rng.uniform(1.5, 5.0),
    }[ranker]
    swap_rate = rng.uniform(0.02, 0.1) if ranker == "nearly deterministic" else rng.uniform(0.2, 0.6)
    made = []
    for day in range(world.n_days):
        if day == 0 or retrained:
            drift = 0.0 if day == 0 else 0.3 * rng.standard_normal(score.shape)
            made.append(_draw_lists(score + drift, ranks, temperature, swap_rate if swaps else None, rng))
        else:
            made.append(made[0])
    assert all(len(np.unique(lists.query)) == n_queries for lists in made)
    return [*made, made[-1]]


def _draw_lists(
    score: Array, ranks: int, temperature: float, swap_rate: float | None, rng: np.random.Generator
) -> Lists:
    """Draw the lists of one day's ranker; equal ones are merged."""
    n_queries, n_docs = score.shape
    if swap_rate is None:
        noise = rng.gumbel(size=(n_queries, MAX_LISTS, n_docs))
        docs = np.argsort(-(score[:, None] / temperature + noise), axis=2)[:, :, :ranks]
    else:
        docs = np.repeat(np.argsort(-score, axis=1)[:, None, :ranks], MAX_LISTS, axis=1)
        for k in range(ranks - 1):
            swap = rng.random((n_queries, MAX_LISTS)) < swap_rate / (ranks - 1)
            docs[..., [k, k + 1]] = np.where(swap[..., None], docs[..., [k + 1, k]], docs[..., [k, k + 1]])
        replaced = rng.random((n_queries, MAX_LISTS)) < swap_rate / 4  # the next document takes the last rank
        docs[..., -1] = np.where(replaced, np.argsort(-score, axis=1)[:, [ranks]], docs[..., -1])
    query = np.repeat(np.arange(n_queries), MAX_LISTS)
    rows, n = np.unique(np.column_stack([query, docs.reshape(-1, ranks)]), axis=0, return_counts=True)
    return Lists(rows[:, 0], rows[:, 1:], n / MAX_LISTS)


def _log_value(world: World, policy: list[Lists], days: Any) -> float:
    """Return the expected clicks per session of the logging ranker, mean of some days."""
    return float(
        np.mean(
            [(world.frequency[p.query] * p.weight) @ world.value(d, p.query, p.docs) for d in days for p in [policy[d]]]
        )
    )


def _choose_target(
    world: World,
    policy: list[Lists],
    target: str,
    ranks: int,
    n_docs: int,
    log_value: float,
    rng: np.random.Generator,
    *,
    close: bool,
) -> Lists:
    """Choose one list per query of the candidate ranker, of several of its kind.

    A close loss chooses lists by search until the gain is what it should be; where no choice of lists is, two of them
    are mixed.
    """
    usual = _usual_lists(policy[0], len(world.frequency))
    options = _options(world, usual, target, ranks, n_docs, rng)
    n_queries, n_options = options.shape[:2]
    query = np.repeat(np.arange(n_queries), n_options)
    value = world.period_value(query, options.reshape(-1, ranks)).reshape(n_queries, n_options)
    value *= world.frequency[:, None]
    pick = {"better": value.argmax(axis=1), "worse": value.argmin(axis=1)}.get(
        target, rng.integers(n_options, size=n_queries)
    )
    if target in {"better", "worse"}:  # most queries, not all
        pick = np.where(rng.random(n_queries) < 0.7, pick, rng.integers(n_options, size=n_queries))
    everyone = np.arange(n_queries)
    if not close:
        return Lists(everyone, options[everyone, pick], np.ones(n_queries))
    wanted = log_value * (1 + rng.uniform(*CLOSE_LOSS))
    window = 0.002 * log_value
    for _ in range(400):
        total = value[everyone, pick].sum()
        if abs(total - wanted) < window:
            break
        q = int(rng.integers(n_queries))
        change = total - value[q, pick[q]] + value[q]
        best = int(np.abs(change - wanted).argmin())
        if abs(change[best] - wanted) < abs(total - wanted):
            pick[q] = best
    total = value[everyone, pick].sum()
    if log_value * (1 + CLOSE_LOSS[0]) < total < log_value:
        return Lists(everyone, options[everyone, pick], np.ones(n_queries))
    extreme = value.argmin(axis=1) if total > wanted else value.argmax(axis=1)
    ends = total, value[everyone, extreme].sum()
    other = options[everyone, extreme]
    if (ends[1] - wanted) * (ends[0] - wanted) > 0:  # all lists of this kind earn more, or less, than the log
        every = _all_orders(world, n_docs, ranks, better=total < wanted)
        other, ends = every, (total, float(world.frequency @ world.period_value(everyone, every)))
    share = float(np.clip((wanted - ends[0]) / (ends[1] - ends[0]), 0, 1))
    return Lists(
        np.concatenate([everyone, everyone]),
        np.concatenate([options[everyone, pick], other]),
        np.repeat([1 - share, share], n_queries),
    )


def _usual_lists(policy: Lists, n_queries: int) -> Array:
    """Return the most probable list of each query."""
    return np.array(
        [
            policy.docs[rows[policy.weight[rows].argmax()]]
            for q in range(n_queries)
            for rows in [np.flatnonzero(policy.query == q)]
        ]
    )


def _all_orders(world: World, n_docs: int, ranks: int, *, better: bool) -> Array:
    """Return the documents of each query by attractiveness, from the best or from the worst."""
    a = world.attractiveness[: world.n_days].mean(axis=0)[:, :n_docs]
    return np.argsort(-a if better else a, axis=1)[:, :ranks]


def _options(
    world: World, usual: Array, target: str, ranks: int, n_docs: int, rng: np.random.Generator, size: int = 12
) -> Array:
    """Return several lists per query of one kind of candidate: (query, option, rank)."""
    n_queries = len(usual)
    options = np.repeat(usual[:, None], size, axis=1)
    for q in range(n_queries):
        for i in range(size):
            if target == "far":
                options[q, i] = rng.permutation(n_docs)[:ranks]
            elif target in {"near", "unseen"} or i % 2:
                one, other = rng.choice(ranks, 2, replace=False) if i % 3 else (0, 1)
                options[q, i, [one, other]] = options[q, i, [other, one]]
            elif i % 4:  # better or worse: another order of the same documents
                options[q, i] = rng.permutation(options[q, i])
            else:  # or documents by a noisy attractiveness, which the ranker may have shown rarely or never
                noise = rng.normal(scale=0.2, size=n_docs)
                best_first = np.argsort(-(world.attractiveness[0, q, :n_docs] + noise))
                options[q, i] = (best_first if target == "better" else best_first[::-1])[:ranks]
            if target == "unseen" and i % 3:  # a document that only the candidate has
                options[q, i, rng.integers(ranks)] = n_docs + rng.integers(2)
    return options


@dataclass(frozen=True)
class _Log:
    query: Array
    docs: Array
    clicks: Array
    count: Array
    day: Array


def _sample(world: World, policy: list[Lists], sessions: int, rng: np.random.Generator) -> _Log:
    """Draw the sessions of a log, as counts of distinct (day, query, list, click pattern)."""
    per_day = rng.multinomial(sessions, np.full(world.n_days, 1 / world.n_days))
    parts = []
    for day, n in enumerate(per_day):
        lists = policy[day]
        share = world.frequency[lists.query] * lists.weight
        drawn = rng.multinomial(n, share / share.sum())
        rows = np.flatnonzero(drawn)
        prob = world.click_patterns(day, lists.query[rows], lists.docs[rows])
        counts = rng.multinomial(drawn[rows], prob / prob.sum(axis=1, keepdims=True))
        row, pattern = np.nonzero(counts)
        clicked = patterns(lists.docs.shape[1])[pattern]
        parts.append(
            (lists.query[rows[row]], lists.docs[rows[row]], clicked, counts[row, pattern], np.full(len(row), day))
        )
    return _Log(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
