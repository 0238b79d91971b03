"""explore: its conclusion, rows and facts, what it refuses, and its page as a file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.exploration import Exploration, _page
from clickshift.exploration._page import explore_page
from tests.codes import raises_code
from tests.exploration.conftest import HOSTILE


def parts_of(page: str) -> tuple[str, list[str], str, Any]:
    """Policy, scripts, style and data of a page."""
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    return (
        policy.replace("&#39;", "'"),
        re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL),
        style,
        json.loads(data),
    )


def digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def test_the_conclusion_names_the_best_model_and_the_model_of_the_page(exploration: Exploration) -> None:
    assert exploration.comparison is not None
    best = exploration.comparison.rows()[0]["model"]
    assert best in exploration.conclusion
    assert "PBM" in exploration.conclusion
    assert exploration.to_dict()["verdict"] == "usable"
    assert "3,000 sessions" in exploration.data or "6,000 sessions" in exploration.data
    assert {row["train_sessions"] + row["test_sessions"] for row in exploration.comparison.rows()} == {3000}


def test_rows_are_the_most_frequent_queries(exploration: Exploration, simulated: cs.Sessions) -> None:
    rows, sessions = exploration.rows(), np.bincount(simulated.rankings.query)
    assert [row["sessions"] for row in rows] == sorted(sessions[sessions > 0].tolist(), reverse=True)
    assert cs.explore(simulated, queries=2, sample=0).rows() == rows[:2]
    number = int(np.flatnonzero(simulated.vocabulary.query_ids == int(rows[0]["query"]))[0])
    clicks = simulated.click[simulated.rankings.query == number].sum()
    assert rows[0]["clicks_per_session"] == pytest.approx(clicks / rows[0]["sessions"])


def test_examination_of_pbm_has_the_intervals_of_the_model(exploration: Exploration) -> None:
    for row, curve in zip(exploration.by_rank(), cs.examination(exploration.model).rows(), strict=True):
        names = ("examination", "examination_low", "examination_high")
        assert [row[name] for name in names] == [curve[name] for name in ("estimate", "low", "high")]


@pytest.mark.parametrize(
    ("model", "curve"), [("PBM", ["examination", "examination low", "examination high"]), ("rCTR", [])]
)
def test_tables_have_headings_in_words_and_the_values_of_the_facts(
    simulated: cs.Sessions, model: str, curve: list[str]
) -> None:
    explored = cs.explore(simulated, cs.fit(model, simulated), sample=0)  # type: ignore[arg-type]
    by_rank, queries = (section.table for section in explored.document.all_sections)
    facts = explored.to_dict()
    assert list(by_rank[0]) == ["rank", "impressions", "clicks", "click-through rate", "low", "high", *curve]
    assert [list(row.values()) for row in by_rank] == [
        [value for value in row.values() if value is not None] for row in facts["by_rank"]
    ]
    assert list(queries[0]) == ["query", "sessions", "lists", "documents", "clicks per session"]
    assert [list(row.values()) for row in queries] == [list(row.values()) for row in facts["rows"][: len(queries)]]


def test_a_saved_model_is_used(simulated: cs.Sessions, tmp_path: Path) -> None:
    cs.save_model(cs.fit("rCTR", simulated), tmp_path / "model")  # type: ignore[arg-type]
    explored = cs.explore(simulated, tmp_path / "model", sample=0)
    facts = explored.query(explored.rows()[0]["query"])
    assert facts["documents"][0]["relevance"] is None
    assert facts["documents"][0]["examined"] is None
    assert explored.to_dict()["model"] == "rCTR"
    assert explored.to_dict()["comparison"] == []


def test_a_log_of_one_order_is_not_identified() -> None:
    vocabulary, _, pair = cs.Vocabulary.of([0, 0], [1, 2])
    rankings = cs.Rankings(vocabulary, np.zeros(40, int), np.tile(pair, (40, 1)))
    log = cs.Sessions(rankings, np.random.default_rng(1).random((40, 2)) < 0.5)
    explored = cs.explore(log, cs.fit("dCTR", log), sample=0)  # type: ignore[arg-type]
    assert explored.to_dict()["verdict"] == "not identified"
    assert "Relevance is not identified" in explore_page(explored, served=False).decode()


@pytest.mark.parametrize("query", ["nothing", 10**9, "<img>"])
def test_an_unknown_query_is_refused(exploration: Exploration, query: str | int) -> None:
    with raises_code("unknown-query", query=str(query)):
        exploration.query(query)


@pytest.mark.parametrize(("option", "value"), [("queries", 0), ("sample", -1)])
def test_numbers_out_of_range_are_refused(simulated: cs.Sessions, option: str, value: int) -> None:
    with raises_code("bad-option", option=option, value=value):
        cs.explore(simulated, **{option: value})


def test_a_model_that_does_not_predict_clicks_is_refused(simulated: cs.Sessions) -> None:
    with raises_code("cannot-predict-clicks"):
        cs.explore(simulated, cs.fit("TopPop", simulated), sample=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("served", [False, True])
def test_only_the_scripts_and_the_style_of_the_page_are_allowed(exploration: Exploration, served: bool) -> None:
    policy, scripts, style, _ = parts_of(explore_page(exploration, served=served).decode())
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == [digest(script) for script in scripts]
    assert rules["style-src"] == [digest(style)]
    assert rules["connect-src"] == (["'self'"] if served else ["'none'"])
    assert "style=" not in explore_page(exploration, served=served).decode().replace(style, "")


def test_the_page_holds_the_queries_and_loads_nothing(exploration: Exploration, tmp_path: Path) -> None:
    exploration.write(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    _, scripts, style, data = parts_of(page)
    assert [one["query"] for one in data["queries"]] == [row["query"] for row in exploration.rows()]
    rest = page
    for text in (style, *scripts):
        rest = rest.replace(text, "")
    assert not re.search(r"\b(src|href)=(?!\"#)", rest)
    assert "http://" not in rest.replace("http://www.w3.org/2000/svg", "")


def test_parameters_are_written_in_full(exploration: Exploration) -> None:
    *_, data = parts_of(explore_page(exploration, served=False).decode())
    model: Any = exploration.model
    assert data["model"]["offline"]["shared"]["examination"]["value"] == model.examination.tolist()
    for document in data["queries"][0]["documents"]:
        assert document["parameters"]["attractiveness"][0] == model.attractiveness[document["pair"]]


def test_the_page_is_bounded(exploration: Exploration, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = explore_page(exploration, served=False)
    monkeypatch.setattr(_page, "MAX_BYTES", len(whole) - 1)
    cut = explore_page(exploration, served=False)
    assert len(cut) < len(whole)
    *_, data = parts_of(cut.decode())
    assert 0 < len(data["queries"]) < len(exploration.rows()) == data["n_queries"]


@pytest.mark.parametrize("served", [False, True])
def test_hostile_ids_are_data(hostile: cs.Sessions, served: bool) -> None:
    explored = cs.explore(hostile, cs.fit("dCTR", hostile), sample=0)  # type: ignore[arg-type]
    object.__setattr__(explored, "name", "".join(HOSTILE))
    page = explore_page(explored, served=served).decode()
    policy, scripts, style, data = parts_of(page)
    assert [digest(script) for script in scripts] == policy.split("script-src ")[1].split(";")[0].split()
    if not served:
        assert {one["query"] for one in data["queries"]} == set(HOSTILE)
        assert {one["doc"] for one in data["queries"][0]["documents"]} == set(HOSTILE)
    for text in (style, *scripts):
        page = page.replace(text, "")
    assert "<img" not in page
    assert "<svg onload" not in page
    assert page.count("<script") == 1 + len(scripts)
    assert "\u2028" not in json.dumps(data)


def test_a_folder_has_the_page_and_the_rows(exploration: Exploration, tmp_path: Path, monkeypatch: Any) -> None:
    from tests.cli.shell import pictures_without_a_browser

    pictures_without_a_browser(monkeypatch)
    written = exploration.write(tmp_path / "out")
    assert written.page == tmp_path / "out" / "report.html"
    assert 'id="found"' in written.page.read_text(encoding="utf-8")
    assert written.rows is not None
