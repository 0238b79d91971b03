"""The gradient learner: what is trained is what predicts, and nothing is computed twice."""

from __future__ import annotations

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clickshift.corpus import Corpus
from clickshift.errors import ClickshiftWarning, DataError, SpecError
from clickshift.learners import fit, fit_seeds
from clickshift.learners.gradient import Gradient, batches
from clickshift.learners.gradient.recurrence import Level, states_of_tree
from clickshift.learners.gradient.views import Log, View
from clickshift.metrics.clicks import perplexity
from clickshift.models.formulas import Gru, gru
from clickshift.policies.scored import Scores
from clickshift.sessions import Rankings, Sessions
from clickshift.testing import check_click_model
from clickshift.vocabulary import Vocabulary
from tests.learners.gradient_cases import ready, small

NAMES = ("PBM", "UBM", "DBN", "ARM", "CACM_minus", "NCM", "ARM_NC")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tower", ["embedding", "free"])
def test_what_is_trained_is_what_predicts(name: str, tower: str, log: Sessions) -> None:
    """The loss that JAX computed on held-out sessions, unseen pairs included, is that of the model of numpy."""
    train, held_out = log[:300], log[300:]
    model = small(name, tower=tower, rounds=1).fit(train, held_out=held_out)
    assert model.evidence is not None
    nats = -np.average(model.log_likelihood(held_out), weights=held_out.count)
    assert model.evidence.held_out_loss == pytest.approx(nats, rel=1e-5)
    check_click_model(model)


def test_the_tree_of_lists_has_the_states_and_slopes_of_the_lists(rng: np.random.Generator) -> None:
    lists, ranks, size, pairs = 12, 4, 5, 3
    pair, click = rng.integers(0, pairs, (lists, ranks)), rng.random((lists, ranks)) < 0.5
    click[:6], pair[:6] = click[0], pair[0]  # some begin alike
    everything = np.ones((lists, ranks), bool)
    log = Log(pair, everything, click, np.ones(lists), None, True)
    batch = batches.held_out_batches(log, lists)
    assert len(batch["pair.3"][0]) < lists
    levels = [Level(*(jnp.asarray(batch[f"{part}.{r}"][0]) for part in Level._fields)) for r in range(ranks)]
    inputs, clicked, weight, bias = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((pairs, 3 * size), (3 * size,), (size, 3 * size), (3 * size,))
    )
    target = jnp.asarray(rng.normal(size=(ranks, size)), jnp.float32)

    def by_tree(inputs, clicked, unit):  # type: ignore[no-untyped-def]
        states = states_of_tree(inputs, clicked, unit, levels)
        return sum((batch[f"impressions.{r}"][0][:, None] * jnp.sin(states[r] + target[r])).sum() for r in range(ranks))

    def by_list(inputs, clicked, unit):  # type: ignore[no-untyped-def]
        above = np.pad(click[:, :-1], ((0, 0), (1, 0)))
        return jnp.sin(gru(inputs[pair] + above[:, :, None] * clicked, unit) + target).sum()

    arguments = (inputs, clicked, Gru(weight, bias))
    assert float(by_tree(*arguments)) == pytest.approx(float(by_list(*arguments)), rel=1e-5)
    slopes = (jax.grad(loss, argnums=(0, 1, 2))(*arguments) for loss in (by_tree, by_list))
    for one, other in zip(*(jax.tree.leaves(slope) for slope in slopes), strict=True):
        assert np.allclose(one, other, atol=1e-4)


def test_rows_that_a_batch_does_not_touch_stay(log: Sessions) -> None:
    work = ready(small("PBM"), log)
    before = jax.tree.map(lambda array: array[0], work.program.start([0]))
    batch = {name: jnp.asarray(array[0]) for name, array in work.batches.items()}
    after, _ = work.program.step({}, before, batch, 0.1)
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
    seen = View.of(small("PBM")._class(), [log]).see(log)
    heaps = batches.dealt(seen, 100, rng=np.random.default_rng(0))
    assert (np.sort(np.concatenate(heaps)) == np.arange(len(log))).all()
    whole = batches.training_batches(seen, heaps, {"pair": np.arange(log.vocabulary.n_pairs)})
    assert whole["impressions"].sum() == log.rankings.shown.sum()
    assert whole["clicks"].sum() == log.click.sum()


def test_features_know_documents_that_were_never_shown(world: tuple[Corpus, Sessions]) -> None:
    corpus, log = world
    part = log[log.rankings.query < 5]
    model = small("PBM", tower="features", rounds=30).fit(part, corpus=corpus)
    unseen = corpus.vocabulary.pair_query >= 5
    assert model.vocabulary.same_as(corpus.vocabulary)
    assert corpus.label is not None
    assert np.corrcoef(model.relevance()[unseen], corpus.label[unseen])[0, 1] > 0.5
    assert model.evidence is not None
    assert (model.evidence.impressions[:-1][unseen] == 0).all()


def test_the_degenerate_model_looks_good_and_says_that_it_is_not(log: Sessions) -> None:
    honest, peeking = small("ARM").fit(log), small("ARM_NC", rounds=20).fit(log)
    assert perplexity(peeking, log).average < perplexity(honest, log).average
    assert peeking.peeks
    one, patterns = log[:1], (np.arange(32)[:, None] >> np.arange(5)) % 2 == 1
    lists = Rankings(log.vocabulary, np.repeat(one.rankings.query, 32), np.repeat(one.rankings.pair, 32, axis=0))
    possible = ~(patterns & ~lists.shown).any(axis=1)
    total = np.exp(peeking.log_likelihood(Sessions(lists[possible], patterns[possible]))).sum()
    assert abs(total - 1) > 0.01


def test_a_sessions_list_may_be_of_one_rank(corpus: Corpus) -> None:
    words = corpus.vocabulary
    first = words.query_offsets[:-1]
    log = Sessions(Rankings(words, np.arange(30), first[:, None]), (np.arange(30) % 3 == 0)[:, None])
    for name in NAMES:
        check_click_model(small(name, rounds=1).fit(log))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gradient("CCM"), r"Gradient does not fit 'CCM'. It fits: PBM, UBM, DBN, NCM, CACM_minus, ARM, ARM_NC"),
        (lambda: Gradient("PBM", tower="ivory"), "a tower must be one of embedding, free, features: got 'ivory'"),
        (lambda: Gradient("PBM", batch=0), "above 0"),
        (lambda: Gradient("PBM", learning_rate=-1.0), "above 0"),
    ],
)
def test_what_cannot_be_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match=message):
        make()


def test_what_is_missing_is_named(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="needs a corpus with features"):
        small("PBM", tower="features").fit(log)
    with pytest.raises(SpecError, match="gives the same model for every seed"):
        fit_seeds("PBM", log, 3)
    with pytest.raises(SpecError, match="at least one seed"):
        small("PBM").fit_seeds(log, 0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"pip install 'clickshift\[neural\]'"):
        fit("NCM", log)


def test_fit_seeds_gives_one_model_of_other_learners(log: Sessions) -> None:
    (model,) = fit_seeds("dCTR", log, 1)
    assert type(model).__name__ == "DCTR"


def test_a_log_without_known_pairs_is_refused(log: Sessions) -> None:
    other = Vocabulary.of(np.array(["x"]), np.array(["y"]))[0]
    with pytest.raises(DataError, match="nothing to learn"):
        small("PBM").fit(log.in_vocabulary(other), held_out=log)


def test_a_gradient_model_ranks_a_corpus(world: tuple[Corpus, Sessions]) -> None:
    corpus, log = world
    model = small("ARM", rounds=20).fit(log)
    lists = Scores(model.vocabulary, model.relevance()).on(corpus).sample(np.arange(8), ranks=4, rng=0)
    assert lists.shown.all()


@pytest.mark.parametrize("name", ["UBM", "DBN", "NCM"])
def test_held_out_lists_may_be_longer(name: str, log: Sessions) -> None:
    short = log.rankings.length <= 3
    model = small(name).fit(log[short], held_out=log[~short])
    check_click_model(model)
    assert np.isfinite(model.log_likelihood(log)).all()


def test_sessions_with_unknown_documents_are_left_out_and_counted(log: Sessions) -> None:
    shown = np.bincount(log.rankings.pair[log.rankings.shown], minlength=log.vocabulary.n_pairs)
    fewer = log.vocabulary.with_pairs(np.setdiff1d(np.arange(log.vocabulary.n_pairs), shown.argmax()))
    with pytest.warns(ClickshiftWarning, match=r"left out \d+ of 500 sessions: they show documents that are not in"):
        check_click_model(small("NCM").fit(log.in_vocabulary(fewer), held_out=log))
