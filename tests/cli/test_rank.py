"""clickshift rank, as a user calls it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.counts.open_log import open_log
from clickshift.io.datasets.letor import read_corpus
from clickshift.io.read_log import read_log
from tests.cli.shell import Shell, call
from tests.folders import arrays_file

pytest.importorskip("jax")
ONE_CONSTANT_FEATURE = pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
RANKS, DOCS = 4, 5
SMALL = "ClickRanker('ips', hidden=(16,), dropout=(0.0,), rounds=40, learning_rate=0.01)"


def write_world(folder: Path, *, queries: int = 60, sessions: int = 6000, seed: int = 0) -> None:
    """Documents of which the first feature says how good they are and the second where they are shown."""
    rng = np.random.default_rng(seed)
    features = rng.random((queries, DOCS, 3)).round(4)
    features[:, :, 2] = 7
    lines = [
        f"{int(4 * x[0])} qid:{q} " + " ".join(f"{k + 1}:{v:g}" for k, v in enumerate(x)) + f" #docid = d{q}-{d}"
        for q, docs in enumerate(features)
        for d, x in enumerate(docs)
    ]
    (folder / "docs.txt").write_text("\n".join(lines) + "\n")
    narrow = [line.replace(" 3:7", "").replace("qid:", "qid:9") for line in lines]
    (folder / "narrow.txt").write_text("\n".join(narrow) + "\n")
    rows = []
    for query in rng.integers(0, queries, sessions):
        order = np.argsort(-features[query, :, 1] - rng.normal(0, 0.1, DOCS))[:RANKS]
        clicks = rng.random(RANKS) < (0.1 + 0.9 * features[query, order, 0] ** 2) / np.arange(1, RANKS + 1)
        docs = [f"d{query}-{d}" for d in order]
        rows.append({"query": str(query), "docs": docs, "clicks": clicks.astype(int).tolist()})
    pq.write_table(pa.Table.from_pylist(rows), folder / "log.parquet")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rank")
    write_world(folder)
    (folder / "trust.csv").write_text("rank,alpha,beta\n1,0.9,0.0\n2,0.45,0\n3,0.3,0\n4,0.2,0.0\n")
    (folder / "curve.csv").write_text("rank,examination\n1,1\n2,0.5\n3,0.3333\n4,0.25\n")
    (folder / "zero.csv").write_text("rank,examination\n1,1\n2,0.5\n3,0\n4,0.25\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the constant feature, of which another test is
        options = ("--loss", SMALL, "--examination", "1/rank", "-o", folder / "ips")
        assert call("rank", "train", folder / "docs.txt", "--clicks", folder / "log.parquet", *options) == 0
    return folder


def train(work: Path, output: Path, *options: object) -> tuple[object, ...]:
    return "rank", "train", work / "docs.txt", "--clicks", work / "log.parquet", "-o", output, *options


def test_train_and_evaluate(shell: Shell, work: Path) -> None:
    found = shell.json("rank", "evaluate", work / "ips", work / "docs.txt", "--include-training")
    assert found["learner"].startswith("ClickRanker(")
    rows = {row["metric"]: row for row in found["metrics"]}
    assert list(rows) == ["nDCG@5", "nDCG@10", "ARP"]
    assert rows["nDCG@10"]["mean"] > 0.9
    for row in rows.values():
        assert row["low"] < row["mean"] < row["high"]
    figure = cs.evaluate_ranker(work / "ips", work / "docs.txt", include_training=True).figure()
    (trace,) = figure.data
    assert list(trace.y) == ["nDCG@5, this ranker", "nDCG@10, this ranker"]
    for name, x, up, down in zip(rows, trace.x, trace.error_x.array, trace.error_x.arrayminus, strict=False):
        np.testing.assert_allclose([x, x + up, x - down], [rows[name][key] for key in ("mean", "high", "low")])
    text = shell.text("rank", "evaluate", work / "ips", work / "docs.txt", "--include-training", "--level", 0.9)
    assert "90% bootstrap intervals" in text
    assert "nDCG@5" in text


def test_ways_to_tell_examination(shell: Shell, work: Path, tmp_path: Path) -> None:
    assert call("fit", "PBM", work / "log.parquet", "-o", tmp_path / "pbm") == 0
    quick = ("--loss", SMALL.replace("rounds=40", "rounds=2"))
    for k, known in enumerate(
        [
            ("--propensities", work / "curve.csv"),
            ("--examination", "1,0.5,0.3333,0.25"),
            ("--model", tmp_path / "pbm"),
        ]
    ):
        found = shell.json(*train(work, tmp_path / f"r{k}", *quick, *known))
        assert found["rounds"] == 2
        assert found["converged"] is False
    files = [arrays_file(tmp_path / name).read_bytes() for name in ("r0", "r1", "r2")]
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_losses(shell: Shell, work: Path, tmp_path: Path) -> None:
    network = ", hidden=(4,), dropout=(0.0,), rounds=2)"
    cases = [
        (f"ClickRanker('affine'{network}", ("--trust", work / "trust.csv")),
        (f"ClickRanker('pbm', bias='estimated'{network}", ()),
        ("lambdamart", ("--examination", "1/rank", "--seed", 3)),
        ("BoostedRanker(bias='naive', trees=3)", ()),
    ]
    for k, (loss, known) in enumerate(cases):
        found = shell.json(*train(work, tmp_path / f"r{k}", "--loss", loss, *known))
        assert found["documents"] == 300
        assert ("examination" in found) == ("estimated" in loss)
    assert found["learner"] == "BoostedRanker(bias='naive', trees=3)"
    quality = shell.json("rank", "evaluate", tmp_path / "r2", work / "docs.txt", "--include-training")
    assert quality["metrics"][1]["mean"] > 0.9


@ONE_CONSTANT_FEATURE
def test_the_training_curve_of_a_network(work: Path, tmp_path: Path) -> None:
    """Its lowest point is the loss that was kept; it is saved with the ranker."""
    learner = SMALL.replace("rounds=40", "rounds=6")
    training = cs.train_ranker(work / "docs.txt", work / "log.parquet", loss=learner, examination="1/rank")
    losses = [row["held_out_loss"] for row in training.curve]
    assert [row["round"] for row in training.curve] == list(range(1, training.ranker.rounds + 1))
    assert min(losses) == pytest.approx(training.ranker.held_out_loss)
    line, best = training.figure().data
    assert list(line.y) == losses
    assert list(best.x) == [1 + losses.index(min(losses))]
    training.write(tmp_path / "ranker")
    assert list(cs.load_ranker(tmp_path / "ranker").losses) == losses


@ONE_CONSTANT_FEATURE
def test_trees_are_compared_on_queries_that_were_held_out(work: Path, tmp_path: Path) -> None:
    """The trees that are returned are trained on all queries; those of the comparison without the held-out ones."""
    learner, docs, log = cs.ranking.BoostedRanker(trees=5), work / "docs.txt", work / "log.parquet"
    training = cs.train_ranker(docs, log, loss=learner, examination="1/rank")
    corpus, sessions = read_corpus(docs), read_log(log)
    alone = learner.fit(corpus, sessions, examination=1 / np.arange(1, RANKS + 1))
    np.testing.assert_array_equal(training.ranker.scores(corpus), alone.scores(corpus))
    assert training.queries == 60
    assert training.comparison is not None
    assert (training.comparison.queries, training.comparison.judged_by) == (6, "labels")
    assert [row["trees"] for row in training.curve] == [1, 2, 3, 4, 5]
    assert training.curve[-1]["held_out_ndcg"] == pytest.approx(training.comparison.ndcg)
    assert list(training.figures) == ["training curve", "feature importance"]
    gain = lightgbm.Booster(model_str=alone.text).feature_importance("gain")
    (dots,) = training.figure("feature importance").data
    assert {int(name): share for name, share in zip(dots.y, dots.x, strict=True)} == pytest.approx(
        {k + 1: value / gain.sum() for k, value in enumerate(gain) if value > 0}
    )
    write_world(tmp_path, queries=20, sessions=500, seed=1)
    others = tmp_path / "docs.txt", tmp_path / "log.parquet"
    given = cs.train_ranker(
        docs, log, loss=learner, examination="1/rank", held_out=others[0], held_out_clicks=others[1]
    )
    assert given.comparison is not None
    assert given.comparison.queries == 20
    assert (training.comparison.trained_again, given.comparison.trained_again) == (True, False)
    booster = lightgbm.Booster(model_str=alone.text)
    for n, score in zip((2, 5), alone.staged_scores(corpus, (2, 5)), strict=True):
        np.testing.assert_allclose(score, booster.predict(corpus.features, num_iteration=n))


@ONE_CONSTANT_FEATURE
def test_trees_of_a_single_query_are_not_compared(tmp_path: Path) -> None:
    write_world(tmp_path, queries=1, sessions=200)
    learner = cs.ranking.BoostedRanker(trees=2)
    training = cs.train_ranker(tmp_path / "docs.txt", tmp_path / "log.parquet", loss=learner, examination="1/rank")
    assert training.comparison is None
    assert training.figures == {}


def test_a_loss_by_its_name(shell: Shell, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the published network, but one round of it."""
    from clickshift.ranking import click_ranker

    one = click_ranker.ClickRanker.__dataclass_fields__
    seen = []
    monkeypatch.setattr(
        click_ranker.ClickRanker,
        "fit",
        lambda self, *a, **k: seen.append((self, k)) or click_ranker.Ranker("one-hot", {}, "x"),
    )
    assert one["hidden"].default == (512, 256, 128)
    monkeypatch.setattr("clickshift.ranking.train._Examiner.compare", lambda *a: None)
    shell.json(*train(work, tmp_path / "r", "--loss", "pbm", "--bias", "naive", "--seed", 5))
    shell.json(*train(work, tmp_path / "r", "--clip", "0.1", "--examination", "1/rank^2"))
    assert [learner.loss for learner, _ in seen] == ["pbm", "ips"]
    assert (seen[0][0].bias, seen[0][0].seed, seen[1][0].clip) == ("naive", 5, 0.1)
    assert seen[0][1]["examination"] is None
    np.testing.assert_allclose(seen[1][1]["examination"], [1, 1 / 4, 1 / 9, 1 / 16])


def test_held_out_clicks(shell: Shell, work: Path, tmp_path: Path) -> None:
    write_world(tmp_path, queries=20, sessions=500, seed=1)
    judge = ("--held-out", tmp_path / "docs.txt", "--held-out-clicks", tmp_path / "log.parquet")
    found = shell.json(*train(work, tmp_path / "r", "--loss", SMALL, "--examination", "1/rank", *judge))
    assert found["held_out_loss"] > 0
    message = shell.error(*train(work, tmp_path / "r", *judge[:2]))
    assert "--held-out-clicks" in message


def test_scores(shell: Shell, work: Path, tmp_path: Path) -> None:
    facts = shell.json("rank", "score", work / "ips", work / "docs.txt", "-o", tmp_path / "scores.parquet")
    assert (facts["queries"], facts["documents"]) == (60, 300)
    table = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    corpus = read_corpus(work / "docs.txt")
    quality = {(row["query"], row["doc"]): row for row in pq.read_table(tmp_path / "scores.parquet").to_pylist()}
    good = corpus.features[:, 0]
    scored = [
        quality[corpus.vocabulary.pair_query[p], f"{corpus.vocabulary.doc_ids[corpus.vocabulary.pair_doc[p]]}"]
        for p in range(300)
    ]
    assert np.corrcoef(good, [row["score"] for row in scored])[0, 1] > 0.8
    assert table["rank"] == [1, 2, 3, 4, 5] * 60
    assert (np.diff(np.array(table["score"]).reshape(60, 5), axis=1) <= 0).all()
    target = shell.json("ope", work / "log.parquet", "--target", tmp_path / "scores.parquet", "--replicates", 20)
    assert target


def test_features_that_are_missing(shell: Shell, work: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.csv"
    message = shell.error("rank", "score", work / "ips", work / "narrow.txt", "-o", out)
    assert "3 features" in message
    assert "got 2" in message
    assert not out.exists()
    assert ".parquet, .csv, .jsonl" in shell.error(
        "rank", "score", work / "ips", work / "docs.txt", "-o", tmp_path / "scores.txt"
    )
    shell.json("rank", "score", work / "ips", work / "narrow.txt", "-o", out, "--sparse")
    assert out.exists()


def test_constant_features_and_unknown_documents_are_warnings(shell: Shell, work: Path, tmp_path: Path) -> None:
    rows = pq.read_table(work / "log.parquet").to_pylist()
    rows[3]["docs"][1] = "elsewhere"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    options = ("--loss", SMALL.replace("rounds=40", "rounds=1"), "--examination", "1/rank", "-o", tmp_path / "r")
    code, _, err = shell.run("rank", "train", work / "docs.txt", "--clicks", tmp_path / "log.parquet", *options)
    assert code == 0
    lines = [line for line in err.splitlines() if line.startswith("clickshift: warning: ")]
    constant, unknown = (next(line for line in lines if fact in line) for fact in ("features", "elsewhere"))
    assert "1 of 3 features" in constant
    assert ": 3." in constant
    assert "0.0%" in unknown
    assert "(1)" in unknown


def test_bad_input_is_one_line_and_leaves_nothing(shell: Shell, work: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    pq.write_table(pa.table({"query": ["x"], "docs": [["y", "z"]], "clicks": [[1, 0]]}), tmp_path / "other.parquet")
    (tmp_path / "high.txt").write_text("9 qid:1 1:1\n0 qid:1 1:0\n")
    (tmp_path / "nan.txt").write_text((work / "docs.txt").read_text().replace("3:7", "3:nan", 1))
    (tmp_path / "trust.csv").write_text("rank,alpha\n1,0.5\n")
    naive = ("--bias", "naive", "-o", out)
    cases = [
        (
            train(work, out),
            ("`clickshift propensities`", "--propensities", "--examination, e.g. 1/rank", "--model", "--bias naive"),
        ),
        (train(work, out, "--loss", "hinge"), ("loss", "ips", "'hinge'")),
        (train(work, out, "--loss", "ClickRanker('ips')", "--seed", "1"), ("ClickRanker(..., seed=1)",)),
        (train(work, out, "--examination", "rank"), ("1/rank", "'rank'")),
        (train(work, out, "--examination", "1,0.5"), ("rank 2", "rank 3")),
        (train(work, out, "--propensities", work / "zero.csv"), ("0 at rank 3",)),
        (train(work, out, "--examination", "1/rank", "--trust", work / "trust.csv"), ("--examination", "--trust")),
        (train(work, out, "--loss", "affine", "--trust", tmp_path / "trust.csv"), ("trust.csv", "beta")),
        (train(work, out, "--loss", "affine", "--examination", "1/rank"), ("--loss affine", "trust")),
        (
            ("rank", "train", work / "docs.txt", "--clicks", tmp_path / "other.parquet", *naive),
            ("document y of query x",),
        ),
        (
            ("rank", "train", tmp_path / "high.txt", "--clicks", work / "log.parquet", *naive),
            ("high.txt, line 1", "got 9", "--max-label"),
        ),
        (("rank", "train", tmp_path / "nan.txt", "--clicks", work / "log.parquet", *naive), ("nan.txt, line 1",)),
        (("rank", "evaluate", tmp_path, work / "docs.txt"), ("ranker.json", tmp_path.name)),
        (("rank", "export", work / "ips", tmp_path / "ranker.txt"), (".onnx", "'.txt'")),
    ]
    before = sorted(tmp_path.iterdir())
    for command, facts in cases:
        line = shell.error(*command)
        assert [fact for fact in facts if fact not in line] == [], line
    assert sorted(tmp_path.iterdir()) == before


def test_labels(shell: Shell, work: Path, tmp_path: Path) -> None:
    command = ("rank", "labels", work / "docs.txt", "--clicks", work / "log.parquet")
    told = shell.json(*command, "--examination", "1/rank", "-o", tmp_path / "labels.parquet")
    table = pq.read_table(tmp_path / "labels.parquet")
    assert told["documents"] == table.num_rows
    assert len(told["label_gain"]) == told["grades"]
    assert json.loads(table.schema.metadata[b"clickshift"])["label_gain"] == told["label_gain"]
    assert told["output"] == str(tmp_path / "labels.parquet")
    naive = shell.json(*command, "--naive", "-o", tmp_path / "naive.txt")
    assert naive["mean_relevance"] < told["mean_relevance"]
    assert len(list(tmp_path.glob("naive.txt*"))) == 5
    line = shell.error(*command, "-o", tmp_path / "more.csv")
    assert "examination" in line
    assert "--naive" in line
    assert not (tmp_path / "more.csv").exists()


def facts_of(shell: Shell, *command: object) -> dict[str, object]:
    """What a command prints with --json, but for the name of the output."""
    facts = shell.json(*command)
    facts.pop("output", None)
    return facts


def test_the_functions_return_what_the_commands_print(shell: Shell, work: Path, tmp_path: Path) -> None:
    log, docs, quick = work / "log.parquet", work / "docs.txt", SMALL.replace("rounds=40", "rounds=2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the constant feature
        training = cs.train_ranker(docs, log, loss=quick, examination="1/rank")
    assert (
        facts_of(shell, *train(work, tmp_path / "r", "--loss", quick, "--examination", "1/rank")) == training.to_dict()
    )
    assert training.to_dict()["held_out"]["judged_by"] == "labels"
    assert "nDCG@10" in training.conclusion
    command = ("rank", "evaluate", work / "ips", docs, "--include-training", "--level", 0.9)
    assert (
        facts_of(shell, *command) == cs.evaluate_ranker(work / "ips", docs, include_training=True, level=0.9).to_dict()
    )
    scored = cs.score(work / "ips", docs)
    assert facts_of(shell, "rank", "score", work / "ips", docs, "-o", tmp_path / "s.parquet") == scored.to_dict()
    assert pq.read_table(tmp_path / "s.parquet").to_pylist() == scored.rows()
    labels = cs.ranking_labels(docs, log, propensities=work / "curve.csv", clip=0.3)
    command = ("rank", "labels", docs, "--clicks", log, "--propensities", work / "curve.csv", "--clip", "0.3")
    assert facts_of(shell, *command, "-o", tmp_path / "labels.csv") == labels.to_dict()
    trees = cs.train_ranker(docs, log, loss="BoostedRanker(trees=3)", examination="1/rank")
    trees.write(tmp_path / "trees")
    printed = shell.json("rank", "export", tmp_path / "trees", tmp_path / "trees.txt")
    assert printed == cs.export_ranker(trees.ranker, tmp_path / "trees.txt").to_dict()


def test_a_log_with_other_columns_and_bad_sessions(shell: Shell, work: Path, tmp_path: Path) -> None:
    table = pq.read_table(work / "log.parquet")
    rows = table.rename_columns(["query", "results", "clicks"]).to_pylist()
    rows[7]["clicks"] = [1]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    given = ("--loss", "BoostedRanker(trees=2)", "--examination", "1/rank", "-o", tmp_path / "r")
    command = ("rank", "train", work / "docs.txt", "--clicks", tmp_path / "log.parquet", *given)
    message = shell.error(*command, "--column", "docs=results")
    assert "--skip-bad" in message
    assert shell.json(*command, "--column", "docs=results", "--skip-bad")["sessions"] == 5999


def test_features_as_a_data_frame(work: Path, tmp_path: Path) -> None:
    """The same ranker as from LETOR text, from a frame and from a table in a file."""
    corpus = read_corpus(work / "docs.txt")
    words = corpus.vocabulary
    columns = {f"f{k}": corpus.features[:, k] for k in range(3)}
    docs = words.doc_ids[words.pair_doc].astype(object)
    frame = pa.table({"doc": docs, "query": words.query_ids[words.pair_query], **columns, "label": corpus.label})
    frame = frame.take(np.random.default_rng(0).permutation(frame.num_rows))
    pq.write_table(frame, tmp_path / "docs.parquet")
    sources = [work / "docs.txt", frame, frame.to_pandas(), tmp_path / "docs.parquet"]
    options = {"loss": "BoostedRanker(trees=5)", "examination": "1/rank"}
    texts = {cs.train_ranker(source, work / "log.parquet", **options).ranker.text for source in sources}
    assert len(texts) == 1


def test_a_log_larger_than_memory(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"loss": SMALL.replace("rounds=40", "rounds=2"), "examination": "1/rank"}
    encoded = open_log(work / "log.parquet", in_memory=False, output=work / "encoded")
    monkeypatch.setattr(type(encoded), "sessions", lambda self: pytest.fail("the log was read whole"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (
            cs.train_ranker(work / "docs.txt", log, **options) for log in (encoded, read_log(work / "log.parquet"))
        )
    assert one.to_dict() == other.to_dict()


def test_export(shell: Shell, work: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    told = shell.json("rank", "export", work / "ips", tmp_path / "ranker.onnx")
    assert told["features"] == 3
    assert (tmp_path / "ranker.onnx").stat().st_size > 100


def test_frames_and_daily_counts_are_logs(work: Path, tmp_path: Path) -> None:
    options = {"loss": "BoostedRanker(trees=3)", "examination": "1/rank"}
    table = pq.read_table(work / "log.parquet")
    assert call("log", "count", work / "log.parquet", "-o", tmp_path / "day.counts") == 0
    trained = [cs.train_ranker(work / "docs.txt", log, **options) for log in (table, tmp_path / "day.counts")]
    whole = cs.train_ranker(work / "docs.txt", work / "log.parquet", **options)
    assert [one.ranker.text for one in trained] == [whole.ranker.text] * 2
    assert {one.sessions for one in trained} == {6000}
