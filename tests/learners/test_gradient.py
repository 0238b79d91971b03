"""The gradient learner: it finds what EM finds, seeds do not touch each other, and nothing that was learned is lost."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clickshift.corpus import Corpus
from clickshift.errors import ClickshiftWarning, DataError, SpecError
from clickshift.learners import fit, fit_seeds
from clickshift.learners.em import EM
from clickshift.learners.gradient import Gradient, batches, training
from clickshift.learners.gradient.preparation import Prepared, prepared
from clickshift.learners.gradient.recurrence import Level, states_of_tree
from clickshift.learners.gradient.training import Course
from clickshift.metrics.clicks import perplexity
from clickshift.models.base import ClickModel
from clickshift.models.formulas import Gru, gru
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.policies.scored import Oracle, Scores
from clickshift.sessions import Rankings, Sessions
from clickshift.simulation import simulate
from clickshift.testing import check_click_model
from clickshift.users import DBN as DBNUser
from clickshift.vocabulary import Vocabulary

NAMES = ("PBM", "UBM", "DBN", "ARM", "CACM_minus", "NCM", "ARM_NC")


def small(name: str, **options: object) -> Gradient:
    """A learner whose networks take little time."""
    return Gradient(name, **{"embedding": 8, "hidden": (8,), "state": 6, "rounds": 2, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> tuple[Corpus, Sessions]:
    """Eight queries of six documents with features, and 30,000 sessions of DBN users on lists of four."""
    rng = np.random.default_rng(3)
    words = Vocabulary.of(np.repeat(np.arange(8), 6), np.arange(48))[0]
    label = rng.integers(0, 5, 48).astype(np.float32)
    features = np.stack([label + rng.normal(size=48), rng.normal(size=48) ** 2], axis=1).astype(np.float32)
    corpus = Corpus(words, label, features)
    return corpus, simulate(corpus, PlackettLuce(Oracle(), temperature=2.0), DBNUser(), 30_000, ranks=4, rng=1)


def ready(learner: Gradient, log: Sessions) -> Prepared:
    return prepared(learner, learner._class(), log, log, None)


def arrays(model: ClickModel) -> list[np.ndarray]:
    parts = [model.relevance()] + [getattr(model, name, {}) for name in ("shared", "by_pair")]
    return [np.asarray(a) for part in parts for a in (part.values() if isinstance(part, dict) else [part])]


@pytest.mark.parametrize("name", ["PBM", "UBM", "DBN"])
def test_free_towers_reach_the_solution_of_em(name: str, world: tuple[Corpus, Sessions]) -> None:
    log = world[1]
    by_em = EM(name, prior=(0.001, 0.01)).fit(log)
    by_gradient = Gradient(name, tower="free", batch=4096, learning_rate=0.05).fit(log, held_out=log)
    assert perplexity(by_gradient, log).average == pytest.approx(perplexity(by_em, log).average, abs=1e-4)


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


@pytest.mark.parametrize("name", ["UBM", "NCM"])
def test_seeds_together_follow_seeds_alone(name: str, world: tuple[Corpus, Sessions]) -> None:
    log, held_out = world[1][:1600], world[1][1600:2600]
    learner = small(name, rounds=1)
    work = ready(learner, log)
    assert len(next(iter(work.batches.values()))) in range(40, 60)  # steps
    together = learner.fit_seeds(log, 3, held_out=held_out)
    for seed in (0, 2):
        (alone,) = learner.fit_seeds(log, [seed], held_out=held_out)
        for one, other in zip(arrays(together[seed]), arrays(alone), strict=True):
            assert np.abs(one - other).max() < 1e-5
    assert np.abs(arrays(together[0])[0] - arrays(together[1])[0]).max() > 1e-3
    long = small(name, rounds=12)
    together, alone = long.fit_seeds(log, 3, held_out=held_out), long.fit_seeds(log, [1], held_out=held_out)
    assert together[1].evidence is not None
    assert alone[0].evidence is not None
    assert together[1].evidence.held_out_loss == pytest.approx(alone[0].evidence.held_out_loss, abs=1e-4)


@pytest.mark.parametrize("name", ["ARM", "DBN", "NCM"])
def test_the_same_seed_gives_the_same_bits(name: str, log: Sessions) -> None:
    one, other = (small(name, seed=7).fit(log) for _ in range(2))
    assert all((a == b).all() for a, b in zip(arrays(one), arrays(other), strict=True))


@pytest.mark.parametrize("name", ["CACM_minus", "DBN", "NCM"])
def test_merging_equal_sessions_does_not_change_the_loss(name: str, log: Sessions) -> None:
    learner = small(name)
    program = ready(learner, log).program
    state = program.start(0)
    found = jax.tree.map(lambda array: array[0], program.found(jax.tree.map(lambda a: a[None], state), {}))
    twice = Sessions.concat([log, log])
    losses = []
    for sessions in (twice, twice.merged()):
        seen, _ = batches.as_log(sessions.in_vocabulary(ready(learner, log).vocabulary), learner._class())
        whole = batches.held_out_batches(seen, len(seen.count))
        one = {name: jnp.asarray(array[0]) for name, array in whole.items()}
        losses.append(float(program.cross_entropy(found["by_pair"], found["shared"], one)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert len(twice.merged()) <= len(log)


def test_the_tree_of_lists_has_the_states_and_slopes_of_the_lists(rng: np.random.Generator) -> None:
    lists, ranks, size, pairs = 12, 4, 5, 3
    pair, click = rng.integers(0, pairs, (lists, ranks)), rng.random((lists, ranks)) < 0.5
    click[:6], pair[:6] = click[0], pair[0]  # some begin alike
    everything = np.ones((lists, ranks), bool)
    log = batches.Log(pair, everything, click, np.ones(lists), np.zeros(lists, int), None, True)
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
    before = work.program.start(0)
    batch = {name: jnp.asarray(array[0]) for name, array in work.batches.items()}
    after, _ = work.program.step({}, before, batch, 0.1)
    touched = work.batches["row.doc"][0]
    n_docs = work.vocabulary.n_docs
    untouched = np.setdiff1d(np.arange(n_docs), touched)
    assert len(untouched) > 10
    for path in ("rows", "adam"):
        old, new = (jax.tree.leaves(state["tables"]["doc"][path]) for state in (before, after))
        for one, other in zip(old, new, strict=True):
            assert (one[untouched] == other[untouched]).all()
            moved = np.asarray(one != other).reshape(n_docs, -1).any(axis=1)
            assert moved[touched[touched < n_docs]].all()


def test_batches_hold_every_session_once(log: Sessions) -> None:
    seen, _ = batches.as_log(log, small("PBM")._class())
    heaps = batches.dealt(seen, 100, rng=np.random.default_rng(0))
    assert (np.sort(np.concatenate(heaps)) == np.arange(len(log))).all()
    whole = batches.training_batches(seen, heaps, {"pair": np.arange(log.vocabulary.n_pairs)})
    assert whole["impressions"].sum() == log.rankings.shown.sum()
    assert whole["clicks"].sum() == log.click.sum()


def test_large_batches_stream_from_a_file(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small("NCM")
    usual = ready(learner, log).batches
    for module in (batches, training):
        monkeypatch.setattr(module, "RESIDENT", 20_000)
    streamed = ready(learner, log).batches
    assert all(isinstance(array, np.memmap) for array in streamed.values())
    assert all((streamed[name] == array).all() for name, array in usual.items())
    assert training._Source.of(streamed).chunk < len(next(iter(streamed.values())))
    check_click_model(learner.fit(log))


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


def interrupting(after: int):  # type: ignore[no-untyped-def]
    def hear(said: str) -> None:
        if said.startswith(f"round {after},"):
            raise KeyboardInterrupt

    return hear


def test_an_interrupt_keeps_the_best_and_a_checkpoint_goes_on(
    log: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    learner, said = small("ARM", rounds=6), list[str]()
    whole = learner.fit(log)
    file = tmp_path / "checkpoint.npz"
    with pytest.warns(ClickshiftWarning, match="interrupted: these are the best parameters so far"):
        part = learner.fit(log, progress=interrupting(3), checkpoint=file)
    check_click_model(part)
    assert file.exists()
    resumed = learner.fit(log, progress=said.append, checkpoint=file)
    assert said[0] == "going on after round 3"
    assert all((a == b).all() for a, b in zip(arrays(whole), arrays(resumed), strict=True))
    assert not file.exists()


def test_a_checkpoint_of_something_else_is_not_used(
    log: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    file, said = tmp_path / "checkpoint.npz", list[str]()
    with pytest.warns(ClickshiftWarning, match="interrupted"):
        small("ARM", rounds=6).fit(log, progress=interrupting(2), checkpoint=file)
    small("ARM", rounds=2).fit(log[:400], progress=said.append, checkpoint=file)
    assert said[0].startswith("round 1,")


def test_an_interrupt_before_anything_was_learned_is_an_interrupt(
    log: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_check", stop)
    with pytest.raises(KeyboardInterrupt):
        small("ARM").fit(log)


def test_a_loss_that_is_not_a_number_stops_with_advice(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "keep_better", lambda *a: pytest.fail("must stop before"))
    with pytest.raises(DataError, match=r"loss of seed 0 is not a number after \d+ steps. Try a lower learning_rate"):
        small("DBN", learning_rate=1e38).fit(log)


def test_the_rate_is_halved_after_two_bad_rounds_and_a_seed_stops_after_three() -> None:
    course = Course(np.array([1.0, 1.0]), np.full(2, np.inf), np.zeros(2, int), np.zeros(2, bool), steps=np.zeros(2))
    for losses, rate, done in [
        ([5.0, 5.0], [1.0, 1.0], [False, False]),
        ([6.0, 4.0], [1.0, 1.0], [False, False]),
        ([6.0, 3.0], [0.5, 1.0], [False, False]),
        ([4.0, 2.0], [0.5, 1.0], [False, False]),
        ([4.5, 2.5], [0.5, 1.0], [False, False]),
        ([4.5, 2.5], [0.25, 0.5], [False, False]),
        ([4.5, 1.0], [0.25, 0.5], [True, False]),
        ([0.1, 0.5], [0.25, 0.5], [True, False]),
    ]:
        course.heard(np.array(losses), 10)
        assert course.rate.tolist() == rate
        assert course.done.tolist() == done
    assert course.best.tolist() == [4.0, 0.5]
    assert course.steps.tolist() == [70, 80]


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
