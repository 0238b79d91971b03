"""The backtest: equal to a loop over queries and days, and the findings of Li et al. (2018) in a log that drifts."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import clickshift as cs
from clickshift.cli.backtest import backtest
from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, SpecError
from clickshift.experiments.backtest import CLIPPING_CONSTANTS, TASKS, Backtest, BacktestResult
from clickshift.io.datasets.open_bandit import read_open_bandit
from clickshift.io.datasets.yandex import read_sample
from clickshift.io.read_log import write_log
from clickshift.ope import PAPER_ESTIMATORS, GroupedLog, WeightedLists, evaluate_target
from clickshift.simulation.drifting_log import DriftingLog
from clickshift.testing import random_rankings
from tests.codes import raises_code

Record = tuple[int, int, tuple[int, ...], tuple[bool, ...]]
"""Query, day, list, clicks: one session."""


@pytest.fixture(scope="module")
def tiny() -> Sessions:
    """Five queries of 3 to 6 documents, short lists among them, merged rows, days that miss queries."""
    rng = np.random.default_rng(4)
    size = np.array([3, 4, 5, 6, 3])
    words, _, _ = Vocabulary.of(np.repeat(np.arange(5) * 10, size), np.arange(size.sum()))
    lists = random_rankings(words, 150, 4, rng=rng)
    day = rng.integers(0, 6, 150) * 3
    day[lists.query == 4] = 3  # one query has a single day, another none on day 0
    day[(lists.query == 1) & (day == 0)] = 9
    click = (rng.random(lists.pair.shape) < 0.4) & lists.shown
    lists = Rankings(words, lists.query, lists.pair, lists.shown, log_prob=np.log(rng.uniform(0.1, 1, 150)))
    return Sessions(lists, click, rng.integers(1, 4, 150), time=day)


def records(log: Sessions, ranks: int) -> list[Record]:
    r = log.rankings
    assert log.time is not None
    return [
        (
            int(r.query[i]),
            int(log.time[i]),
            tuple(r.pair[i][r.shown[i]][:ranks].tolist()),
            tuple(log.click[i][:ranks].tolist()),
        )
        for i in range(len(log))
        for _ in range(int(log.count[i]))
    ]


def plain_estimates(name: str, production: list[Record], day: list[Record], theta: list[float]) -> list[float]:
    """Sections 3 and 5 for the records of one query, session by session, one estimate for each bound of the weights;
    policies are list frequencies."""

    def frequency(some: list[Record]) -> dict[tuple[int, ...], float]:
        return {a: n / len(some) for a, n in Counter(r[2] for r in some).items()}

    @cache
    def at(policy: str, doc: int, rank: int) -> float:
        lists = pi if policy == "pi" else h
        return sum(p for a, p in lists.items() if rank < len(a) and a[rank] == doc)

    pi, h = frequency(production), frequency(day)
    terms = []
    for _, _, shown, clicks in production:
        for k, doc in enumerate(shown):
            if name == "List":
                weight = h.get(shown, 0.0) / pi[shown]
            elif name == "IP":
                weight = at("h", doc, k) / at("pi", doc, k)
            elif name == "RCTR":
                weight = 1.0
            else:
                p = [theta[j] * (1 / (j + 1) if name == "PBM" else 1.0) for j in range(len(theta))]
                up, down = (sum(p[j] * at(policy, doc, j) for j in range(len(theta))) for policy in ("h", "pi"))
                weight = up / down
            terms.append((theta[k] * clicks[k], weight))
    return [sum(click * min(weight, clip) for click, weight in terms) / len(production) for clip in CLIPPING_CONSTANTS]


THETA = {
    "clicks@2": [1.0, 1.0],
    "clicks@3": [1.0, 1.0, 1.0],
    "dcg": [1 / math.log2(k + 2) for k in range(4)],
    "clicks": [1.0] * 4,
}


def test_all_days_at_once_are_a_loop_over_queries_and_days(tiny: Sessions) -> None:
    found = Backtest(queries=3).on(tiny)
    names = tiny.vocabulary.query_ids.tolist()
    here = [names.index(int(q)) for q in found.log.vocabulary.query_ids]
    frequency = np.bincount(tiny.rankings.query, tiny.count)
    by_frequency = sorted(range(5), key=lambda q: -frequency[q])
    groups = {"the 3 most frequent": by_frequency[:3], "ranks 4–5": by_frequency[3:]}
    assert list(found.groups)[:2] == list(groups)
    assert {g: [here[q] for q in found.groups[g]] for g in groups} == groups
    dropped = set()
    for task, theta in THETA.items():
        log = records(tiny, len(theta))
        error: dict[tuple[str, float, int], list[float]] = {}
        for q in range(5):
            for d in range(0, 18, 3):
                day = [r for r in log if r[:2] == (q, d)]
                production = [r for r in log if r[0] == q and r[1] != d]
                if not day or not production:
                    dropped.add((q, d))
                    continue
                truth = sum(theta[k] * c for r in day for k, c in enumerate(r[3][: len(r[2])])) / len(day)
                for name in PAPER_ESTIMATORS:
                    estimates = plain_estimates(name, production, day, theta)
                    r = found.residuals_for(task, name)
                    assert r.estimated[here.index(q), d // 3] == pytest.approx(estimates, abs=1e-12)
                    assert r.actual[here.index(q), d // 3] == pytest.approx(truth, abs=1e-12)
                    for clip, estimate in zip(CLIPPING_CONSTANTS, estimates, strict=True):
                        error.setdefault((name, clip, q), []).append(estimate - truth)
        for row in (row for row in found.rows() if row["task"] == task and row["group"] in groups):
            pooled = [e for q in groups[row["group"]] for e in error.get((row["estimator"], row["M"], q), [])]
            assert row["rmse"] == pytest.approx(math.sqrt(np.mean(np.square(pooled))), abs=1e-12)
            assert row["pairs"] == len(pooled)
            assert row["pairs"] + row["pairs_dropped"] == 6 * row["queries"]
        for row in (row for row in found.query_rows if row["task"] == task):
            own = error.get((row["estimator"], row["M"], names.index(int(row["query"]))), [])
            rmse = math.sqrt(np.mean(np.square(own))) if own else math.nan
            assert row["rmse"] == pytest.approx(rmse, abs=1e-12, nan_ok=True)
            assert (row["pairs"], row["pairs_dropped"]) == (len(own), 6 - len(own))
    assert len(dropped) >= 7  # the query of one day, and the day without one


def test_days_are_told_one_by_one(tiny: Sessions) -> None:
    found = Backtest(("clicks",), ("IP", "RCTR"), queries=3).on(tiny)
    group = "the 3 most frequent"
    rows = [row for row in found.day_rows if (row["estimator"], row["group"]) == ("IP", group)]
    least = min(
        (row for row in found.rows() if (row["estimator"], row["group"]) == ("IP", group)), key=lambda r: r["rmse"]
    )
    assert [row["day"] for row in rows] == ["0", "3", "6", "9", "12", "15"]
    assert {row["M"] for row in rows} == {least["M"]}
    queries, m = found.groups[group], CLIPPING_CONSTANTS.index(least["M"])
    r = found.residuals_for("clicks", "IP")
    for d, row in enumerate(rows):
        used = [q for q in queries if not math.isnan(r.actual[q, d])]
        assert row["pairs"] == len(used)
        assert row["residual"] == pytest.approx(
            np.mean([r.estimated[q, d, m] - r.actual[q, d] for q in used]), abs=1e-12
        )


def test_a_choice_is_the_least_pooled_error(tiny: Sessions) -> None:
    found = Backtest(queries=5).on(tiny)
    for task in TASKS:
        chosen = found.choice(task)
        rows = [row for row in found.rows() if (row["task"], row["group"]) == (task, "the 5 most frequent")]
        assert chosen in rows
        assert all(chosen["rmse"] <= row["rmse"] for row in rows)
    with raises_code("unknown-name", SpecError, task="clicks@7"):
        found.choice("clicks@7")


def test_lists_of_one_day_alone_are_told_by_nobody() -> None:
    """Where nothing of the day was logged elsewhere, an importance-weighted estimate is 0, and counted."""
    words, _, _ = Vocabulary.of(np.zeros(4, int), np.arange(4))
    lists = Rankings(words, np.zeros(4, np.int32), np.array([[0, 1], [0, 1], [2, 3], [2, 3]], np.int32))
    log = Sessions(lists, np.array([[1, 0], [1, 1], [1, 0], [1, 0]]), time=np.array([1, 1, 2, 2]))
    rows = Backtest(("clicks",), queries=1).on(log).rows()
    error = {row["estimator"]: row for row in rows if row["group"] == "the most frequent" and row["M"] == math.inf}
    for name in ("List", "IP", "PBM", "Item"):
        assert error[name]["rmse"] == pytest.approx(math.sqrt((1.5**2 + 1.0**2) / 2))
        assert error[name]["pairs_without_overlap"] == 2
    assert error["RCTR"]["rmse"] == pytest.approx(0.5)
    assert error["RCTR"]["pairs_without_overlap"] == 0


@pytest.mark.parametrize("in_order", [False, True])
def test_parts_stand_for_days(tiny: Sessions, in_order: bool) -> None:
    timeless = Sessions(tiny.rankings, tiny.click, tiny.count)
    found = Backtest(("clicks",), queries=5, parts=4, in_order=in_order, seed=1).on(timeless)
    assert {row["split"] for row in found.rows()} == {"parts in order" if in_order else "random parts"}
    assert len(found.days) == 4
    assert found.sessions.sum() == tiny.total
    spread = found.sessions.max(axis=1) - found.sessions.min(axis=1)
    assert spread.max() <= 1  # parts of a query are equal
    clicks = np.bincount(tiny.rankings.query, tiny.count * tiny.click.sum(axis=1))
    assert np.nansum(found.all_clicks * found.sessions, axis=1) == pytest.approx(clicks)
    again = Backtest(("clicks",), queries=5, parts=4, in_order=in_order, seed=2).on(timeless)
    assert (again.choice("clicks") == found.choice("clicks")) is in_order
    assert "Parts of each query's sessions take the place of days" in found.conclusion
    assert ("drifts between random parts" in found.conclusion) is not in_order


def test_parts_in_order_follow_the_log() -> None:
    words, _, _ = Vocabulary.of([0, 0, 1], [0, 1, 0])
    query = np.array([0, 1, 0, 0, 1, 0], np.int32)
    pair = np.array([[0], [2], [0], [1], [2], [1]], np.int32)
    click = np.array([[1], [1], [1], [0], [0], [0]], bool)
    found = Backtest(("clicks",), queries=2, parts=2, in_order=True).on(Sessions(Rankings(words, query, pair), click))
    assert found.all_clicks.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_times_become_days(tiny: Sessions) -> None:
    assert tiny.time is not None
    rng = np.random.default_rng(0)
    expected = Backtest(queries=5).on(tiny).rows()
    clock = (
        np.datetime64("2018-08-19T00:00:00") + tiny.time * np.timedelta64(1, "D") + rng.integers(0, 86400, len(tiny))
    )
    for time in (clock, tiny.time + rng.random(len(tiny))):
        found = Backtest(queries=5).on(Sessions(tiny.rankings, tiny.click, tiny.count, time=time))
        assert found.rows() == expected
        assert len(found.days) == 6


def test_an_encoded_log_gives_the_same(tiny: Sessions, tmp_path: Path) -> None:
    """Of which only the sessions of the queries that are compared are in memory."""
    write_log(tiny, tmp_path / "log.parquet")
    encoded = open_log(tmp_path / "log.parquet", in_memory=False)
    assert isinstance(encoded, EncodedLog)
    task = Backtest(("clicks",), queries=2, down_to=3)
    assert task.on(encoded).rows() == task.on(tiny).rows()


def test_bad_input_is_told(tiny: Sessions) -> None:
    timeless = Sessions(tiny.rankings, tiny.click, tiny.count)
    with raises_code("missing-time", DataError):
        Backtest().on(timeless)
    with raises_code("bad-days", DataError, count=1):
        Backtest().on(Sessions(tiny.rankings, tiny.click, time=np.ones(len(tiny), int)))
    many = random_rankings(tiny.vocabulary, 1500, 2, rng=np.random.default_rng(0))
    with raises_code("bad-days", DataError, count=1500):
        Backtest().on(Sessions(many, np.zeros(many.pair.shape, bool), time=np.arange(1500)))
    with raises_code("unknown-query", DataError, query="77"):
        Backtest(query="77").on(tiny)
    for wrong in ({"parts": 1}, {"queries": 0}, {"tasks": ("clix",)}, {"estimators": ("RIPS",)}, {"clip": (0.0,)}):
        with pytest.raises(SpecError):
            Backtest(**wrong)  # type: ignore[arg-type]


def test_a_query_can_be_asked_for(tiny: Sessions) -> None:
    rarest = int(np.bincount(tiny.rankings.query, tiny.count).argmin())
    name = str(tiny.vocabulary.query_ids[rarest])
    found = Backtest(("clicks",), queries=2, down_to=2, query=name).on(tiny)
    assert list(found.groups) == ["the 2 most frequent", f"query {name}"]
    assert found.log.vocabulary.n_queries == 3


@pytest.fixture(scope="module")
def drifting() -> Sessions:
    return DriftingLog(queries=50, sessions=120_000).draw()


@pytest.fixture(scope="module")
def drifted(drifting: Sessions) -> BacktestResult:
    return Backtest(queries=50, clip=(1.0, 10.0, 100.0, math.inf)).on(drifting)


def test_a_drifting_log_can_be_drawn_again() -> None:
    log, again = (DriftingLog(queries=5, sessions=1000).draw() for _ in range(2))
    assert (log.rankings.pair == again.rankings.pair).all()
    assert (log.click == again.click).all()


def test_the_log_drifts_as_the_paper_says(drifting: Sessions) -> None:
    """Lists change from day to day, rank 1 clicks with them, and clicks at all ranks hardly."""
    log = drifting
    assert log.time is not None
    assert np.unique(log.time).tolist() == list(range(1, 28))
    found = Backtest(("clicks",), ("RCTR",), queries=50).on(log)

    def moves(rate: np.ndarray, clicks: np.ndarray) -> float:
        """Standard deviation of a query's days beyond what sampling explains, as a share of its mean."""
        variance = np.array([clicks[log.rankings.query == q].var() for q in range(50)])
        chance = (variance[:, None] / found.sessions).mean()
        return float(np.sqrt(rate.var(axis=1, ddof=1).mean() - chance) / rate.mean())

    assert moves(found.first_clicks, log.click[:, 0]) > 0.25
    assert moves(found.all_clicks, log.click.sum(axis=1)) < 0.06


def test_structured_estimators_beat_list_and_more_so_with_more_ranks(drifted: BacktestResult) -> None:
    group = "the 50 most frequent"
    gain = {task: drifted.gain(task, group, "IP", "List") for task in ("clicks@2", "clicks@3", "dcg")}
    assert 0.05 < gain["clicks@2"][0] < gain["clicks@3"][0] - 0.2 < gain["dcg"][0] - 0.4
    assert all(low > 0 for _, low, _ in gain.values())
    for task in gain:
        assert drifted.choice(task)["estimator"] in {"IP", "Item", "PBM"}
        assert drifted.gain(task, group, str(drifted.choice(task)["estimator"]), "RCTR")[1] > 0


def test_rctr_is_hard_to_beat_at_all_clicks(drifted: BacktestResult) -> None:
    queries = drifted.groups["the 50 most frequent"]
    error = {name: drifted.residuals_for("clicks", name).rmse(queries).min() for name in PAPER_ESTIMATORS}
    best = min(error[name] for name in ("List", "IP", "PBM", "Item"))
    assert best > 0.95 * error["RCTR"]
    assert error["List"] > 5 * error["RCTR"]


def test_gains_are_ratios_of_pooled_errors(drifted: BacktestResult) -> None:
    group = "the 50 most frequent"
    rows = [row for row in drifted.rows() if (row["task"], row["group"]) == ("dcg", group)]
    least = {name: min(row["rmse"] for row in rows if row["estimator"] == name) for name in PAPER_ESTIMATORS}
    value, low, high = drifted.gain("dcg", group, "Item", "RCTR")
    assert value == pytest.approx(1 - least["Item"] / least["RCTR"], rel=1e-12)
    assert low < value < high


def test_the_report_says_what_was_found(
    drifted: BacktestResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clickshift.display import result
    from clickshift.display.export import Exports
    from clickshift.display.tables import read_rows

    monkeypatch.setattr(result, "write_exports", lambda *_: Exports(()))  # pictures take their time
    written = replace(drifted, settings={"log": "<drifting>"}).write(tmp_path)
    assert written.page is not None
    page = written.page.read_text()
    assert "&lt;drifting&gt;" in page
    for name, rows in (("rows", drifted.rows()), ("days", drifted.day_rows), ("queries", drifted.query_rows)):
        assert len(read_rows(tmp_path / f"{name}.parquet")) == len(rows)
    words = drifted.conclusion
    gain = drifted.gain("dcg", "the 50 most frequent", "Item", "List")[0]
    assert f"dcg, Item is {100 * gain:.0f} % below" in words
    assert "50 queries on 27 days, 1,350 pairs." in drifted.document.data
    assert len(drifted.document.tables["gains"]) == 2 * 4
    assert "published" not in drifted.document.tables, "the numbers of another log"
    published = replace(drifted, settings={"format": "yandex-kaggle"}).document.tables["published"]
    assert {row["reward"] for row in published if row["figure"] == 2} == {"clicks@2", "clicks@3", "dcg"}
    assert {row["reward"] for row in published if row["figure"] == 4} == {"clicks"}
    figure = drifted.figure("dcg, the 50 most frequent")
    lines = {trace.name.split(" ")[0]: trace for trace in figure.data}
    assert list(lines) == list(PAPER_ESTIMATORS)
    assert list(lines["IP"].x) == ["1", "10", "100", "∞"]
    assert lines["IP"].y == pytest.approx(
        drifted.residuals_for("dcg", "IP").rmse(drifted.groups["the 50 most frequent"])
    )
    assert "outside" in lines["List"].name


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command()(backtest)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.exception


def test_the_command(tiny: Sessions, tmp_path: Path) -> None:
    write_log(Sessions(tiny.rankings, tiny.click, tiny.count, tiny.time), tmp_path / "log.parquet")
    code, out, _ = run(str(tmp_path / "log.parquet"), "--reward", "clicks@2", "--queries", "3", "--json")
    assert code == 0
    told = json.loads(out)
    expected = Backtest(("clicks@2",), queries=3).on(tiny)
    assert [row["rmse"] for row in told["rows"]] == [row["rmse"] for row in expected.rows()]
    assert told["rows"][14]["M"] == "inf"
    result = cs.backtest(tmp_path / "log.parquet", rewards=["clicks@2"], queries=3)
    assert told == result.to_dict()
    assert result.document.settings["log"] == str(tmp_path / "log.parquet")
    assert told["chosen"]["clicks@2"]["estimator"] == expected.choice("clicks@2")["estimator"]
    code, out, _ = run(str(tmp_path / "log.parquet"), "--parts", "3", "--queries", "3")
    assert code == 0
    assert "random parts" in out
    assert "Least error" in out
    assert isinstance(run()[2], SpecError)
    assert isinstance(run(str(tmp_path / "log.parquet"), "--simulated")[2], SpecError)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_real_yandex_sample_in_parts(shared_data: Path) -> None:
    """Nothing drifts between random parts: RCTR is right, and no estimator may be better than it but by chance."""
    log = read_sample(shared_data / "yandex_wscd" / "trainSample.gz")
    found = Backtest(queries=20, parts=27).on(log)
    assert found.sessions.sum() == log.total
    for task in TASKS:
        rows = [r for r in found.rows() if r["task"] == task and r["group"] == "the 20 most frequent"]
        least = {name: min(r["rmse"] for r in rows if r["estimator"] == name) for name in PAPER_ESTIMATORS}
        assert min(least.values()) > 0.97 * least["RCTR"]
        assert least["IP"] < least["List"]


def test_open_bandit_against_its_true_propensities(shared_data: Path) -> None:
    """A smoke test: the sample has a few dozen clicks. The uniform policy, told from the Bernoulli-TS log."""
    logs = {name: read_open_bandit(shared_data / "open_bandit" / name / "men") for name in ("random", "bts")}
    assert np.exp(logs["random"].rankings.log_prob) == pytest.approx(1 / 34)
    words = logs["random"].vocabulary
    every = Rankings(words, words.pair_query.astype(np.int32), np.arange(words.n_pairs, dtype=np.int32)[:, None])
    uniform = WeightedLists(every, 1 / np.bincount(words.pair_query)[words.pair_query])
    [evaluation] = evaluate_target(GroupedLog.of(logs["bts"]), uniform, ["List"], logging="propensities")
    [estimate] = evaluation.estimates
    truth = logs["random"].click.mean()
    error = math.hypot(estimate.error, math.sqrt(truth * (1 - truth) / len(logs["random"])))
    assert abs(estimate.value - truth) < 3 * error
    found = Backtest(("clicks",), queries=3).on(logs["bts"])
    assert found.choice("clicks")["pairs"] > 0
