"""The gradient learner: what is trained is what predicts, and nothing is computed twice."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, SpecError
from clickshift.learners import fit
from clickshift.learners.base import fit_seeds
from clickshift.learners.gradient import Gradient
from clickshift.learners.gradient import _batches as batches
from clickshift.learners.gradient._encoding import EncodedSessions, SessionEncoder
from clickshift.learners.gradient._prepare import prepare
from clickshift.learners.gradient._tree_gru import TreeLevel, tree_states
from clickshift.metrics.click_prediction import perplexity
from clickshift.models import MODELS
from clickshift.models._differentiable import Arrays
from clickshift.models._formulas import Array, Gru, Prob, gru, sigmoid
from clickshift.models.base import ClickModel
from clickshift.models.neural import NeuralModel
from clickshift.policies.basic import Scores
from clickshift.testing import check_click_model
from tests.codes import raises_code, warns_code
from tests.holes import log_with_holes
from tests.learners.gradient.cases import arrays, contents, counted, first_ranks, ready, small
from tests.models.random_models import random_neural

NAMES = ("PBM", "UBM", "DBN", "ARM", "CACM_minus", "NCM", "ARM_NC")


Fitted = Callable[[str], ClickModel]


@pytest.fixture(scope="module")
def train(short_lists: Sessions) -> Sessions:
    """Lists of one and two, of which none is of the first three queries."""
    return first_ranks(short_lists[short_lists.rankings.query > 2], 2)


@pytest.fixture(scope="module")
def fitted(train: Sessions, short_lists: Sessions) -> Fitted:
    """Models with embeddings, each learned once for all tests here; lists of up to three say when to stop."""
    return cache(lambda name: small(name, rounds=20).fit(train, held_out=short_lists))


def check(model: ClickModel, held_out: Sessions) -> None:
    """The loss that JAX computed on held-out sessions is that of the model of numpy, which keeps the rules."""
    assert model.evidence is not None
    nats = -np.average(model.log_likelihood(held_out), weights=held_out.count)
    assert model.evidence.held_out_loss == pytest.approx(nats, rel=1e-5)
    check_click_model(model, ranks=3, lists=6, draws=1000)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_trained_is_what_predicts(name: str, fitted: Fitted, short_lists: Sessions) -> None:
    """Also where held-out lists are longer than those of training, and show pairs that are not among them."""
    model = fitted(name)
    assert model.vocabulary.n_pairs < short_lists.vocabulary.n_pairs
    check(model, short_lists)


@pytest.mark.parametrize("name", ["DBN", "NCM"])
def test_the_loss_of_lists_with_holes_is_that_of_the_model(
    name: str, short_lists: Sessions, rng: np.random.Generator
) -> None:
    """Models that are learned from counts never see a hole."""
    log = log_with_holes(short_lists, rng)
    assert log.rankings.has_holes
    model = small(name, rounds=1).fit(log, held_out=log)
    nats = -np.average(model.log_likelihood(log), weights=log.count)
    assert model.evidence.held_out_loss == pytest.approx(nats, rel=1e-5)


@pytest.mark.parametrize("name", ["UBM", "DBN", "NCM"])
def test_lists_of_one_rank_and_parameters_of_each_pair_are_learned(name: str, short_lists: Sessions) -> None:
    """One model for each kind of batch, with one output of the tower, two, and a wide one."""
    log = first_ranks(short_lists, 1)
    check(small(name, tower="free", rounds=1).fit(log[:60], held_out=log), log)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_may_be_of_one_rank(name: str, short_lists: Sessions) -> None:
    check_click_model(random_neural(name, short_lists.vocabulary, ranks=1), ranks=1, draws=1000)


@pytest.mark.parametrize("name", ["NCM", "PBM"])
def test_the_same_seed_gives_the_same_bits(name: str, fitted: Fitted, train: Sessions, short_lists: Sessions) -> None:
    again = small(name, rounds=20).fit(train, held_out=short_lists)
    assert all((a == b).all() for a, b in zip(arrays(fitted(name)), arrays(again), strict=True))


def test_the_tree_of_lists_has_the_states_and_slopes_of_the_lists(rng: np.random.Generator) -> None:
    lists, ranks, size, pairs = 12, 3, 4, 3
    pair, click = rng.integers(0, pairs, (lists, ranks)), rng.random((lists, ranks)) < 0.5
    click[:6], pair[:6] = click[0], pair[0]  # some begin alike
    everything = np.ones((lists, ranks), bool)
    log = EncodedSessions(pair, everything, click, np.ones(lists), None, True)
    batch = batches.held_out_batches(log, lists)
    assert len(batch["pair.2"][0]) < lists
    levels = [TreeLevel(*(jnp.asarray(batch[f"{part}.{r}"][0]) for part in TreeLevel._fields)) for r in range(ranks)]
    inputs, clicked, weight, bias = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((pairs, 3 * size), (3 * size,), (size, 3 * size), (3 * size,))
    )
    target = jnp.asarray(rng.normal(size=(ranks, size)), jnp.float32)

    def by_tree(inputs, clicked, unit):  # type: ignore[no-untyped-def]
        states = tree_states(inputs, clicked, unit, levels)
        return sum((batch[f"impressions.{r}"][0][:, None] * jnp.sin(states[r] + target[r])).sum() for r in range(ranks))

    def by_list(inputs, clicked, unit):  # type: ignore[no-untyped-def]
        above = np.pad(click[:, :-1], ((0, 0), (1, 0)))
        return jnp.sin(gru(inputs[pair] + above[:, :, None] * clicked, unit) + target).sum()

    arguments = (inputs, clicked, Gru(weight, bias))
    (one, slopes), (other, expected) = (
        jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(*arguments) for loss in (by_tree, by_list)
    )
    assert float(one) == pytest.approx(float(other), rel=1e-5)
    for slope, wanted in zip(jax.tree.leaves(slopes), jax.tree.leaves(expected), strict=True):
        assert np.allclose(slope, wanted, atol=1e-4)


def test_rows_that_a_batch_does_not_touch_stay(short_lists: Sessions) -> None:
    work = ready(small("PBM"), short_lists)
    before = jax.tree.map(lambda array: array[0], work.program.start([0]))
    batch = {name: jnp.asarray(array[0]) for name, array in work.batches.items()}
    after, _ = jax.jit(work.program.step)({}, before, batch, 0.1)
    touched = work.batches["row.doc"][0]
    n_docs = work.vocabulary.n_docs
    untouched = np.setdiff1d(np.arange(n_docs), touched)
    assert len(untouched) > 10
    for path in ("rows", "squares"):
        old, new = (jax.tree.leaves(state["tables"]["doc"][path]) for state in (before, after))
        for one, other in zip(old, new, strict=True):
            assert (one[untouched] == other[untouched]).all()
            moved = np.asarray(one != other).reshape(n_docs, -1).any(axis=1)
            assert moved[touched[touched < n_docs]].all()


def test_batches_hold_every_session_once(log: Sessions) -> None:
    seen = SessionEncoder.of(small("PBM")._class(), [log]).encode(log)
    heaps = batches.deal_batches(seen, 100, rng=np.random.default_rng(0))
    assert (np.sort(np.concatenate(heaps)) == np.arange(len(log))).all()
    whole = batches.training_batches(seen, heaps, {"pair": np.arange(log.vocabulary.n_pairs)})
    assert whole["impressions"].sum() == log.rankings.shown.sum()
    assert whole["clicks"].sum() == log.click.sum()


def test_features_know_documents_that_were_never_shown(world: tuple[Corpus, Sessions]) -> None:
    corpus, log = world
    part = log[log.rankings.query < 5]
    model = small("PBM", tower="features", rounds=10).fit(part, corpus=corpus)
    unseen = corpus.vocabulary.pair_query >= 5
    assert model.vocabulary.same_as(corpus.vocabulary)
    assert corpus.label is not None
    assert np.corrcoef(model.relevance()[unseen], corpus.label[unseen])[0, 1] > 0.5
    assert model.evidence is not None
    assert (model.evidence.impressions[:-1][unseen] == 0).all()


def test_the_degenerate_model_looks_good_and_says_that_it_is_not(fitted: Fitted, train: Sessions) -> None:
    honest, peeking = fitted("ARM"), fitted("ARM_NC")
    assert perplexity(peeking, train).average < perplexity(honest, train).average
    assert peeking.peeks
    one, patterns = train[train.rankings.length == 2][:1], (np.arange(4)[:, None] >> np.arange(2)) % 2 == 1
    lists = Rankings(train.vocabulary, np.repeat(one.rankings.query, 4), np.repeat(one.rankings.pair, 4, axis=0))
    total = np.exp(peeking.log_likelihood(Sessions(lists, patterns))).sum()
    assert abs(total - 1) > 0.01


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (
            lambda: Gradient("CCM"),
            "unknown-name",
            {"value": "CCM", "known": ["PBM", "UBM", "DBN", "NCM", "CACM_minus", "ARM", "ARM_NC"]},
        ),
        (
            lambda: Gradient("PBM", tower="ivory"),
            "bad-option",
            {"option": "tower", "value": "ivory", "known": ["embedding", "free", "features"]},
        ),
        (lambda: Gradient("PBM", batch=0), "bad-option", {"batch": 0}),
        (lambda: Gradient("PBM", learning_rate=-1.0), "bad-option", {"learning_rate": -1.0}),
    ],
)
def test_what_cannot_be_is_refused(make, code: str, facts: dict) -> None:  # type: ignore[no-untyped-def]
    with raises_code(code, SpecError, **facts):
        make()


def test_what_is_missing_is_named(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_code("no-features", SpecError):
        small("PBM", tower="features").fit(log)
    with raises_code("bad-option", SpecError, learner="MaximumLikelihood('PBM')"):
        fit_seeds("PBM", log, 3)
    with raises_code("bad-option", SpecError, option="seeds"):
        small("PBM").fit_seeds(log, 0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises_code("missing-package", SpecError, package="jax") as error:
        fit("NCM", log)
    assert "clickshift[neural]" in str(error.value)


def test_fit_seeds_gives_one_model_of_other_learners(log: Sessions) -> None:
    (model,) = fit_seeds("dCTR", log, 1)
    assert type(model).__name__ == "DCTR"


def test_a_log_without_known_pairs_is_refused(log: Sessions) -> None:
    other = Vocabulary.of(np.array(["x"]), np.array(["y"]))[0]
    with raises_code("no-pairs", DataError):
        small("PBM").fit(log.in_vocabulary(other), held_out=log)


def test_a_gradient_model_ranks_a_corpus(fitted: Fitted) -> None:
    model = fitted("ARM")
    words, relevance = model.vocabulary, model.relevance()
    corpus = Corpus(words, np.zeros(words.n_pairs, np.float32))
    lists = Scores(words, relevance).on(corpus).sample(np.arange(words.n_queries), ranks=2, rng=0)
    best = [relevance[begin:end].max() for begin, end in pairwise(words.query_offsets)]
    assert (relevance[lists.pair[:, 0]] == best).all()


@pytest.mark.parametrize("name", ["ARM", "DBN", "NCM"])
def test_sessions_with_unknown_documents_are_left_out_and_counted(name: str, short_lists: Sessions) -> None:
    """They are not learned from; held out, they count like others. Held-out lists are longer."""
    log, words = first_ranks(short_lists, 2), short_lists.vocabulary
    shown = np.bincount(log.rankings.pair[log.rankings.shown], minlength=words.n_pairs)
    fewer = log.in_vocabulary(words.with_pairs(np.setdiff1d(np.arange(words.n_pairs), shown.argmax())))
    bad = (fewer.rankings.shown & (fewer.rankings.pair < 0)).any(axis=1)
    learner, left_out = small(name, tower="free"), int(log.count[bad].sum())
    assert left_out > 0
    with warns_code("skipped-sessions", count=left_out, total=log.total):
        work = prepare(learner, learner._class(), fewer, short_lists, None)
    for found, expected in ((work.batches, fewer[~bad]), (work.held_out, short_lists)):
        known = expected.in_vocabulary(work.vocabulary)
        assert contents(found, work.program.histories) == counted(known, learner._class(), 3)


@pytest.mark.parametrize(
    ("returned", "shapes"),
    [
        (lambda prob: type(prob)(prob.yes[:, 0], prob.no[:, 0]), 2),
        (lambda prob: type(prob)(prob.yes[:, :, None], prob.no), 2),
        (lambda prob: prob.yes, 0),
    ],
    ids=["by-session", "too-wide", "no-complement"],
)
def test_a_formula_of_another_shape_is_explained(
    returned: Callable[[Prob], object], shapes: int, train: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(NeuralModel):
        @classmethod
        def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
            return {}

        @classmethod
        def click_given_history(cls, by_pair: Arrays, shared: Arrays, click: Array) -> object:
            return returned(sigmoid(by_pair["attractiveness"]))

    monkeypatch.setitem(MODELS, "Wrong", f"{__name__}:Wrong")
    monkeypatch.setattr(sys.modules[__name__], "Wrong", Wrong, raising=False)
    with raises_code("wrong-shape", DataError, model="Wrong") as caught:
        fit(Gradient("Wrong", rounds=1), train)
    assert len(caught.value.facts["shapes"]) == shapes
