"""Comparison of models on one log: the result, the splits, and what happens when a model fails."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickshift.data.sessions import Sessions
from clickshift.data.splits import SPLITS, split_sessions
from clickshift.errors import DataError, SpecError
from clickshift.experiments import comparison
from clickshift.experiments._comparison_report import (
    comparison_conclusion,
    comparison_figure,
    comparison_table,
    comparison_verdict,
    recommended,
)
from clickshift.experiments.comparison import Comparison, click_predicting_models, compare
from clickshift.learners import fit, learner_for
from clickshift.learners.gradient import Gradient
from clickshift.metrics.click_prediction import click_bits, evaluation
from tests.codes import raises_code
from tests.suite import Study

pytestmark = pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")


def test_rows_hold_what_an_evaluation_says(log: Sessions) -> None:
    rows = compare(log, models=["dCTR", "PBM"], split="order", fraction=0.5).rows()
    assert sorted(row["model"] for row in rows) == ["PBM", "dCTR"]
    assert rows[0]["conditional_perplexity"] < rows[1]["conditional_perplexity"], "the best first"
    train, test = log.split_in_order(0.5)
    for row in rows:
        facts = evaluation(fit(row["model"], train), test)
        for name in ("conditional_perplexity", "marginal_perplexity", "log_likelihood", "unseen_pair_share"):
            assert row[name] == pytest.approx(facts[name], rel=1e-12)
        assert [row[f"conditional_perplexity@{r}"] for r in range(1, 6)] == facts["conditional_perplexity_at_rank"]
        assert (row["train_sessions"], row["test_sessions"]) == (250, 250)
        assert row["seconds"] > row["fit_seconds"] > 0
        assert row["marginal_error"] == 0
        assert row["error"] is None


def test_the_interval_is_that_of_resampled_sessions(log: Sessions) -> None:
    """A second writing: the bootstrap of whole sessions."""
    train, test = log.split_in_order(0.5)
    model = fit("PBM", train)
    bits, shown, rng = click_bits(model, test), test.rankings.shown, np.random.default_rng(0)
    draws = [rng.integers(0, len(test), len(test)) for _ in range(2000)]
    values = [np.exp2(bits[rows].sum(axis=0) / shown[rows].sum(axis=0)).mean() for rows in draws]
    assert evaluation(model, test)["conditional_perplexity_error"] == pytest.approx(np.std(values), rel=0.1)


class Stand:
    """A learner that stands in for another one."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fit(self, log: Sessions) -> object:
        if self.text == "broken":
            raise ZeroDivisionError("of all things")
        return fit(self.text, log)


def test_by_default_the_classical_models(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Click rates stand in for the networks, each of which compiles for seconds: the study below trains them."""
    asked: list[str] = []

    def quickly(name: str) -> object:
        asked.append(name)
        return Stand("rCTR") if isinstance(learner_for(name), Gradient) else learner_for(name)

    monkeypatch.setattr(comparison, "learner_for", quickly)
    classical = ["gCTR", "rCTR", "dCTR", "drCTR", "PBM", "UBM", "CM", "DCM", "CCM", "SDBN", "DBN"]
    compared = compare(log)
    assert asked == [*classical, "Stacking"]
    assert classical == click_predicting_models("classical")
    assert [row["model"] for row in compared.results] == [*classical, "Stacking"]
    assert [row["model"] for row in compared.rows() if row["error"]] == []
    asked.clear()
    assert [row["model"] for row in compare(log, models=["PBM", "NCM"], neural=True).results] == [
        *("PBM", "NCM"),
        *("CACM_minus", "ARM"),
    ]
    assert click_predicting_models() == [*classical, "NCM", "CACM_minus", "ARM"]
    assert {"TopPop", "ARM_NC"}.isdisjoint(click_predicting_models())


@pytest.mark.study
def test_all_models_that_predict_clicks_can_be_compared(log: Sessions, study: Study) -> None:
    models = study.choose(smallest=("rCTR", "PBM", "ARM"), full=click_predicting_models())
    rows = compare(log, models=models).results
    assert [row["model"] for row in rows] == [*models]
    assert [row["model"] for row in rows if row["error"]] == []
    assert all(row["conditional_perplexity"] > 1 for row in rows)
    study.record(
        "comparison: perplexity of all models on random clicks",
        **{row["model"]: row["conditional_perplexity"] for row in rows},
    )


def test_a_failing_model_keeps_the_others(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "learner_for", lambda name: Stand("broken" if name == "PBM" else name))
    told: list[object] = []

    def progress(step: int | str, /, *, total: int | None = None) -> None:
        told.append(step if total is None else total)

    compared = compare(log, models=["TopPop", "PBM", "rCTR"], progress=progress)
    rows = {row["model"]: row for row in compared.rows()}
    assert [*rows] == ["rCTR", "TopPop", "PBM"], "failed models are last"
    assert rows["TopPop"]["error"].startswith("TopPop cannot predict clicks.")
    assert rows["PBM"]["error"] == "ZeroDivisionError: of all things"
    assert rows["PBM"]["conditional_perplexity"] is None
    assert rows["rCTR"]["error"] is None
    assert rows["rCTR"]["conditional_perplexity"] > 1
    assert told[0] == 3
    assert [step for step in told if step == 1] == [1, 1, 1]
    line = f"rCTR: perplexity {rows['rCTR']['conditional_perplexity']:.4f} ("
    assert [str(step).endswith(" s)\n") for step in told if str(step).startswith(line)] == [True]
    assert len({tuple(row) for row in rows.values()}) == 1, "rows of one table have the same columns"
    assert "Not compared: TopPop, PBM." in compared.conclusion


def test_an_interrupted_comparison_keeps_its_finished_rows(
    log: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str, *rest: object, **options: object) -> tuple[None, dict[str, object]]:
        if name == "PBM":
            raise KeyboardInterrupt
        return None, row(name, 1.5)

    monkeypatch.setattr(comparison, "_row", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compare(log, models=["gCTR", "rCTR", "PBM"], output=tmp_path)
    assert pq.read_table(tmp_path / "rows.parquet")["model"].to_pylist() == ["gCTR", "rCTR"]


def test_a_slip_stops_before_the_work() -> None:
    with raises_code("unknown-name", SpecError, value="PMB"):
        compare("nowhere.parquet", models=["rCTR", "PMB"])
    with raises_code(
        "bad-option", DataError, option="split", value="weekly", known=["random", "time", "order", "within-query"]
    ):
        compare("nowhere.parquet", split="weekly")


def test_a_model_is_compared_once(log: Sessions) -> None:
    assert len(compare(log, models=["rCTR", "rCTR"]).results) == 1
    both = compare(log, models=["dCTR", "Counting('dCTR', strength=50.0)"], split="order").results
    assert both[0]["conditional_perplexity"] != both[1]["conditional_perplexity"]


def test_another_log_is_predicted_whole(log: Sessions) -> None:
    compared = compare(log[:300], test=log[300:], models=["rCTR"])
    assert [compared.rows()[0][name] for name in ("train_sessions", "test_sessions")] == [300, 200]
    assert compared.to_dict()["split"] is None


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_takes_the_fraction(split: str, log: Sessions) -> None:
    timed = Sessions(log.rankings, log.click, time=np.arange(len(log))[::-1])
    train, test = SPLITS[split](timed, 0.6, 0)
    assert train.total + test.total == 500
    assert train.total == pytest.approx(300, abs=15)
    if split == "time":
        assert train.time.max() < test.time.min()


def test_the_random_split_is_by_seed(log: Sessions) -> None:
    values = [compare(log, models=["rCTR"], seed=seed).rows()[0]["log_likelihood"] for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def row(
    model: str, conditional: float | None, *, log_likelihood: float | None = -1.0, error: str | None = None
) -> dict:
    return {
        "model": model,
        "conditional_perplexity": conditional,
        "conditional_perplexity_error": None if conditional is None else 0.002,
        "marginal_perplexity": None if conditional is None else conditional + 0.01,
        "log_likelihood": log_likelihood,
        "unseen_pair_share": 0.1,
        "fit_seconds": 0.4,
        "seconds": 0.5,
        "error": error,
    }


ROWS = [
    row("rCTR", 1.42),
    row("Bad", None, log_likelihood=None, error="it broke"),
    row("UBM", 1.3601),
    row("DBN", 1.36),
]


def test_the_comparison_is_sorted() -> None:
    table = comparison_table(ROWS)
    assert [line["model"] for line in table] == ["DBN", "UBM", "rCTR", "Bad"]
    assert [str(line["conditional perplexity"]) for line in table[:2]] == ["1.3600 ± .0039", "1.3601 ± .0039"]
    assert (str(table[0]["fit (s)"]), str(table[0]["whole time (s)"])) == ("0.4", "0.5")
    assert table[3]["conditional perplexity"] is None


def test_the_conclusion_names_the_best_and_its_gain() -> None:
    words = comparison_conclusion([*ROWS, row("CM", 4.85, log_likelihood=-math.inf)])
    assert words.startswith("Use DBN: its click predictions are 14.3% closer to perfect than those of rCTR"), (
        "0.06 of 0.42"
    )
    assert "(perplexity 1.3600 against 1.4200; 1 is perfect).\n\nUBM is as good within chance." in words
    assert "Not compared: Bad." in words
    assert "CM gave probability 0 to clicks that happened" in words
    assert comparison_conclusion([ROWS[1]]) == "Not compared: Bad."


@pytest.mark.parametrize(
    ("error", "verdict", "words"),
    [
        (0.02, "usable", "Use DBN: "),
        (0.04, "weak", "not better beyond chance than those of rCTR"),
        (None, "usable", ""),
    ],
)
def test_a_gain_within_chance_is_not_a_gain(error: float | None, verdict: str, words: str) -> None:
    """.06 is three standard errors of .02, and one and a half of .04."""
    rows = [row("rCTR", 1.42) | {"difference_error": error}, row("DBN", 1.36)]
    assert comparison_verdict(rows) == verdict
    assert words in comparison_conclusion(rows)


@pytest.mark.parametrize(
    ("of_ubm", "of_stacking", "use", "words"),
    [
        (0.001, None, "Stacking", "It is ahead of UBM, the best single model, by 0.0030 ± 0.0020."),
        (0.002, None, "UBM", "perplexity 1.3600 against 1.4200"),
        (None, 0.002, "UBM", "Stacking and DBN are as good within chance."),
        (None, None, "Stacking", "DBN is as good within chance."),
    ],
)
def test_a_stacked_mixture_is_recommended_where_it_is_better_beyond_chance(
    of_ubm: float | None, of_stacking: float | None, use: str, words: str
) -> None:
    """.003 is three standard errors of .001, and one and a half of .002. The error is on the row that is not used."""
    rows = [
        row("rCTR", 1.42) | {"difference_error": 0.01},
        row("DBN", 1.3604),
        row("UBM", 1.36) | {"difference_error": of_ubm},
        row("Stacking", 1.357) | {"difference_error": of_stacking},
    ]
    if use == "Stacking" and of_ubm is None:
        rows[1]["conditional_perplexity"] = 1.3571
    assert recommended(rows) == use
    assert comparison_conclusion(rows).startswith(f"Use {use}: ")
    assert words in comparison_conclusion(rows)
    assert recommended([ROWS[1]]) is None


def test_a_stacked_mixture_reuses_the_members_that_were_fitted(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the errors of differences are those of the recommended model, whichever it is."""
    members = ("rCTR", "dCTR", "PBM")
    text = f"Stacking({members})"
    (again,) = compare(log, models=[text]).results
    reused = compare(log, models=[*members, text])
    rows = {row["model"]: row for row in reused.rows()}
    assert rows[text]["conditional_perplexity"] == pytest.approx(again["conditional_perplexity"], abs=1e-9)
    leader = reused.to_dict()["recommended"]
    others = [name for name, row in rows.items() if row["difference_error"] is not None]
    assert rows[leader]["difference_error"] is None
    assert len(others) >= 2
    train, test = split_sessions(log, "random", 0.8, 0)
    models = {name: fit(name, train) for name in members} | {text: learner_for(text).fit(train)}
    for name in others:
        error = comparison._difference_error((models[name], models[leader]), (rows[name], rows[leader]), test)
        assert rows[name]["difference_error"] == pytest.approx(error, rel=1e-6)


def test_a_baseline_may_be_the_best() -> None:
    rows = [row("rCTR", 1.3), row("DBN", 1.36)]
    assert comparison_verdict(rows) == "weak"
    assert comparison_conclusion(rows).startswith("No click model predicts these clicks better than the click rates")


def test_the_error_of_a_difference_is_that_of_resampled_sessions(log: Sessions) -> None:
    """A second writing: the bootstrap of whole sessions, the same ones for both models."""
    best, second = compare(log, models=["dCTR", "PBM"], split="order", fraction=0.5).rows()
    assert best["difference_error"] is None
    train, test = log.split_in_order(0.5)
    shown, rng = test.rankings.shown, np.random.default_rng(0)
    draws = [rng.integers(0, len(test), len(test)) for _ in range(2000)]
    values = [
        np.array([np.exp2(bits[drawn].sum(axis=0) / shown[drawn].sum(axis=0)).mean() for drawn in draws])
        for row in (best, second)
        for bits in [click_bits(fit(row["model"], train), test)]
    ]
    assert second["difference_error"] == pytest.approx(np.std(values[1] - values[0]), rel=0.1)


def test_what_is_far_off_does_not_squeeze_the_plot() -> None:
    figure = comparison_figure([*ROWS, row("CM", 4.85)])
    given = figure.data[1]
    assert list(given.y) == ["DBN", "UBM", "rCTR", "CM"]
    assert figure.layout.xaxis.range[1] < 1.6
    assert figure.layout.xaxis.range[0] > 1.3, "the axis shows the differences"
    assert max(given.x) < 1.6
    assert given.text[-1] == "4.850 →"
    assert given.error_x.array[:3] == pytest.approx([0.00392, 0.00392, 0.00392], abs=1e-5), "95 % intervals"
    assert given.error_x.array[3] is None


def test_the_page_begins_with_the_chart_and_says_what_the_data_were() -> None:
    sizes = {"train_sessions": 8000, "test_sessions": 2000, "marginal_error": 0.0, "difference_error": None}
    settings = {"log": "clicks.parquet", "test": None, "split": "random", "fraction": 0.8, "seed": 0}
    document = Comparison(tuple(each | sizes for each in ROWS), settings).document
    assert document.data == "8,000 training sessions and 2,000 test sessions of clicks.parquet, split at random."
    assert list(document.figures) == ["models"]
    assert document.verdict == "usable"
    failed = Comparison((ROWS[1] | sizes,), settings).document
    assert (failed.verdict, failed.figures) == ("", {})
