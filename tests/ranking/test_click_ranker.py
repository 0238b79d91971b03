"""Training: batches hold what they should, losses are followed to where they are least, runs agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from clickshift.core.progress import silent
from clickshift.core.spec import label, parse
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, SpecError, VocabularyError
from clickshift.ranking import RANKERS, ClickRanker, Run, Trust, fit_runs
from clickshift.ranking._examples import build_examples, ordered_batches, shuffled_batches
from clickshift.ranking._prepare import initial_weights
from tests.codes import raises_code, warns_code

pytest.importorskip("jax")
training = pytest.importorskip("clickshift.learners.training")
FREE = ClickRanker(tower="one-hot", rounds=150, patience=150)
"""One logit for each document, trained to the end."""


def corpus_of(sizes: list[int], features: np.ndarray) -> Corpus:
    query = np.repeat(np.arange(len(sizes)), sizes)
    words = Vocabulary.of(query, np.arange(len(query)))[0]
    return Corpus(words, np.zeros(len(query)), np.asarray(features, np.float32))


def one_hot(sizes: list[int], column: list[int] | None = None) -> Corpus:
    return corpus_of(sizes, np.array(range(sum(sizes)) if column is None else column)[:, None])


def cells_of(corpus: Corpus, rank: list[int], impressions: list[float], clicks: list[float]) -> Cells:
    """One rank for each document."""
    numbers = np.array(impressions, float), np.array(clicks, float)
    return Cells(corpus.vocabulary, max(rank) + 1, "rank", np.arange(len(rank)), np.array(rank), *numbers)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_a_round_shows_every_document_once(rng) -> None:
    sizes = rng.integers(1, 9, 23)
    corpus = one_hot(sizes.tolist())
    shown = rng.random((corpus.n_pairs, 4)) < 0.4  # some documents at several ranks, some at none
    pair, rank = np.nonzero(shown)
    ones = np.ones(len(pair))
    cells = Cells(corpus.vocabulary, 4, "rank", pair, rank, ones, ones)
    terms = {"total": ones, "positive": ones, "rank": rank}
    part = build_examples(cells, terms, by_cell=True, by_traffic=False)
    dealt = shuffled_batches(part.length, 5, 50, rng)
    widths = part.widths(dealt)
    for batches in (part.packed(one, widths) for one in dealt):
        real = batches["pair"] < corpus.n_pairs
        assert sorted(batches["pair"][real]) == np.unique(pair).tolist()
        assert sorted(batches["term"][batches["term"] < len(pair)]) == list(range(len(pair)))
        for b in range(len(batches["pair"])):
            term = batches["term"][b][batches["term"][b] < len(pair)]
            place = batches["place"][b][: len(term)]
            np.testing.assert_array_equal(batches["pair"][b][place], pair[term])
            query = corpus.vocabulary.pair_query[batches["pair"][b][real[b]]]
            assert len(np.unique(query)) == batches["queries"][b] <= 5
            assert len(set(zip(query, batches["query"][b][real[b]], strict=True))) == batches["queries"][b]
    assert max((part.packed(one, widths)["pair"] < corpus.n_pairs).sum(axis=1).max() for one in dealt) == widths[0]


def test_batches_are_of_about_the_same_length_and_random(rng) -> None:
    length = rng.geometric(0.05, 203)
    dealt = shuffled_batches(length, 20, 400, rng)
    assert dealt.shape == (400, 11, 19)
    assert (np.sort(dealt.reshape(400, -1), axis=1)[:, 6:] == np.arange(203)).all()
    total = np.append(length, 0)[dealt].sum(axis=2)
    plain = np.array([length[rng.permutation(203)[:19]].sum() for _ in range(400)])
    assert total.std() < plain.std() / 3
    assert total.max() < 1.35 * total.mean()
    # any two lists of one length meet as often as they would in a shuffle
    same = shuffled_batches(np.full(40, 7), 10, 4000, rng)
    batch = np.empty((4000, 40), int)
    np.put_along_axis(batch, same.reshape(4000, 40), np.repeat(np.arange(4), 10)[None], axis=1)
    together = (batch[:, :1] == batch[:, 1:]).mean(axis=0)
    np.testing.assert_allclose(together, 9 / 39, atol=0.03)
    first = [shuffled_batches(length, 20, rounds, np.random.default_rng(3)) for rounds in (2, 5)]
    np.testing.assert_array_equal(first[0], first[1][:2])
    assert ordered_batches(7, 3).tolist() == [[0, 1, 2], [3, 4, 5], [6, -1, -1]]


RATE = np.array([0.45, 0.1, 0.15, 0.05, 0.3, 0.08])
RANK = [0, 1, 2, 0, 1, 2]
EXAMINATION = np.array([1.0, 0.5, 0.2])


SHARED = np.array([0.1, 0.5, 0.9, 0.3]), np.array([1.0, 0.2, 0.1, 1.0])
"""Relevance and examination of four documents of which two each have the same features."""


@pytest.fixture(scope="module")
def free_runs() -> dict[str, np.ndarray]:
    """What each loss finds in worlds without noise. All tables have six columns: one program for each kind of loss."""
    corpus = one_hot([3, 3])
    cells = cells_of(corpus, RANK, [1000] * 6, (1000 * RATE).tolist())
    trust = Trust(np.array([0.9, 0.45, 0.2]), np.array([0.02, 0.03, 0.01]))
    by_loss = {
        "pbm": {"examination": EXAMINATION},
        "ips": {"examination": EXAMINATION},
        "policy-aware": {"examination": EXAMINATION},
        "doubly-robust": {"examination": EXAMINATION},
        "affine": {"trust": trust},
        "listwise": {"examination": EXAMINATION},
    }
    runs = {
        loss: Run(replace(FREE, loss=loss), corpus, cells, (corpus, cells), **given) for loss, given in by_loss.items()
    }
    runs["naive"] = Run(replace(FREE, bias="naive"), corpus, cells, (corpus, cells))
    shared, (y, o) = one_hot([2, 2], [0, 5, 0, 5]), SHARED
    cells = cells_of(shared, [0, 1, 2, 0], [1e4] * 4, (1e4 * o * y).tolist())
    for loss in ("pbm", "ips"):
        examination = np.array([1.0, 0.2, 0.1])
        runs[f"{loss}, shared"] = Run(replace(FREE, loss=loss), shared, cells, (shared, cells), examination)
    two = one_hot([1, 1], [5, 5])
    cells = cells_of(two, [0, 0], [900, 100], [180, 60])
    for by_traffic in (True, False):
        learner = replace(FREE, bias="naive", by_traffic=by_traffic)
        runs[f"by traffic: {by_traffic}"] = Run(learner, two, cells, (two, cells))
    cells = cells_of(corpus, [0, 1], [1000, 1000], [400, 100])
    options = {"examination": EXAMINATION, "regression": lambda of: np.full(of.n_pairs, 0.7)}
    runs["never shown"] = Run(replace(FREE, loss="doubly-robust"), corpus, cells, (corpus, cells), **options)
    rankers = fit_runs(list(runs.values()))
    return {name: ranker.scores(run.corpus) for (name, run), ranker in zip(runs.items(), rankers, strict=True)}


@pytest.mark.parametrize("loss", ["pbm", "ips", "policy-aware", "doubly-robust"])
def test_documents_with_their_own_parameter_get_their_true_relevance(free_runs, loss) -> None:
    np.testing.assert_allclose(sigmoid(free_runs[loss]), RATE / EXAMINATION[RANK], atol=0.005)


def test_the_affine_correction_takes_trust_out(free_runs) -> None:
    alpha, beta = np.array([0.9, 0.45, 0.2])[RANK], np.array([0.02, 0.03, 0.01])[RANK]
    np.testing.assert_allclose(sigmoid(free_runs["affine"]), (RATE - beta) / alpha, atol=0.005)


def test_the_listwise_loss_is_least_where_scores_are_shares(free_runs) -> None:
    weight = RATE / EXAMINATION[RANK]
    share = np.exp(free_runs["listwise"])
    for part in (slice(0, 3), slice(3, 6)):
        np.testing.assert_allclose(share[part] / share[part].sum(), weight[part] / weight[part].sum(), atol=0.005)


def test_the_naive_loss_takes_clicks_for_relevance(free_runs) -> None:
    np.testing.assert_allclose(sigmoid(free_runs["naive"]), RATE, atol=0.005)


def test_naive_click_models_and_naive_ips_are_the_same(rng) -> None:
    """Also where documents are shown at several ranks. Long training would blow rounding errors up."""
    corpus, n = one_hot([4] * 10), 40
    pair, rank = np.repeat(np.arange(n), 3), np.tile(np.arange(3), n)
    cells = Cells(corpus.vocabulary, 3, "rank", pair, rank, np.full(3 * n, 9.0), rng.integers(0, 9, 3 * n) * 1.0)
    learners = [replace(FREE, loss=loss, bias="naive", rounds=10) for loss in ("pbm", "ips")]
    pbm, ips = fit_runs([Run(learner, corpus, cells, (corpus, cells)) for learner in learners])
    np.testing.assert_allclose(pbm.scores(corpus), ips.scores(corpus), atol=2e-6)
    assert pbm.held_out_loss == pytest.approx(ips.held_out_loss, rel=1e-6)


def test_documents_that_share_their_features(free_runs) -> None:
    """A click model believes what users look at; IPS takes the plain mean."""
    y, o = SHARED
    for column in range(2):
        docs = [column, column + 2]
        root = brentq(
            lambda r, d=docs: (o[d] * y[d] / r - (1 - o[d] * y[d]) * o[d] / (1 - o[d] * r)).sum(), 1e-6, 0.9999
        )
        assert sigmoid(free_runs["pbm, shared"])[docs] == pytest.approx([root] * 2, abs=0.005)
        assert sigmoid(free_runs["ips, shared"])[docs] == pytest.approx([y[docs].mean()] * 2, abs=0.005)


@pytest.mark.parametrize(("by_traffic", "expected"), [(True, (0.2 * 900 + 0.6 * 100) / 1000), (False, 0.4)])
def test_queries_count_by_their_sessions_or_once(free_runs, by_traffic, expected) -> None:
    assert sigmoid(free_runs[f"by traffic: {by_traffic}"])[0] == pytest.approx(expected, abs=0.005)


def test_examination_is_learned_where_documents_change_places(rng) -> None:
    corpus, n = one_hot([5] * 12), 60
    y, o = rng.uniform(0.1, 0.9, n), np.array([0.9, 0.6, 0.4, 0.25, 0.1])
    pair, rank = np.repeat(np.arange(n), 5), np.tile(np.arange(5), n)
    cells = Cells(corpus.vocabulary, 5, "rank", pair, rank, np.full(5 * n, 200.0), 200 * o[rank] * y[pair])
    learner = replace(FREE, loss="pbm", bias="estimated")
    ranker = learner.fit(corpus, cells, held_out=(corpus, cells))
    assert ranker.examination is not None
    np.testing.assert_allclose(ranker.examination / ranker.examination[0], o / o[0], atol=0.02)
    scale = ranker.examination[0] / o[0]
    np.testing.assert_allclose(ranker.relevance(corpus) * scale, y, atol=0.03)


def test_additive_towers_are_learned_where_documents_change_places(rng) -> None:
    """Clicks with probability sigmoid(score + logit of the rank): known up to a constant between the towers."""
    corpus, n = one_hot([5] * 12), 60
    score, logit = rng.normal(0, 1, n), np.array([0.5, 0.0, -0.4, -1.0, -2.0])
    pair, rank = np.repeat(np.arange(n), 5), np.tile(np.arange(5), n)
    prob = sigmoid(score[pair] + logit[rank])
    cells = Cells(corpus.vocabulary, 5, "rank", pair, rank, np.full(5 * n, 200.0), 200 * prob)
    ranker = replace(FREE, loss="additive", bias="estimated").fit(corpus, cells, held_out=(corpus, cells))
    found = ranker.scores(corpus)
    np.testing.assert_allclose(found - found.mean(), score - score.mean(), atol=0.02)
    assert ranker.examination is None, "the logits of an additive model are not an examination"
    entropy = -(prob * np.log(prob) + (1 - prob) * np.log(1 - prob)).sum()
    assert ranker.held_out_loss == pytest.approx(entropy / 5 / 12, rel=1e-3), "cross-entropy of a session of a query"


def plain_loss(weights, features, positive, total, queries):
    """Of a network with one hidden layer, in double precision."""
    hidden = np.log1p(np.abs(features)) * np.sign(features) @ weights["0"] + weights["0.bias"]
    hidden = np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1)
    score = (hidden @ weights["1"] + weights["1.bias"])[:, 0]
    return -(positive * np.log(sigmoid(score)) + (total - positive) * np.log(1 - sigmoid(score))).sum() / queries


def test_one_step_follows_the_slope_of_the_published_loss(rng) -> None:
    """Lists of different lengths, a document that was not shown, IPS weights: against finite differences."""
    features = rng.normal(size=(9, 3)) * 10
    corpus = corpus_of([2, 4, 3], features)
    pair, rank = np.array([0, 1, 2, 3, 5, 6, 7, 8]), np.array([0, 1, 2, 0, 1, 1, 0, 2])
    impressions = np.array([6.0, 6, 2, 2, 2, 4, 4, 4])
    clicks = np.array([3.0, 1, 1, 0, 2, 0, 3, 1])
    cells = Cells(corpus.vocabulary, 3, "rank", pair, rank, impressions, clicks)
    learner = ClickRanker(hidden=(4,), dropout=(0.0,), optimiser="sgd", learning_rate=0.05, rounds=1)
    found = learner.fit(corpus, cells, examination=EXAMINATION, held_out=(corpus, cells)).weights
    start = {name: array.astype(np.float64) for name, array in initial_weights(learner, 3, 3).items()}
    mean = (6 + 2 + 4) / 3
    known = (features[pair], clicks / EXAMINATION[rank] / mean, impressions / mean, 3)
    for name, array in start.items():
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {other: values.copy() for other, values in start.items()}
                moved[name][place] += step
                ends.append(plain_loss(moved, *known))
            slope[place] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(found[name], array - 0.05 * slope, atol=2e-6)


def test_dropout_drops_a_share_at_random() -> None:
    import jax

    from clickshift.ranking._step import _dropout_mask, _elu

    kept_by = jax.jit(_dropout_mask, static_argnums=(1, 2))
    a, b = (np.asarray(kept_by(jax.random.key(seed), 0.1, (500, 400))) for seed in (0, 1))
    for kept in (a, b):
        assert kept.mean() == pytest.approx(0.9, abs=0.004)  # six standard errors
        for other in (np.roll(kept, 1, axis=0), np.roll(kept, 1, axis=1), np.roll(kept, 7, axis=1)):
            assert abs(np.corrcoef(kept.ravel(), other.ravel())[0, 1]) < 0.015
        assert kept.mean(axis=0).std() == pytest.approx(np.sqrt(0.09 / 500), rel=0.2)
    assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.015
    x = np.array([-1e4, -3.0, -1e-3, 0.0, 2.0, 1e4], np.float32)
    np.testing.assert_allclose(jax.jit(_elu)(x), np.where(x > 0, x, np.expm1(np.minimum(x, 0))), atol=1e-7)
    slope = jax.jit(jax.grad(lambda values: _elu(values).sum()))(x)
    np.testing.assert_allclose(slope, np.where(x > 0, 1, np.exp(np.minimum(x, 0))), atol=1e-6)


def adam(slope_of, start, rate, steps):
    """Kingma & Ba's algorithm 1."""
    value, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t in range(1, steps + 1):
        slope = slope_of(value)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        value = value - rate * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return value


def adagrad(slope_of, start, rate, steps):
    value, squares = start.copy(), np.zeros_like(start)
    for _ in range(steps):
        slope = slope_of(value)
        squares = squares + slope**2
        value = value - rate * slope / np.sqrt(squares)
    return value


@pytest.mark.parametrize(("name", "method"), [("adam", adam), ("adagrad", adagrad)])
def test_optimisers(name, method) -> None:
    corpus = one_hot([2])
    cells = cells_of(corpus, [0, 0], [1, 1], [0.7, 0.2])
    learner = replace(FREE, bias="naive", optimiser=name, rounds=7)
    found = learner.fit(corpus, cells, held_out=(corpus, cells)).weights
    start = initial_weights(learner, 2, 1)

    def slope(at):
        by_doc = sigmoid(at[:2] + at[2]) - np.array([0.7, 0.2])
        return np.append(by_doc, by_doc.sum())

    expected = method(slope, np.append(start["table"], start["intercept"]).astype(np.float64), 0.1, 7)
    np.testing.assert_allclose(np.append(found["table"], found["intercept"]), expected, atol=1e-5)


def test_runs_side_by_side_are_those_alone(rng) -> None:
    """Different sizes, clicks, rates and seeds; each stops when it would have stopped alone. The first has three rounds
    only and is judged by the clicks it learns from: it would get better while the other goes on, but is kept."""
    runs = []
    for seed in range(2):
        sizes = rng.integers(2, 7, 12 + 3 * seed).tolist()
        corpus = one_hot(sizes, rng.integers(0, 30, sum(sizes)).tolist())
        corpus.features[0] = 29
        rank = np.concatenate([np.arange(size) for size in sizes]).tolist()
        parts = [cells_of(corpus, rank, [5] * len(rank), rng.integers(0, 6, len(rank)).tolist()) for _ in range(2)]
        learner = ClickRanker(tower="one-hot", batch=8, seed=seed, learning_rate=0.02 * (1 + seed), bias="naive")
        learner = learner if seed else replace(learner, rounds=3)
        runs.append(Run(learner, corpus, parts[0], (corpus, parts[seed])))
    together = fit_runs(runs)
    for run, ranker in zip(runs, together, strict=True):
        alone = run.learner.fit(run.corpus, run.clicks, held_out=run.held_out)
        assert (alone.rounds, alone.learner) == (ranker.rounds, ranker.learner)
        np.testing.assert_allclose(ranker.scores(run.corpus), alone.scores(run.corpus), atol=1e-4)
    assert together[1].rounds > together[0].rounds == 3
    assert [ranker.converged for ranker in together] == [False, True]


def small_world(rng, queries: int = 30) -> tuple[Corpus, Cells]:
    features = rng.normal(size=(5 * queries, 4))
    corpus = corpus_of([5] * queries, features)
    rank = np.tile(np.arange(5), queries).tolist()
    y = sigmoid(2 * features[:, 0] - 1)
    return corpus, cells_of(corpus, rank, [50] * len(rank), (50 * y / (1 + np.array(rank))).tolist())


SMALL = ClickRanker(hidden=(8,), dropout=(0.1,), rounds=30, learning_rate=0.02)


def test_networks_in_threads_are_those_alone(rng) -> None:
    corpus, cells = small_world(rng)
    examination, heard = 1 / np.arange(1.0, 6), []
    runs = [Run(replace(SMALL, seed=seed), corpus, cells, None, examination) for seed in range(2)]
    alone = [run.learner.fit(corpus, cells, examination=examination) for run in runs]
    rankers = fit_runs(runs, progress=heard.append)
    assert heard == [1, 1]
    for one, ranker in zip(alone, rankers, strict=True):
        np.testing.assert_array_equal(ranker.scores(corpus), one.scores(corpus))
    assert np.corrcoef(rankers[0].scores(corpus), corpus.features[:, 0])[0, 1] > 0.8


def test_a_log_gives_the_same_as_its_counts(rng) -> None:
    corpus, _ = small_world(rng)
    query = rng.integers(0, 30, 300)
    pair = corpus.offsets[query][:, None] + np.argsort(rng.random((300, 5)), axis=1)
    log = Sessions(Rankings(corpus.vocabulary, query, pair), rng.random((300, 5)) < 0.3)
    options = {"examination": 1 / np.arange(1.0, 6)}
    for loss in ("pbm", "ips"):
        a, b = (replace(SMALL, loss=loss, rounds=3).fit(corpus, data, **options) for data in (log, Cells.of(log)))
        np.testing.assert_array_equal(a.scores(corpus), b.scores(corpus))


def test_early_stopping_keeps_the_best_round() -> None:
    """Held-out clicks say the opposite of what is learned: every round makes it worse."""
    corpus = one_hot([2])
    clicks, judge = (cells_of(corpus, [0, 0], [10, 10], counts) for counts in ([10, 0], [0, 10]))
    heard = []
    learner = replace(FREE, bias="naive", patience=3)
    ranker = learner.fit(corpus, clicks, held_out=(corpus, judge), progress=heard.append)
    assert (ranker.rounds, ranker.converged) == (4, True)
    one = replace(learner, rounds=1).fit(corpus, clicks, held_out=(corpus, judge))
    np.testing.assert_array_equal(ranker.weights["table"], one.weights["table"])
    assert (one.rounds, one.converged) == (1, False)
    assert len(heard) == 4
    assert heard[0].startswith("round 1: held-out loss")
    last = replace(learner, keep="last").fit(corpus, clicks, held_out=(corpus, judge))
    four = replace(learner, rounds=4, patience=9, keep="last").fit(corpus, clicks, held_out=(corpus, judge))
    np.testing.assert_array_equal(last.weights["table"], four.weights["table"])
    assert (last.rounds, last.held_out_loss) == (4, ranker.held_out_loss), "the loss is that of the best round"
    assert (last.weights["table"] != one.weights["table"]).all()


def test_divergence_is_an_error_at_first_and_a_warning_later(rng) -> None:
    corpus, cells = small_world(rng)
    with raises_code("training-diverged", DataError, round=1, learning_rate=1e30):
        replace(SMALL, bias="naive", learning_rate=1e30).fit(corpus, cells)
    losses = iter([([1.0, 1.0], [2.0, 2.0]), ([1.0, np.nan], [1.5, 1.0]), ([1.0, np.nan], [1.2, np.nan])])

    class Task:
        """Two runs of which the second diverges in round 2; what is kept is the number of the round."""

        names = ("first", "second")

        def start(self) -> dict:
            return {"round": np.zeros(2)}

        def round(self, states: dict, number: int, rate: np.ndarray) -> tuple[dict, np.ndarray]:
            train, self.loss = map(np.array, next(losses))
            return {"round": np.full(2, number + 1.0)}, train

        def parameters(self, states: dict) -> dict:
            return states

        def held_out_loss(self, parameters: dict) -> np.ndarray:
            return self.loss

    with warns_code("training-diverged", round=2, learner="second"):
        trained = training.train(Task(), training.EarlyStopping(3, 5), rate=np.ones(2), progress=silent)
    assert [parameters["round"] for parameters in trained.parameters] == [3, 1]
    assert trained.progress.best.tolist() == [1.2, 2.0]
    assert trained.progress.rounds.tolist() == [3, 2]
    assert trained.progress.converged.tolist() == [False, False]


def test_an_interrupted_training_goes_on_to_the_same_ranker(rng, tmp_path, monkeypatch) -> None:
    """A checkpoint of other clicks or features is not used."""
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    corpus, cells = small_world(rng)
    learner, file, said = replace(SMALL, bias="naive", rounds=6), tmp_path / "checkpoint.npz", []

    def interrupt(text: str) -> None:
        if text.startswith("round 3:"):
            raise KeyboardInterrupt

    whole = learner.fit(corpus, cells)
    with warns_code("interrupted"):
        part = learner.fit(corpus, cells, progress=interrupt, checkpoint=file)
    assert part.rounds == 3
    saved = file.read_bytes()
    resumed = learner.fit(corpus, cells, progress=said.append, checkpoint=file)
    assert said[0] == "resumed after round 3"
    assert not file.exists()
    assert (resumed.rounds, resumed.held_out_loss) == (whole.rounds, whole.held_out_loss)
    assert all((array == resumed.weights[name]).all() for name, array in whole.weights.items())
    others = [(replace(corpus, features=corpus.features + 1), cells), (corpus, replace(cells, clicks=cells.clicks / 2))]
    for documents, clicks in others:
        file.write_bytes(saved)
        said.clear()
        learner.fit(documents, clicks, progress=said.append, checkpoint=file)
        assert said[0].startswith("round 1:")


def test_the_doubly_robust_loss_knows_what_was_never_shown(free_runs) -> None:
    """One document was never shown. A regression says that it is good, which no other loss can know."""
    np.testing.assert_allclose(sigmoid(free_runs["never shown"])[:3], [0.4, 0.2, 0.7], atol=0.005)


def test_held_out_queries(rng) -> None:
    corpus, cells = small_world(rng, queries=20)
    few = Cells(
        corpus.vocabulary,
        5,
        "rank",
        *(column[:5] for column in (cells.pair, cells.situation)),
        cells.impressions[:5],
        cells.clicks[:5],
    )
    with raises_code("too-few-queries", DataError, count=1):
        replace(SMALL, bias="naive").fit(corpus, few)
    with raises_code("missing-held-out", SpecError):
        replace(FREE, bias="naive").fit(one_hot([5]), cells_of(one_hot([5]), [0] * 5, [1] * 5, [0] * 5))
    narrow = Corpus(corpus.vocabulary, corpus.label, corpus.features[:, :3])
    with raises_code("wrong-feature-count", DataError, expected=4, count=3):
        replace(SMALL, bias="naive").fit(corpus, cells, held_out=(narrow, cells))


def test_documents_that_the_corpus_does_not_hold(rng) -> None:
    corpus, _ = small_world(rng)
    words, query, pair = Vocabulary.of([0, 0, 1, 1, 2, 2], [0, 1, 5, 999, 10, 11])
    log = Sessions(Rankings(words, query[::2], pair.reshape(3, 2)), np.ones((3, 2), bool))
    with warns_code("unknown-documents", count=1, share=1 / 6, example="document 999 of query 1"):
        replace(SMALL, bias="naive", rounds=1).fit(corpus, log)
    words, query, pair = Vocabulary.of(["a", "a"], ["x", "y"])
    log = Sessions(Rankings(words, query[:1], pair[None]), np.ones((1, 2), bool))
    with raises_code("no-common-documents", DataError, example="document x of query a"):
        replace(SMALL, bias="naive").fit(corpus, log)
    with raises_code("different-vocabulary", VocabularyError):
        replace(SMALL, bias="naive").fit(corpus, Cells.of(log))


def test_bad_features(rng) -> None:
    corpus, cells = small_world(rng)
    constant = corpus.features.copy()
    constant[:, [1, 3]] = 5
    with warns_code("constant-features", features=[2, 4], count=2):
        replace(SMALL, bias="naive", rounds=1).fit(replace(corpus, features=constant), cells)
    missing = corpus.features.copy()
    missing[7, 2] = np.nan
    with raises_code("not-finite", DataError, feature=3, document="7", query="1"):
        replace(SMALL, bias="naive").fit(replace(corpus, features=missing), cells)
    with raises_code("no-features", DataError):
        replace(SMALL, bias="naive").fit(replace(corpus, features=None), cells)
    with raises_code("bad-one-hot-feature", DataError) as caught:
        replace(FREE, bias="naive").fit(corpus, cells, held_out=(corpus, cells))
    assert caught.value.facts["value"] < 0


def test_examination_that_does_not_fit(rng) -> None:
    corpus, cells = small_world(rng)
    with raises_code("zero-propensity", DataError, rank=3):
        SMALL.fit(corpus, cells, examination=np.array([1, 0.5, 0.0, 0.2, 0.1]))
    with raises_code("bad-examination", DataError, rank=3, ranks=2):
        replace(SMALL, loss="pbm").fit(corpus, cells, examination=np.array([1, 0.5]))
    with raises_code("not-a-probability", DataError, rank=2, value=1.5):
        replace(SMALL, loss="pbm").fit(corpus, cells, examination=np.array([1, 1.5, 1, 1, 1]))
    with raises_code("missing-examination", SpecError):
        SMALL.fit(corpus, cells)
    with raises_code("unused-examination", SpecError, bias="naive"):
        replace(SMALL, bias="naive").fit(corpus, cells, examination=np.ones(5))
    with raises_code("missing-trust", SpecError):
        replace(SMALL, loss="affine").fit(corpus, cells, examination=np.ones(5))
    with raises_code("unused-trust", SpecError, loss="ips"):
        SMALL.fit(corpus, cells, trust=Trust(np.full(5, 0.5), np.zeros(5)))


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"loss": "hinge"}, "bad-option", {"option": "loss", "value": "hinge"}),
        ({"tower": "tree"}, "bad-option", {"option": "tower", "known": ["network", "one-hot"]}),
        ({"optimiser": "lion"}, "bad-option", {"option": "optimiser", "value": "lion"}),
        ({"bias": "estimated"}, "incompatible-options", {"bias": "estimated", "loss": "ips"}),
        ({"loss": "additive"}, "incompatible-options", {"bias": "given", "loss": "additive"}),
        ({"hidden": (3,)}, "bad-option", {"option": "dropout"}),
        ({"batch": 0}, "bad-option", {"batch": 0}),
        ({"learning_rate": 0.0}, "bad-option", {"option": "learning_rate", "value": 0.0}),
        ({"loss": "pbm", "clip": 0.1}, "bad-clip", {"clip": 0.1, "loss": "pbm"}),
        ({"clip": 0.0}, "bad-clip", {"clip": 0.0, "loss": "ips"}),
    ],
)
def test_specifications_that_make_no_sense(options, code, facts) -> None:
    with raises_code(code, SpecError, **facts):
        ClickRanker(**options)


def test_text_form() -> None:
    learner = ClickRanker("pbm", bias="estimated", hidden=(64,), dropout=(0.0,), seed=3)
    assert parse(label(learner), RANKERS) == learner
    assert label(ClickRanker()) == "ClickRanker"
    rates = [ClickRanker(), ClickRanker("pbm"), ClickRanker("pbm", "naive"), FREE, ClickRanker(learning_rate=0.3)]
    assert [learner.rate for learner in rates] == [1e-3, 5e-4, 1e-3, 0.1, 0.3]
