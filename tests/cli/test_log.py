"""clickshift log count, merge and drift, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.counts.daily import DayCounts, is_counts
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.read_log import read_log
from tests.cli.shell import Shell, call
from tests.codes import raises_code

WEEK = ("mon", "tue", "wed")


def write_day(path: Path, day: int, *, ranker: int = 0, rows: int = 1500) -> Path:
    """A ranker with an order of its own for each of 30 queries, and some noise; users look at rank k with 1 / k."""
    rng = np.random.default_rng(day)
    query = rng.integers(0, 30, rows)
    score = np.random.default_rng(ranker).permuted(np.tile(np.arange(8), (30, 1)), axis=1)[query]
    docs = np.argsort(score + 1.5 * rng.standard_normal(score.shape), axis=1)[:, :4]
    clicks = rng.random(docs.shape) < (0.2 + 0.08 * docs) / np.arange(1, 5)
    times = np.datetime64("2024-03-01") + np.timedelta64(day, "D") + rng.integers(0, 86400, rows).astype("m8[s]")
    table = {"query": query, "docs": list(docs), "clicks": list(clicks.astype(int)), "time": pa.array(times)}
    pq.write_table(pa.table(table), path)
    return path


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of one ranker, and one of another: as logs and as counts."""
    folder = tmp_path_factory.mktemp("days")
    for number, name in enumerate(WEEK):
        log = write_day(folder / f"{name}.parquet", number, ranker=number // 2)
        assert call("log", "count", log, "-o", folder / f"{name}.counts") == 0
    return folder


def test_count(shell: Shell, work: Path, tmp_path: Path) -> None:
    said = shell.json("log", "count", work / "mon.parquet", "-o", tmp_path / "mon.counts")
    log = read_log(work / "mon.parquet")
    assert (said["sessions"], said["pairs"], said["ranks"]) == (1500, log.vocabulary.n_pairs, 4)
    assert said["clicks_per_session"] == pytest.approx(log.click.sum() / 1500)
    assert said["from"].startswith("2024-03-01T")
    assert is_counts(said["output"])
    assert "clicks per session" in shell.text("log", "count", work / "mon.parquet", "-o", tmp_path / "mon.counts")


def test_merge(shell: Shell, work: Path, tmp_path: Path) -> None:
    days = [work / f"{name}.counts" for name in WEEK]
    plain = shell.json("log", "merge", *days, "-o", tmp_path / "all")
    assert (plain["sessions"], [day["weight"] for day in plain["days"]]) == (4500, [1, 1, 1])
    assert DayCounts.load(tmp_path / "all").sessions == 4500
    said = shell.json("log", "merge", *days, "-o", tmp_path / "week", "--half-life", 1)
    assert [day["weight"] for day in said["days"]] == [0.25, 0.5, 1]
    assert said["sessions"] == 1500 * 1.75
    # yesterday's sum and today, into the same folder
    assert call("log", "merge", *days[:2], "-o", tmp_path / "rolling", "--half-life", 1) == 0
    text = shell.text("log", "merge", tmp_path / "rolling", days[2], "-o", tmp_path / "rolling", "--half-life", 1)
    assert "0.5000" in text
    rolling, week = DayCounts.load(tmp_path / "rolling"), DayCounts.load(tmp_path / "week")
    np.testing.assert_allclose(rolling.cells.impressions, week.cells.impressions)
    np.testing.assert_allclose(rolling.cascade.first_clicks, week.cascade.first_clicks)


@pytest.mark.parametrize("model", ["UBM", "DBN", "dCTR"])
def test_a_model_of_counts_is_that_of_the_log(work: Path, tmp_path: Path, model: str) -> None:
    assert call("log", "merge", *(work / f"{name}.counts" for name in WEEK[:2]), "-o", tmp_path / "counts") == 0
    one = cs.fit(model, str(tmp_path / "counts"))
    other = cs.fit(model, [str(work / f"{name}.parquet") for name in WEEK[:2]])
    np.testing.assert_allclose(one.relevance(), other.relevance(), rtol=1e-9)


def test_drift_of_counts_and_logs(shell: Shell, work: Path, tmp_path: Path) -> None:
    days = [work / "mon.counts", work / "tue.parquet", work / "wed.counts"]
    said = shell.json("log", "drift", *days)
    assert [day["day"] for day in said["days"]] == list(WEEK)
    assert [step["verdict"] for step in said["since_the_day_before"]] == ["same", "changed"]
    assert [step["earlier"] for step in said["until_the_last_day"]] == ["mon", "tue"]
    assert not said["trusted"]
    assert said["conclusion"].startswith("A model fitted on mon or tue should not be trusted on wed: since tue, ")
    log = read_log(work / "tue.parquet")
    assert [row["ctr"] for row in said["days"][1]["ctr_by_rank"]] == pytest.approx(log.ctr_by_rank().tolist())
    assert all(row["low"] < row["ctr"] < row["high"] for row in said["days"][1]["ctr_by_rank"])
    page = tmp_path / "drift.html"
    text = shell.text("log", "drift", *days, "-o", page)
    assert "should not be trusted on wed" in text
    assert "Click-through rate by day, ranks 1 to" in text
    assert f"Report: {page}" in text
    html = page.read_text(encoding="utf-8")
    assert "should not be trusted on wed" in html
    assert "Clicks on the same documents at the same ranks" in html
    document = cs.drift([str(day) for day in days]).document
    assert (document.verdict, document.data.split(", ")[1]) == ("changed", "1 to 3 Mar 2024")
    places, new, ratio = document.figures["changes"].data
    assert list(new.y) == [step["new_documents"]["change"] for step in said["since_the_day_before"]]
    low = [step["places"]["surely_above"] for step in said["since_the_day_before"]]
    assert [y - down for y, down in zip(places.y, places.error_y.arrayminus, strict=True)] == pytest.approx(low)
    assert ratio.y[0] == said["since_the_day_before"][0]["clicks_like_for_like"][0]["ratio"]
    panels = document.figures["click-through rate"].data
    rates = [[row["ctr"] for row in day["ctr_by_rank"]] for day in said["days"]]
    assert [list(panel.y) for panel in panels] == [list(by_day) for by_day in zip(*rates, strict=True)]


def test_days_of_one_ranker_can_be_trusted(shell: Shell, work: Path) -> None:
    said = shell.json("log", "drift", work / "mon.counts", work / "tue.counts", "--ranks", 2)
    assert said["trusted"]
    assert said["conclusion"] == "mon does not differ from tue beyond chance: a model fitted on it can be used."


def test_days_out_of_order_are_sorted_and_told(shell: Shell, work: Path) -> None:
    code, out, err = shell.run("log", "drift", work / "wed.counts", work / "mon.counts", work / "tue.counts")
    assert code == 0
    assert err.startswith("clickshift: warning: ")
    assert err.endswith("mon, tue, wed.\n")
    assert err.count("\n") == 1
    assert out.index("mon") < out.index("tue") < out.index("wed")


def test_one_log_with_several_days(shell: Shell, work: Path, tmp_path: Path) -> None:
    tables = [pq.read_table(work / f"{name}.parquet") for name in WEEK]
    pq.write_table(pa.concat_tables(tables), tmp_path / "march.parquet")
    said = shell.json("log", "drift", tmp_path / "march.parquet")
    assert [day["day"] for day in said["days"]] == ["2024-03-01", "2024-03-02", "2024-03-03"]
    assert [step["verdict"] for step in said["since_the_day_before"]] == ["same", "changed"]


def test_one_line_for_what_cannot_be_done(shell: Shell, work: Path, tmp_path: Path) -> None:
    mon, tue = work / "mon.counts", work / "tue.counts"
    empty = tmp_path / "empty.parquet"
    pq.write_table(pq.read_table(work / "mon.parquet").slice(0, 0), empty)
    pq.write_table(pq.read_table(work / "mon.parquet").drop(["time"]), tmp_path / "timeless.parquet")
    before = set(tmp_path.iterdir())
    for arguments, facts in (
        (("merge", mon, tue, "--half-life", 0, "-o", tmp_path / "x"), ("half-life", "got 0.")),
        (("merge", mon, tue, "--half-life", -7, "-o", tmp_path / "x"), ("half-life", "got -7.")),
        (("merge", mon, tue, mon, "-o", tmp_path / "x"), ("mon.counts", "twice")),
        (("merge", mon, work / "tue.parquet", "-o", tmp_path / "x"), ("tue.parquet", "log count")),
        (("merge", mon, tmp_path, "-o", tmp_path / "x"), (tmp_path.name, "no count.json", "log count")),
        (("count", empty, "-o", tmp_path / "x"), ("empty.parquet", "one session")),
        (("drift", mon), ("two or more days",)),
        (("drift", mon, empty), ("empty.parquet", "one session")),
        (("drift", tmp_path / "timeless.parquet"), ("'time' or 'day'",)),
        (("drift", mon, tue, "-o", tmp_path / "x.pdf"), ("x.pdf", ".html")),
        (("drift", mon, tmp_path / "nothing"), (str(tmp_path / "nothing"),)),
    ):
        line = shell.error("log", *arguments)
        assert [fact for fact in facts if fact not in line] == [], line
    assert set(tmp_path.iterdir()) == before, "nothing half-written"


def test_functions_return_what_the_commands_print(shell: Shell, work: Path, tmp_path: Path) -> None:
    log, counts = work / "mon.parquet", [work / f"{name}.counts" for name in WEEK]
    train, test, out = tmp_path / "train.parquet", tmp_path / "test.csv", tmp_path / "out"
    for arguments, function in (
        (("info", log), lambda: cs.log_summary(log)),
        (
            ("split", log, "--train", train, "--test", test, "--split", "time"),
            lambda: cs.split_log(log, train, test, split="time"),
        ),
        (("encode", log, "-o", out), lambda: cs.encode_log(log, out)),
        (("count", log, "-o", tmp_path / "c"), lambda: cs.count_log(log, tmp_path / "c")),
        (
            ("merge", *counts, "-o", tmp_path / "m", "--half-life", 2),
            lambda: cs.merge_counts(counts, tmp_path / "m", half_life=2),
        ),
        (("drift", *counts, "--ranks", 2), lambda: cs.drift(counts, ranks=2)),
        (("group", log, "--by", "results"), lambda: cs.group_queries(log, by="results")),
    ):
        assert shell.json("log", *arguments) == function().to_dict(), arguments


@pytest.mark.parametrize("split", ["random", "time", "order", "within-query"])
def test_a_log_on_disk_is_split_chunk_by_chunk(work: Path, tmp_path: Path, split: str) -> None:
    encoded = cs.encode_log([work / "mon.parquet", work / "tue.parquet"], tmp_path / "encoded").log
    parts = cs.split_log(encoded, tmp_path / "train.parquet", tmp_path / "test.parquet", fraction=0.5, split=split)
    logs = cs.read_log(parts.train_file), cs.read_log(parts.test_file)
    assert (logs[0].total, logs[1].total) == (parts.train, parts.test)
    assert parts.train + parts.test == 3000
    whole, joined = encoded.sessions(), cs.Sessions.concat(logs)
    assert joined.click.sum() == whole.click.sum()
    np.testing.assert_array_equal(np.sort(joined.time), np.sort(whole.time))
    if split == "time":
        assert logs[0].time.max() <= logs[1].time.min()


def test_days_of_an_encoded_log(work: Path, tmp_path: Path) -> None:
    files = [work / f"{name}.parquet" for name in WEEK]
    encoded = cs.encode_log(files, tmp_path / "encoded").log
    one, two = cs.drift(encoded).to_dict(), cs.drift(cs.read_log(files)).to_dict()
    for day in one["days"] + two["days"]:
        del day["first"], day["last"]  # an encoded log keeps microseconds
    assert one == two


def test_encoding_needs_a_folder_for_a_log_in_memory(work: Path, tmp_path: Path) -> None:
    log = cs.read_log(work / "mon.parquet")
    with raises_code("missing-output", SpecError):
        cs.encode_log(log)
    assert cs.encode_log(log, tmp_path / "encoded").log.total == log.total


def test_encode_keeps_all_columns_of_a_log_in_memory(tmp_path: Path) -> None:
    lists = cs.Rankings(
        cs.Vocabulary.of(["tv"] * 2, ["a", "b"])[0],
        np.zeros(3, np.int32),
        np.array([[0, 1], [1, 0], [0, 1]], np.int32),
        segments={"device": cs.Segment.of(["phone", None, "desktop"])},
    )
    signals = {"purchase": np.eye(3, 2, dtype=bool), "revenue": np.array([[2.5, np.nan], [0, 1], [0, 0]])}
    log = cs.Sessions(lists, np.ones((3, 2), bool), signals=signals)
    (encoded,) = cs.encode_log(log, tmp_path / "encoded").log.chunks()
    assert encoded.segments["device"].labels == ("desktop", "phone")
    assert encoded.segments["device"].code.tolist() == [1, -1, 0]
    assert encoded.signals.keys() == signals.keys()
    for name, values in signals.items():
        np.testing.assert_array_equal(encoded.signals[name], values)


def test_bad_arguments_have_codes(work: Path, tmp_path: Path) -> None:
    log, counts = work / "mon.parquet", work / "mon.counts"
    files = tmp_path / "a.parquet", tmp_path / "b.parquet"
    with raises_code("bad-option", DataError, option="split"):
        cs.split_log(log, *files, split="mood")
    with raises_code("empty-split", DataError):
        cs.split_log(log, *files, fraction=1.5)
    with raises_code("unknown-format", FileError):
        cs.split_log(log, tmp_path / "a.txt", files[1])
    with raises_code("duplicate-day", DataError):
        cs.merge_counts([counts, counts])
    with raises_code("too-few-days", DataError):
        cs.drift([counts])
    with raises_code("bad-ranks", DataError):
        cs.drift([counts, work / "tue.counts"], ranks=0)
    with raises_code("unknown-column", DataError):
        cs.log_summary(log, columns={"results": "docs"})
    assert not list(tmp_path.iterdir())


def test_queries_are_grouped_for_fit(shell: Shell, tmp_path: Path) -> None:
    rows = [
        {"query": q, "docs": ["a", "b"], "clicks": [k % 2, 0]} for k in range(20) for q in ("Hats", "hats", "shoes")
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = shell.json("log", "group", tmp_path / "log.jsonl", "-o", tmp_path / "groups.csv")
    assert out["grouped_queries"] == 2
    assert "2 of 3 queries" in out["conclusion"]
    shell.json("fit", "dCTR", tmp_path / "log.jsonl", "-o", tmp_path / "model", "--groups", tmp_path / "groups.csv")
    assert cs.load_model(tmp_path / "model").evidence.sharing > 0
    shell.json("fit", "dCTR", tmp_path / "log.jsonl", "-o", tmp_path / "alone")
    for model, options in (("model", ()), ("alone", ("--groups", tmp_path / "groups.csv"))):
        shell.json("judgments", tmp_path / model, "-o", tmp_path / f"{model}.csv", *options)
    assert (tmp_path / "model.csv").read_text() == (tmp_path / "alone.csv").read_text()
    assert "meaning" in shell.error("log", "group", tmp_path / "log.jsonl", "--by", "meaning")
