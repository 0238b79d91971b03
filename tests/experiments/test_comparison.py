"""Models on one log: the rows, the splits, and what happens when a model fails."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.sessions import Sessions
from clickshift.errors import DataError, SpecError
from clickshift.experiments import comparison
from clickshift.experiments.comparison import SPLITS, Comparison, click_predicting_models
from clickshift.learners import fit, learner_for
from clickshift.learners.gradient import Gradient
from clickshift.metrics.click_prediction import evaluation
from tests.codes import raises_code
from tests.suite import Study

pytestmark = pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")


def test_rows_hold_what_an_evaluation_says(log: Sessions) -> None:
    protocol = Comparison(("dCTR", "PBM"), split="order", fraction=0.5)
    rows = list(protocol.rows(log))
    assert [row["model"] for row in rows] == ["dCTR", "PBM"]
    train, test = log.split_in_order(0.5)
    for row in rows:
        facts = evaluation(fit(row["model"], train), test)
        for name in ("conditional_perplexity", "marginal_perplexity", "log_likelihood", "unseen_pair_share"):
            assert row[name] == pytest.approx(facts[name], rel=1e-12)
        assert [row[f"conditional_perplexity@{r}"] for r in range(1, 6)] == facts["conditional_perplexity_at_rank"]
        assert (row["train_sessions"], row["test_sessions"]) == (250, 250)
        assert row["seconds"] > 0
        assert row["error"] is None


def test_by_default_all_models_that_predict_clicks(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Click rates stand in for the networks, each of which compiles for seconds: the study below trains them."""
    asked: list[object] = []

    def quickly(learner: object, sessions: Sessions) -> object:
        asked.append(learner)
        return fit("rCTR" if isinstance(learner, Gradient) else learner, sessions)  # type: ignore[arg-type]

    monkeypatch.setattr(comparison, "fit", quickly)
    rows = list(Comparison().rows(log))
    assert [row["model"] for row in rows] == click_predicting_models()
    assert asked == [learner_for(name) for name in click_predicting_models()]
    assert {"rCTR", "PBM", "UBM", "CM", "DCM", "CCM", "SDBN", "DBN", "NCM", "ARM"} <= set(click_predicting_models())
    assert {"TopPop", "ARM_NC"}.isdisjoint(click_predicting_models())
    assert [row["model"] for row in rows if row["error"]] == []


@pytest.mark.study
def test_all_models_that_predict_clicks_can_be_compared(log: Sessions, study: Study) -> None:
    models = study.choose(smallest=("rCTR", "PBM", "ARM"), full=())
    rows = list(Comparison(models).rows(log))
    assert [row["model"] for row in rows] == [*(models or click_predicting_models())]
    assert [row["model"] for row in rows if row["error"]] == []
    assert all(row["conditional_perplexity"] > 1 for row in rows)
    study.record(
        "comparison: perplexity of all models on random clicks",
        **{row["model"]: row["conditional_perplexity"] for row in rows},
    )


def test_a_failing_model_keeps_the_others(log: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(learner: object, sessions: Sessions) -> object:
        if "PBM" in repr(learner):
            raise ZeroDivisionError("of all things")
        return fit(learner, sessions)  # type: ignore[arg-type]

    monkeypatch.setattr(comparison, "fit", broken)
    done: list[str] = []
    rows = {row["model"]: row for row in Comparison(("TopPop", "PBM", "rCTR")).rows(log, progress=done.append)}
    assert rows["TopPop"]["error"].startswith("TopPop cannot predict clicks.")
    assert rows["PBM"]["error"] == "ZeroDivisionError: of all things"
    assert rows["PBM"]["conditional_perplexity"] is None
    assert rows["rCTR"]["error"] is None
    assert rows["rCTR"]["conditional_perplexity"] > 1
    assert done == ["TopPop", "PBM", "rCTR"]
    assert len({tuple(row) for row in rows.values()}) == 1, "rows of one table have the same columns"


def test_a_slip_stops_before_the_work() -> None:
    with raises_code("unknown-name", SpecError, value="PMB"):
        Comparison(("rCTR", "PMB"))
    with raises_code(
        "bad-option", DataError, option="split", value="weekly", known=["random", "time", "order", "within-query"]
    ):
        Comparison(split="weekly")


def test_a_model_is_compared_once(log: Sessions) -> None:
    assert Comparison(("rCTR", "rCTR")).models == ("rCTR",)
    both = Comparison(("dCTR", "Counting('dCTR', strength=50.0)"), split="order")
    values = [row["conditional_perplexity"] for row in both.rows(log)]
    assert values[0] != values[1]


def test_another_log_is_predicted_whole(log: Sessions) -> None:
    rows = list(Comparison(("rCTR",)).rows(log[:300], log[300:]))
    assert (rows[0]["train_sessions"], rows[0]["test_sessions"]) == (300, 200)


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_takes_the_fraction(split: str, log: Sessions) -> None:
    timed = Sessions(log.rankings, log.click, time=np.arange(len(log))[::-1])
    train, test = Comparison(("rCTR",), split=split, fraction=0.6).parts(timed)
    assert train.total + test.total == 500
    assert train.total == pytest.approx(300, abs=15)
    if split == "time":
        assert train.time.max() < test.time.min()


def test_the_random_split_is_by_seed(log: Sessions) -> None:
    parts = [Comparison(("rCTR",), seed=seed).parts(log)[0].rankings.pair for seed in (1, 1, 2)]
    assert np.array_equal(parts[0], parts[1])
    assert not np.array_equal(parts[0], parts[2])
