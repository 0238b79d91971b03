"""Fits by segment: shared attractiveness, a curve per segment, partial pooling whose strength is learned."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.learners._segment_pooling import CurvePrior, SegmentEstimates
from clickshift.learners.fit import fit
from clickshift.learners.likelihood import SEGMENTED, MaximumLikelihood
from clickshift.models.segmented import Segmented
from clickshift.models.storage import load_model, save_model
from clickshift.testing import check_click_model
from tests.codes import raises_code, warns_code
from tests.learners.segmented_log import FLAT, STEEP, segmented_log
from tests.suite import Study

pytestmark = pytest.mark.filterwarnings("ignore:.*weakly connected:clickshift.errors.ClickshiftWarning")


def with_segment(log: Sessions, **segments: Segment) -> Sessions:
    rankings = log.rankings
    return Sessions(
        Rankings(rankings.vocabulary, rankings.query, rankings.pair, rankings.shown, segments=segments), log.click
    )


@pytest.fixture(scope="module")
def log() -> Sessions:
    return segmented_log(sessions=20_000)[0]


@pytest.fixture(scope="module")
def pbm(log: Sessions) -> Segmented:
    model = fit("PBM", log, by="device")
    assert isinstance(model, Segmented)
    return model


def test_planted_curves_and_attractiveness_are_recovered(pbm: Segmented) -> None:
    _, attractiveness = segmented_log(sessions=20_000)
    np.testing.assert_allclose(pbm.curves, [FLAT, STEEP], atol=0.05)
    shown = pbm.evidence.impressions[:-1] > 200
    np.testing.assert_allclose(pbm.relevance()[shown], attractiveness[shown], atol=0.12)
    low, high, _ = pbm.intervals("examination")
    truth = np.concatenate([FLAT, STEEP])
    assert np.mean((low <= truth) & (truth <= high)) > 0.7
    assert pbm.p_value < 1e-9
    assert "differ (p-value below 0.001)" in pbm.conclusion


def test_the_pooled_curve_is_the_mean_of_the_segments(pbm: Segmented, log: Sessions) -> None:
    share = np.bincount(log.segments["device"].code) / len(log)
    np.testing.assert_allclose(pbm.pooled.examination, share @ pbm.curves, rtol=1e-9)


def test_predictions_follow_the_segment(pbm: Segmented, log: Sessions) -> None:
    prob, code = pbm.click_prob(log.rankings), log.segments["device"].code
    for k in range(2):
        rows = np.flatnonzero(code == k)[:50]
        expected = pbm.relevance()[log.rankings.pair[rows]] * pbm.curves[k]
        np.testing.assert_allclose(prob[rows], expected)
    other = with_segment(log[:50], device=Segment.of(["watch"] * 25 + [None] * 25))
    without = with_segment(log[:50])
    pooled = pbm.relevance()[log.rankings.pair[:50]] * pbm.pooled.examination
    np.testing.assert_allclose(pbm.click_prob(other.rankings), pooled)
    np.testing.assert_allclose(pbm.click_prob(without.rankings), pooled)


def test_segments_that_agree_get_one_curve_and_narrow_intervals() -> None:
    log, _ = segmented_log((STEEP / 0.95, STEEP / 0.95), 4000, seed=3, shares=(0.05, 0.95))
    model = fit("PBM", log, by="device")
    alone = fit("PBM", log[log.segments["device"].code == 0])
    assert np.abs(model.curves[0] - model.curves[1]).max() < 0.1  # relative to phones, with 95 % of the sessions
    width = [
        np.subtract(high, low)[2:6].mean()
        for low, high, _ in (model.of("desktop").intervals("examination"), alone.intervals("examination"))
    ]
    assert width[0] < 0.85 * width[1]


def test_segments_that_differ_and_are_large_are_not_shrunk(log: Sessions, pbm: Segmented) -> None:
    for k, label in enumerate(("desktop", "phone")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = fit("PBM", log[log.segments["device"].code == k]).examination
        np.testing.assert_allclose(pbm.curves[k] / pbm.curves[k, 0], alone, atol=0.08)
        assert pbm.of(label).examination.tolist() == pbm.curves[k].tolist()


def log_of_swapped_neighbours(seed: int, curves: np.ndarray, sessions: int = 20_000) -> Sessions:
    """Lists sorted by relevance, in which two neighbours are swapped now and then: low ranks hardly meet high ones."""
    rng, queries, ranks = np.random.default_rng(seed), 20, curves.shape[1]
    attractiveness = -np.sort(-rng.uniform(0.1, 0.8, (queries, ranks)), axis=1)
    query, device = rng.integers(0, queries, sessions), rng.choice(2, sessions, p=[0.4, 0.6])
    place = np.tile(np.arange(ranks), (sessions, 1))
    row = np.flatnonzero(rng.random(sessions) < 0.3)
    rank = rng.integers(0, ranks - 1, len(row))
    place[row, rank], place[row, rank + 1] = rank + 1, rank
    click = rng.random(place.shape) < attractiveness[query[:, None], place] * curves[device]
    vocabulary, _, _ = Vocabulary.of(np.repeat(np.arange(queries), ranks), np.arange(queries * ranks))
    pair = (query[:, None] * ranks + place).astype(np.int32)
    segments = {"device": Segment(("desktop", "phone"), device.astype(np.int32))}
    return Sessions(Rankings(vocabulary, query.astype(np.int32), pair, segments=segments), click)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_rank_has_examination_1_where_clicks_hardly_compare_ranks(seed: int) -> None:
    """A low rank that had 1 by convention kept the first one from it: all low ranks were two to four times too high."""
    ranks = np.arange(1, 11)
    curves = np.stack([0.8 ** (ranks - 1), 0.95 / ranks**0.6])
    model = fit("PBM", log_of_swapped_neighbours(seed, curves), by="device")
    assert isinstance(model, Segmented)
    assert model.curves[0, 0] == 1
    np.testing.assert_allclose(model.curves, curves, atol=0.12)


def test_segments_that_agree_have_the_interval_of_one_curve_where_its_level_is_uncertain() -> None:
    """The mean of two logits with a large common error lies below both: half of these intervals lay below the curve."""
    curve = 0.8 ** np.arange(10)
    log = log_of_swapped_neighbours(2, np.stack([curve, curve]))
    model, one = fit("UBM", log, by="device"), fit("UBM", log)
    assert model.evidence is not None
    assert one.evidence is not None
    (yes, trials), (yes_of_one, trials_of_one) = (m.evidence.effective_counts["examination"] for m in (model, one))
    enough = np.flatnonzero(trials_of_one > 50)
    assert len(enough) > 40
    beyond = np.log((yes / trials)[enough] / (yes_of_one / trials_of_one)[enough])
    assert abs(beyond.mean()) < 0.1
    low, high, _ = model.intervals("examination")
    estimate = one.examination  # type: ignore[attr-defined]
    assert np.mean((low[enough] <= estimate[enough]) & (estimate[enough] <= high[enough])) > 0.9


def test_one_session_per_device_is_enough_not_to_fail() -> None:
    log, _ = segmented_log(sessions=300)
    code = np.zeros(300, np.int32)
    code[0] = 1
    model = fit("PBM", with_segment(log, device=Segment(("desktop", "phone"), code)), by="device")
    assert np.isfinite(model.curves).all()
    assert ((model.curves > 0) & (model.curves <= 1)).all()


@pytest.mark.parametrize("name", SEGMENTED)
def test_models_by_segment_conform_and_are_saved(name: str, tmp_path) -> None:
    log, _ = segmented_log(sessions=1500, unknown=0.2)
    model = fit(name, log, by="device")
    check_click_model(model, ranks=4, lists=6, draws=2000)
    for label in (*model.labels, None):
        check_click_model(model.of(label), ranks=3, lists=4, draws=2000)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    np.testing.assert_array_equal(again.click_prob(log.rankings), model.click_prob(log.rankings))
    assert again.conclusion == model.conclusion
    assert repr(again) == repr(model)
    assert {row["segment"] for row in again.examination_table()} == {"desktop", "phone"}
    assert np.isfinite([row["high"] for row in again.examination_table()]).mean() > 0.7


@pytest.mark.parametrize("name", SEGMENTED)
def test_likelihood_is_higher_by_segment_where_segments_differ(name: str, log: Sessions) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pooled = fit(name, log)
    model = fit(name, log, by="device")
    assert model.log_likelihood(log).sum() > pooled.log_likelihood(log).sum() + 20


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_equal_rows_and_counts_give_the_same_model(name: str) -> None:
    log, _ = segmented_log(sessions=500, unknown=0.1)
    model, merged = fit(name, log, by="device"), fit(name, log.merged(), by="device")
    np.testing.assert_allclose(model.curves, merged.curves, atol=1e-6)


def test_a_pooled_fit_warns_where_segments_differ(log: Sessions) -> None:
    with warns_code("segments-differ", segment="device", rank=6, label="phone"):
        fit("PBM", log)


def test_a_pooled_fit_is_silent_where_they_agree() -> None:
    log, _ = segmented_log((STEEP, STEEP), 3000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit("PBM", log)
        fit("PBM", with_segment(log, device=Segment.of(["phone"] * 3000)))


def test_of_many_labels_the_largest_are_described(log: Sessions, tmp_path: Path) -> None:
    sizes = {"at": 100, "de": 200, "es": 300, "fr": 400, "it": 500, "uk": 1500}
    country = Segment.of(np.random.default_rng(0).permutation(np.repeat(list(sizes), list(sizes.values()))).tolist())
    countries = with_segment(log[:3000], country=country)
    model = fit("PBM", countries, by="country")
    assert dict(zip(model.labels, model.label_sessions, strict=True)) == sizes
    save_model(model, tmp_path / "model")
    for result in (
        cs.examination(load_model(tmp_path / "model")),
        cs.propensities(countries, by="country"),
    ):
        found = [result.conclusion.find(f"{label}: ") for label in ("uk", "it", "fr", "es")]
        assert found == sorted(found)
        assert min(found) == 0
        assert "And 2 more labels." in result.conclusion
        assert "de: " not in result.conclusion


def test_wrong_segments_are_named(log: Sessions) -> None:
    small = log[:200]
    with raises_code("no-segment", name="country", known=["device"]):
        fit("PBM", small, by="country")
    with raises_code("one-segment", name="device", labels=["phone"]):
        fit("PBM", with_segment(small, device=Segment.of(["phone"] * 200)), by="device")
    many = with_segment(small, device=Segment.of([f"d{k:03}" for k in range(200)]))
    with raises_code("too-many-segments", count=200, limit=57):
        fit("UBM", many, by="device")
    for name in ("CM", "SDBN", "NCM", "dCTR", "DBN" if "DBN" not in SEGMENTED else "SDBN"):
        with raises_code("cannot-segment", known=list(SEGMENTED)):
            fit(name, small, by="device")
    with raises_code("cannot-segment"):
        MaximumLikelihood("PBM", starts=2, segment="device")


def test_a_column_of_a_frame_becomes_the_segment() -> None:
    log, _ = segmented_log(sessions=300)
    frame = log.to_pandas()
    np.testing.assert_allclose(fit("PBM", frame, by="device").curves, fit("PBM", log, by="device").curves)
    renamed = frame.rename(columns={"device": "ua"})
    model = fit("PBM", renamed, by="device", columns={"segment:device": "ua"})
    assert model.segment == "device"


def test_pooling_is_that_of_a_normal_hierarchy() -> None:
    """With two values per situation and known variances, the posterior has a closed form."""
    rng = np.random.default_rng(0)
    situation = np.array([0, 1, 2, 0, 1, 2])
    factor = rng.normal(size=(6, 6)) * 0.3
    estimates = SegmentEstimates(rng.normal(size=6), factor @ factor.T + 0.1 * np.eye(6), situation)
    weights = estimates.deviation_weights
    from clickshift.learners import _segment_pooling as module

    membership, prior = np.eye(3)[situation], CurvePrior(rng.normal(size=3), 0.7)
    means, second = [], []
    for deviation in module._DEVIATIONS:
        own = membership @ membership.T * prior.variance + deviation**2 * np.eye(6)
        gain = own @ np.linalg.inv(own + estimates.covariance)
        center = membership @ prior.mean
        means.append(center + gain @ (estimates.value - center))
        second.append(own - gain @ own + np.outer(means[-1], means[-1]))
    mean = np.einsum("k,kv->v", weights, means)
    pooled = estimates.pooled(prior)
    np.testing.assert_allclose(pooled.mean, mean, atol=5e-3)
    np.testing.assert_allclose(
        pooled.covariance, np.einsum("k,kvw->vw", weights, second) - np.outer(mean, mean), atol=1e-2
    )


def test_deviations_are_weighted_by_the_restricted_likelihood() -> None:
    """The likelihood without the common curve is that of all values with a prior of the curve that is nearly flat."""
    rng = np.random.default_rng(1)
    situation, factor = np.array([0, 1, 0, 1, 0]), rng.normal(size=(5, 5)) * 0.2
    estimates = SegmentEstimates(rng.normal(size=5), factor @ factor.T + 0.05 * np.eye(5), situation)
    from clickshift.learners import _segment_pooling as module

    log_likelihood = []
    for deviation in module._DEVIATIONS:
        total = estimates.covariance + deviation**2 * np.eye(5) + 1e5 * np.eye(2)[situation] @ np.eye(2)[situation].T
        log_likelihood.append(
            -(np.linalg.slogdet(total)[1] + estimates.value @ np.linalg.solve(total, estimates.value)) / 2
        )
    expected = np.exp(np.array(log_likelihood) - max(log_likelihood)) * module._DEVIATIONS
    np.testing.assert_allclose(estimates.deviation_weights, expected / expected.sum(), atol=1e-4)


def test_replaced_labels_change_nothing(log: Sessions) -> None:
    small = log[:2000]
    segment = small.segments["device"]
    swapped = with_segment(small, device=Segment(("a", "b"), 1 - segment.code))
    model, other = fit("PBM", small, by="device"), fit("PBM", swapped, by="device")
    np.testing.assert_allclose(other.curves[::-1], model.curves, rtol=1e-6)
    assert replace(model).p_value == pytest.approx(other.p_value)


@pytest.mark.study
@pytest.mark.parametrize("name", ["PBM", "UBM"])
@pytest.mark.parametrize("phone", [STEEP, FLAT], ids=["different", "equal"])
def test_coverage_of_intervals_by_segment(study: Study, name: str, phone: np.ndarray) -> None:
    """UBM's examination does not depend on the last click here."""
    hit, curves = [], (FLAT, phone)
    for seed in range(study.choose(smallest=2, full=150)):
        log, _ = segmented_log(curves, 6000, seed=1000 + seed)
        model = fit(name, log, by="device")
        rank = np.array([row["rank"] - 1 for row in model.examination_table()]).reshape(2, -1)
        truth = np.stack([curve[own] for curve, own in zip(curves, rank, strict=True)]).ravel()
        low, high, support = model.intervals("examination")
        counted = (support == "log") | (support == "prior")
        hit.append(((low <= truth) & (truth <= high))[counted].mean())
    case = "equal" if phone is FLAT else "different"
    study.record(f"coverage of examination by segment, {name}, {case}", coverage=float(np.mean(hit)))
    if study.full:
        assert 0.93 <= np.mean(hit) <= 0.98


def test_arms_of_an_experiment_are_not_compared() -> None:
    log, _ = segmented_log(sessions=3000)
    arms = with_segment(log, arm=Segment(("a", "b"), log.segments["device"].code))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit("PBM", arms)
