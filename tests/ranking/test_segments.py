"""Rankers from clicks that are corrected with the curve of each session's segment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.learners.fit import fit
from clickshift.propensity.estimate import propensities, read_propensities
from clickshift.ranking._inputs import BiasSource
from clickshift.ranking.labels import corrected_labels, count_by_rank
from clickshift.ranking.train import train_ranker
from tests.codes import raises_code, warns_code
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


def planted(seed: int, *, propensities: bool = False) -> tuple[Sessions, Corpus, np.ndarray, np.ndarray]:
    """Phones examine few ranks, and their ranker shows other documents than that of desktops.

    Returns the log, a corpus whose features determine the true relevance, that relevance, and how much a document is
    one of phones.
    """
    rng, (queries, docs, ranks, n) = np.random.default_rng(seed), (60, 10, 5, 20_000)
    features = rng.normal(size=(queries * docs, 3)).astype(np.float32)
    relevance = 0.8 / (1 + np.exp(0.5 - features @ np.array([0.3, 1.0, -1.0])))
    kind = features[:, 0].reshape(queries, docs)
    query, device = rng.integers(0, queries, n).astype(np.int32), rng.integers(0, 2, n)
    if propensities:  # uniform lists, so that they are known
        order = rng.permuted(np.tile(np.arange(docs), (n, 1)), axis=1)[:, :ranks]
    else:
        score = np.where(device[:, None] == 1, kind[query], -kind[query]) * 6 + rng.gumbel(size=(n, docs))
        order = np.argsort(-score, axis=1)[:, :ranks]
    vocabulary, _, _ = Vocabulary.of(np.repeat(np.arange(queries), docs), np.tile(np.arange(docs), queries))
    pair = (query[:, None] * docs + order).astype(np.int32)
    click = rng.random(pair.shape) < np.stack(PLANTED)[device][:, :ranks] * relevance[pair]
    rankings = Rankings(
        vocabulary,
        query,
        pair,
        propensity=np.full(pair.shape, 1 / docs) if propensities else None,
        segments={"device": Segment(("desktop", "phone"), device)},
    )
    grade = np.digitize(relevance, np.quantile(relevance, [0.5, 0.75, 0.9])).astype(np.float32)
    return Sessions(rankings, click), Corpus(vocabulary, grade, features), relevance, kind.ravel()


PLANTED = 1 / np.arange(1, 6) ** 0.3, 1 / np.arange(1, 6) ** 1.4
"""Examination on desktops and on phones; both examine the first rank."""


def test_corrected_labels_are_the_planted_relevance_on_both_devices() -> None:
    """With one curve, documents of desktops look better than they are, and those of phones worse."""
    log, corpus, relevance, kind = planted(1)
    by_device = propensities(log, by="device", replicates=0)
    bias = {}
    for name, source in (("by device", BiasSource(propensities=by_device)), ("one", propensities(log, replicates=0))):
        source = source if isinstance(source, BiasSource) else BiasSource(propensities=source)
        segments = source.segments(log)
        cells = count_by_rank(corpus, log, segments=segments)
        labels = corrected_labels(cells, "by-rank", source.read(log, segments)["examination"])
        shown = labels.total > 100
        own = [shown & (kind < -0.5), shown & (kind > 0.5)]
        bias[name] = [labels.positive[rows].sum() / (labels.total * relevance)[rows].sum() for rows in own]
    assert bias["by device"] == pytest.approx([1, 1], abs=0.07)
    assert bias["one"][0] > 1.2 > 0.8 > bias["one"][1]


@pytest.mark.parametrize("loss", ["lambdamart", "ips"])
def test_a_ranker_that_follows_the_device_is_better_where_devices_show_other_documents(loss: str) -> None:
    log, corpus, relevance, _ = planted(2)
    right = relevance.reshape(60, 10)
    concordant = {}
    for name, by in (("by device", "device"), ("one", None)):
        trained = train_ranker(corpus, log, loss=loss, propensities=propensities(log, by=by, replicates=0))
        score = trained.ranker.scores(corpus).reshape(60, 10)
        signs = [np.sign(values[:, :, None] - values[:, None]) for values in (right, score)]
        concordant[name] = (signs[0] * signs[1]).sum() / (60 * 90)  # Kendall's tau
    assert concordant["by device"] > concordant["one"] + 0.1, concordant


def test_inverse_propensities_are_counted_by_segment() -> None:
    log, corpus, relevance, _ = planted(3, propensities=True)
    source = BiasSource(propensities=propensities(log, by="device", replicates=0))
    segments = source.segments(log)
    cells = count_by_rank(corpus, log, logging="propensities", segments=segments)
    plain_counts = count_by_rank(corpus, log, segments=segments)
    np.testing.assert_array_equal(cells.situation, plain_counts.situation)
    np.testing.assert_allclose(cells.impressions, 10 * plain_counts.impressions)
    np.testing.assert_allclose(cells.clicks, 10 * plain_counts.clicks)
    labels = corrected_labels(cells, "by-rank", source.read(log, segments)["examination"])
    assert labels.positive.sum() / (labels.total * relevance).sum() == pytest.approx(1, abs=0.05)


def test_a_table_of_several_curves_is_refused(log: Sessions, tmp_path: Path) -> None:
    propensities(log, by="device", replicates=0).write(tmp_path / "curves.csv")
    with raises_code("several-curves"):
        read_propensities(tmp_path / "curves.csv")


def test_a_propensity_of_0_on_one_label_is_named_by_its_rank(log: Sessions, corpus: Corpus) -> None:
    found = propensities(log, by="device", replicates=0)
    phone = found.segments["phone"]
    without = replace(phone, estimate=np.where(np.arange(phone.n_ranks) == 3, 0.0, phone.estimate))
    segments = {**found.segments, "phone": without}
    with raises_code("zero-propensity", rank=4):
        train_ranker(corpus, log, loss="lambdamart", propensities=replace(found, segments=segments))
