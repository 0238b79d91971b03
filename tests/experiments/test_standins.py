"""Protocols on files in published formats, which stand in for the real samples."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.data.sessions import Rankings
from clickshift.experiments._real_logs_report import log_warnings
from clickshift.experiments.backtest import TASKS, Backtest
from clickshift.experiments.click_vs_ips.data import NAIVE, PRODUCTION, pointwise_data, read_corpus_split
from clickshift.experiments.click_vs_ips.protocol import PointwiseCell
from clickshift.experiments.log_files import JudgmentFile, LogFile
from clickshift.experiments.models import ORACLE, TRUTH, Contender, compared_model
from clickshift.experiments.papers import section_6_1
from clickshift.experiments.real_logs import Preparation, RealLogs, clear_log_cache
from clickshift.io.datasets.open_bandit import read_open_bandit
from clickshift.io.datasets.yandex import read_sample
from clickshift.ope import PAPER_ESTIMATORS, GroupedLog, WeightedLists, evaluate_target
from tests.codes import warns_code
from tests.standins import (
    BANDIT_ITEMS,
    MQ2008_QUERIES,
    TREC_CONFLICTS,
    bandit_click_rate,
    mq2008_documents,
    trec_labelled,
    trec_pages,
)

Rows = list[dict[str, Any]]


def of(rows: Rows, kind: str) -> Rows:
    return [row for row in rows if row["kind"] == kind]


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """More would only wait for each other on so few documents."""
    monkeypatch.setenv("CLICKSHIFT_THREADS", "1")


# LETOR's five parts


def test_letors_parts_take_turns(standins: Path, one_thread: None) -> None:
    """Fold 1 learns from S1, S2 and S3, stops by S4 and is tested on S5; fold 2 begins one part later."""
    folder = standins / "mq2008"
    queries = {number: set(mq2008_documents(number).query.tolist()) for number in range(1, 6)}
    for fold, (train, held_out, test) in ((0, ((1, 2, 3), 4, 5)), (1, ((2, 3, 4), 5, 1)), (4, ((5, 1, 2), 3, 4))):
        parts = read_corpus_split(folder, fold=fold)
        assert [part.n_queries for part in parts] == [3 * MQ2008_QUERIES, MQ2008_QUERIES, MQ2008_QUERIES]
        assert {part.max_label for part in parts} == {2}
        found = [set(part.vocabulary.query_ids.tolist()) for part in parts]
        assert found == [set().union(*(queries[number] for number in train)), queries[held_out], queries[test]]
    second, sixth = (pointwise_data(str(folder)).engine(seed).parts.test for seed in (1, 5))
    tested = [set(part.vocabulary.query_ids.tolist()) for part in (second, sixth)]
    assert tested == [queries[1], queries[5]], "the sixth seed has the first fold again"


def test_a_ranker_of_clicks_is_trained_on_the_features_of_files(standins: Path, one_thread: None) -> None:
    """A linear ranker is enough: features tell labels apart here. Two of the 14 test queries have nothing relevant, so
    that 12/14 is the best nDCG there is; a random order has 0.56."""
    models = ((NAIVE, "ClickRanker(bias='naive', hidden=(), dropout=(), learning_rate=0.03)"),)
    rows = PointwiseCell(pointwise_data(str(standins / "mq2008")), models, 20_000, 1.0, 0.0, 0.1, (0,)).rows()
    found = {row["model"]: row["nDCG@10"] for row in rows}
    assert {row["kind"] for row in rows} == {"trained"}
    assert set(found) == {PRODUCTION, NAIVE}
    assert 0.8 < min(found.values()) <= max(found.values()) <= 12 / 14 + 1e-9


# A log with labels


def test_a_log_with_labels_of_its_own_is_judged(standins: Path) -> None:
    """Ranks matter to its users, and clicks follow the labels."""
    clear_log_cache()
    folder = standins / "trec_session2014"
    judged = JudgmentFile.at(folder / "human_label_for_GraphCM_per_query_quid.txt.gz", format="trec")
    log = LogFile.at(str(folder / "train_per_query_quid.txt.gz"), format="trec")
    models = tuple(map(compared_model, ("gCTR", "rCTR", "drCTR", "EM('PBM')")))
    found = RealLogs((log,), (), models, Preparation(judged, fractions=(0.1, 0.1)))
    rows = [row for cell in (*found.facts(), *found.tasks()) for row in cell.rows()]
    pages = sum(not page.repeats for page in trec_pages("train"))
    row = {row["model"]: row for row in of(rows, "clicks")}
    assert {one["sessions"] for one in row.values()} == {round(0.1 * pages)}
    assert row["gCTR"]["auroc"] == pytest.approx(0.5)
    assert row["rCTR"]["auroc"] > 0.6
    assert row["rCTR"]["perplexity"] < row["gCTR"]["perplexity"]
    ranking = {row["model"]: row["nDCG@10"] for row in of(rows, "ranking")}
    assert ranking["EM('PBM')"] > ranking["logging policy"]
    assert [text for text in log_warnings(rows) if "left out 6 SERP(s)" in text]


def test_judged_queries_of_a_log_by_counting(standins: Path) -> None:
    """Queries whose shown documents have different labels; spam (-2) counts as 0, pairs with two labels are out."""
    clear_log_cache()
    path = standins / "trec_session2014" / "human_label_for_GraphCM_per_query_quid.txt.gz"
    labels: dict[tuple[int, int], set[int]] = defaultdict(set)
    for page in trec_labelled():
        for doc, label in zip(page.docs, page.labels, strict=True):
            labels[page.query, doc].add(label)
    log, judged = LogFile.at(str(path), format="trec"), JudgmentFile.at(path, format="trec")
    found = RealLogs((log,), (), (), Preparation(judged, split="order", fractions=(0.01, 0.02)))
    (facts,) = found.facts()
    rows = facts.rows()
    (row,) = of(rows, "ranking")
    kept = [page for page in trec_labelled() if not page.repeats]
    (about,) = of(rows, "log")
    shown: dict[int, set[int]] = defaultdict(set)
    for page in kept[: about["train_sessions"]]:
        shown[page.query] |= {
            max(*labels[page.query, doc], 0) for doc in page.docs if len(labels[page.query, doc]) == 1
        }
    assert len(kept) - 5 < about["train_sessions"] < len(kept)
    assert row["judged_queries"] == sum(len(grades) > 1 for grades in shown.values())
    assert row["equal_queries"] == sum(len(grades) == 1 for grades in shown.values())
    assert [note["text"] for note in of(rows, "note") if f"left out {TREC_CONFLICTS} of" in note["text"]]


# Logs without a simulator


def test_a_log_without_time_in_random_parts(standins: Path) -> None:
    """Nothing drifts between random parts: no estimator is better than the mean of the other parts but by chance."""
    with warns_code("skipped-input", left_out={"unshown-click": 12}):
        log = read_sample(standins / "yandex_wscd" / "trainSample.gz")
    found = Backtest(queries=5, parts=6).on(log)
    assert found.sessions.sum() == log.total
    for task in TASKS:
        rows = [row for row in found.rows() if row["task"] == task and row["group"] == "the 5 most frequent"]
        least = {name: min(row["rmse"] for row in rows if row["estimator"] == name) for name in PAPER_ESTIMATORS}
        assert min(least.values()) > 0.9 * least["RCTR"]


def test_the_uniform_policy_is_told_from_another_ones_propensities(standins: Path) -> None:
    """The click rate of every item is known, and so is the value of drawing at random: within 3 standard errors."""
    log = read_open_bandit(standins / "open_bandit" / "bts" / "men")
    words = log.vocabulary
    every = Rankings(words, words.pair_query.astype(np.int32), np.arange(words.n_pairs, dtype=np.int32)[:, None])
    assert np.bincount(words.pair_query).tolist() == [BANDIT_ITEMS] * 3
    uniform = WeightedLists(every, np.full(words.n_pairs, 1 / BANDIT_ITEMS))
    [evaluation] = evaluate_target(GroupedLog.of(log), uniform, ["List"], logging="propensities")
    [estimate] = evaluation.estimates
    truth = bandit_click_rate().mean()
    assert abs(estimate.value - truth) < 3 * estimate.error
    assert log.click.mean() > truth + 5 * math.sqrt(truth / len(log)), "what was logged is not what is asked for"
    found = Backtest(("clicks",), queries=3).on(log)
    assert found.choice("clicks")["pairs"] > 0


# Corpora of files


def test_policy_shift_on_a_folder_of_files(standins: Path) -> None:
    """Section 6.1 on a folder like MSLR's: click rates of documents fail where the ranker changes."""
    protocol = replace(
        section_6_1(), contenders=(TRUTH, Contender("dCTR", "dCTR", "baseline"), Contender("PBM", "PBM"))
    )
    world = replace(protocol.world, sessions=5000, test_sessions=2000).on_corpus(str(standins / "mslr_sample"))
    assert world.content != protocol.world.content
    rows = [row for cell in replace(protocol, world=world, users=protocol.users[:1]).tasks() for row in cell.rows()]
    ppl = {(row["model"], row["shift"]): row["perplexity"] for row in of(rows, "clicks")}
    assert ppl["dCTR", "ood"] > ppl["PBM", "ood"] > ppl[ORACLE, "ood"]
    assert ppl["dCTR", "ood"] - ppl["dCTR", "ind"] > 0.05
    assert [row["judged_queries"] for row in of(rows, "ranking") if row["model"] == ORACLE] == [24]


def test_the_oracle_of_section_6_1_on_files(standins: Path) -> None:
    """The perplexity of the user's own model against the definition, rank by rank, from the chances of its clicks."""
    corpus = cs.read_corpus(sorted((standins / "mslr_sample").glob("*.txt.gz")), cache=False)
    ten = corpus.with_queries(corpus.usable_queries()).ladder(10, rng=np.random.default_rng(0))
    assert ten.n_candidates.tolist() == [10] * 24
    user = cs.users.DBN(satisfaction=0.5).on(ten)
    log = cs.simulate(ten, cs.PlackettLuce(cs.Oracle(), temperature=0.5, scores="log"), user, 3000, rng=0)
    p = user.click_prob_given_history(log)
    by_rank = [2 ** -np.mean(np.log2(np.where(c, q, 1 - q))) for c, q in zip(log.click.T, p.T, strict=True)]
    assert cs.perplexity(user, log).average == pytest.approx(np.mean(by_rank), rel=1e-6)
