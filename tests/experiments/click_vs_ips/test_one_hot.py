"""The one-hot set, and the closed forms against a search for the least loss and the published figure 4."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from clickshift.errors import DataError
from clickshift.experiments.click_vs_ips._one_hot import document_columns, ips_limit, one_hot_split, pbm_limit
from tests.codes import raises_code
from tests.golden import golden

GOLDEN = golden("pointwise")


def test_every_document_is_once_in_every_part() -> None:
    parts = one_hot_split(seed=3)
    labels = []
    for corpus in parts:
        assert (corpus.n_queries, corpus.n_pairs) == (400, 10_000)
        assert set(corpus.n_candidates.tolist()) == {25}
        assert sorted(document_columns(corpus).tolist()) == list(range(10_000))
        labels.append(corpus.label[np.argsort(document_columns(corpus))])
    assert (labels[0] == labels[1]).all(), "a document has one label"
    assert (labels[0] == labels[2]).all()
    assert np.bincount(labels[0].astype(int)) == pytest.approx([2000] * 5, abs=5 * np.sqrt(1600))
    queries = [set(corpus.vocabulary.query_ids.tolist()) for corpus in parts]
    assert not queries[0] & queries[1]
    assert not queries[0] & queries[2]
    by_query = [corpus.vocabulary.pair_doc.reshape(400, 25) for corpus in parts]
    assert (by_query[0] != by_query[1]).any(), "parts are dealt apart"
    assert (one_hot_split(seed=4).train.label != parts.train.label).any()


def test_collisions_project_documents_on_fewer_columns() -> None:
    plain, shared = one_hot_split(seed=0), one_hot_split(seed=0, collisions=0.8)
    assert len(np.unique(document_columns(shared.train))) == 2000
    assert (plain.train.label == shared.train.label).all(), "a document keeps its label"
    assert (np.bincount(document_columns(shared.test)) == 5).all()
    half = np.bincount(document_columns(one_hot_split(seed=0, collisions=0.3).train))
    assert (half > 1).sum() == 3000, "a rate p up to .5 has p x documents on the columns of as many others"


def test_documents_may_be_in_two_queries() -> None:
    twice = one_hot_split(seed=0, occurrences=2, documents=1000)
    assert twice.train.n_queries == 80
    assert (np.bincount(document_columns(twice.held_out)) == 2).all()
    by_column = twice.train.label[np.argsort(document_columns(twice.train), kind="stable")].reshape(-1, 2)
    assert (by_column[:, 0] == by_column[:, 1]).all()


@pytest.mark.parametrize(
    "options",
    [{"collisions": 1.0}, {"collisions": -0.1}, {"documents": 99}],
)
def test_what_cannot_be_made(options: dict[str, float]) -> None:
    [(option, value)] = options.items()
    with raises_code("bad-option", DataError, option=option, value=value):
        one_hot_split(seed=0, **options)  # type: ignore[arg-type]


def least(loss: object) -> float:
    found = minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-12})
    return float(found.x)


def test_limits_are_where_the_losses_are_least(rng: np.random.Generator) -> None:
    """Columns of one to six documents; the losses are written out as in the paper and searched."""
    column = np.repeat(np.arange(12), rng.integers(1, 7, 12))
    o, y = 1.0 / rng.integers(1, 26, len(column)), rng.choice([0.1, 0.16, 0.28, 0.52, 0.9], len(column))
    weight = rng.integers(1, 50, len(column)).astype(float)
    pbm, ips = pbm_limit(o * y, o, column, weight), ips_limit(o * y, o, column, weight)
    for k in range(12):
        here = column == k
        c, ok, w = (o * y)[here], o[here], weight[here]
        click_loss = lambda r, c=c, o=ok, w=w: -(w * (c * np.log(r * o) + (1 - c) * np.log(1 - r * o))).sum()  # noqa: E731
        ips_loss = lambda r, c=c, o=ok, w=w: -(w * (c / o * np.log(r) + (1 - c / o) * np.log(1 - r))).sum()  # noqa: E731
        assert pbm[k] == pytest.approx(least(click_loss), abs=1e-5)
        assert ips[k] == pytest.approx(least(ips_loss), abs=1e-5)


def test_one_document_per_column_is_the_truth(rng: np.random.Generator) -> None:
    o, y = 1.0 / rng.integers(1, 26, 500), rng.choice([0.1, 0.16, 0.28, 0.52, 1.0], 500)
    column = np.arange(500)
    assert pbm_limit(o * y, o, column) == pytest.approx(y, abs=1e-12)
    assert ips_limit(o * y, o, column) == pytest.approx(y, abs=1e-12)


def test_small_examination_gives_the_examination_weighted_mean(rng: np.random.Generator) -> None:
    o, y = rng.random(40), rng.random(40)
    column = np.arange(40) % 4
    expected = np.bincount(column, o * y) / np.bincount(column, o)
    small, large = pbm_limit(1e-6 * o * y, 1e-6 * o, column), pbm_limit(o * y, o, column)
    assert small == pytest.approx(expected, abs=1e-5)
    assert np.abs(large - expected).max() > 0.01, "only in the limit"


def test_empty_columns_and_more_clicks_than_looks() -> None:
    clicks, o, column = np.array([0.9, 0.0]), np.array([0.5, 0.5]), np.array([0, 2])
    assert pbm_limit(clicks, o, column) == pytest.approx([1.0, np.nan, 0.0], abs=1e-12, nan_ok=True)
    assert ips_limit(clicks, o, column) == pytest.approx([1.8, np.nan, 0.0], nan_ok=True)


def test_figure_2() -> None:
    case = GOLDEN["figure2"]
    o, y = np.array(case["examination"]), np.array(case["relevance"])
    together = np.zeros(2, int)
    assert pbm_limit(o * y, o, together)[0] == pytest.approx(case["pbm"], abs=case["tolerance"])
    assert ips_limit(o * y, o, together)[0] == pytest.approx(case["ips"], abs=1e-12)
