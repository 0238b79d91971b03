"""One's own scores as policies and one's own query frequencies: logs follow them, and tasks are known by content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.data.corpus import Corpus
from clickshift.errors import FileError
from clickshift.experiments.policy_shift.protocol import PolicyShift, protocol_at_scale
from clickshift.experiments.runner import digest
from clickshift.simulation.search_engine import World
from tests.codes import raises_code
from tests.policies.small_corpora import small_corpus

N_QUERIES, N_DOCS = 6, 12
SMALL = {"users": ["DBN"], "models": ["rCTR"], "sessions": 4000, "test_sessions": 400, "derived": False}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return small_corpus(*[N_DOCS] * N_QUERIES)


@pytest.fixture(scope="module")
def scores(corpus: Corpus) -> pd.DataFrame:
    vocabulary = corpus.vocabulary
    query, doc = vocabulary.query_ids[vocabulary.pair_query], vocabulary.doc_ids[vocabulary.pair_doc]
    return pd.DataFrame({"query": query, "doc": doc, "score": np.random.default_rng(3).normal(size=len(query))})


@pytest.fixture
def mine(scores: pd.DataFrame, tmp_path: Path) -> Path:
    scores.to_csv(tmp_path / "mine.csv", index=False)
    return tmp_path / "mine.csv"


def protocol(corpus: Corpus, folder: Path, **options: object) -> PolicyShift:
    return protocol_at_scale("quick", folder, corpus=corpus, **{**SMALL, **options})  # type: ignore[arg-type]


def test_a_test_log_is_sorted_by_the_scores_of_the_file(
    corpus: Corpus, scores: pd.DataFrame, mine: Path, tmp_path: Path
) -> None:
    world = protocol(corpus, tmp_path, scores=mine, testing=["mine"], training=["PL-mine"]).world
    logs = world.logs("DBN", "PlackettLuce(Uniform)")
    score = scores.set_index(["query", "doc"])["score"]
    log = logs.test["mine"]
    vocabulary = log.vocabulary
    for query, pairs in zip(log.rankings.query[:50], log.rankings.pair[:50], strict=True):
        shown = [score[vocabulary.query_ids[query], vocabulary.doc_ids[vocabulary.pair_doc[pair]]] for pair in pairs]
        assert shown == sorted(shown, reverse=True)


def test_a_logging_policy_of_scores_is_the_plackett_luce_policy_of_the_rescaled_scores(
    corpus: Corpus, scores: pd.DataFrame, mine: Path, tmp_path: Path
) -> None:
    """P(first) of eq. (score + .01)^(1 / .1), with scores that run from 0 to 1 in each query."""
    chosen = protocol(corpus, tmp_path, scores={"mine": mine}, testing=["random"], training=["PL-mine"])
    ((name, text),) = chosen.training
    assert name == "PL-mine"
    placed = chosen.world.ranker(text)[0].on(corpus).placement(ranks=1).ravel()
    for query, own in scores.groupby("query"):
        scaled = (own["score"] - own["score"].min()) / (own["score"].max() - own["score"].min())
        weight = (scaled.to_numpy() + 0.01) ** 10
        of_query = corpus.vocabulary.query_ids[corpus.vocabulary.pair_query] == query
        assert placed[of_query] == pytest.approx(weight / weight.sum(), abs=1e-9)


def test_names_of_scores_stand_inside_texts_and_joined_policies(corpus: Corpus, mine: Path, tmp_path: Path) -> None:
    text = "PlackettLuce(Reversed(mine), temperature=0.5) + PL-mine + Uniform"
    chosen = protocol(corpus, tmp_path, scores=[f"mine={mine}"], training=[text], testing=["random"])
    name, spec = chosen.training[0]
    assert name == text
    file = f"ScoreFile(content='{chosen.world.tables[0][0]}', rescale=True)"
    first, second, third = spec.split(" + ")
    assert first == f"PlackettLuce(Reversed({file}), temperature=0.5)"
    assert second == f"PlackettLuce(policy={file}, temperature=0.1, scores='log')"
    assert third == "Uniform"
    assert chosen.world.logs("DBN", spec).train.total == pytest.approx(0.8 * SMALL["sessions"], abs=3)


def test_scores_that_no_option_names_rank_a_further_test_log(
    corpus: Corpus, scores: pd.DataFrame, mine: Path, tmp_path: Path
) -> None:
    chosen = protocol(
        corpus, tmp_path, scores={"mine": mine, "other": scores}, testing=["random"], training=["PL-mine"]
    )
    assert [name for name, _ in chosen.world.testing] == ["random", "other"]
    assert (tmp_path / "scores other.parquet").exists(), "other processes read a data frame from disk"
    assert chosen.world.ranker(chosen.world.testing[1][1])[1] is not None


def test_queries_are_as_frequent_as_counted_and_others_are_left_out(corpus: Corpus, tmp_path: Path) -> None:
    ids = corpus.vocabulary.query_ids
    counts = pd.DataFrame({"query": [*ids[:3], ids[0], 999], "count": [10, 0, 30, 20, 5]})
    chosen = protocol(corpus, tmp_path, query_counts=counts, training=["PlackettLuce(Uniform)"], testing=["random"])
    train = chosen.world.logs("DBN", "PlackettLuce(Uniform)").train
    asked = pd.Series(train.vocabulary.query_ids[train.rankings.query]).value_counts()
    assert set(asked.index) == {ids[0], ids[2]}
    error = np.sqrt(0.25 / train.total)
    assert asked[ids[0]] / train.total == pytest.approx(0.5, abs=5 * error)


def test_a_task_is_known_by_the_content_of_its_tables_and_not_by_their_place(
    corpus: Corpus, scores: pd.DataFrame, mine: Path, tmp_path: Path
) -> None:
    counts = tmp_path / "counts.csv"
    pd.DataFrame({"query": corpus.vocabulary.query_ids, "count": 1}).to_csv(counts, index=False)
    first = protocol(corpus, tmp_path, scores=mine, query_counts=counts, training=["PL-mine"], testing=["random"])
    moved = tmp_path / "moved.csv"
    mine.rename(moved)
    options = dict(query_counts=counts, training=["PL-mine"], testing=["random"])
    again = protocol(corpus, tmp_path, scores={"mine": moved}, **options)
    assert list(map(digest, first.tasks())) == list(map(digest, again.tasks()))
    scores.assign(score=-scores["score"]).to_csv(moved, index=False)
    changed = protocol(corpus, tmp_path, scores={"mine": moved}, **options)
    assert not {*map(digest, first.tasks())} & {*map(digest, changed.tasks())}
    pd.DataFrame({"query": corpus.vocabulary.query_ids, "count": 2}).to_csv(counts, index=False)
    reweighted = protocol(corpus, tmp_path, scores={"mine": moved}, **options)
    assert not {*map(digest, changed.tasks())} & {*map(digest, reweighted.tasks())}
    assert "query_counts" not in repr(digest(World())), "worlds of before keep their digests"
    assert digest(World()) == digest(replace(World(), tables=(("a", "b"),)))


def test_wrong_tables_are_refused_before_any_work(
    corpus: Corpus, scores: pd.DataFrame, mine: Path, tmp_path: Path
) -> None:
    with raises_code("missing-score", FileError, count=2):
        protocol(corpus, tmp_path, scores={"mine": scores[2:]})
    with raises_code("not-finite", FileError, count=1):
        protocol(corpus, tmp_path, scores={"mine": scores.assign(score=[np.inf, *scores["score"][1:]])})
    with raises_code("bad-option", option="scores", value="my-ranker"):
        protocol(corpus, tmp_path, scores={"my-ranker": mine})
    with raises_code("bad-option", option="scores", value="BM25"):
        protocol(corpus, tmp_path, scores={"BM25": mine})
    with raises_code("duplicate-name", name="mine"):
        protocol(corpus, tmp_path, scores=[mine, mine])
    with raises_code("unknown-name", value="yours"):
        protocol(corpus, tmp_path, scores=mine, training=["PlackettLuce(yours)"])
    for option, wrong, known in (
        ("training", "PL-yours", {"PL-oracle", "PL-BM25", "PL-mine", "mine", "BM25", "PlackettLuce"}),
        ("testing", "yours", {"random", "oracle", "mine", "Uniform"}),
        ("users", "nobody", {"DBN", "CoCM-mismatch", "PBM"}),
    ):
        with raises_code("unknown-name", value=wrong) as caught:
            protocol(corpus, tmp_path, scores=mine, **{option: [wrong]})
        assert known <= {*caught.value.facts["known"]}
    for count, code in ((-1.0, "bad-count"), (np.inf, "bad-count"), (0.0, "no-such-query")):
        with raises_code(code, FileError):
            protocol(corpus, tmp_path, query_counts=pd.DataFrame({"query": [100], "count": [count]}))
    with raises_code("missing-column", columns=["count"]):
        protocol(corpus, tmp_path, query_counts=scores)


def test_a_run_with_own_tables_is_reported_when_they_are_gone(corpus: Corpus, mine: Path, tmp_path: Path) -> None:
    small = {**SMALL, "training": ["PL-mine"], "testing": ["mine", "random"], "seeds": 1}
    result = cs.policy_shift(tmp_path / "run", corpus=corpus, scores=mine, workers=0, **small)  # type: ignore[arg-type]
    mine.unlink()
    assert cs.read_run(tmp_path / "run").conclusion == result.conclusion
    assert {row["testing"] for row in result.rows() if row["kind"] == "clicks"} == {"ind", "mine", "random"}
