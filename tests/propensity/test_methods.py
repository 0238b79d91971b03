"""The pieces of each method against the same sums written out, other optimisers, and slopes by differences."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import minimize

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._dual_learning import _ClickedLists, _DualLearningTask
from clickshift.propensity._from_click_model import _distinct_lists
from clickshift.propensity._harvesting import _fit_all_pairs
from clickshift.propensity._interventions import count_interventions
from clickshift.propensity._orthogonal import DocumentCounts
from clickshift.propensity._rank_model import ExaminationEquations
from clickshift.propensity._regression_em import _RegressionEMTask
from clickshift.propensity.estimate import propensities
from tests.codes import raises_code
from tests.propensity.worlds import PLANTED, RANKS, clicks, swapped_clicks, users, world


def sums_over_documents(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Weighted clicks and weights of all pairs of ranks, document by document."""
    shown: dict[int, dict[int, tuple[float, float]]] = {}
    for pair, rank, n, c in zip(cells.pair, cells.situation, cells.impressions, cells.clicks, strict=True):
        shown.setdefault(int(pair), {})[int(rank)] = (n, c)
    clicked, weight = np.zeros((2, cells.n_ranks, cells.n_ranks))
    for at in shown.values():
        for k, other in permutations(at, 2):
            (n, c), (m, _) = at[k], at[other]
            clicked[k, other] += c * m / (n + m)
            weight[k, other] += n * m / (n + m)
    return clicked, weight


def test_weighted_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Cells.of(clicks(world(15, 0), 600, 1))
    clicked, weight = sums_over_documents(cells)
    for at_once in (1, 100, 1 << 22):  # numbers in a block: one query, some, all
        monkeypatch.setattr("clickshift.propensity._interventions._BLOCK_SIZE", at_once)
        found = count_interventions(cells, replicates=3, rng=np.random.default_rng(0))
        assert found.clicks[0] == pytest.approx(clicked)
        assert found.weight[0] == pytest.approx(weight)
        assert found.weight[1:] == pytest.approx(found.weight[1:].transpose(0, 2, 1))
        assert (found.weight[1:] != found.weight[0]).any()


def test_all_pairs_is_the_maximum_of_the_papers_likelihood() -> None:
    """As Agarwal et al. write it, with p and r in (0, 1), by a general optimiser."""
    found = count_interventions(Cells.of(clicks(world(30, 2), 1500, 3)), replicates=0, rng=np.random.default_rng(0))
    c, w = found.clicks[0], found.weight[0]
    upper = np.triu_indices(RANKS, 1)

    def loss(theta: np.ndarray) -> float:
        p, r = 1 / (1 + np.exp(-theta[:RANKS])), np.zeros((RANKS, RANKS))
        r[upper] = 1 / (1 + np.exp(-theta[RANKS:]))
        r += r.T
        return -sum(
            c[k, j] * np.log(p[k] * r[k, j]) + (w[k, j] - c[k, j]) * np.log(1 - p[k] * r[k, j])
            for k, j in permutations(range(RANKS), 2)
        )

    best = minimize(loss, np.zeros(RANKS + len(upper[0])), method="BFGS", options={"gtol": 1e-4})
    p = 1 / (1 + np.exp(-best.x[:RANKS]))
    ours = _fit_all_pairs(found.clicks, found.weight)[0]
    assert ours / ours[0] == pytest.approx(p / p[0], rel=1e-3)


def test_all_pairs_of_many_logs_at_once_and_of_extreme_ones() -> None:
    rng = np.random.default_rng(0)
    weight = rng.uniform(1, 50, (6, 5, 5))
    weight = weight + weight.transpose(0, 2, 1)
    clicked = weight * rng.uniform(0.01, 0.99, weight.shape)
    clicked[5] = weight[5] * np.array([1.0, 1e-6, 0.5, 1.0, 1e-9])[:, None]
    for diagonal in (weight, clicked):
        diagonal[:, np.arange(5), np.arange(5)] = 0
    together = _fit_all_pairs(clicked, weight)
    assert np.isfinite(together).all()
    for one in range(6):
        alone = _fit_all_pairs(clicked[one : one + 1], weight[one : one + 1])[0]
        assert alone / alone[0] == pytest.approx(together[one] / together[one][0], rel=1e-6)


def test_ranks_that_nothing_joins_are_unknown() -> None:
    weight = np.zeros((1, 5, 5))
    for k, other in ((0, 1), (1, 2), (3, 4)):
        weight[0, k, other] = weight[0, other, k] = 10
    curve = _fit_all_pairs(weight * np.array([0.5, 0.4, 0.2, 0.1, 0.1])[:, None], weight)[0]
    assert curve[:3] / curve[0] == pytest.approx([1, 0.8, 0.4])
    assert np.isnan(curve[3:]).all()


def test_marked_swaps_are_the_ratio_of_mantel_and_haenszel() -> None:
    log, swapped = swapped_clicks(world(25, 4), 3000, 5)
    found = propensities(log, "swaps", swapped=swapped, replicates=0)
    for rank in range(1, RANKS):
        mine = np.flatnonzero((swapped == 0) | (swapped == rank))
        here = there = 0.0
        for pair in np.unique(log.rankings.pair[mine]):
            at = {k: log.rankings.pair[mine, k] == pair for k in (0, rank)}
            n = {k: at[k].sum() for k in at}
            if n[0] and n[rank]:
                here += log.click[mine, rank][at[rank]].sum() * n[0] / (n[0] + n[rank])
                there += log.click[mine, 0][at[0]].sum() * n[rank] / (n[0] + n[rank])
        assert found.estimate[rank] == pytest.approx(here / there)


def test_sessions_that_were_not_swapped_with_a_rank_do_not_count_for_it() -> None:
    """Sessions marked for rank 3 whose clicks are nonsense leave rank 2 as it was."""
    log, swapped = swapped_clicks(world(25, 6), 3000, 7)
    click = np.where((swapped == 2)[:, None], True, log.click)
    before = propensities(log, "swaps", swapped=swapped, replicates=0).estimate
    after = propensities(Sessions(log.rankings, click), "swaps", swapped=swapped, replicates=0).estimate
    assert after[[1, 3]] == pytest.approx(before[[1, 3]])
    assert after[2] != pytest.approx(before[2])


def test_a_hole_cannot_be_swapped() -> None:
    log, swapped = swapped_clicks(world(5, 6), 50, 7)
    shown = log.rankings.shown.copy()
    shown[11, 1], swapped[11] = False, 1
    lists = Rankings(log.vocabulary, log.rankings.query, log.rankings.pair, shown)
    with raises_code("rank-out-of-range", row=12, value=2, n_ranks=RANKS, count=1):
        propensities(Sessions(lists, log.click & shown), "swaps", swapped=swapped, replicates=0)


def test_lists_with_holes_are_not_those_with_unknown_documents() -> None:
    """The document at rank 2 is not in the vocabulary of the model: its list is not the one with a hole there."""
    words, _, _ = Vocabulary.of([0] * 3, [7, 8, 9])
    pair = np.array([[0, -1, 1], [0, -1, 1]])
    lists = Rankings(words, np.zeros(2, int), pair, np.array([[1, 0, 1], [1, 1, 1]]))
    distinct, number = _distinct_lists(Sessions(lists, np.zeros((2, 3))))
    assert (len(distinct), number.tolist()) == (2, [0, 1])


def test_an_interval_knows_how_many_queries_and_replicates_it_has() -> None:
    """Of the mean of G numbers of variance 1, G = 8: as wide as Student's, on average."""
    rng, widths = np.random.default_rng(0), []
    for _ in range(300):
        x = 10 + rng.normal(size=8)
        weights = rng.standard_exponential((400, 8))
        means = weights @ x / weights.sum(axis=1)
        curve = ExaminationCurve(np.array([x.mean()]), means[:, None], 8.0)
        low, high, error = curve.interval(0.95)
        widths.append((high - low)[0])
        assert error[0] == pytest.approx(x.std(ddof=1) / np.sqrt(8), rel=0.2)
    assert np.mean(widths) == pytest.approx(2 * 2.365 / np.sqrt(8) * 0.965, rel=0.05)  # .965: mean of s, 7 freedoms


def slopes_by_differences(loss, scores: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    step = 1e-5
    return np.array([(loss(scores + step * e) - loss(scores - step * e)) / (2 * step) for e in np.eye(len(scores))])


def examined_at_random(log: Sessions, rng: np.random.Generator) -> ExaminationEquations:
    """Documents of a log, with shares of ranks that are as good as any."""
    documents = DocumentCounts.of(Cells.of(log))
    return ExaminationEquations(documents, rng.uniform(0.1, 1, documents.shown.shape))


def test_regression_em_follows_the_likelihood() -> None:
    rng = np.random.default_rng(0)
    examined = examined_at_random(clicks(world(4, 8), 400, 9), rng)
    task, log = _RegressionEMTask(examined), examined.documents
    scores = rng.normal(size=len(log.pairs))
    task.update(scores)
    theta = np.exp(examined.solution.log_examination)

    def loss(scores: np.ndarray) -> float:
        """Cell by cell, as the binomial distribution has it, but for what does not depend on scores."""
        total = 0.0
        for row, rank in np.ndindex(log.shown.shape):
            n, c = log.shown[row, rank], log.clicked[row, rank]
            p = theta[rank] / (1 + np.exp(-task._start - scores[row]))
            total -= c * np.log(p) + (n - c) * np.log(1 - p)
        return total

    assert task.loss(scores) == pytest.approx(loss(scores))
    slope, curve = task.derivatives(scores)
    assert slope == pytest.approx(slopes_by_differences(loss, scores), abs=1e-4)
    assert (curve > 0).all()


def some_lists(rng: np.random.Generator) -> Sessions:
    """Lists of 1 to 4 documents, many of them equal."""
    words = Vocabulary.of(np.repeat(np.arange(5), 5), np.arange(25))[0]
    query = rng.integers(0, 5, 300)
    pair = np.full((300, 4), -1)
    for row, q in enumerate(query):
        docs = 5 * q + rng.permutation(5)[: 1 + row % 4]
        pair[row, : len(docs)] = docs
    rankings = Rankings(words, query, pair)
    return Sessions(rankings, (rng.random(pair.shape) < 0.4) & rankings.shown, rng.integers(1, 4, 300))


def test_lists_of_the_dual_learning_algorithm() -> None:
    log = some_lists(np.random.default_rng(0))
    lists = _ClickedLists.of(log, np.unique(log.rankings.pair[log.rankings.shown]))
    assert len(lists.row) < len(log)
    assert lists.clicks.sum() == (log.click * log.count[:, None]).sum()
    assert (lists.clicks.sum(axis=1) > 0).all()
    totals: dict[tuple[int, ...], np.ndarray] = {}
    for pair, click, count in zip(log.rankings.pair, log.click, log.count, strict=True):
        if click.any():
            key = tuple(pair)
            totals[key] = totals.get(key, 0) + click * count
    for row, shown, clicked in zip(lists.row, lists.shown, lists.clicks, strict=True):
        key = tuple(np.where(shown, lists.pairs[row], -1))
        assert clicked.tolist() == totals[key].tolist()


def test_a_hole_is_no_document_of_a_list_and_an_unknown_document_ends_it() -> None:
    words, _, _ = Vocabulary.of([0] * 4, [6, 7, 8, 9])
    pair, shown = np.array([[0, -1, 1, 2], [0, -1, 1, 2]]), np.array([[1, 0, 1, 1], [1, 1, 1, 1]])
    log = Sessions(Rankings(words, np.zeros(2, int), pair, shown), np.array([[1, 0, 0, 1], [1, 0, 0, 1]]))
    lists = _ClickedLists.of(log, np.arange(3))
    assert lists.shown.tolist() == [[True, False, True, True], [True, False, False, False]]
    assert lists.clicks.tolist() == [[1, 0, 0, 1], [1, 0, 0, 0]]


def test_dual_learning_follows_its_ranking_loss() -> None:
    """The paper's loss, list by list."""
    rng = np.random.default_rng(1)
    log = some_lists(rng)
    examined = examined_at_random(log, rng)
    lists = _ClickedLists.of(log, examined.documents.pairs)
    task = _DualLearningTask(lists, examined)
    scores = rng.normal(size=len(lists.pairs))
    task.update(scores)
    g = np.log(task.examination)
    assert g == pytest.approx(examined.solution.log_examination - examined.solution.log_examination.max())

    def ranking_loss(f: np.ndarray) -> float:
        total = 0.0
        for row, shown, clicked in zip(lists.row, lists.shown, lists.clicks, strict=True):
            x = f[row[shown]]
            total -= float((clicked[shown] * np.exp(-g[: len(x)])) @ (x - np.log(np.exp(x).sum())))
        return total

    slope, curve = task.derivatives(scores)
    assert slope == pytest.approx(slopes_by_differences(ranking_loss, scores), abs=1e-4)
    assert (curve >= 0).all()


@pytest.mark.parametrize("method", ["regression-em", "dual-learning"])
def test_the_truth_is_where_it_rests(method: str) -> None:
    """With the true relevance as scores and expected clicks, it learns the planted curve exactly, and stays."""
    corpus = world(10, 10)
    log = clicks(corpus, 500, 11)
    documents = DocumentCounts.of(Cells.of(log))
    attractiveness = users(corpus).attractiveness[documents.pairs]
    sure = replace(documents, clicked=documents.shown * np.array(PLANTED) * attractiveness[:, None])
    examined = ExaminationEquations(sure, np.random.default_rng(0).uniform(0.1, 1, sure.shown.shape))
    if method == "dual-learning":
        lists = _ClickedLists.of(log, sure.pairs)
        task = _DualLearningTask(
            replace(lists, clicks=attractiveness[lists.row] * np.array(PLANTED) * lists.shown), examined
        )
        scores = np.log(attractiveness)
    else:
        task = _RegressionEMTask(examined)
        scores = np.log(attractiveness / (1 - attractiveness)) - task._start
    task.update(scores)
    assert np.exp(examined.solution.log_examination - examined.solution.log_examination[0]) == pytest.approx(PLANTED)
    slope, _ = task.derivatives(scores)
    assert slope == pytest.approx(0, abs=1e-3 if method == "regression-em" else 1e-9)
