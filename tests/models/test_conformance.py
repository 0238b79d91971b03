"""Every user and every fitted model keeps the rules of `testing.check_click_model`, and a model that does not is
caught."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from typing_extensions import override

from clickshift import models
from clickshift.core.spec import parse
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError
from clickshift.learners import DEFAULT, fit
from clickshift.models._chain import ChainModel
from clickshift.models._formulas import Chain, Prob, chain_click_given_history, sigmoid
from clickshift.models.base import ClickModel, PairTable, at_results
from clickshift.simulation.users import USERS
from clickshift.testing import check_click_model
from tests.codes import raises_code
from tests.models.random_models import random_neural


def check(model: ClickModel) -> None:
    """On lists of four: a pattern of probability .5 that is sampled .06 too often is 6.5 standard errors off."""
    check_click_model(model, ranks=4, lists=8, draws=3000)


@pytest.mark.parametrize(
    "user", [*USERS, "GradedDBN(as_published=True)", "DBN(floor=0.0)", "Carousel(columns=2)", "CoCM(floor=0.0)"]
)
def test_users_conform(user: str, corpus: Corpus) -> None:
    check(parse(user, USERS).on(corpus))


@pytest.mark.filterwarnings("ignore:.*weakly connected:clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("name", DEFAULT)
def test_fitted_models_conform(name: str, log: Sessions) -> None:
    check(random_neural(name, log.vocabulary) if DEFAULT[name] == "Gradient" else fit(name, log))


@dataclass(frozen=True, eq=False)
class Broken(ClickModel):
    """A PBM that breaks one rule."""

    vocabulary: object
    rule: str

    @override
    def _click_prob(self, rankings):
        p = np.full(rankings.pair.shape, 0.3)
        if self.rule == "range":
            p[:, 0] = 1.2
        if self.rule == "order":
            p *= np.linspace(0.9, 1, len(p))[:, None]
        if self.rule == "padding":
            p /= rankings.n_ranks
        return p

    @override
    def _click_prob_given_history(self, sessions):
        p = self._click_prob(sessions.rankings)
        if self.rule == "peeks":
            p[:, 0] = np.where(sessions.click[:, 1], 0.5, 0.3)
        if self.rule == "history":
            p[:, 1] = np.where(sessions.click[:, 0], 0.5, 0.3)
        if self.rule == "marginal":
            p *= 0.9
        return p

    @override
    def _sample(self, rankings, uniform):
        return (uniform[:, :-1] < self._click_prob(rankings) + (0.1 if self.rule == "sample" else 0)) & rankings.shown

    @override
    def _relevance(self):
        return np.full(self.vocabulary.n_pairs + 1, np.nan if self.rule == "relevance" else 0.0)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("range", r"click_prob must lie in \[0, 1\]"),
        ("peeks", "at or above it"),
        ("history", "without uses_history must not change"),
        ("marginal", "without uses_history must not change"),
        ("sample", "were sampled with frequency"),
        ("padding", "padding must change nothing"),
        ("order", "at or above it|permuting sessions"),
        ("relevance", "relevance must be finite"),
    ],
)
def test_a_broken_model_is_caught(rule: str, message: str, corpus: Corpus) -> None:
    with pytest.raises(AssertionError, match=message):
        check(Broken(corpus.vocabulary, rule))


def test_the_broken_model_mended_passes(corpus: Corpus) -> None:
    check(Broken(corpus.vocabulary, "none"))


@dataclass(frozen=True, eq=False)
class OneClick(ClickModel):
    """A cascade of one click, which forgets holes or not."""

    vocabulary: object
    attractiveness: PairTable
    forgets_holes: bool
    uses_history = True

    def _attractiveness(self, rankings):
        if self.forgets_holes:
            return self.attractiveness[rankings.pair]
        return at_results(self.attractiveness, rankings)

    @override
    def _click_prob(self, rankings):
        attractive = self._attractiveness(rankings)
        return attractive * np.cumprod(np.pad(1 - attractive, ((0, 0), (1, 0)), constant_values=1), axis=1)[:, :-1]

    @override
    def _click_prob_given_history(self, sessions):
        clicked = np.cumsum(sessions.click, axis=1) - sessions.click > 0
        return np.where(clicked, 0.0, self._attractiveness(sessions.rankings))

    @override
    def _relevance(self):
        return self.attractiveness


def test_a_model_that_forgets_holes_is_caught(corpus: Corpus) -> None:
    attractiveness = np.linspace(0.1, 0.6, corpus.vocabulary.n_pairs + 1)
    check(OneClick(corpus.vocabulary, attractiveness, forgets_holes=False))
    with pytest.raises(AssertionError, match="on lists with holes: click_prob must equal the sum"):
        check(OneClick(corpus.vocabulary, attractiveness, forgets_holes=True))


@dataclass(frozen=True, eq=False)
class StopsAtHoles(ChainModel):
    """A cascade whose users may leave at a hole: its probabilities are consistent, but a hole is not a skip."""

    vocabulary: object
    attractiveness: PairTable
    stop: float

    @override
    def _chain(self, rankings):
        attractive = at_results(self.attractiveness, rankings)
        follow = np.where(rankings.shown, 0.9, 0.9 - self.stop)
        return Chain(attractive, attractive, np.float64(0.4), follow, np.float64(0.0))

    @override
    def _relevance(self):
        return self.attractiveness


def test_a_cascade_that_stops_at_holes_is_caught(corpus: Corpus) -> None:
    attractiveness = np.linspace(0.1, 0.6, corpus.vocabulary.n_pairs + 1)
    check(StopsAtHoles(corpus.vocabulary, attractiveness, 0.0))
    with pytest.raises(AssertionError, match="on lists with holes: a hole must be a document of attractiveness 0"):
        check(StopsAtHoles(corpus.vocabulary, attractiveness, 0.1))


def chain_click_prob(chain: Chain) -> np.ndarray:
    """P(C_r = 1) of top-down browsing, with the clicks above summed out: the forward messages, written out."""
    n, ranks = chain.click.yes.shape
    after_click, examining, unseen = np.zeros(n), np.ones(n), np.zeros(n)
    clicked = np.empty((n, ranks))
    for r in range(ranks):
        click, again = chain.click.yes[:, r], chain.click_after_click.yes[:, r]
        clicked[:, r] = examining * click + after_click * again
        skipped = examining * (1 - click) + after_click * (1 - again)
        before = np.stack([clicked[:, r], skipped, unseen])
        follow = np.stack([part.yes[:, r] for part in (chain.follow_click, chain.follow_skip, chain.follow_unseen)])
        after_click, examining = before[0] * follow[0], (before[1:] * follow[1:]).sum(axis=0)
        unseen = (before * (1 - follow)).sum(axis=0)
    return clicked


@pytest.mark.parametrize("user", ["DBN", "Carousel(columns=2)"])
def test_compiled_chains_equal_the_formulas(user: str, corpus: Corpus, log: Sessions) -> None:
    model = parse(user, USERS).on(corpus)
    assert isinstance(model, ChainModel)
    full = log[log.rankings.shown.all(axis=1)]
    plain = model._chain(full.rankings)
    wide = [np.broadcast_to(part, full.click.shape) for part in plain]
    chain = Chain(*(Prob(part, 1 - part) for part in wide))
    given = chain_click_given_history(chain, full.click)
    assert np.allclose(given.yes, model.click_prob_given_history(full), atol=1e-14)
    assert np.allclose(given.yes + given.no, 1, atol=1e-14)
    assert np.allclose(chain_click_prob(chain), model.click_prob(full.rankings), atol=1e-14)


@pytest.mark.parametrize(
    ("logit", "yes", "no"),
    [
        (0.0, 0.5, 0.5),
        (20.0, 0.9999999979388463, 2.0611536181902037e-09),
        (-20.0, 2.0611536181902037e-09, 0.9999999979388463),
        (1e30, 1.0, 9.357622968840175e-14),
        (-np.inf, 9.357622968840175e-14, 1.0),
    ],
)
def test_sigmoid_keeps_the_digits_of_both_sides(logit: float, yes: float, no: float) -> None:
    found = sigmoid(np.array(logit))
    assert found.yes == pytest.approx(yes, rel=1e-12)
    assert found.no == pytest.approx(no, rel=1e-12)


def test_mixture_weights_must_add_up(corpus: Corpus) -> None:
    part = models.RCTR(corpus.vocabulary, np.array([0.5]))
    with raises_code("bad-weights", DataError, value=[0.5, 0.4]):
        models.Mixture(corpus.vocabulary, (part, part), np.array([0.5, 0.4]))


def test_a_mixture_of_one_is_that_one(corpus: Corpus, log: Sessions) -> None:
    part: ClickModel = parse("DBN", USERS).on(corpus)
    whole = models.Mixture(corpus.vocabulary, (part, replace(part)), np.array([0.25, 0.75]))
    assert np.allclose(whole.click_prob_given_history(log), part.click_prob_given_history(log), atol=1e-14)
    check(
        models.Mixture(
            corpus.vocabulary, (whole, models.RCTR(corpus.vocabulary, np.array([0.5, 0.1]))), np.array([0.6, 0.4])
        )
    )


def test_a_log_of_another_vocabulary_is_translated(corpus: Corpus, log: Sessions) -> None:
    model = parse("DBN", USERS).on(corpus)
    part = log.in_vocabulary(corpus.vocabulary.with_pairs(np.unique(log.rankings.pair[:50][log.rankings.shown[:50]])))
    known = (part.rankings.pair >= 0) | ~part.rankings.shown
    whole = known.all(axis=1)
    assert whole.any()
    assert np.allclose(model.click_prob(part.rankings)[whole], model.click_prob(log.rankings)[whole])
    assert np.isfinite(model.click_prob(part.rankings)).all()
