"""Worlds that can be written out: four documents, two ranks, twelve lists, and the paper's definitions as loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.ope import WeightedLists

DOCS = 4
RANKS = 2
LISTS = list(permutations(range(DOCS), RANKS))
WORDS, _, _ = Vocabulary.of(np.zeros(DOCS, int), np.arange(DOCS))
EXAMINATION = (1.0, 0.5)  # 1 / rank

Clicks = Callable[[tuple[int, ...], int], float]
"""P(click at this rank of this list), in whole percents; clicks are independent of each other."""

ATTRACTIVENESS = (0.2, 0.8, 0.4, 0.6)


def pbm(shown: tuple[int, ...], rank: int) -> float:
    return ATTRACTIVENESS[shown[rank]] * EXAMINATION[rank]


def dctr(shown: tuple[int, ...], rank: int) -> float:
    return ATTRACTIVENESS[shown[rank]]


def by_place(shown: tuple[int, ...], rank: int) -> float:
    return ((0.1, 0.7), (0.9, 0.2), (0.4, 0.4), (0.6, 0.5))[shown[rank]][rank]


def by_rank(shown: tuple[int, ...], rank: int) -> float:
    return (0.7, 0.3)[rank]


def cascade(shown: tuple[int, ...], rank: int) -> float:
    """A good document on top keeps users from the next one."""
    above = ATTRACTIVENESS[shown[0]] if rank else 0.0
    return round(ATTRACTIVENESS[shown[rank]] * (0.5 if above > 0.5 else 1.0), 1)


def whole_list(shown: tuple[int, ...], rank: int) -> float:
    """The neighbour matters, above or below."""
    return round(min(0.9, ATTRACTIVENESS[shown[rank]] * (0.5 if sum(shown) % 2 else 1.0) + 0.1 * rank), 1)


@dataclass(frozen=True)
class World:
    """Probabilities of the twelve lists, in sixtieths, so that a log can hold each as often as it is likely."""

    logging: tuple[int, ...]
    target: tuple[float, ...]
    click: Clicks

    def pi(self) -> np.ndarray:
        return np.array(self.logging) / sum(self.logging)

    def h(self) -> np.ndarray:
        return np.array(self.target) / sum(self.target)

    def value(self, theta: tuple[float, ...] = (1.0, 1.0)) -> float:
        reward = [sum(theta[k] * self.click(a, k) for k in range(RANKS)) for a in LISTS]
        return float(self.h() @ reward)

    def population(self) -> Sessions:
        """A log in which everything happens exactly as often as it is likely: its mean is the expectation."""
        pair, click, count = [], [], []
        for shown, times in zip(LISTS, self.logging, strict=True):
            p = [round(100 * self.click(shown, k)) for k in range(RANKS)]
            assert np.allclose(p, [100 * self.click(shown, k) for k in range(RANKS)])
            for pattern in product((0, 1), repeat=RANKS):
                n = times * int(np.prod([x if c else 100 - x for x, c in zip(p, pattern, strict=True)]))
                if n:
                    pair.append(shown)
                    click.append(pattern)
                    count.append(n)
        query = np.zeros(len(pair), np.int32)
        return Sessions(Rankings(WORDS, query, np.array(pair, np.int32)), np.array(click, bool), np.array(count))

    def lottery(self, prob: np.ndarray) -> WeightedLists:
        return WeightedLists(all_lists(), prob)

    def draw(self, n: int, rng: np.random.Generator) -> Sessions:
        rows = rng.choice(len(LISTS), n, p=self.pi())
        pair = np.array(LISTS, np.int32)[rows]
        prob = np.array([[self.click(a, k) for k in range(RANKS)] for a in LISTS])[rows]
        log_prob = np.log(self.pi()[rows])
        rankings = Rankings(WORDS, np.zeros(n, np.int32), pair, log_prob=log_prob)
        return Sessions(rankings, rng.random((n, RANKS)) < prob)


def all_lists() -> Rankings:
    return Rankings(WORDS, np.zeros(len(LISTS), np.int32), np.array(LISTS, np.int32))


Record = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Query, list, clicks."""
Policy = dict[int, dict[tuple[int, ...], float]]
"""Query -> list -> probability."""


def records_of(sessions: Sessions, ranks: int) -> list[Record]:
    """Every session by itself."""
    r = sessions.rankings
    return [
        (int(r.query[i]), list_of(r, i, ranks), tuple(sessions.click[i][:ranks].tolist()))
        for i in range(len(sessions))
        for _ in range(int(sessions.count[i]))
    ]


HOLE = -1


def list_of(rankings: Rankings, row: int, ranks: int) -> tuple[int, ...]:
    """The first documents of a list, with holes in their places, but not below the last document."""
    return without_end(tuple(np.where(rankings.shown[row], rankings.pair[row], HOLE)[:ranks].tolist()))


def without_end(shown: tuple[int, ...]) -> tuple[int, ...]:
    """A list without the holes after its last document."""
    while shown and shown[-1] == HOLE:
        shown = shown[:-1]
    return shown


def cut(policy: Policy, ranks: int) -> Policy:
    out: Policy = {}
    for query, lists in policy.items():
        shorter: dict[tuple[int, ...], float] = defaultdict(float)
        for shown, prob in lists.items():
            shorter[without_end(shown[:ranks])] += prob
        out[query] = dict(shorter)
    return out


def list_frequencies(records: list[Record]) -> Policy:
    times = Counter((q, a) for q, a, _ in records)
    sessions = Counter(q for q, _, _ in records)
    out: Policy = defaultdict(dict)
    for (q, a), n in times.items():
        out[q][a] = n / sessions[q]
    return out


def at(policy: Policy, query: int, doc: int, rank: int) -> float:
    return sum(p for a, p in policy[query].items() if len(a) > rank and a[rank] == doc)


def ratio(name: str, h: Policy, pi: Policy, q: int, a: tuple[int, ...], k: int, theta: list[float]) -> float:
    """The importance weight of Li et al. (2018), sections 3 and 5, and McInerney et al. (2020)."""
    ranks = range(len(theta))
    if name == "List":
        up, down = h[q].get(a, 0.0), pi[q][a]
    elif name == "IP":
        up, down = at(h, q, a[k], k), at(pi, q, a[k], k)
    elif name == "RIPS":
        up, down = (sum(p for b, p in policy[q].items() if b[: k + 1] == a[: k + 1]) for policy in (h, pi))
    elif name == "RCTR":
        return 1.0
    else:
        p = [1.0 if name == "Item" else 1 / (j + 1) for j in ranks]
        up, down = (sum(theta[j] * p[j] * at(policy, q, a[k], j) for j in ranks) for policy in (h, pi))
    return up / down


def by_definition(
    name: str, records: list[Record], h: Policy, pi: Policy, theta: list[float], clip: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """The estimate session by session, and by rank the mean of clipped weight x theta x click and of the weight."""
    reward, weight = np.zeros(len(theta)), np.zeros(len(theta))
    used = [r for r in records if r[0] in h]
    for q, a, c in used:
        for k in range(len(a)):
            if a[k] == HOLE:
                continue
            w = 1.0 if name == "RCTR" else min(ratio(name, h, pi, q, a, k, theta), clip)  # RCTR has no weights
            reward[k] += theta[k] * c[k] * w
            weight[k] += w
    return float(reward.sum() / len(used)), reward / len(used), weight / len(used)
