"""EM against planted parameters, a generic optimiser, brute force, and every kind of degenerate log."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.optimize import minimize

from clickshift import models
from clickshift.core.newton import NewtonResult, maximise
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import ClickshiftWarning, SpecError
from clickshift.learners._cascade_covariance import lists_repeat
from clickshift.learners._cascade_models import CCMFamily
from clickshift.learners._position_models import EXAMINATION_PRIOR
from clickshift.learners._priors import SHARED_PRIOR, Beta
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.metrics.click_prediction import perplexity
from clickshift.models.base import ClickModel, pair_table
from clickshift.policies.basic import Uniform
from clickshift.simulation.simulate import simulate
from tests.codes import raises_code, warns_code
from tests.holes import lists_with_holes, log_with_holes

NAMES = ["PBM", "UBM", "CM", "DCM", "CCM", "SDBN", "DBN"]


def planted(name: str, vocabulary: Vocabulary, rng: np.random.Generator, ranks: int = 6) -> ClickModel:
    """A model with known parameters."""
    size = vocabulary.n_pairs
    a = pair_table(rng.uniform(0.1, 0.8, size), unseen=0.1)
    s = pair_table(rng.uniform(0.1, 0.8, size), unseen=0.1)
    curve = 0.8 ** np.arange(ranks)
    if name == "PBM":
        return models.PBM(vocabulary, a, curve)
    if name == "UBM":
        return models.UBM(
            vocabulary, a, np.concatenate([np.r_[0.8**r, 0.9 ** (r - np.arange(r))] for r in range(ranks)])
        )
    if name == "CM":
        return models.CM(vocabulary, a)
    if name == "DCM":
        return models.DCM(vocabulary, a, np.linspace(0.8, 0.4, ranks))
    if name == "CCM":
        return models.CCM(vocabulary, a, np.array([0.9, 0.8, 0.4]))
    if name == "SDBN":
        return models.SDBN(vocabulary, a, s)
    return models.DBN(vocabulary, a, s, 0.85)


def small_corpus(queries: int = 8, docs: int = 6) -> Corpus:
    vocabulary = Vocabulary.of(np.repeat(np.arange(queries), docs), np.arange(queries * docs))[0]
    return Corpus(vocabulary, np.zeros(queries * docs, np.float32))


def draw(model: ClickModel, corpus: Corpus, sessions: int, seed: int = 0, ranks: int = 6) -> Sessions:
    return simulate(corpus, Uniform(), model, sessions, ranks=ranks, rng=seed)


def arrays(model: ClickModel) -> dict[str, np.ndarray]:
    skipped = ("vocabulary", "evidence", "bottom_up")
    return {f.name: np.asarray(getattr(model, f.name)) for f in dataclasses.fields(model) if f.name not in skipped}


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_planted_parameters_are_recovered(name: str, holes: bool, rng: np.random.Generator) -> None:
    corpus = small_corpus()
    truth = planted(name, corpus.vocabulary, rng)
    log = draw(truth, corpus, 100_000 if name == "PBM" else 200_000)
    if holes:
        log = truth.sample(lists_with_holes(log.rankings, rng), rng=rng)
    found = MaximumLikelihood(name).fit(log)
    for parameter, value in arrays(truth).items():
        fitted = arrays(found)[parameter]
        if parameter in {"attractiveness", "satisfaction"}:
            value, fitted = value[:-1], fitted[:-1]
        if name == "DCM" and parameter == "continuation":
            value, fitted = value[:-1], fitted[:-1]  # after the last rank there is nothing to go on to
        assert np.abs(fitted - value).max() < 0.06, parameter


@pytest.mark.parametrize("name", NAMES)
def test_a_well_specified_model_reaches_the_oracle(name: str, rng: np.random.Generator) -> None:
    corpus = small_corpus()
    truth = planted(name, corpus.vocabulary, rng)
    test = draw(truth, corpus, 50_000, seed=1)
    found = MaximumLikelihood(name).fit(draw(truth, corpus, 100_000))
    assert perplexity(found, test).average == pytest.approx(perplexity(truth, test).average, abs=4e-4)


def penalised(model: ClickModel, log: Sessions, prior: Beta) -> float:
    """The objective by the model's own likelihood: an independent second writing of what EM climbs."""
    total = float(log.count @ model.log_likelihood(log))
    for name, value in arrays(model).items():
        if name in {"attractiveness", "satisfaction"}:
            total += prior.log_density(value[:-1] if isinstance(model, models.PBM | models.UBM) else value)
        elif name == "examination":
            total += EXAMINATION_PRIOR.log_density(value[value < 1])
        else:
            total += SHARED_PRIOR.log_density(np.atleast_1d(value))
    return total


@pytest.mark.parametrize(
    ("name", "holes"),
    [*((name, False) for name in NAMES if name != "CM"), ("PBM", True), ("UBM", True), ("CCM", True), ("DBN", True)],
)
def test_a_generic_optimiser_finds_nothing_better(name: str, holes: bool, rng: np.random.Generator) -> None:
    """L-BFGS with numerical slopes of the penalised likelihood, from afar. With wrong slopes of its own the learner may
    still come to the right answer, by EM's steps, but does not converge there."""
    corpus = small_corpus(queries=1, docs=3)
    truth = planted(name, corpus.vocabulary, rng, 3)
    log = draw(truth, corpus, 400, ranks=3).merged()
    if holes:
        log = truth.sample(lists_with_holes(log.rankings[np.repeat(np.arange(len(log)), log.count)], rng), rng=rng)
    found = MaximumLikelihood(name, tolerance=1e-7, prior=(0.1, 1.0)).fit(log)
    assert found.evidence is not None
    assert found.evidence.converged
    start = arrays(found)
    top = int(np.argmax(start["examination"])) if "examination" in start else -1
    shapes = {k: v.shape for k, v in start.items()}

    def build(logits: np.ndarray) -> ClickModel:
        values, at = {}, 0
        for k, shape in shapes.items():
            size = int(np.prod(shape))
            values[k] = (1 / (1 + np.exp(-logits[at : at + size]))).reshape(shape)
            at += size
        if top >= 0:
            values["examination"][top] = 1.0
        if name == "DBN":
            values["continuation"] = float(values["continuation"])
        return dataclasses.replace(found, **values)

    def loss(logits: np.ndarray) -> float:
        return -penalised(build(logits), log, Beta())

    here = np.concatenate(
        [np.log(np.clip(v, 1e-9, 1 - 1e-9) / (1 - np.clip(v, 1e-9, 1 - 1e-9))).ravel() for v in start.values()]
    )
    assert -loss(here) == pytest.approx(found.evidence.log_likelihood, abs=1e-3)
    slope = [(loss(here + move) - loss(here - move)) / 2e-4 for move in 1e-4 * np.eye(len(here))]
    assert np.abs(slope).max() < 0.01
    limits = {"maxiter": 400, "maxfun": 40_000}
    afar = minimize(loss, rng.normal(0, 0.3, len(here)), method="L-BFGS-B", options=limits)
    assert -afar.fun == pytest.approx(found.evidence.log_likelihood, abs=1e-3)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", ["DCM", "CCM", "SDBN", "DBN"])
def test_slopes_and_curvature_are_those_of_the_likelihood(name: str, holes: bool, rng: np.random.Generator) -> None:
    """Against differences of the model's own likelihood, wherever the parameters are; only what two pairs have in
    common is left out."""
    corpus, ranks = small_corpus(queries=2, docs=4), 3
    learner = MaximumLikelihood(name, prior=(0.3, 1.5))
    log = draw(planted(name, corpus.vocabulary, rng, ranks), corpus, 200, ranks=ranks)
    log = Sessions(log.rankings, log.click, rng.integers(1, 4, len(log)))
    log = log_with_holes(log, rng) if holes else log
    cascade = Cascade.of(log)
    family = learner._family(cascade)
    size = len(cascade.clicks) * (1 + family.has_satisfaction) + len(family.start_shared())
    logits = rng.normal(0, 1, size)

    def value(x: np.ndarray) -> float:
        model = learner._make_model(cascade, family.split(1 / (1 + np.exp(-x))), None, None)
        return penalised(model, log, Beta(0.3, 1.5))

    view = family._local_likelihood(1 / (1 + np.exp(-logits)))
    assert view.objective == pytest.approx(value(logits), rel=1e-12)
    step = 1e-3 * np.eye(size)
    slope = np.array([(value(logits + d) - value(logits - d)) / 2e-3 for d in step])
    assert np.allclose(family.join(*view._gradient), slope, atol=1e-3)
    found, n_shared = view._information, len(view.parameters.shared)
    cross = found.cross_attractiveness.T
    if family.has_satisfaction:
        cross = np.concatenate([cross, found.cross_satisfaction.T])
    for k, d in enumerate(step):
        for m in range(n_shared):
            e = step[size - n_shared + m]
            both = value(logits + d + e) - value(logits + d - e) - value(logits - d + e) + value(logits - d - e)
            expected = found.shared[k - size + n_shared, m] if k >= size - n_shared else cross[k, m]
            assert -both / 4e-6 == pytest.approx(expected, abs=2e-3, rel=1e-4)
        if k < size - n_shared:
            own = np.concatenate([found.attractiveness, found.satisfaction])[k]
            numeric = (2 * value(logits) - value(logits + d) - value(logits - d)) / 1e-6
            prior = 1.5 / (1 + np.exp(-logits[k])) / (1 + np.exp(logits[k]))
            assert max(numeric, 0.1 * prior) == pytest.approx(own, abs=2e-3, rel=1e-4)  # it is kept above 0


@pytest.mark.parametrize("name", ["PBM", "UBM", "DCM", "CCM", "SDBN", "DBN"])
def test_the_objective_never_falls(name: str, rng: np.random.Generator) -> None:
    corpus = small_corpus()
    log = draw(planted("DBN", corpus.vocabulary, rng), corpus, 1000)  # misspecified for all but one
    learner = MaximumLikelihood(name)
    values = []
    for steps in (1, 2, 3, 4, 6, 9, 14):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickshiftWarning)
            model = dataclasses.replace(learner, iterations=steps).fit(log)
        assert model.evidence is not None
        values.append(model.evidence.log_likelihood)
    assert (np.diff(values) > -1e-6).all()
    assert values[-1] > values[0]


@dataclasses.dataclass(frozen=True)
class Hill:
    """-x², where the step that is tried first goes too far; `reach` says which others there are."""

    x: float
    reach: tuple[float, ...]

    @property
    def objective(self) -> float:
        return -(self.x**2)

    def expected_gain(self) -> float:
        return self.x**2

    def candidates(self) -> Iterator[np.ndarray]:
        return (np.array([self.x * (1 - step)]) for step in self.reach)


def test_a_step_down_is_not_taken() -> None:
    def climbed(*reach: float) -> tuple[Hill, NewtonResult]:
        return maximise(lambda at: Hill(float(at[0]), reach), np.array([8.0]), tolerance=0.1, max_steps=50)

    found, ascent = climbed(3.0, 0.5)
    assert ascent.trace == [-(4.0**-k) for k in range(-3, 4)]
    assert (found.x, ascent.objective, ascent.steps, ascent.converged) == (0.125, ascent.trace[-1], 13, True)
    found, ascent = climbed(3.0, 2.5)
    assert (found.x, ascent.trace, ascent.steps, ascent.converged) == (8.0, [-64.0], 3, True)


@pytest.mark.parametrize("name", NAMES)
def test_merging_and_shuffling_change_nothing(name: str, log: Sessions, rng: np.random.Generator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        models_ = [MaximumLikelihood(name).fit(data) for data in (log, log.merged(), log[rng.permutation(len(log))])]
    for other in models_[1:]:
        for parameter, value in arrays(models_[0]).items():
            assert np.allclose(arrays(other)[parameter], value, atol=1e-9), parameter


@pytest.mark.parametrize("name", NAMES)
def test_counts_give_what_the_log_gives(name: str, log: Sessions) -> None:
    counts = Cells.of(log, "prefix") if name in {"PBM", "UBM"} else Cascade.of(log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        direct, counted = MaximumLikelihood(name).fit(log), MaximumLikelihood(name).fit(counts)
    for parameter, value in arrays(direct).items():
        assert np.allclose(arrays(counted)[parameter], value, atol=1e-12), parameter


@pytest.mark.parametrize("prior", [None, (0.1, 1.0)])
@pytest.mark.parametrize("name", ["PBM", "UBM", "DCM", "CCM", "SDBN", "DBN"])
def test_standard_errors_can_be_left_out(name: str, prior: tuple[float, float] | None, log: Sessions) -> None:
    """Replicates of a jackknife need parameters alone, from any start and in few steps."""
    learner = MaximumLikelihood(name, prior=prior)
    counts = learner.counts(log)
    start = learner.fit_from(counts, max_steps=3)
    for options in ({}, {"start": start}, {"start": start, "max_steps": 2}):
        whole, bare = (learner.fit_from(counts, errors=errors, **options) for errors in (True, False))
        if (name, prior) != ("UBM", None):  # its examination is shrunk by its errors
            for field, values in arrays(whole).items():
                np.testing.assert_array_equal(values, arrays(bare)[field], err_msg=field)
        assert whole.evidence is not None
        assert whole.evidence.logit_error
        assert bare.evidence is not None
        assert not bare.evidence.logit_error
        assert not bare.evidence.effective_counts
        assert whole.evidence.log_likelihood == bare.evidence.log_likelihood


def test_ccm_begins_where_its_continuations_differ(rng: np.random.Generator) -> None:
    """EM's step from documents that are alike cannot tell them apart."""
    corpus = small_corpus(queries=20)
    words = corpus.vocabulary
    for continuation in ([0.9, 0.9, 0.1], [0.6, 0.2, 0.8]):
        users = models.CCM(words, rng.uniform(0.05, 0.8, words.n_pairs + 1), np.array(continuation))
        cascade = Cascade.of(draw(users, corpus, 20_000))
        family = CCMFamily(cascade, Beta())
        homogeneous = family._fit_homogeneous()
        tails = cascade.tails.expect(family.transitions(homogeneous))
        begun, em = family.start(homogeneous, tails), family.m_step(homogeneous, tails)
        assert family._local_likelihood(begun).objective > family._local_likelihood(em).objective
        np.testing.assert_allclose(family.split(begun).shared, continuation, atol=0.15)


def hardly_changing_lists(words: Vocabulary, sessions: int, rng: np.random.Generator) -> Rankings:
    """Each query has one list, of which two neighbours change places now and then: its pairs always meet."""
    docs = words.n_pairs // words.n_queries
    query, order = rng.integers(0, words.n_queries, sessions), np.tile(np.arange(docs), (sessions, 1))
    row = np.flatnonzero(rng.random(sessions) < 0.3)
    rank = rng.integers(0, docs - 1, sessions)[row]
    order[row, rank], order[row, rank + 1] = rank + 1, rank
    return Rankings(words, query.astype(np.int32), (query[:, None] * docs + order).astype(np.int32))


@pytest.mark.parametrize("name", ["DBN", "SDBN", "DCM", "CCM"])
def test_pairs_that_always_meet_neither_stop_the_climb_nor_slow_it_down(name: str) -> None:
    rng = np.random.default_rng(0)
    words = small_corpus(queries=6, docs=10).vocabulary
    lists = hardly_changing_lists(words, 20_000, rng)
    a, s = rng.uniform(0.1, 0.6, words.n_pairs + 1), rng.uniform(0.0, 0.2, words.n_pairs + 1)
    log = models.DBN(words, a, s, 0.8).sample(lists, rng=0)
    one, several = (
        MaximumLikelihood(name).fit(log).evidence,
        MaximumLikelihood(name, starts=2, tolerance=0.001).fit(log).evidence,
    )
    assert one.converged
    assert one.iterations < 40  # 31 for DBN, which is 0.01 nats from the maximum then
    assert one.log_likelihood == pytest.approx(several.log_likelihood, abs=1.0)


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_ranks_that_are_hardly_connected_do_not_stop_the_climb(name: str, rng: np.random.Generator) -> None:
    words = small_corpus(queries=6, docs=10).vocabulary
    lists = hardly_changing_lists(words, 200_000, rng)
    log = planted(name, words, rng, 10).sample(lists, rng=1).merged()
    one, exact = (MaximumLikelihood(name, prior=(0.01, 0.1), tolerance=t).fit(log).evidence for t in (0.1, 1e-6))
    assert one.log_likelihood == pytest.approx(exact.log_likelihood, abs=0.1)
    assert exact.iterations < 30


@pytest.mark.parametrize(
    ("name", "holes"), [("DBN", False), ("SDBN", False), ("DCM", False), ("CCM", False), ("DBN", True), ("CCM", True)]
)
def test_errors_are_those_of_the_whole_information_where_pairs_always_meet(
    name: str, holes: bool, rng: np.random.Generator
) -> None:
    """Differences of the slopes, inverted. Without what is between pairs, the last documents of the lists would seem
    much better known than they are."""
    words = small_corpus(queries=2, docs=10).vocabulary
    truth, lists = planted(name, words, rng, 10), hardly_changing_lists(words, 7000, rng)
    log = truth.sample(lists_with_holes(lists, rng, share=0.1) if holes else lists, rng=0)
    family = MaximumLikelihood(name, prior=(0.3, 2.0))._family(Cascade.of(log))
    found = family.fit(tolerance=1e-6, max_steps=300)
    at = family.join(*found.parameters)
    logits, step = np.log(at / (1 - at)), 1e-4

    def slope(logits: np.ndarray) -> np.ndarray:
        return family.join(*family._local_likelihood(1 / (1 + np.exp(-logits)))._gradient)

    moves = step * np.eye(len(logits))
    information = -np.stack([(slope(logits + move) - slope(logits - move)) / (2 * step) for move in moves])
    errors = np.sqrt(np.diag(np.linalg.inv((information + information.T) / 2)))
    np.testing.assert_allclose(family.join(*found.errors), errors, rtol=1e-6)
    alone = 1 / np.sqrt(np.diag(information))
    assert (alone[: words.n_pairs] / errors[: words.n_pairs]).min() < 0.8


def test_lists_that_change_are_told_from_lists_that_do_not(rng: np.random.Generator) -> None:
    corpus = small_corpus(queries=4, docs=10)
    words, users = corpus.vocabulary, planted("DBN", corpus.vocabulary, rng, 10)
    assert lists_repeat(Cascade.of(users.sample(hardly_changing_lists(words, 4000, rng), rng=0)).tails.parts, words)
    assert not lists_repeat(Cascade.of(draw(users, corpus, 4000, ranks=10)).tails.parts, words)


def degenerate() -> dict[str, Sessions]:
    words = Vocabulary.of(np.repeat(np.arange(3), 4), np.arange(12))[0]
    lists = np.array([[0, 1, 2], [4, 5, 6], [8, 9, 10], [2, 1, 0]])
    rankings = Rankings(words, np.array([0, 1, 2, 0]), lists)
    some = np.zeros((4, 3), bool)
    some[0, 1] = True
    one = Rankings(words, np.array([0, 1]), np.array([[0], [4]]))
    short = Rankings(words, np.array([0, 0]), np.array([[0, UNSEEN, UNSEEN], [1, 0, UNSEEN]]))
    return {
        "no clicks": Sessions(rankings, np.zeros((4, 3), bool)),
        "all clicks": Sessions(rankings, np.ones((4, 3), bool)),
        "one click": Sessions(rankings, some),
        "one session": Sessions(rankings[:1], some[:1]),
        "one rank": Sessions(one, np.array([[True], [False]])),
        "short lists": Sessions(short, np.array([[True, False, False], [False, True, False]])),
        "unknown pairs": Sessions(rankings, some).in_vocabulary(words.with_pairs(np.array([0, 4, 5]))),
    }


@pytest.mark.parametrize("kind", degenerate())
@pytest.mark.parametrize("name", NAMES)
def test_degenerate_logs_give_finite_sensible_parameters(name: str, kind: str) -> None:
    log = degenerate()[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        model = MaximumLikelihood(name).fit(log)
    for parameter, value in arrays(model).items():
        assert np.isfinite(value).all(), parameter
        assert ((value > 0) & (value <= 1)).all(), parameter
    assert np.isfinite(model.log_likelihood(log)).all() or name == "CM"
    assert model.evidence is not None
    for parameter, error in model.evidence.logit_error.items():
        if parameter != "examination":
            assert np.isfinite(error).all(), parameter


@pytest.mark.parametrize("name", ["DCM", "SDBN"])
def test_the_shortcut_is_worse_than_maximum_likelihood(name: str, rng: np.random.Generator) -> None:
    corpus = small_corpus()
    truth = planted(name, corpus.vocabulary, rng)
    train, test = draw(truth, corpus, 50_000), draw(truth, corpus, 20_000, seed=1)
    exact, quick = MaximumLikelihood(name).fit(train), MaximumLikelihood(name, method="shortcut").fit(train)
    assert perplexity(exact, test).average < perplexity(quick, test).average - 1e-3


def test_continuation_can_be_fixed(rng: np.random.Generator) -> None:
    corpus = small_corpus()
    log = draw(planted("DBN", corpus.vocabulary, rng), corpus, 5000)
    assert MaximumLikelihood("DBN", continuation=0.85).fit(log).continuation == 0.85
    same = MaximumLikelihood("DBN", continuation=1.0).fit(log)
    assert np.allclose(same.attractiveness, MaximumLikelihood("SDBN").fit(log).attractiveness)


def test_several_starts_keep_the_best(rng: np.random.Generator) -> None:
    corpus = small_corpus()
    log = draw(planted("UBM", corpus.vocabulary, rng), corpus, 5000)
    for name in ("UBM", "DBN"):
        one, many = MaximumLikelihood(name).fit(log), MaximumLikelihood(name, starts=3).fit(log)
        assert one.evidence is not None
        assert many.evidence is not None
        gain = many.evidence.log_likelihood - one.evidence.log_likelihood
        assert 0 <= gain < 5, "the same prior wherever the climb starts, so that objectives can be compared"


def test_a_deterministic_log_is_warned_of() -> None:
    log = degenerate()["one click"][:3]
    assert swap_graph(Cells.of(log)).n_components == 3
    with warns_code("weak-identification", model="PBM"):
        MaximumLikelihood("PBM").fit(log)


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (
            {"model": "XYZ"},
            "unknown-name",
            {"value": "XYZ", "known": ["PBM", "UBM", "DBN", "SDBN", "DCM", "CCM", "CM"]},
        ),
        ({"model": "PBM", "method": "shortcut"}, "bad-option", {"option": "method", "value": "shortcut"}),
        ({"model": "DCM", "method": "magic"}, "bad-option", {"option": "method", "value": "magic"}),
        ({"model": "PBM", "continuation": 0.5}, "bad-option", {"option": "continuation", "value": 0.5}),
        ({"model": "DBN", "continuation": 1.5}, "bad-option", {"option": "continuation", "value": 1.5}),
        ({"model": "DBN", "prior": (1.0, 1.0)}, "bad-prior", {"value": (1.0, 1.0)}),
        ({"model": "DBN", "iterations": 0}, "bad-option", {"iterations": 0}),
    ],
)
def test_bad_options_are_explained(options: dict, code: str, facts: dict) -> None:
    with raises_code(code, SpecError, **facts):
        MaximumLikelihood(**options)


def test_users_who_look_at_the_bottom_most() -> None:
    """The last rank is examined most: it becomes the one that others are relative to."""
    rng = np.random.default_rng(3)
    corpus = small_corpus()
    a = pair_table(rng.uniform(0.1, 0.8, corpus.n_pairs), unseen=0.1)
    truth = models.PBM(corpus.vocabulary, a, np.array([0.4, 0.3, 0.3, 0.5, 0.7, 1.0]))
    found = MaximumLikelihood("PBM").fit(draw(truth, corpus, 100_000))
    assert found.examination == pytest.approx(truth.examination, abs=0.03)
    assert found.examination[-1] == 1


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_errors_are_those_of_the_whole_information_matrix(name: str, rng: np.random.Generator) -> None:
    """Second differences of the penalised likelihood by all logits at once, inverted."""
    corpus = small_corpus(queries=2, docs=3)
    log = draw(planted(name, corpus.vocabulary, rng, 3), corpus, 3000, ranks=3).merged()
    found = MaximumLikelihood(name, tolerance=1e-8, prior=(0.5, 2.0)).fit(log)
    assert found.evidence is not None
    a, e = found.attractiveness, found.examination
    free = np.flatnonzero(e < 1)
    start = np.concatenate([a[:-1], e[free]])
    start = np.log(start / (1 - start))

    def value(logits: np.ndarray) -> float:
        p = 1 / (1 + np.exp(-logits))
        curve = e.copy()
        curve[free] = p[len(a) - 1 :]
        here = dataclasses.replace(found, attractiveness=np.append(p[: len(a) - 1], a[-1]), examination=curve)
        # both penalties, but for that of examination, which the errors leave out: it only keeps them off 0 and 1
        return float(log.count @ here.log_likelihood(log)) + Beta(0.5, 2.0).log_density(here.attractiveness[:-1])

    size, step = len(start), 1e-3
    moves = step * np.eye(size)
    information = np.empty((size, size))
    for i in range(size):
        for j in range(i + 1):
            ends = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
            information[i, j] = information[j, i] = (
                -sum(x * y * value(start + x * moves[i] + y * moves[j]) for x, y in ends) / (2 * step) ** 2
            )
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    named = found.evidence.logit_error
    assert named["attractiveness"][:-1] == pytest.approx(errors[: len(a) - 1], rel=0.01)
    assert named["examination"][free] == pytest.approx(errors[len(a) - 1 :], rel=0.01)
