"""Placed: the papers' two users who do not read from the top down, and lists shorter than usual."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.sessions import Rankings
from clickshift.errors import DataError, SpecError
from clickshift.policies.basic import Feature, Oracle
from clickshift.policies.by_exposure import Placed
from clickshift.policies.plackett_luce import PlackettLuce
from tests.codes import raises_code
from tests.golden import golden
from tests.policies.small_corpora import small_corpus

GOLDEN = golden("placed")
EXPOSURE = {
    "mixture": tuple(0.7 * 0.7**k + 0.3 * 0.7 ** (9 - k) for k in range(10)),
    "carousel": tuple((1 / row) ** 0.5 * 0.75**column for row in (1, 2) for column in range(5)),
}


@pytest.mark.parametrize("user", EXPOSURE)
def test_golden_permutations(user: str) -> None:
    exposure, golden = EXPOSURE[user], GOLDEN[user]
    needed = Placed(Oracle(), exposure).document_at()[10]
    published = Placed(Oracle(), exposure, as_published=True).document_at()[10]
    assert needed.tolist() == golden["needed"]
    assert published.tolist() == golden["published"]
    gain = np.linspace(1, 0, 10)
    for order, name in ((needed, "needed"), (published, "published"), (np.arange(10), "top_down")):
        assert exposure @ gain[order] == pytest.approx(golden["utility"][name], abs=GOLDEN["tolerance"])


@pytest.mark.parametrize("as_published", [False, True])
def test_lists_are_permuted_by_their_own_length(as_published: bool) -> None:
    corpus = small_corpus(3, 12, 7)
    exposure = (0.1, 0.5, 0.9, 0.2, 0.8)
    placed = Placed(Feature(1), exposure, as_published=as_published)
    query = np.array([0, 1, 2])
    inner, outer = placed.policy.on(corpus), placed.on(corpus)
    sorted_, drawn = inner.sample(query, ranks=5, rng=0), outer.sample(query, ranks=5, rng=0)
    assert drawn.pair[0, 3:].tolist() == [-1, -1]
    if as_published:
        assert drawn.pair[1].tolist() == sorted_.pair[1, [2, 4, 1, 3, 0]].tolist()
        assert drawn.pair[0, :3].tolist() == sorted_.pair[0, [2, 1, 0]].tolist()
    else:
        # rank 3 is looked at most, then rank 5, ...: the best document goes there
        assert drawn.pair[1, [2, 4, 1, 3, 0]].tolist() == sorted_.pair[1].tolist()
        assert drawn.pair[0, [2, 1, 0]].tolist() == sorted_.pair[0, :3].tolist()
    assert (outer.log_prob(drawn) == 0).all()
    assert np.isneginf(outer.log_prob(sorted_)).all()


def test_a_top_down_exposure_changes_nothing() -> None:
    corpus = small_corpus(3, 12, 7)
    inner = PlackettLuce(Oracle(), 0.3)
    outer = Placed(inner, (1.0, 1.0, 0.5, 0.5, 0.0)).on(corpus)
    query = np.repeat([0, 1, 2], 50)
    drawn = outer.sample(query, ranks=5, rng=3)
    np.testing.assert_array_equal(drawn.pair, inner.on(corpus).sample(query, ranks=5, rng=3).pair)
    np.testing.assert_array_equal(outer.placement(ranks=4), inner.on(corpus).placement(ranks=4))


def test_padding_of_a_log_does_not_count_as_ranks() -> None:
    corpus = small_corpus(3, 12)
    outer = Placed(PlackettLuce(Oracle()), (0.2, 0.4, 0.3)).on(corpus)
    drawn = outer.sample(np.array([0, 1, 1]), ranks=3, rng=0)
    padded = Rankings(corpus.vocabulary, drawn.query, np.pad(drawn.pair, ((0, 0), (0, 9)), constant_values=-1))
    np.testing.assert_allclose(outer.log_prob(padded), drawn.log_prob, rtol=1e-12)


def test_every_rank_needs_an_exposure() -> None:
    outer = Placed(Oracle(), (1.0, 0.5)).on(small_corpus(3))
    for ask in (lambda: outer.sample(np.zeros(1, np.int32), rng=0), lambda: outer.placement(ranks=3)):
        with raises_code("missing-exposure", DataError, count=2):
            ask()
    with raises_code("bad-option", SpecError, option="exposure", value=()):
        Placed(Oracle(), ())
