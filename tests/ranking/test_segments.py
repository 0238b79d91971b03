"""Rankers from clicks that are corrected with the curve of each session's segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.learners.fit import fit
from clickshift.propensity.estimate import propensities
from clickshift.ranking._inputs import BiasSource
from clickshift.ranking.labels import corrected_labels, count_by_rank
from clickshift.ranking.train import train_ranker
from tests.codes import warns_code
from tests.learners.segmented_log import segmented_log

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(weakly connected|effective number):clickshift.errors.ClickshiftWarning"
)


@pytest.fixture(scope="module")
def log() -> Sessions:
    return segmented_log(sessions=4000, unknown=0.1)[0]


@pytest.fixture(scope="module")
def corpus(log: Sessions) -> Corpus:
    rng, n = np.random.default_rng(0), log.vocabulary.n_pairs
    return Corpus(log.vocabulary, np.zeros(n, np.float32), rng.normal(size=(n, 3)).astype(np.float32))


@pytest.mark.parametrize("kind", ["propensities", "model"])
def test_clicks_are_divided_by_the_examination_of_their_segment(log: Sessions, corpus: Corpus, kind: str) -> None:
    if kind == "model":
        model = fit("PBM", log, by="device")
        source = BiasSource(model=model)
        curves = [*model.curves, model.pooled.examination]
    else:
        found = propensities(log, by="device", replicates=0)
        source = BiasSource(propensities=found)
        curves = [found.segments["desktop"].estimate, found.segments["phone"].estimate, found.estimate]
    segments = source.segments(log)
    counts = count_by_rank(corpus, log, segments=segments)
    given = source.read(log, segments)
    labels = corrected_labels(counts, "by-rank", given["examination"])
    code = log.segments["device"].code
    expected = np.zeros(log.vocabulary.n_pairs)
    for number, curve in zip((0, 1, -1), curves, strict=True):
        for rank in range(log.n_ranks):
            rows = (code == number) & log.click[:, rank]
            expected += np.bincount(log.rankings.pair[rows, rank], minlength=len(expected)) / curve[rank]
    np.testing.assert_allclose(labels.positive, expected)
    aware = corrected_labels(counts, "policy-aware", given["examination"])
    sessions = np.bincount(log.rankings.query)[log.vocabulary.pair_query]
    assert set(aware.total) <= {0.0, *sessions.astype(float)}


def test_a_ranker_is_trained_with_curves_by_segment(log: Sessions, corpus: Corpus, tmp_path: Path) -> None:
    found = propensities(log, by="device", replicates=0)
    found.write(tmp_path / "curves.json")
    frame = log.to_pandas()
    trained = train_ranker(corpus, frame, loss="lambdamart", propensities=tmp_path / "curves.json")
    other = train_ranker(corpus, frame, loss="lambdamart", examination=found.estimate)
    assert not np.array_equal(trained.ranker.scores(corpus), other.ranker.scores(corpus))


def test_clicks_without_the_segment_get_the_curve_of_all(log: Sessions, corpus: Corpus) -> None:
    found = propensities(log, by="device", replicates=0)
    plain = Sessions(Rankings(log.vocabulary, log.rankings.query, log.rankings.pair), log.click)
    with warns_code("no-segment", segment="device"):
        trained = train_ranker(corpus, plain, loss="lambdamart", propensities=found)
    other = train_ranker(corpus, plain, loss="lambdamart", examination=found.estimate)
    np.testing.assert_array_equal(trained.ranker.scores(corpus), other.ranker.scores(corpus))
    tablet = Rankings(
        log.vocabulary, log.rankings.query, log.rankings.pair, segments={"device": Segment.of(["tablet"] * len(log))}
    )
    trained = train_ranker(corpus, Sessions(tablet, log.click), loss="lambdamart", propensities=found)
    np.testing.assert_allclose(trained.ranker.scores(corpus), other.ranker.scores(corpus))
