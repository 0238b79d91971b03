"""The join of events, compared with a loop that follows its rules, and the columns beyond lists and clicks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from tests.codes import raises_code, warns_code
from tests.io.events.test_ubi import bulk, counts, event

Event = dict[str, Any]


def random_events(rng: np.random.Generator, *, ranks: int) -> pd.DataFrame:
    """Events with repeats, equal times, missing ranks, taken ranks, gaps, and clicks without impressions."""
    n = 400
    kinds = rng.choice(["impression", "click", "purchase", "add_to_cart"], n, p=[0.7, 0.2, 0.05, 0.05])
    rank = pd.array(rng.integers(-1, ranks, n), dtype="Int64")
    rank[rng.random(n) < 0.1] = pd.NA
    return pd.DataFrame(
        {
            "session": rng.integers(0, 25, n),
            "query": "q",
            "event": kinds,
            "doc": [f"d{doc}" for doc in rng.integers(0, max(8, ranks), n)],
            "rank": rank,
            "time": 1_700_000_000 + rng.integers(0, 40, n),
        }
    )


def events_with_rare_defects(rng: np.random.Generator, *, ranks: int) -> pd.DataFrame:
    """Lists of different documents at different ranks with later clicks, half of which have one defect or more."""
    rows: list[Event] = []
    for session in range(120):
        size, start = int(rng.integers(1, 9)), 1_700_000_000 + 100 * session
        places = rng.permutation(ranks)[:size] if rng.random() < 0.3 else np.arange(size) + rng.integers(0, 2)
        docs = [f"d{doc}" for doc in rng.permutation(1000)[:size]]
        shown = [
            {"session": session, "event": "impression", "doc": doc, "rank": int(rank), "time": start + k % 3}
            for k, (doc, rank) in enumerate(zip(docs, places, strict=True))
        ]
        clicked = [
            {**row, "event": "click", "rank": None, "time": start + int(rng.integers(2, 9))}
            for row in shown
            if rng.random() < 0.3
        ]
        own = [*shown, *clicked]
        for defect in rng.choice(9, int(rng.integers(0, 3)) if rng.random() < 0.5 else 0, replace=False):
            one = dict(own[int(rng.integers(len(own)))])
            changes = (
                {"event": "impression", "rank": int(rng.integers(ranks))},  # shown again
                {"event": "impression", "doc": f"e{session}"},  # at a rank that is taken, or without one
                {"event": "click", "rank": None},  # perhaps once more
                {"event": "click", "rank": None, "time": start - 1},
                {"event": "click", "doc": f"e{session}", "rank": int(rng.integers(ranks))},
                {"event": "click", "doc": f"e{session}", "rank": None},
                {"event": "impression", "doc": f"e{session}", "rank": None},
                {"event": "impression", "doc": f"e{session}", "rank": -1},
                {"event": "purchase"},
            )
            own.append(one | changes[defect])
        rows += own
    table = pd.DataFrame(rows).assign(query="q").astype({"rank": "Int64"})
    return table.sample(frac=1, random_state=int(rng.integers(1000))).reset_index(drop=True)


def joined_by_a_loop(events: pd.DataFrame, *, last: bool) -> tuple[dict[int, dict[int, str]], dict[str, Any], Counter]:
    """Documents by list and rank, signals by (list, document), and reasons."""
    reasons: Counter = Counter()
    pairs: dict[tuple[int, str], list[Event]] = {}
    for place, row in enumerate(events.to_dict("records")):
        pairs.setdefault((row["session"], row["doc"]), []).append(row | {"moment": (row["time"], place)})
    ranked: dict[tuple[int, str], tuple[int, tuple[int, Any]]] = {}
    found: dict[str, Any] = {"click": set(), "purchase": set(), "add_to_cart": set()}
    for pair, rows in pairs.items():
        by_kind = {kind: [row for row in rows if row["event"] == kind] for kind in ("impression", *found)}
        shown = sorted(by_kind["impression"], key=lambda row: row["moment"], reverse=last)
        clicked = sorted(by_kind["click"], key=lambda row: row["moment"])
        if not shown and not clicked:
            reasons["conversion-without-impression"] += len(rows)
            continue
        ordinals = [row["rank"] for row in (*shown, *clicked) if not pd.isna(row["rank"])]
        if not ordinals:
            reasons["no-rank" if shown else "click-without-impression"] += len(shown) or len(clicked)
            continue
        reasons["shown-by-click"] += not shown
        reasons["repeated-impression"] += max(len(shown) - 1, 0)
        reasons["repeated-click"] += max(len(clicked) - 1, 0)
        if shown and clicked:
            reasons["click-before-impression"] += clicked[0]["time"] < min(row["time"] for row in shown)
        order = (0, shown[0]["moment"]) if shown else (1, clicked[0]["moment"])
        ranked[pair] = (int(ordinals[0]), order)
        for kind, members in found.items():
            if by_kind[kind]:
                members.add(pair)
    base = min(1, *(ordinal for ordinal, _ in ranked.values() if ordinal >= 0))
    lists: dict[int, dict[int, str]] = {}
    for (session, doc), (ordinal, _) in sorted(ranked.items(), key=lambda item: item[1][1]):
        rank = ordinal - base + 1
        if rank < 1:
            reasons["rank-below-base"] += 1
        elif rank in lists.setdefault(session, {}):
            reasons["rank-taken"] += 1
            reasons["rank-taken-click"] += (session, doc) in found["click"]
        else:
            lists[session][rank] = doc
    lists = {session: documents for session, documents in lists.items() if documents}
    reasons["hole"] += sum(len(documents) < max(documents) for documents in lists.values())
    return lists, found, +reasons


@pytest.mark.parametrize(("seed", "ranks"), [(0, 6), (1, 20), (2, 90), (3, 6), (4, 90)])
@pytest.mark.parametrize("impression", ["first", "last"])
@pytest.mark.parametrize("make", [random_events, events_with_rare_defects])
def test_the_join_follows_its_rules(make: Callable[..., pd.DataFrame], impression: str, seed: int, ranks: int) -> None:
    events = make(np.random.default_rng(seed), ranks=max(ranks, 9) if make is events_with_rare_defects else ranks)
    imported = cs.read_events(events, impression=impression)
    lists, found, reasons = joined_by_a_loop(events, last=impression == "last")
    assert counts(imported) == reasons
    starts = events.groupby("session")["time"].min()
    rows = imported.log.to_pylist()
    assert len(rows) == len(lists)
    by_documents = {tuple(docs.get(rank) for rank in range(1, max(docs) + 1)): key for key, docs in lists.items()}
    assert len(by_documents) == len(lists), "the lists of this seed tell their sessions"
    for row in rows:
        session = by_documents[tuple(row["docs"])]
        clicks = [int((session, doc) in found["click"]) for doc in row["docs"]]
        assert row["clicks"] == clicks
        for name in imported.to_dict()["signals"]:
            assert row[name] == [None if doc is None else int((session, doc) in found[name]) for doc in row["docs"]]
        assert row["time"].timestamp() >= starts[session]
    sessions = imported.sessions
    assert sessions.rankings.has_holes
    assert sessions.signals["purchase"].sum() == sum(map(sum, ([v or 0 for v in row["purchase"]] for row in rows)))


@pytest.mark.parametrize(("base", "first"), [(None, [0, 1]), (0, [0, 1]), (1, [1])])
def test_ranks_above_a_base_that_is_given_are_left_out(base: int | None, first: list[int]) -> None:
    ranks = {"session": [1, 1, 2, 2], "query": "q", "doc": ["a", "b", "a", "b"], "rank": [0, 1, 1, 2]}
    imported = cs.read_events(pd.DataFrame(ranks).assign(click=[0, 1, 0, 0]), rank_base=base)
    above = {"hole": 1} if base != 1 else {"rank-below-base": 1}
    assert counts(imported) == above
    assert [row["clicks"] for row in imported.log.to_pylist()] == [first, [0, 0, 0] if base != 1 else [0, 0]]


def test_a_list_ends_closes_or_is_dropped_at_a_gap_with_its_signals() -> None:
    events = random_events(np.random.default_rng(1), ranks=20)
    kept = cs.read_events(events).log.to_pylist()
    closed = cs.read_events(events, gaps="close").log.to_pylist()
    cut = cs.read_events(events, gaps="truncate").log.to_pylist()
    for row, other in zip(kept, closed, strict=True):
        shown = [k for k, doc in enumerate(row["docs"]) if doc is not None]
        for name in ("docs", "clicks", "purchase", "add_to_cart"):
            assert other[name] == [row[name][k] for k in shown]
    ends = [row["docs"].index(None) if None in row["docs"] else len(row["docs"]) for row in kept]
    above = [
        {name: row[name][:end] for name in ("docs", "clicks", "purchase")} for row, end in zip(kept, ends, strict=True)
    ]
    assert [{name: row[name] for name in ("docs", "clicks", "purchase")} for row in cut] == [
        r for r in above if r["docs"]
    ]


def test_the_configuration_of_a_ubi_list_is_its_arm_if_it_has_one(tmp_path: Path) -> None:
    def shown(query_id: str, doc: str, rank: int, arm: str) -> Event:
        one = event("impression", query_id, doc, rank, "2025-01-24T08:00:00Z", user_query="pen")
        one["event_attributes"]["object"]["search_config"] = arm
        return one

    documents = [shown("q1", "a", 1, "A"), shown("q1", "b", 2, "A"), shown("q2", "a", 1, "A"), shown("q2", "b", 2, "B")]
    (tmp_path / "ubi.ndjson").write_text(bulk(documents))
    imported = cs.read_events(tmp_path / "ubi.ndjson", output=tmp_path / "log.parquet")
    assert counts(imported) == {"several-labels": 1}, "an interleaved list has no arm"
    assert imported.to_dict()["segments"] == ["arm"]
    arm = cs.read_log(tmp_path / "log.parquet").segments["arm"]
    assert (arm.labels, arm.code.tolist()) == (("A",), [0, -1])


def test_results_say_what_was_seen_and_bought_and_in_which_arm(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            **{"session": [1, 1, 2], "query": "q", "doc": ["a", "b", "a"], "rank": [1, 3, 1], "clicked": [1, 0, 0]},
            **{"purchased": ["yes", "no", "no"], "in_viewport": [2.5, 0, 0], "arm": ["new", "new", "old"]},
            **{"device_category": ["phone", "phone", None], "saved": [0, 1, 0]},
        }
    )
    imported = cs.read_events(table, columns={"signal:saved": "saved"}, output=tmp_path / "log.csv")
    for sessions in (imported.sessions, cs.read_events(table, columns={"signal:saved": "saved"}).sessions):
        assert sessions.signals["conversion"].tolist() == [[True, False, False], [False, False, False]]
        assert sessions.signals["saved"].tolist() == [[False, False, True], [False, False, False]]
        viewed = sessions.signals["viewed"]
        assert viewed[0].tolist() == [1, 0, 0]
        assert np.isnan(viewed[1, 0]), "a list of which nothing was seen was not tracked"
        assert sessions.segments["arm"].code.tolist() == [0, 1]
        assert sessions.segments["device"].labels == ("phone",)
    assert imported.to_dict()["converted"] == 2


def test_conversions_may_have_any_name() -> None:
    names = ["size", "list", "items", "Device", "time", 'a "quoted" name', "doc'"]
    rows = [("impression", "a", 1), ("impression", "b", 3), *((name, "b", None) for name in names)]
    table = pd.DataFrame(rows, columns=["event", "doc", "rank"]).assign(session=1, query="q").astype({"rank": "Int64"})
    for gaps in ("keep", "truncate"):
        imported = cs.read_events(table, conversion_types=names, gaps=gaps)
        assert imported.to_dict()["signals"] == [*names[:3], "Device_event", "time_event", *names[5:]]
        assert {*imported.sessions.signals} == {*imported.to_dict()["signals"]}
    with raises_code("bad-option"):
        cs.read_events(table, conversion_types=["buy", "BUY"])
    with raises_code("bad-column-name"):
        results = table.assign(click=0, phone=1, saved=1).drop(columns="event")
        cs.read_events(results, columns={"signal:device": "saved", "device": "phone"})


def test_a_segment_with_too_many_labels_is_left_out() -> None:
    n = 1001
    table = pd.DataFrame({"session": range(n), "query": "q", "doc": "a", "rank": 1, "click": 0, "device": range(n)})
    imported = cs.read_events(table)
    assert counts(imported) == {"too-many-labels": n}
    assert imported.to_dict()["segments"] == []
    assert not imported.sessions.segments


def test_public_data_sets_keep_what_they_have(tmp_path: Path) -> None:
    names = "srch_id,date_time,prop_id,position,srch_destination_id,random_bool,click_bool,booking_bool\n"
    rows = "1,2013-04-04 08:00:00,5,1,9,1,1,1\n1,2013-04-04 08:00:00,6,3,9,1,0,0\n2,2013-04-04 08:00:01,5,1,9,0,0,0\n"
    (tmp_path / "train.csv").write_text(names + rows)
    expedia = cs.read_events(tmp_path / "train.csv").sessions
    assert expedia.rankings.shown.tolist() == [[True, False, True], [True, False, False]]
    assert expedia.signals["booking_bool"].sum() == 1
    assert expedia.segments["random_bool"].labels == ("0", "1")
    result = "\t".join(["{rank}", "{doc}", "t", "a", "-", "0", "0", "0", "0", "0", "{seconds}", *["0"] * 21])
    lines = ["1\tred\t", result.format(rank=1, doc="a", seconds=3.5), result.format(rank=2, doc="b", seconds=0)]
    (tmp_path / "part-00000").write_text("\n".join(lines))
    assert cs.read_events(tmp_path / "part-00000").sessions.signals["viewed"].tolist() == [[True, False]]


def test_devices_and_purchases_of_ga4_are_kept(tmp_path: Path) -> None:
    def row(name: str, second: int, items: list[str]) -> Event:
        values = {"string_value": None, "int_value": 7}
        return {
            **{"event_name": name, "event_timestamp": (1_700_000_000 + second) * 1_000_000, "user_pseudo_id": "u"},
            "event_params": [{"key": "ga_session_id", "value": values}],
            "items": [{"item_id": item, "item_list_name": "shoes"} for item in items],
            "device": {"category": "mobile"},
        }

    rows = [row("view_item_list", 0, ["a", "b"]), row("select_item", 1, ["b"]), row("purchase", 2, ["b"])]
    pd.DataFrame(rows).to_json(tmp_path / "ga4.jsonl", orient="records", lines=True)
    imported = cs.read_events(tmp_path / "ga4.jsonl")
    sessions = imported.sessions
    assert sessions.signals["purchase"].tolist() == [[False, True]]
    assert sessions.segments["device"].labels == ("mobile",)
    assert imported.to_dict()["signals"] == ["purchase"]


def test_memory_for_the_join_may_be_smaller_than_the_events(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 300_000
    table = pd.DataFrame({"session": np.arange(n) // 10, "query": "q", "doc": rng.integers(0, 10**12, n)})
    table = table.assign(
        rank=np.arange(n) % 10 + 1, click=0, user=[f"a user with a long name {k // 10}" for k in range(n)]
    )
    imported = cs.read_events(table, output=tmp_path / "log.parquet", memory="60MB")
    assert imported.to_dict()["results"] == n
    with warns_code("skipped-input"):
        cs.read_events(table[:2].assign(rank=["x", "1"]), on_bad_line="skip")
