"""The best policy of each estimator against linear programs over everything, and against all lists of tiny worlds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from clickshift.errors import DataError
from clickshift.ope._optimal_exposure import _greedy_exposures, _placement_from_exposures
from clickshift.ope._optimise import BestPlacement, best_exposure, best_lists, best_placement
from tests.codes import raises_code

CLIPS = [0.4, 1.0, 1.3, 3.0, 20.0, np.inf]


class World:
    """The log of one query as records, and the estimators as the paper writes them: sums over records."""

    def __init__(self, rng: np.random.Generator, docs: int, ranks: int, lists: int, records: int, short: bool = False):
        self.docs, self.ranks = docs, ranks
        distinct = [
            tuple(rng.permutation(docs)[: rng.integers(1, ranks + 1) if short else ranks]) for _ in range(lists)
        ]
        distinct.append(tuple(rng.permutation(docs)[:ranks]))
        taste = rng.beta(1, 3, (docs, ranks))
        self.lists = [distinct[i] for i in np.r_[len(distinct) - 1, rng.integers(0, len(distinct), records - 1)]]
        self.clicked = [[bool(rng.random() < taste[a, k]) for k, a in enumerate(shown)] for shown in self.lists]
        self.impressions = np.zeros((docs, ranks), np.int64)
        self.clicks = np.zeros((docs, ranks), np.int64)
        for shown, clicked in zip(self.lists, self.clicked, strict=True):
            for k, a in enumerate(shown):
                self.impressions[a, k] += 1
                self.clicks[a, k] += clicked[k]
        self.offsets = np.array([0, docs])

    def by_list(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = sorted(set(self.lists))
        pair = np.array([[*shown, *[-1] * (self.ranks - len(shown))] for shown in found])
        records = np.array([self.lists.count(shown) for shown in found])
        reward = np.zeros(len(found))
        for shown, clicked in zip(self.lists, self.clicked, strict=True):
            reward[found.index(shown)] += sum(theta[k] for k, c in enumerate(clicked) if c)
        return pair, records, reward

    def item_position(self, placement: np.ndarray, theta: np.ndarray, clip: float) -> float:
        """V_IP, record by record."""
        n, total = len(self.lists), 0.0
        for shown, clicked in zip(self.lists, self.clicked, strict=True):
            for k, a in enumerate(shown):
                if clicked[k]:
                    total += theta[k] * min(placement[a, k] / (self.impressions[a, k] / n), clip)
        return total / n

    def position_based(self, placement: np.ndarray, theta: np.ndarray, seen: np.ndarray, clip: float) -> float:
        """V_PBM, record by record."""
        n, total = len(self.lists), 0.0
        for shown, clicked in zip(self.lists, self.clicked, strict=True):
            for k, a in enumerate(shown):
                if clicked[k] and theta[k] > 0:
                    ratio = (theta * seen) @ placement[a] / ((theta * seen) @ self.impressions[a] / n)
                    total += theta[k] * min(ratio, clip)
        return total / n


def solved(gain: np.ndarray, **limits: object) -> float:
    found = linprog(-gain, method="highs", **limits)
    assert found.status == 0, found.message
    return -float(found.fun)


def check_placement(best: BestPlacement, length: int) -> None:
    """It is a policy, and its lists are that policy."""
    assert best.placement.min() >= 0
    assert best.placement.sum(axis=1).max() <= 1 + 1e-12
    assert np.abs(best.placement.sum(axis=0) - (np.arange(best.placement.shape[1]) < length)).max() < 1e-12
    rebuilt = np.zeros_like(best.placement)
    for documents, share in zip(best.lists.pair[:, :length].tolist(), best.lists.weight, strict=True):
        assert len(set(documents)) == length
        rebuilt[documents, range(length)] += share
    assert np.abs(rebuilt - best.placement).max() < 1e-9


@pytest.mark.parametrize("clip", CLIPS)
def test_lists_are_as_good_as_the_papers_linear_program(clip: float, rng: np.random.Generator) -> None:
    query, pair, records, reward, optimum = [], [], [], [], []
    for q in range(25):
        world = World(rng, 6, 3, lists=12, records=40, short=q % 2 == 1)
        lists, n, r = world.by_list(np.ones(3))
        logged = n / n.sum()
        # variables h and c; the paper's own: max sum f c, c pi <= h, c <= M, h in the simplex
        m = len(n)
        optimum.append(
            solved(
                np.r_[np.zeros(m), r / n.sum()],
                A_ub=np.c_[-np.eye(m), np.diag(logged)],
                b_ub=np.zeros(m),
                A_eq=[np.r_[np.ones(m), np.zeros(m)]],
                b_eq=[1],
                bounds=[(0, 1)] * m + [(0, None if clip == np.inf else clip)] * m,
            )
        )
        query, pair = [*query, *[q] * m], [*pair, *lists]
        records, reward = [*records, *n], [*reward, *r]
    mixed = rng.permutation(len(query))  # in any order
    query, pair, records, reward = (np.array(values)[mixed] for values in (query, pair, records, reward))
    best = best_lists(query, pair, records, reward, n_queries=25, clip=clip)
    assert best.value == pytest.approx(np.array(optimum), abs=1e-9)
    assert np.bincount(best.lists.query, best.lists.weight) == pytest.approx(np.ones(25), abs=1e-12)
    assert (best.lists.weight > 0).all()
    # the value is that of the policy returned
    again = np.zeros(25)
    known = {(q, *p): (n, r) for q, p, n, r in zip(query.tolist(), pair.tolist(), records, reward, strict=True)}
    for q, p, h in zip(best.lists.query.tolist(), best.lists.pair.tolist(), best.lists.weight, strict=True):
        n, r = known[q, *p]
        total = records[query == q].sum()
        again[q] += r / total * min(h / (n / total), clip)
    assert best.value == pytest.approx(again, abs=1e-12)


def test_below_1_a_clip_leaves_the_logging_policy(rng: np.random.Generator) -> None:
    world = World(rng, 5, 3, lists=6, records=50)
    theta = np.array([1.0, 0.6, 0.5])
    mean = sum(theta[k] for clicked in world.clicked for k, c in enumerate(clicked) if c) / 50
    pair, records, reward = world.by_list(theta)
    lists = best_lists(np.zeros(len(records), int), pair, records, reward, n_queries=1, clip=0.3)
    kept = {tuple(p): w for p, w in zip(lists.lists.pair.tolist(), lists.lists.weight, strict=True)}
    assert kept == pytest.approx({tuple(p): n / 50 for p, n in zip(pair.tolist(), records, strict=True)})
    assert lists.value[0] == pytest.approx(0.3 * mean)
    counts = world.offsets, world.impressions, world.clicks
    for best in (
        best_exposure(*counts, theta=theta, examination=np.array([1.0, 0.5, 0.3]), clip=0.3),
        best_placement(*counts, theta=theta, clip=0.3),
    ):
        assert best.placement == pytest.approx(world.impressions / 50)
        assert best.value[0] == pytest.approx(0.3 * mean)


def test_of_equally_good_lists_the_better_known_is_shown() -> None:
    best = best_lists(
        np.zeros(3, int), np.array([[0], [1], [2]]), np.array([1, 9, 5]), np.array([1.0, 9.0, 5.0]), n_queries=1
    )
    assert best.lists.pair.tolist() == [[1]]


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("kind", ["PBM", "Item", "DCG", "clicks at 2", "odd ranks"])
def test_exposure_is_as_good_as_any_that_majorisation_allows(clip: float, kind: str, rng: np.random.Generator) -> None:
    theta, seen = {
        "PBM": (np.ones(4), 1 / np.arange(1, 5)),
        "Item": (np.ones(4), np.ones(4)),
        "DCG": (1 / np.log2(np.arange(2, 6)), 1 / np.arange(1, 5)),
        "clicks at 2": (np.array([1.0, 1.0, 0.0, 0.0]), 1 / np.arange(1, 5)),
        "odd ranks": (np.array([0.5, 1.0, 0.0, 2.0]), np.array([0.9, 0.2, 1.0, 0.6])),
    }[kind]
    for trial in range(6):
        world = World(rng, int(rng.integers(4, 8)), 4, lists=10, records=60, short=trial % 3 == 2)
        n, worth = len(world.lists), theta * seen
        clicks, exposed = world.clicks @ theta, world.impressions @ worth
        upper = np.cumsum(np.sort(worth)[::-1])
        # every set of documents: no more exposure than its best places give
        sets = np.array([bits for bits in itertools.product([0, 1], repeat=world.docs) if any(bits)], float)
        bound = upper[np.minimum(sets.sum(axis=1).astype(int), 4) - 1]
        density = np.where(exposed > 0, clicks / np.maximum(exposed, 1e-300), 0)
        cap = [(0, None if clip == np.inf and x > 0 else (clip * x / n if x > 0 else 0)) for x in exposed]
        optimum = solved(density, A_ub=sets, b_ub=bound, bounds=cap)
        best = best_exposure(
            world.offsets, world.impressions, world.clicks, theta=theta, examination=seen.astype(float), clip=clip
        )
        assert best.value[0] == pytest.approx(optimum, abs=1e-9)
        assert world.position_based(best.placement, theta, seen, clip) == pytest.approx(optimum, abs=1e-9)
        check_placement(best, 4)


@pytest.mark.parametrize("clip", CLIPS)
def test_placements_are_as_good_as_the_full_linear_program(clip: float, rng: np.random.Generator) -> None:
    """Variables h and c for all cells and ranks filled exactly, as in the paper; ours has clicked cells only."""
    theta = np.array([1.0, 0.63, 0.5])
    for trial in range(8):
        world = World(rng, int(rng.integers(3, 8)), 3, lists=8, records=40, short=trial % 2 == 1)
        n, cells = len(world.lists), world.docs * 3
        logged = (world.impressions / n).ravel()
        ceiling = [(0, (None if clip == np.inf else clip) if p > 0 else 0) for p in logged]
        optimum = solved(
            np.r_[np.zeros(cells), (world.clicks * theta).ravel() / n],
            A_ub=np.block(
                [
                    [-np.eye(cells), np.diag(logged)],
                    [np.kron(np.eye(world.docs), np.ones((1, 3))), np.zeros((world.docs, cells))],
                ]
            ),
            b_ub=np.r_[np.zeros(cells), np.ones(world.docs)],
            A_eq=np.c_[np.kron(np.ones((1, world.docs)), np.eye(3)), np.zeros((3, cells))],
            b_eq=np.ones(3),
            bounds=[(0, 1)] * cells + ceiling,
        )
        best = best_placement(world.offsets, world.impressions, world.clicks, theta=theta, clip=clip)
        assert best.value[0] == pytest.approx(optimum, abs=1e-9)
        assert world.item_position(best.placement, theta, clip) == pytest.approx(optimum, abs=1e-9)
        check_placement(best, 3)


def test_without_a_clip_one_list_is_best_of_all_lists(rng: np.random.Generator) -> None:
    theta, seen = np.array([1.0, 0.63, 0.5]), np.array([1.0, 0.5, 1 / 3])
    for _ in range(10):
        world = World(rng, 5, 3, lists=8, records=60)
        counts = world.offsets, world.impressions, world.clicks
        by_place, by_exposure = [], []
        for documents in itertools.permutations(range(5), 3):
            certain = np.zeros((5, 3))
            certain[documents, range(3)] = 1
            by_place.append(world.item_position(certain, theta, np.inf))
            by_exposure.append(world.position_based(certain, theta, seen, np.inf))
        assert best_placement(*counts, theta=theta).value[0] == pytest.approx(max(by_place), abs=1e-9)
        found = best_exposure(*counts, theta=theta, examination=seen)
        assert found.value[0] == pytest.approx(max(by_exposure), abs=1e-9)
        assert len(found.lists.weight) == 1


def test_many_queries_at_once_are_each_alone(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickshift.ope._optimise._CELLS_PER_PROGRAM", 40)
    monkeypatch.setattr("clickshift.ope._optimise._QUERIES_PER_TASK", 7)
    theta, seen = np.ones(3), np.array([1.0, 0.5, 1 / 3])
    worlds = [World(rng, int(rng.integers(3, 9)), 3, lists=6, records=int(rng.integers(5, 60))) for _ in range(30)]
    nothing = np.zeros((4, 3), np.int64)
    parts = [(w.impressions, w.clicks) for w in worlds]
    parts[11] = (nothing, nothing)
    parts[12] = (nothing[:0], nothing[:0])
    offsets = np.cumsum([0, *(len(i) for i, _ in parts)])
    impressions, clicks = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    for best, alone in (
        (
            best_placement(offsets, impressions, clicks, theta=theta, clip=2),
            lambda *c: best_placement(*c, theta=theta, clip=2),
        ),
        (
            best_exposure(offsets, impressions, clicks, theta=theta, examination=seen, clip=2),
            lambda *c: best_exposure(*c, theta=theta, examination=seen, clip=2),
        ),
    ):
        assert np.flatnonzero(np.isnan(best.value)).tolist() == [11, 12]
        assert not best.placement[offsets[11] : offsets[13]].any()
        for q, (i, c) in enumerate(parts):
            if q not in {11, 12}:
                single = alone(np.array([0, len(i)]), i, c)
                assert best.value[q] == pytest.approx(single.value[0], abs=1e-12)
        assert np.bincount(best.lists.query, best.lists.weight)[[0, 10, 13, 29]] == pytest.approx(np.ones(4))
        assert best.lists.pair.min() >= 0


def test_exposures_keep_every_bound_and_are_placed(rng: np.random.Generator) -> None:
    for _ in range(200):
        n, ranks = int(rng.integers(3, 40)), int(rng.integers(1, 4))
        value = np.sort(rng.random(ranks) * (rng.random(ranks) < 0.8))[::-1]
        exposure = _greedy_exposures(rng.random(n) * rng.choice([0.05, 0.3, 2.0]), value)
        due = np.sort(exposure)[::-1]
        upper = np.cumsum(np.r_[value, np.zeros(n - ranks)])
        assert (np.cumsum(due) <= upper + 1e-12).all()
        placed = _placement_from_exposures(due, value)
        assert placed.min() >= 0
        assert placed.sum(axis=0) == pytest.approx(np.ones(ranks), abs=1e-12)
        assert placed.sum(axis=1).max() <= 1 + 1e-12
        given = placed @ value
        assert (given >= due[: len(given)] - 1e-12).all()
        assert not due[len(given) :].any()
        if due.sum() > upper[-1] - 1e-12:
            assert given == pytest.approx(due[: len(given)], abs=1e-12)


@pytest.mark.parametrize("clip", [0.5, 2.0, np.inf])
def test_smallest_logs(clip: float) -> None:
    one = np.array([0, 1])
    for clicks, value in ((np.array([[0]]), 0.0), (np.array([[3]]), 0.75 * min(clip, 1))):
        placed = best_placement(one, np.array([[4]]), clicks, theta=np.ones(1), clip=clip)
        exposed = best_exposure(one, np.array([[4]]), clicks, theta=np.ones(1), examination=np.ones(1), clip=clip)
        listed = best_lists(
            np.array([0]), np.array([[0]]), np.array([4]), clicks.sum(axis=1).astype(float), n_queries=1, clip=clip
        )
        for best in (placed, exposed, listed):
            assert best.value.tolist() == [value]
            assert best.lists.pair.tolist() == [[0]]
            assert best.lists.weight.tolist() == [1.0]


@pytest.mark.parametrize("clip", [1.5, np.inf])
def test_without_clicks_the_logging_policy_stays(clip: float, rng: np.random.Generator) -> None:
    world = World(rng, 6, 3, lists=5, records=30)
    nothing = np.zeros_like(world.clicks)
    best = best_placement(world.offsets, world.impressions, nothing, theta=np.ones(3), clip=clip)
    assert best.placement == pytest.approx(world.impressions / 30)
    assert best.value.tolist() == [0.0]
    best = best_exposure(world.offsets, world.impressions, nothing, theta=np.ones(3), examination=np.ones(3), clip=clip)
    check_placement(best, 3)
    assert best.value.tolist() == [0.0]


def test_lists_are_no_longer_than_logged_ones() -> None:
    """Two documents, four ranks; the second query has one document. A document never shown is not shown now."""
    impressions = np.array([[3, 1, 0, 0], [1, 3, 0, 0], [0, 0, 0, 0], [5, 0, 0, 0]])
    clicks = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0]])
    offsets, theta = np.array([0, 3, 4]), np.ones(4)
    for best in (
        best_placement(offsets, impressions, clicks, theta=theta),
        best_exposure(offsets, impressions, clicks, theta=theta, examination=1 / np.arange(1.0, 5)),
    ):
        assert best.lists.pair.tolist() == [[1, 0, -1, -1], [3, -1, -1, -1]]
        assert best.lists.query.tolist() == [0, 1]


def test_bad_input_is_refused() -> None:
    impressions, clicks, offsets = np.array([[3, 1], [1, 3]]), np.array([[0, 1], [1, 0]]), np.array([0, 2])
    good = {"offsets": offsets, "impressions": impressions, "clicks": clicks, "theta": np.ones(2)}
    for change, code, facts in (
        ({"clip": 0.0}, "bad-clip", {"value": 0.0}),
        ({"clip": np.nan}, "bad-clip", {}),
        ({"theta": np.array([1.0, -1.0])}, "bad-reward", {"n_ranks": 2}),
        ({"clicks": np.array([[4, 0], [0, 0]])}, "bad-count", {"name": "clicks"}),
        ({"offsets": np.array([0, 1])}, "bad-offsets", {"n_pairs": 2}),
        ({"impressions": np.array([[3, 1], [1, 4]])}, "bad-count", {"name": "impressions"}),
        ({"impressions": np.array([[3, 2], [1, 2]])}, "bad-count", {"name": "impressions"}),
    ):
        with raises_code(code, DataError, **facts):
            best_placement(**{**good, **change})
    three = {"impressions": np.array([[1, 1, 0], [1, 0, 1]]), "clicks": np.zeros((2, 3), int), "theta": np.ones(3)}
    with raises_code("bad-count", DataError, query=0, n_ranks=3):
        best_placement(**{**good, **three})
    with raises_code("bad-examination", DataError, n_ranks=2):
        best_exposure(**good, examination=np.array([1.0, 0.0]))
    lists = {
        "query": np.array([0]),
        "pair": np.array([[0]]),
        "records": np.array([2]),
        "reward": np.array([1.0]),
        "n_queries": 1,
    }
    for change, code, facts in (
        ({"records": np.array([0])}, "bad-count", {"value": 0}),
        ({"reward": np.array([-1.0])}, "bad-reward", {}),
        ({"query": np.array([1])}, "query-out-of-range", {"n_queries": 1}),
        ({"clip": -1.0}, "bad-clip", {"value": -1.0}),
    ):
        with raises_code(code, DataError, **facts):
            best_lists(**{**lists, **change})
