"""A simulated log that is written as events of each format, and imported, is the same log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts
from clickshift.data.sessions import Sessions
from clickshift.io.events.ubi_writer import write_ubi
from tests.codes import raises_code

Lists = list[tuple[str, tuple[str, ...], tuple[int, ...]]]


@pytest.fixture(scope="module")
def log() -> Sessions:
    corpus = cs.builtin_corpus(queries=8)
    return cs.simulate(corpus, cs.Uniform(), cs.users.DBN(), 200, ranks=5, rng=7)


def lists_of(log: Any) -> Counter[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """Lists with clicks and how often each occurs, with ids as text."""
    vocabulary, found = log.vocabulary, Counter[tuple[str, tuple[str, ...], tuple[int, ...]]]()
    for row in range(len(log.count)):
        shown = log.rankings.shown[row]
        docs = vocabulary.doc_ids[vocabulary.pair_doc[log.rankings.pair[row][shown]]]
        query = str(vocabulary.query_ids[log.rankings.query[row]])
        found[query, tuple(map(str, docs)), tuple(log.click[row][shown].astype(int).tolist())] += int(log.count[row])
    return found


def rows_of(log: Sessions) -> Iterator[tuple[int, str, list[str], list[int]]]:
    """Each session with its number."""
    number = 0
    for (query, docs, clicks), times in lists_of(log).items():
        for _ in range(times):
            number += 1
            yield number, query, list(docs), list(clicks)


def ubi(log: Sessions, folder: Path) -> Any:
    write_ubi(log, folder / "ubi.ndjson.gz")
    return folder / "ubi.ndjson.gz"


def metarank(log: Sessions, folder: Path) -> Any:
    events: list[dict[str, Any]] = []
    for n, query, docs, clicks in rows_of(log):
        fields = [{"name": "source", "value": "search"}, {"name": "query", "value": query}]
        items = [{"id": doc} for doc in docs]
        when = str(1_700_000_000_000 + 60_000 * n)
        events.append({"event": "ranking", "id": f"r{n}", "timestamp": when, "fields": fields, "items": items})
        for doc, click in zip(docs, clicks, strict=True):
            if click:
                common = {"event": "interaction", "id": f"{n}{doc}", "timestamp": when, "type": "click"}
                events.append({**common, "ranking": f"r{n}", "item": doc})
    (folder / "metarank.json").write_text(json.dumps(events))
    return folder / "metarank.json"


def ga4_rows(log: Sessions) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def row(name: str, n: int, second: int, items: list[dict[str, Any]], **parameters: Any) -> None:
        text, whole = ("string_value", "int_value")
        values = [
            {
                "key": key,
                "value": {
                    text: str(value) if key != "ga_session_id" else None,
                    whole: n if key == "ga_session_id" else None,
                },
            }
            for key, value in ({"ga_session_id": n} | parameters).items()
        ]
        moment = (1_700_000_000 + 600 * n + second) * 1_000_000
        rows.append(
            {
                "event_name": name,
                "event_timestamp": moment,
                "user_pseudo_id": f"u{n}",
                "event_params": values,
                "items": items,
            }
        )

    for n, query, docs, clicks in rows_of(log):
        items = [{"item_id": doc, "item_list_id": "search", "item_list_index": str(k)} for k, doc in enumerate(docs)]
        row("view_item_list", n, 0, items[:3], search_term=query, page_location=f"/s/{n}")
        row("view_item_list", n, 1, items[3:], search_term=query, page_location=f"/s/{n}")
        for k, (item, click) in enumerate(zip(items, clicks, strict=True)):
            if click:
                row("select_item", n, 2 + k, [item | {"item_list_index": "(not set)"}])
    return rows


def ga4(log: Sessions, folder: Path) -> Any:
    pq.write_table(pa.Table.from_pylist(ga4_rows(log)), folder / "ga4.parquet")
    return folder / "ga4.parquet"


def ga4_wrapped(log: Sessions, folder: Path) -> Any:
    """As BigQuery writes repeated records without list inference."""
    rows = [
        row | {name: {"list": [{"element": one} for one in row[name]]} for name in ("event_params", "items")}
        for row in ga4_rows(log)
    ]
    (folder / "ga4.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "ga4.jsonl"


def snowplow(log: Sessions, folder: Path) -> Any:
    action = "unstruct_event_com_snowplowanalytics_snowplow_ecommerce_snowplow_ecommerce_action_1"
    product = "contexts_com_snowplowanalytics_snowplow_ecommerce_product_1"
    rows = []
    for n, query, docs, clicks in rows_of(log):
        common = {"domain_sessionid": f"s{n}", "page_view_id": f"p{n}"}
        items = [{"id": doc, "position": k, "price": 1.0} for k, doc in enumerate(docs, 1)]
        start = pd.Timestamp(1_700_000_000 + 600 * n, unit="s")
        rows.append({action: {"type": "list_view", "name": query}, product: items, "derived_tstamp": start, **common})
        for item, click in zip(items, clicks, strict=True):
            if click:
                later = start + pd.Timedelta(seconds=item["position"])
                kind = {"type": "list_click", "name": query}
                rows.append({action: kind, product: [item], "derived_tstamp": later, **common})
    pq.write_table(pa.Table.from_pylist(rows), folder / "snowplow.parquet")
    return folder / "snowplow.parquet"


def expedia(log: Sessions, folder: Path) -> Any:
    names = "srch_id,date_time,site_id,prop_id,position,srch_destination_id,random_bool,click_bool,booking_bool\n"
    lines = [
        f"{n},2013-04-04 08:{n // 60:02}:{n % 60:02},12,{doc},{rank},{query},1,{click},0\n"
        for n, query, docs, clicks in rows_of(log)
        for rank, (doc, click) in enumerate(zip(docs, clicks, strict=True), 1)
    ]
    (folder / "train.csv").write_text(names + "".join(lines))
    return folder / "train.csv"


def baidu(log: Sessions, folder: Path) -> Any:
    lines = []
    for n, query, docs, clicks in rows_of(log):
        lines.append(f"{n}\t{query}\t")
        for rank, (doc, click) in enumerate(zip(docs, clicks, strict=True), 1):
            lines.append("\t".join([str(rank), doc, "a\x01b", "c", "-", str(click), *["0"] * 26]))
    (folder / "part-00000").write_text("\n".join(lines))
    return folder / "part-00000"


def baidu_uva(log: Sessions, folder: Path) -> Any:
    rows = [
        {"query_id": str(n), "query_md5": query, "url_md5": doc, "position": rank, "click": click}
        for n, query, docs, clicks in rows_of(log)
        for rank, (doc, click) in enumerate(zip(docs, clicks, strict=True), 1)
    ]
    import pyarrow.feather as feather

    feather.write_feather(pa.Table.from_pylist(rows), folder / "part-1_split-0.feather")
    return folder / "part-1_split-0.feather"


def clax(log: Sessions, folder: Path) -> Any:
    rows = [
        {"query_id": int(query), "query_doc_ids": list(map(int, docs)), "clicks": clicks}
        for _, query, docs, clicks in rows_of(log)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clax.parquet")
    return folder / "clax.parquet"


def tiangong(log: Sessions, folder: Path) -> Any:
    """As published: one element per line, texts that are not escaped, weak labels."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<tiangong>"]
    for n, query, docs, clicks in rows_of(log):
        lines += [f'<session num="{n}">', '<interaction num="1">', f"<query>a < b & {query}</query>"]
        lines += [f"<query_id>{query}</query_id>", "<results>"]
        for rank, doc in enumerate(docs, 1):
            lines += [f'<result rank="{rank}">', f"<url>http://x/?a=1&b={doc}</url>", f"<docid>{doc}</docid>"]
            lines += ["<title>2 > 1 & <b>bold</title>", "<vtype>30000</vtype>", "<PSCM>0.3</PSCM>", "</result>"]
        lines.append("</results>")
        if any(clicks):
            lines.append("<clicked>")
            for rank in (rank for rank, click in enumerate(clicks, 1) if click):
                lines += ["<click>", f"<rank>{rank}</rank>", "<timestamp>1427866322.5</timestamp>", "</click>"]
            lines.append("</clicked>")
        lines += ["</interaction>", "</session>"]
    (folder / "sogou-st.xml").write_text("\n".join([*lines, "</tiangong>"]))
    return folder / "sogou-st.xml"


def graphcm(log: Sessions, folder: Path) -> Any:
    lines = [
        f"{n}\t{query}\t[{', '.join(docs)}]\t{[1] * len(docs)}\t{clicks}" for n, query, docs, clicks in rows_of(log)
    ]
    (folder / "train_per_query_quid.txt").write_text("\n".join(lines))
    return folder / "train_per_query_quid.txt"


def one_table(log: Sessions, folder: Path) -> Any:
    rows: list[dict[str, Any]] = []
    for n, query, docs, clicks in rows_of(log):
        for rank, (doc, click) in enumerate(zip(docs, clicks, strict=True)):
            row = {"Session ID": n, "searchQuery": query, "productId": doc, "Position": rank}
            when = pd.Timestamp("2026-01-01") + pd.Timedelta(minutes=n)
            rows.append(row | {"eventType": "Impression", "ts": when})
            if click:
                rows.append(row | {"eventType": "CLICK", "ts": when + pd.Timedelta(seconds=5)})
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def results(log: Sessions, folder: Path) -> Any:
    rows = [
        {"session": n, "query": query, "doc": doc, "rank": rank, "click": "yes" if click else "no"}
        for n, query, docs, clicks in rows_of(log)
        for rank, (doc, click) in enumerate(zip(docs, clicks, strict=True), 1)
    ]
    pd.DataFrame(rows).to_csv(folder / "results.csv", sep=";", index=False)
    return folder / "results.csv"


WRITERS: dict[str, Callable[[Sessions, Path], Any]] = {
    writer.__name__: writer
    for writer in (
        *(
            ubi,
            metarank,
            ga4,
            ga4_wrapped,
            snowplow,
            expedia,
            baidu,
            baidu_uva,
            clax,
            tiangong,
            graphcm,
            one_table,
            results,
        ),
    )
}


@pytest.mark.parametrize("name", WRITERS)
def test_events_of_a_log_become_the_log(name: str, log: Sessions, tmp_path: Path) -> None:
    imported = cs.read_events(WRITERS[name](log, tmp_path))
    assert lists_of(imported.sessions) == lists_of(log)
    assert [row for row in imported.rows() if row["outcome"] != "repaired"] == []
    facts = imported.to_dict()
    assert facts["lists"] == facts["lists_written"] == log.total
    assert facts["clicks_written"] == log.click.sum()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("writer", [ubi, metarank, one_table])
def test_lists_of_any_length_survive(writer: Callable[[Sessions, Path], Any], seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(40):
        length = int(rng.integers(1, 12))
        docs = [f"d {doc} é" for doc in rng.permutation(30)[:length]]
        rows.append({"query": f'q "{rng.integers(5)}"', "docs": docs, "clicks": rng.integers(0, 2, length).tolist()})
    log = cs.read_log(pd.DataFrame(rows))
    assert lists_of(cs.read_events(writer(log, tmp_path)).sessions) == lists_of(log)


def test_impressions_and_clicks_may_be_apart(log: Sessions, tmp_path: Path) -> None:
    table = one_table(log, tmp_path)
    shown, clicked = table[table.eventType == "Impression"], table[table.eventType == "CLICK"]
    clicked = clicked.drop(columns=["eventType", "Position", "searchQuery"])
    imported = cs.read_events(shown.drop(columns="eventType"), clicks=clicked)
    assert lists_of(imported.sessions) == lists_of(log)


def test_an_aggregated_log_has_the_counts_of_the_log(log: Sessions, tmp_path: Path) -> None:
    rows = [
        {"query": query, "doc": doc, "rank": rank, "impressions": 1, "clicks": click}
        for _, query, docs, clicks in rows_of(log)
        for rank, (doc, click) in enumerate(zip(docs, clicks, strict=True), 1)
    ]
    table = pd.DataFrame(rows).groupby(["query", "doc", "rank"], as_index=False).sum()
    table.to_csv(tmp_path / "report.csv", index=False)
    imported = cs.read_events(tmp_path / "report.csv", output=tmp_path / "report.counts")
    shown = cs.read_log(log.to_arrow())  # with a vocabulary of the pairs that were shown
    expected = Cells.of(shown)
    for counts in (imported.counts, DayCounts.load(tmp_path / "report.counts")):
        for ids in ("query_ids", "doc_ids", "pair_query", "pair_doc"):
            found = getattr(counts.cells.vocabulary, ids).tolist()
            assert found == getattr(expected.vocabulary, ids).tolist()
        for column in ("pair", "situation", "impressions", "clicks"):
            assert getattr(counts.cells, column).tolist() == getattr(expected, column).tolist()
    assert imported.counts.sessions == log.total
    assert cs.fit("dCTR", tmp_path / "report.counts").relevance() == pytest.approx(cs.fit("dCTR", shown).relevance())
    with raises_code("counts-too-coarse"):
        cs.fit("DBN", imported.counts)
    with raises_code("counts-too-coarse"):
        cs.fit("UBM", imported.counts)
    twice = DayCounts.merged([imported.counts, DayCounts.of(log)])  # whose counts are finer
    assert twice.cells.impressions.sum() == 2 * expected.impressions.sum()
