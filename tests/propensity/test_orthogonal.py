"""Examination by comparable documents: exact where it must be, whatever is believed, and as sure as it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.models.pbm import PBM
from clickshift.propensity._nuisance_trees import FOLDS, CrossFittedTrees
from clickshift.propensity._orthogonal import DocumentCounts, Solution, solve_equations, within_documents
from clickshift.propensity._rank_model import _rank_shares, _unexplained_share
from clickshift.propensity.estimate import propensities
from tests.codes import raises_code
from tests.propensity.worlds import PLANTED, RANKS, clicks, expected, world

TRUTH = np.array(PLANTED)


def documents(
    groups: int, each: int, rng: np.random.Generator
) -> tuple[DocumentCounts, np.ndarray, np.ndarray, np.ndarray]:
    """As many clicks as are expected of documents that attract like the others of their group, but were shown in ways
    of their own; with attractiveness, each group's share of ranks, and the group."""
    group = np.repeat(np.arange(groups), each)
    shown = rng.integers(0, 40, (len(group), RANKS)) * rng.uniform(0.1, 2, (groups, RANKS))[group]
    attractiveness = rng.uniform(0.05, 0.9, groups)[group]
    share = np.stack([np.bincount(group, of_rank) for of_rank in shown.T], axis=1)[group]
    query = rng.permutation(len(group)) % 7
    found = DocumentCounts(np.arange(len(group)), query, shown, shown * TRUTH * attractiveness[:, None])
    return found, attractiveness, share, group


def relative(found: Solution) -> np.ndarray:
    curve: np.ndarray = np.exp(found.log_examination - found.log_examination[0])
    return curve


def test_one_right_belief_is_enough() -> None:
    """Right attractiveness with nonsense for placement, and the other way round; not both wrong."""
    rng = np.random.default_rng(0)
    log, attractiveness, share, _ = documents(5, 12, rng)
    wrong, nonsense = rng.uniform(0.05, 0.9, len(attractiveness)), rng.uniform(0.1, 1, share.shape)
    by_group = rng.uniform(0.05, 0.9, 5)[np.repeat(np.arange(5), 12)]  # errors are functions of features, too
    assert np.exp(solve_equations(log, nonsense, attractiveness).log_examination) == pytest.approx(PLANTED)
    assert relative(solve_equations(log, share, by_group)) == pytest.approx(PLANTED)
    assert relative(solve_equations(log, log.shown)) == pytest.approx(PLANTED)
    assert relative(solve_equations(log, log.shown, wrong)) == pytest.approx(PLANTED)
    assert relative(solve_equations(log, nonsense, by_group)) != pytest.approx(PLANTED, rel=0.02)


def test_errors_count_only_as_a_product() -> None:
    """Wrong by h in both, examination is wrong by h squared: a tenth of the error is a hundredth of what it does."""
    rng = np.random.default_rng(1)
    log, attractiveness, share, group = documents(6, 15, rng)
    off, aside = rng.normal(size=6)[group], rng.normal(size=(6, RANKS))[group]

    def wrong(h: float) -> float:
        found = relative(solve_equations(log, share * np.exp(h * aside), attractiveness * np.exp(h * off)))
        return float(np.abs(np.log(found / TRUTH)).max())

    assert wrong(0.02) / wrong(0.002) == pytest.approx(100, rel=0.2)


def test_a_document_compared_with_itself_is_the_conditional_likelihood() -> None:
    """Of the ranks on which a document's clicks fell, given how many there were, by a general optimiser."""
    log = DocumentCounts.of(Cells.of(clicks(world(20, 2), 1500, 3)))

    def loss(x: np.ndarray) -> float:
        p = log.shown * np.exp(np.append(0.0, x))
        p /= p.sum(axis=1, keepdims=True)
        return -float((log.clicked * np.log(np.maximum(p, 1e-300))).sum())

    best = minimize(loss, np.zeros(RANKS - 1), method="BFGS", options={"gtol": 1e-4})
    assert relative(solve_equations(log, log.shown))[1:] == pytest.approx(np.exp(best.x), rel=1e-4)


def test_documents_that_were_seen_once_at_each_rank() -> None:
    """The ratio of clicks: unbiased odds. A fitted PBM has a number for each document, and finds it only where they
    borrow from each other."""
    rng, n = np.random.default_rng(4), 3000
    words = Vocabulary.of(np.repeat(np.arange(n), 2), np.arange(2 * n))[0]
    pair = np.repeat(2 * np.arange(n)[:, None] + [0, 1], 2, axis=0)
    pair[1::2] = pair[1::2, ::-1]
    lists = Rankings(words, np.repeat(np.arange(n), 2), pair)
    user = PBM(words, np.append(rng.uniform(0.1, 0.9, 2 * n), 0.5), np.array([1.0, 0.5]))
    log = user.sample(lists, rng=rng)
    found = propensities(log, "PBM")
    assert found.estimate[1] == pytest.approx(log.click[:, 1].sum() / log.click[:, 0].sum())
    assert found.low[1] < 0.5 < found.high[1]
    assert cs.fit("PBM", log).examination[1] == pytest.approx(0.5, abs=0.03)
    assert cs.fit(cs.MaximumLikelihood("PBM", prior=(0.1, 1.0)), log).examination[1] > 0.55


def test_influence_is_what_a_query_moves() -> None:
    cells = Cells.of(clicks(world(12, 5), 900, 6))
    log = DocumentCounts.of(cells)
    rng, step = np.random.default_rng(7), 1e-5
    for belief in (None, rng.uniform(0.1, 0.8, len(log.pairs))):
        share = rng.uniform(0.1, 1, log.shown.shape)
        before = solve_equations(log, share, belief)
        assert before.influence.sum(axis=0) == pytest.approx(0, abs=1e-8)
        for query in (0, 5):
            more = 1 + step * (log.query == query)[:, None]
            after = solve_equations(
                DocumentCounts(log.pairs, log.query, log.shown * more, log.clicked * more), share, belief
            )
            moved = (after.log_examination - before.log_examination) / step
            assert before.influence[query] == pytest.approx(moved, abs=1e-4)


def test_expected_clicks_and_any_reference() -> None:
    corpus = world(40, 8)
    cells = expected(corpus, clicks(corpus, 3000, 9))
    found = within_documents(cells, reference=2, replicates=5, rng=np.random.default_rng(0)).relative_to(2)
    assert found.estimate == pytest.approx(TRUTH / TRUTH[2])
    assert found.replicates.shape == (5, RANKS)


@pytest.mark.parametrize("connected", [False, True])
def test_ranks_that_no_clicked_document_joins(connected: bool) -> None:
    """Ranks 1 and 2 change places, 3 stays alone, or changes places for nothing, 4 is never clicked: PBM gives a number
    for 3, without an interval."""
    rng = np.random.default_rng(10)
    words = Vocabulary.of(np.repeat(np.arange(30), 4), np.arange(120))[0]
    query = np.repeat(np.arange(30), 60)
    pair = 4 * query[:, None] + np.arange(4)
    pair[::2, :2] = pair[::2, 1::-1]
    click = rng.random(pair.shape) < 0.5 * TRUTH
    click[:, 3] = False
    if connected:
        pair[::3] = np.where(query[::3, None] < 10, pair[::3][:, [2, 3, 0, 1]], pair[::3])
        click[query < 10] = False
    log = Sessions(Rankings(words, query, pair), click)
    with pytest.warns(ClickshiftWarning) as caught:
        found = propensities(log, "PBM")
    findings = [w.message for w in caught if isinstance(w.message, ClickshiftWarning)]
    open_rank = ("rank-not-identified", (3,)) if connected else ("weakly-connected-ranks", (3, 4))
    assert [(w.code, w.facts["ranks"]) for w in findings] == [open_rank, ("rank-without-clicks", (4,))]
    assert found.estimate[1] == pytest.approx(click[:, 1].sum() / click[:, 0].sum())
    assert found.estimate[2] > 0
    assert np.isnan(found.low).tolist() == [False, False, True, False]


def test_placements_are_told_by_features() -> None:
    """Two kinds of documents, one of which is mostly on top; what is left open is what chance decides."""
    rng = np.random.default_rng(11)
    kind = rng.integers(0, 2, 600)
    top = rng.random(600) < np.where(kind == 0, 0.9, 0.2)
    shown = np.stack([top, ~top], axis=1) * 5.0
    log = DocumentCounts(np.arange(600), np.arange(600) // 3, shown, shown)
    fold = log.query % FOLDS
    share = _rank_shares(CrossFittedTrees(np.stack([kind, rng.normal(size=600)], axis=1)), log, fold)
    assert share.sum(axis=1) == pytest.approx(1)
    for k, chance in ((0, 0.9), (1, 0.2)):
        assert share[kind == k, 0].mean() == pytest.approx(top[kind == k].mean(), abs=0.03)
        assert share[kind == k, 0].mean() == pytest.approx(chance, abs=0.06)
    p = shown.mean(axis=0) / 5
    wrong = np.where(kind == 0, np.where(top, 0.1, 0.9), np.where(top, 0.8, 0.2)).mean()
    assert _unexplained_share(shown, share) == pytest.approx(wrong / (1 - (p**2).sum()), abs=0.05)
    assert _unexplained_share(shown, shown / 5) == 0
    assert _unexplained_share(shown, np.broadcast_to(p, shown.shape)) == pytest.approx(1)


def test_features_that_say_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to compare: a warning, and no interval."""
    monkeypatch.setattr("clickshift.propensity._nuisance_trees._ROUNDS", 40)
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    corpus = world(40, 12)
    log = clicks(corpus, 4000, 13, rankers=[3])
    assert corpus.features is not None
    rank = np.argsort(np.argsort(-corpus.features[:, 2].reshape(40, -1), axis=1), axis=1).reshape(-1, 1)
    knowing = Corpus(corpus.vocabulary, corpus.label, np.hstack([corpus.features, rank]))
    with pytest.warns(ClickshiftWarning) as caught:
        found = propensities(log, "regression-em", corpus=knowing)
    codes = [w.message.code for w in caught if isinstance(w.message, ClickshiftWarning)]
    assert "rank-determined-by-features" in codes
    assert found.interval == "none"
    assert np.isnan(found.low[1:]).all()
    assert (found.estimate > 0).all()


@pytest.mark.parametrize("method", ["regression-em", "dual-learning"])
def test_features_that_say_nothing_leave_the_curve_of_clicks(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value for all documents, or next to no documents."""
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    corpus = world(6, 17)
    log = clicks(corpus, 900, 18)
    same = Corpus(corpus.vocabulary, corpus.label, np.ones((len(corpus.label), 2)))
    found = propensities(log, method, corpus=same, replicates=0)
    assert found.estimate == pytest.approx(log.ctr_by_rank() / log.ctr_by_rank()[0])
    corpus = world(2, 19, docs=4)
    few = propensities(clicks(corpus, 900, 20), method, corpus=corpus, replicates=0)
    assert (few.estimate > 0).all()


def test_nothing_clicked() -> None:
    corpus = world(10, 14)
    log = clicks(corpus, 300, 15)
    silent = Sessions(log.rankings, np.zeros_like(log.click))
    for method in ("regression-em", "dual-learning"):
        with raises_code("no-clicks", DataError):
            propensities(silent, method, corpus=corpus)
