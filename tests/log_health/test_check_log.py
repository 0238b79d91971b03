"""check_log finds planted defects, measures their rates, and finds nothing in clean logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from benchmarks.log_health import one_log, run
from clickshift.io.encode.duckdb import DuckdbLimits
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.log_health.checks import CHECKS
from clickshift.log_health.finding import Finding
from tests.codes import raises_code
from tests.planted_events import EVENT_DEFECTS, clean_events, timed
from tests.planted_logs import DEFECTS, RANKS, WHOLE, Log, clean_log
from tests.suite import Samples, Study

EVENTS = {name for name, check in CHECKS.items() if check.find.__module__ == "clickshift.log_health.events"}


@pytest.fixture(scope="module")
def clean() -> Log:
    return clean_log(np.random.default_rng(5), 12_000)


def test_a_clean_log_passes_every_check_that_needs_no_events(clean: Log) -> None:
    health = cs.check_log(clean.sessions())
    assert health.findings == ()
    assert set(health.passed) == CHECKS.keys() - EVENTS
    assert set(health.not_run) == EVENTS
    assert health.verdict == "none"
    assert health.document.verdict == "healthy"


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found_alone_and_its_rate_is_in_the_interval(clean: Log, defect: str) -> None:
    share = 0.2 if defect == "dominant-query" else 0.05
    if defect == "sample-ratio":
        share = 0.1
    log, truth = DEFECTS[defect](clean, share, np.random.default_rng(1))
    health = cs.check_log(log.sessions(), effects=False)
    assert [finding.check for finding in health.findings] == [defect]
    (finding,) = health.findings
    assert finding.low <= truth <= finding.high
    assert finding.severity != "none"
    assert finding.remedy
    assert len(finding.examples) == (2 if defect == "sample-ratio" else 5)


@pytest.mark.parametrize("defect", WHOLE)
def test_a_defect_of_the_whole_log_is_severe(clean: Log, defect: str) -> None:
    log, _ = WHOLE[defect](clean, 1.0, np.random.default_rng(1))
    (finding,) = cs.check_log(log.sessions(), effects=False).findings
    assert (finding.check, finding.severity) == (defect, "severe")


def findings(log: Log | cs.Sessions | pd.DataFrame, **options: Any) -> dict[str, Finding]:
    """What was found in a log, by check."""
    sessions = log.sessions() if isinstance(log, Log) else log
    return {finding.check: finding for finding in cs.check_log(sessions, effects=False, **options).findings}


@pytest.mark.parametrize("below", [1, 2])
def test_lists_that_end_below_the_last_examined_result_are_found(clean: Log, below: int) -> None:
    """A viewport shows a result or two more than the user looks at, so the last result is hardly ever clicked."""
    last = RANKS - clean.examined[:, ::-1].argmax(axis=1)
    end = np.where(clean.examined.any(axis=1), last, 1) + below
    chosen = np.random.default_rng(0).random(len(end)) < 0.1
    cut = (np.arange(RANKS) >= end[:, None]) & chosen[:, None]
    assert findings(replace(clean, doc=np.where(cut, -1, clean.doc), click=clean.click & ~cut)).keys() == {
        "viewport-lists"
    }


@pytest.mark.parametrize("seed", [506, 518, 519])
def test_lists_that_end_where_users_looked_are_not_taken_for_cut_ones(seed: int) -> None:
    """In these logs, lists of the viewport have by chance somewhat more sessions with a click than longer ones."""
    found = one_log("viewport-lists", 0.05, seed)
    assert found["found"]
    assert not found["others"]


def test_further_pages_whose_ranks_continue_are_no_defect(clean: Log) -> None:
    rng = np.random.default_rng(0)
    pages = clean.rows(rng.choice(len(clean.query), 600, replace=False))
    rest = np.argsort([np.isin(np.arange(14), docs) for docs in pages.doc], axis=1, kind="stable")[:, :4]
    wide = [np.pad(values, ((0, 0), (0, 4)), constant_values=fill) for values, fill in (
        (clean.doc, -1), (clean.click, False), (clean.examined, False)
    )]  # fmt: skip
    log = replace(clean, doc=wide[0], click=wide[1], examined=wide[2])
    doc = np.concatenate([np.full((600, RANKS), -1), rest], axis=1)
    none = np.zeros_like(doc, bool)
    log = log.plus(replace(pages, doc=doc, click=none, examined=none, time=pages.time + 20))
    found = findings(log)
    assert {name: finding.severity for name, finding in found.items()} == {"mixed-rank-bases": "notice"}
    assert found["mixed-rank-bases"].affected == 600
    assert "further pages, whose ranks continue" in found["mixed-rank-bases"].text


def test_the_rarer_base_of_ranks_is_the_wrong_one(clean: Log) -> None:
    """Events of a source that counts from 0 shift those of all others, if nothing says which is which."""
    log, _ = DEFECTS["mixed-rank-bases"](clean, 0.98, np.random.default_rng(1))
    (finding,) = findings(log).values()
    assert finding.check == "mixed-rank-bases"
    assert finding.low <= 0.02 <= finding.high
    assert "the ranks of the others are probably one too low" in finding.text
    few = log.rows(np.r_[np.flatnonzero(log.shown[:, 0])[:100], np.flatnonzero(~log.shown[:, 0])[:5]])
    assert "probably" not in findings(few)["mixed-rank-bases"].text  # five lists do not tell


def test_half_of_the_traffic_is_much_for_a_query_among_twenty(clean: Log) -> None:
    """Whatever the next query has; of three queries, one with half of the traffic is a notice."""
    rng = np.random.default_rng(0)
    for others, severity in ((25, "severe"), (2, "notice")):
        query = rng.choice(others + 1, len(clean.query), p=[0.55, 0.3, *[0.15 / (others - 1)] * (others - 1)])
        finding = findings(replace(clean, query=query), checks=["dominant-query"])["dominant-query"]
        assert finding.severity == severity
        assert finding.rate == pytest.approx(0.55, abs=0.02)


def test_a_new_product_line_is_no_change_of_the_front_end(clean: Log) -> None:
    """Queries of the second half of the days differ, and so do their clicks; a change within queries is found."""
    later = clean.time >= 86400 * 10
    few = clean.query % 6 + np.where(later, 6, 0)
    moved = clean.click & ((few < 6)[:, None] | (np.arange(RANKS) < 1))  # clicks of new queries are at rank 1
    log = replace(clean, query=few, click=moved)
    assert "front-end-change" not in findings(log, checks=["front-end-change"])
    assert "front-end-change" in findings(replace(log, query=clean.query % 6), checks=["front-end-change"])


def test_a_query_that_stands_for_many_things_is_not_paged(clean: Log) -> None:
    """Lists of an empty search that show other documents each time are no further pages."""
    rng = np.random.default_rng(0)
    rows = rng.random(len(clean.query)) < 0.2
    top = int(np.bincount(clean.query).argmax())
    sessions = replace(clean, query=np.where(rows, top, clean.query)).sessions()
    pair = sessions.rankings.pair.copy()
    of_top = sessions.rankings.query == top  # five documents each of 300
    many = cs.Vocabulary.of(np.repeat(["*", "x"], 400).tolist(), list(range(800)))[0]
    pair = np.where(
        of_top[:, None], rng.integers(60, size=(len(pair), 1)) * 5 + np.arange(pair.shape[1]) % 5, pair % 400
    )
    pair = np.where(of_top[:, None], np.where(np.arange(pair.shape[1]) < 5, pair, -1), 400 + pair)
    shown = sessions.rankings.shown & (pair >= 0)
    pair = np.where(shown, pair, -1).astype(np.int32)
    rankings = cs.Rankings(many, np.where(of_top, 0, 1).astype(np.int32), pair, shown)
    log = cs.Sessions(rankings, sessions.click & shown, time=sessions.time, user=sessions.user)
    assert "pagination" not in findings(log, checks=["pagination"])


def test_a_query_that_is_continued_by_a_blank_is_type_ahead() -> None:
    seconds = np.tile([0, 1.5, 3, 600], 200) + np.repeat(np.arange(200) * 7, 4)
    typed = pd.DataFrame({"user": np.repeat(np.arange(200), 4), "query": ["red", "red ", "red shoes", "tea"] * 200})
    typed["time"] = pd.Timestamp("2026-03-02") + pd.to_timedelta(seconds, unit="s")
    typed["docs"], typed["clicks"] = [["a", "b"], ["b", "a"]] * 400, [[0, 0]] * 800
    (finding,) = findings(typed, checks=["type-ahead"]).values()
    assert finding.affected == 400


def test_without_the_affected_sessions_examination_is_that_of_the_clean_part(clean: Log) -> None:
    rng = np.random.default_rng(1)
    log, _ = DEFECTS["clicks-everything"](clean, 0.05, rng)
    (finding,) = cs.check_log(log.sessions()).findings
    effect = finding.effect
    assert effect is not None
    sessions = log.sessions()
    bots = (sessions.click.sum(axis=1) == sessions.rankings.n_shown) & (sessions.rankings.n_shown >= 5)
    for curve, part in ((effect.everything, sessions), (effect.without, sessions[~bots])):
        examination = MaximumLikelihood("PBM").fit(part).examination  # type: ignore[attr-defined]
        known = curve > 0
        np.testing.assert_allclose(curve[known], (examination / examination[0])[known], rtol=1e-6)
    assert effect.change < -0.3  # bots make low ranks look examined
    assert str(effect.rank) in str(effect)


def test_checks_that_lack_a_column_say_which(clean: Log) -> None:
    sessions = clean.sessions()
    bare = cs.Sessions(
        cs.Rankings(sessions.vocabulary, sessions.rankings.query, sessions.rankings.pair), sessions.click
    )
    health = cs.check_log(bare, effects=False)
    assert health.not_run["duplicated-sessions"] == "needs the columns time and user"
    assert health.not_run["power-users"] == "needs the column user"
    assert health.not_run["sample-ratio"] == "needs the segment arm"
    assert health.not_run["front-end-change"] == "needs the column time"
    days = replace(clean, time=np.floor(clean.time / 86400) * 86400).sessions()
    assert cs.check_log(days, effects=False).not_run["refreshes"] == "needs times to the second"


def test_merged_sessions_are_counted(clean: Log) -> None:
    log, truth = DEFECTS["clicks-everything"](clean, 0.05, np.random.default_rng(1))
    merged = log.sessions().merged()
    health = cs.check_log(merged, effects=False)
    assert health.sessions == 12_000
    (finding,) = health.findings
    assert finding.low <= truth <= finding.high


def test_an_encoded_log_has_the_same_findings(clean: Log, tmp_path: Path) -> None:
    log, _ = DEFECTS["pagination"](clean, 0.05, np.random.default_rng(1))
    sessions = log.sessions()
    assert sessions.user is not None
    texts = np.array([f"{'qa' if user % 50 == 0 else 'visitor'}-{user}" for user in sessions.user.tolist()])
    sessions = replace(sessions, user=texts.astype(np.dtypes.StringDType()))
    cs.write_log(sessions, tmp_path / "log.parquet")
    encoded = cs.open_log(tmp_path / "log.parquet", in_memory=False, spill=DuckdbLimits("1GB"))
    checks = [name for name in CHECKS if name not in {"sample-ratio"}]
    ours, theirs = (
        cs.check_log(one, checks=checks, effects=False).to_dict()
        for one in (cs.read_log(tmp_path / "log.parquet"), encoded)
    )
    assert {finding["check"] for finding in ours["findings"]} == {"pagination", "test-traffic"}
    assert all(example["user"].startswith(("qa", "visitor")) for f in ours["findings"] for example in f["examples"])
    assert ours == theirs


def test_arms_are_compared_with_given_shares(clean: Log) -> None:
    users = np.unique(clean.user)
    tenth = np.random.default_rng(0).choice(users, len(users) // 10, replace=False)
    sessions = replace(clean, arm=np.isin(clean.user, tenth).astype(int)).sessions()
    assert "shares" in cs.check_log(sessions, effects=False).not_run["sample-ratio"]
    right, wrong = (
        cs.check_log(sessions, checks=["sample-ratio"], arm_shares={"new": 1 - share, "old": share}, effects=False)
        for share in (0.1, 0.2)
    )
    assert right.findings == ()
    assert wrong.findings[0].severity == "severe"


def test_a_file_with_ranks_from_zero_is_diagnosed(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "session": np.repeat(np.arange(1000), 3),
            "query": "q",
            "rank": np.tile([0, 1, 2], 1000),
            "doc": np.random.default_rng(0).permuted(np.tile(["a", "b", "c"], (1000, 1)), axis=1).ravel(),
            "click": np.tile([1, 0, 0], 1000),
        }
    )
    frame.to_csv(tmp_path / "log.csv", index=False)
    for log in (tmp_path / "log.csv", frame):
        (finding,) = cs.check_log(log, effects=False).findings
        assert (finding.check, finding.severity, finding.rate) == ("rank-base", "severe", 1.0)
    frame.loc[:299, "rank"] += 1  # a hundred sessions begin at 1
    mixed = cs.check_log(frame, effects=False).findings
    assert {finding.check: finding.rate for finding in mixed if finding.severity == "severe"}["mixed-rank-bases"] == 0.1


def test_options_are_checked(clean: Log) -> None:
    sessions = clean.sessions()
    with raises_code("unknown-name", value="bot"):
        cs.check_log(sessions, checks=["bot"])
    with raises_code("level-out-of-range", value=1.0):
        cs.check_log(sessions, level=1.0)
    with raises_code("bad-option", option="arm_shares"):
        cs.check_log(sessions, arm_shares={"new": 0.0, "old": 1.0})


def test_events_are_checked_with_the_counts_of_their_import() -> None:
    rows = []
    for k in range(200):
        for rank in range(1, 4):
            rows.append((k, "impression", f"q{k % 5}", f"d{(k + rank) % 4}", rank, 60 * k))
        rows.append((k, "click", f"q{k % 5}", f"d{(k + 1) % 4}", 1, 60 * k + (-5 if k < 10 else 5)))
    rows += [(k, "impression", f"q{k % 5}", "ad", 2, 60 * k + 1) for k in range(20)]  # ties
    rows += [(k, "click", f"q{k % 5}", "unseen", 4, 60 * k + 9) for k in range(30)]
    events = pd.DataFrame(rows, columns=["session", "event", "query", "doc", "rank", "time"])
    events["time"] = pd.Timestamp("2026-03-01") + pd.to_timedelta(events["time"], unit="s")
    found = {finding.check: finding for finding in cs.check_log(cs.read_events(events), effects=False).findings}
    assert found["ties"].affected == 20
    assert found["ties"].unit == "results"
    assert found["clicks-without-impressions"].affected == 30
    assert found["clicks-before-impressions"].affected == 10
    assert found["clicks-before-impressions"].rate == 10 / 230
    assert found["ties"].examples


def test_events_whose_ranks_begin_at_0_are_noticed() -> None:
    events = pd.DataFrame({"session": np.repeat(np.arange(50), 2), "query": "q", "rank": [0, 1] * 50})
    events = events.assign(doc=["a", "b", "b", "a"] * 25, event="impression", time=pd.Timestamp("2026-03-01"))
    finding = findings(pd.concat([events, events[::9].assign(event="click")]))["rank-base"]
    assert (finding.severity, finding.rate, finding.text) == (
        "notice", 1.0, "Ranks begin at 0. The import has corrected that."
    )  # fmt: skip


def test_a_file_that_only_the_import_reads_is_checked(tmp_path: Path) -> None:
    """GraphCM's text has an ending that no log has."""
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{k}\t{k % 3}\t[1, 2]\t[0, 0]\t[1, 0]\n" for k in range(30)))
    health = cs.check_log(path, effects=False)
    assert health.sessions == 30
    assert health.not_run["late-clicks"] == "needs the column time"


def test_events_without_times_are_checked_without_a_window(events: pd.DataFrame) -> None:
    planted, _ = EVENT_DEFECTS["repeated-events"](events, 0.1, np.random.default_rng(2))
    health = cs.check_log(planted.drop(columns="seconds"), checks=sorted(EVENTS), effects=False)
    assert [finding.check for finding in health.findings] == ["repeated-events"]
    assert health.not_run["late-clicks"] == "needs the column time"


@pytest.fixture(scope="module")
def events(clean: Log) -> pd.DataFrame:
    return clean_events(clean.rows(np.arange(2000)))


def test_events_without_defects_pass_every_check_of_events(events: pd.DataFrame, tmp_path: Path) -> None:
    timed(events).to_parquet(tmp_path / "events.parquet")
    for log in (tmp_path / "events.parquet", timed(events)):
        health = cs.check_log(log, checks=sorted(EVENTS), effects=False)
        assert health.findings == ()
        assert set(health.passed) == EVENTS


@pytest.mark.parametrize("defect", EVENT_DEFECTS)
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_defect_planted_in_events_is_found_and_its_rate_is_true(
    events: pd.DataFrame, defect: str, share: float
) -> None:
    planted, truth = EVENT_DEFECTS[defect](events, share, np.random.default_rng(2))
    health = cs.check_log(timed(planted), checks=sorted(EVENTS), effects=False)
    (finding,) = health.findings
    assert finding.check == defect
    assert finding.rate == pytest.approx(truth, rel=0.02)
    assert finding.low <= truth <= finding.high
    assert finding.examples


@pytest.mark.parametrize("defect", EVENT_DEFECTS)
def test_a_defect_of_events_shows_the_curve_with_and_without_it(events: pd.DataFrame, defect: str) -> None:
    planted, _ = EVENT_DEFECTS[defect](events, 0.1, np.random.default_rng(2))
    (finding,) = cs.check_log(timed(planted), checks=sorted(EVENTS)).findings
    assert finding.effect is not None
    assert finding.effect.name in str(finding.effect)
    assert finding.to_dict()["effect"]["left_out"] == finding.effect.name


def lists_of(log: cs.ImportedEvents, events: pd.DataFrame) -> np.ndarray:
    """The search that each row of the log is, by its time."""
    first = events[events["event"] == "impression"].groupby("search_id")["time"].min()
    return np.array(first.sort_values(kind="stable").index)[: len(log.sessions)]


def test_reasons_affect_exactly_the_planted_results(events: pd.DataFrame) -> None:
    rng = np.random.default_rng(4)
    clicked = events.index[(events["event"] == "click") & (events["rank"] > 1)]
    late, again = np.split(rng.choice(clicked, 60, replace=False), 2)
    others = rng.choice(events.index[(events["event"] == "impression") & (events["rank"] == 2)], 30, replace=False)
    planted = events.copy()
    planted.loc[late, "seconds"] += 7200
    ties = events.loc[others].assign(doc="other", seconds=events.loc[others, "seconds"] + 1)
    copies = events.loc[again].assign(seconds=events.loc[again, "seconds"] + 5)
    whole = timed(pd.concat([planted, ties, copies, copies], ignore_index=True))
    imported = cs.read_events(whole, window="30min")
    search = lists_of(imported, whole)
    for reason, rows, number in (("late-click", late, 1), ("repeated-click", again, 2), ("rank-taken", others, 1)):
        row, rank, n = imported.affected[reason]
        expected = {(search_id, rank - 1) for search_id, rank in zip(*(events.loc[rows, name] for name in (
            "search_id", "rank")), strict=True)}  # fmt: skip
        assert set(zip(search[row].tolist(), rank.tolist(), strict=True)) == expected
        assert n.tolist() == [number] * len(expected)
    assert "affected" not in imported.to_dict()


@pytest.fixture(scope="module")
def many_events(clean: Log) -> pd.DataFrame:
    """Enough for examination to be identified."""
    return clean_events(clean.rows(np.arange(6000)))


def test_late_clicks_on_low_ranks_change_the_curve_there(many_events: pd.DataFrame) -> None:
    """With them, the log is that of all clicks; without them, that of the others."""
    events = many_events
    planted = events.copy()
    low = events.index[(events["event"] == "click") & (events["rank"] >= 3)]
    planted.loc[low[::2], "seconds"] += 7200
    (finding,) = cs.check_log(timed(planted), checks=["late-clicks"]).findings
    effect = finding.effect
    assert effect is not None
    for curve, log in ((effect.everything, timed(events)), (effect.without, timed(events.drop(low[::2])))):
        sessions = cs.read_events(log).sessions
        examination = MaximumLikelihood("PBM").fit(sessions).examination  # type: ignore[attr-defined]
        known = np.flatnonzero(curve > 0)
        np.testing.assert_allclose(curve[known], (examination / examination[0])[known], rtol=1e-5)
    assert effect.rank >= 3
    assert effect.change < -0.3
    assert str(effect).startswith("Without these clicks, examination at rank")


def test_results_that_only_clicks_show_make_their_rank_look_examined(many_events: pd.DataFrame) -> None:
    """Without them, the log is one in which neither their impressions nor their clicks were sent."""
    events = many_events
    clicks = events[(events["event"] == "click") & (events["rank"] == 4)][::2]
    lost = pd.MultiIndex.from_frame(events[["search_id", "doc"]]).isin(
        pd.MultiIndex.from_frame(clicks[["search_id", "doc"]])
    )
    planted = timed(events[~(lost & (events["event"] == "impression"))])
    (finding,) = cs.check_log(planted, checks=["clicks-without-impressions"]).findings
    assert finding.effect is not None
    examination = MaximumLikelihood("PBM").fit(cs.read_events(timed(events[~lost])).sessions).examination  # type: ignore[attr-defined]
    known = np.flatnonzero(finding.effect.without > 0)
    np.testing.assert_allclose(finding.effect.without[known], (examination / examination[0])[known], rtol=1e-5)
    assert finding.effect.rank == 4
    assert finding.effect.change < -0.1


def test_events_that_no_list_has_say_that_no_curve_has_them(events: pd.DataFrame, tmp_path: Path) -> None:
    clicks = events[events["event"] == "click"][::10]
    stray = pd.concat(
        [events, clicks.assign(doc="stray", rank=pd.array([pd.NA] * len(clicks), dtype="Int64"))], ignore_index=True
    )
    (finding,) = cs.check_log(timed(stray), checks=["clicks-without-impressions"]).findings
    assert finding.effect is None
    assert "these events belong to no result of the log" in finding.no_effect
    health = cs.check_log(timed(stray), checks=["clicks-without-impressions"])
    assert "is not compared: these events belong to no result of the log." in health._repr_html_()
    planted, _ = EVENT_DEFECTS["ties"](events, 0.1, np.random.default_rng(2))
    written = cs.read_events(timed(planted), output=tmp_path / "log.parquet")
    assert written.affected == {}
    (finding,) = cs.check_log(written, checks=["ties"]).findings
    assert "wrote the log to a file" in finding.no_effect


def test_clicks_before_impressions_that_the_log_has_are_left_out_of_the_other_curve(many_events: pd.DataFrame) -> None:
    """Whether the import had a window, and left them out, or not, and counted them: the curves are the same."""
    planted, _ = EVENT_DEFECTS["clicks-before-impressions"](many_events, 0.1, np.random.default_rng(2))
    curves = []
    for window in (None, "30min"):
        imported = cs.read_events(timed(planted), window=window)
        (finding,) = cs.check_log(imported, checks=["clicks-before-impressions"]).findings
        assert finding.effect is not None
        curves.append((finding.effect.everything, finding.effect.without))
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-6)


def test_every_check_has_a_planted_defect() -> None:
    assert {*DEFECTS, *WHOLE, *EVENT_DEFECTS} == {*CHECKS}


def test_the_ubi_sample_of_opensearch(shared_data: Samples) -> None:
    health = cs.check_log(shared_data / "opensearch_ubi/ubi_queries_events.ndjson.gz", effects=False)
    found = {finding.check: finding for finding in health.findings}
    # two applications, one of which counts ranks from 0
    assert found["mixed-rank-bases"].examples == [
        {"source": "Chorus", "first rank": 1, "lists": 60},
        {"source": "esci_ubi_sample", "first rank": 0, "lists": 200},
    ]
    assert found["mixed-rank-bases"].affected == 60
    assert found["ties"].affected == 954 - 886  # viewport events of two type-ahead states under one id
    assert found["clicks-without-impressions"].affected == 22
    assert found["gaps"].affected == 11
    assert found["left-out-events"].affected == 131  # events without a query text
    assert health.verdict == "severe"


def test_the_page_shows_rates_examples_and_curves(clean: Log) -> None:
    log, _ = DEFECTS["clicks-everything"](clean, 0.05, np.random.default_rng(1))
    health = cs.check_log(log.sessions())
    assert "1 severe problem: sessions that click everything (bots)" in health.conclusion
    assert set(health.figures) == {"Findings", "clicks-everything effect"}
    assert len(health.document.tables["clicks-everything examples"]) == 5
    assert {row["severity"] for row in health.rows()} == {"severe", "none", "not run"}
    assert len(health.rows()) == len(CHECKS)


@pytest.mark.study
@pytest.mark.parametrize("part", ["sessions", "events"])
def test_rates_of_findings_and_of_false_alarms(part: str, study: Study) -> None:
    results = run(study.choose(smallest=2, full=100), study.choose(smallest=1, full=20), seed=500, part=part)
    clean = results["clean"]
    study.record(
        f"log health: false alarms in {part}", logs=clean["logs"], rate=clean["logs_with_others"] / clean["logs"]
    )
    assert clean["logs_with_others"] <= 0.05 * clean["logs"] or not study.full
    for defect, by_share in results["defects"].items():
        for share, one in by_share.items():
            study.record(f"log health: {defect} at {share}", logs=one["logs"], found=one["found"], inside=one["inside"])
        at = by_share.get("0.05", by_share.get("1.0"))
        if defect != "dominant-query":
            assert at["found"] >= 0.95 * at["logs"] or not study.full
