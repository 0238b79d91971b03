"""Click models as scikit-learn estimators: searches with splits by group, from frames and from row numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

import clickshift as cs
from clickshift.data.sessions import Sessions
from tests.codes import raises_code


@pytest.fixture(scope="module")
def clicks() -> Sessions:
    corpus = cs.builtin_corpus(queries=8)
    return cs.simulate(corpus, cs.Uniform(), cs.users.PBM(), 1500, ranks=4, rng=3)


def long_frame(log: Sessions) -> pd.DataFrame:
    """One row per result."""
    words, (row, rank) = log.vocabulary, np.nonzero(log.rankings.shown)
    pair = log.rankings.pair[row, rank]
    return pd.DataFrame(
        {
            "session": row,
            "query": words.query_ids[words.pair_query[pair]],
            "doc": words.doc_ids[words.pair_doc[pair]],
            "rank": rank + 1,
            "click": log.click[row, rank].astype(int),
        }
    )


def wide_frame(log: Sessions) -> pd.DataFrame:
    """One row per session."""
    words = log.vocabulary
    return pd.DataFrame(
        {
            "query": words.query_ids[log.rankings.query],
            "docs": [words.doc_ids[words.pair_doc[pairs]].tolist() for pairs in log.rankings.pair],
            "clicks": log.click.astype(int).tolist(),
        }
    )


GRID = {"model": ["rCTR", "dCTR"], "strength": [0.5, 5.0]}


def searched(estimator: cs.ClickModelEstimator, X: Any, groups: Any) -> GridSearchCV:
    return GridSearchCV(estimator, GRID, cv=GroupKFold(3)).fit(X, groups=groups)


def test_a_grid_search_by_group_gives_the_same_from_frames_and_from_row_numbers(clicks: Sessions) -> None:
    session = np.arange(len(clicks))
    by_number = searched(cs.ClickModelEstimator(log=clicks), session, session)
    long, wide = long_frame(clicks), wide_frame(clicks)
    for found in (
        searched(cs.ClickModelEstimator(), wide, session),
        searched(cs.ClickModelEstimator(), long, long["session"]),
    ):
        assert found.best_params_ == by_number.best_params_
        assert found.best_score_ == pytest.approx(by_number.best_score_, rel=1e-9)
    best = by_number.best_estimator_
    assert best.model_.evidence.sessions == 1500, "the best model is fitted again on everything"
    assert by_number.score(session) == best.score(clicks)
    assert best.predict_proba(session).shape == clicks.click.shape


def test_the_score_is_the_mean_log_likelihood_of_a_session(clicks: Sessions) -> None:
    train, test = clicks.split(0.5, rng=0)
    estimator = cs.ClickModelEstimator("PBM").fit(train)
    expected = cs.evaluate(cs.fit("PBM", train), test).to_dict()["log_likelihood"]
    assert estimator.score(test) == pytest.approx(expected, rel=1e-9)
    assert np.array_equal(estimator.predict_proba(test), estimator.model_.click_prob(test.rankings))


def test_a_clone_has_the_same_parameters_and_does_not_copy_the_log(clicks: Sessions) -> None:
    estimator = cs.ClickModelEstimator("dCTR", log=clicks, strength=3.0)
    copy = clone(estimator)
    assert copy.get_params() == {"model": "dCTR", "log": clicks, "columns": None, "on_bad_line": "error", "strength": 3}
    assert copy.log is clicks
    assert copy.set_params(strength=4.0).get_params()["strength"] == 4
    assert estimator.get_params()["strength"] == 3
    assert repr(copy) == "ClickModelEstimator('dCTR', strength=4.0)"
    scores = cross_val_score(copy, np.arange(len(clicks)), cv=3)
    assert (scores < 0).all()


def test_an_unknown_option_is_refused(clicks: Sessions) -> None:
    with raises_code("bad-option", option="depth"):
        cs.ClickModelEstimator("dCTR", depth=2).fit(clicks)
