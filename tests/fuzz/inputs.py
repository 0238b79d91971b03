"""Valid inputs to start from, made once: logs in every layout, public formats, targets, and every kind of folder."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.standins import write_standins

SMALL = ("--sessions", "300", "--queries", "6", "--documents", "8", "--ranks", "4", "--user", "DBN")
TINY_RUN = (
    *("--queries", "6", "--sessions", "200", "--test-sessions", "30", "--testing", "oracle", "--testing", "random"),
    *("--user", "DBN", "--training", "PL-oracle", "--workers", "0", "--model", "EM('PBM')"),
)

TINY_SELECTION = (
    *("--queries", "12", "--sessions", "200", "--user", "DBN", "--training", "Oracle", "--model", "PBM"),
    *("--model", "UBM", "--workers", "0", "--repeats", "3", "--seeds", "2"),
)


def write_inputs(folder: Path) -> None:
    """Write all inputs into a folder, with the package's own commands."""
    from tests.cli.shell import call

    def run(*arguments: str) -> None:
        code = call(*arguments)
        if code:
            raise RuntimeError(f"clickshift {' '.join(arguments)} exited with {code}")

    before = Path.cwd()
    os.chdir(folder)
    try:
        for name in ("wide.parquet", "wide.csv", "wide.jsonl"):
            run("simulate", "-o", name, *SMALL)
        for name in ("long.parquet", "long.csv", "long.jsonl"):
            run("simulate", "-o", name, "--layout", "long", *SMALL)
        for name in ("wide.csv", "long.jsonl"):
            Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
        log = pq.read_table("wide.parquet", columns=["query", "docs"]).to_pylist()
        lists = {row["query"]: sorted(row["docs"], reverse=True) for row in log}
        pairs = [(query, doc, rank) for query, docs in lists.items() for rank, doc in enumerate(docs)]
        targets = {"query": list(lists), "docs": list(lists.values())}
        pq.write_table(pa.table(targets), "target.parquet")
        lines = (f'{{"query": {query}, "docs": {docs}}}\n' for query, docs in lists.items())
        Path("target.jsonl").write_text("".join(lines))
        query, doc, rank = (list(column) for column in zip(*pairs, strict=True))
        scores = pa.table({"query": query, "doc": doc, "score": [-float(r) for r in rank]})
        pyarrow.csv.write_csv(scores, "scores.csv")
        Path("labels.qrels").write_text("".join(f"{q} 0 {d} {d % 5}\n" for q, d, _ in pairs))
        _write_letor(Path("corpus.txt"), pairs)
        run("fit", "PBM", "wide.parquet", "-o", "pbm")
        run("fit", "DBN", "wide.parquet", "-o", "dbn")
        run("log", "encode", "wide.parquet", "-o", "encoded")
        run("log", "count", "wide.parquet", "-o", "counts")
        run("propensities", "wide.parquet", "--method", "pbm", "-o", "examination.json")
        _write_ranker(Path("ranker"))
        run("shift", "run", *TINY_RUN, "-o", "run")
        run("selection", "run", *TINY_SELECTION, "-o", "grid")
        run("fit", "Stacking(('PBM', 'DBN'))", "wide.parquet", "-o", "stack")
        with Path("days.jsonl").open("w") as days:
            for k, row in enumerate(log):
                clicks = [int(doc == row["docs"][k % 3]) for doc in row["docs"]]
                days.write(json.dumps({**row, "clicks": clicks, "time": f"2024-01-0{1 + k % 3}"}) + "\n")
        for path in (*Path("run").iterdir(), *Path("grid").iterdir()):
            if path.name == "exports" or path.suffix in {".png", ".svg", ".tex", ".csv", ".html"}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        public = write_standins(folder / "public")
        _shorten(public / "yandex_wscd" / "trainSample.gz", 60, "yandex.gz")
        for path in sorted((public / "trec_session2014").glob("train*")):
            _shorten(path, 60, "trec.gz")
        for name in ("men", "item_context"):
            _shorten(public / "open_bandit" / "random" / "men" / f"{name}.csv.gz", 60, f"{name}.csv.gz")
        _write_events(Path("events"))
        shutil.rmtree(public)
    finally:
        os.chdir(before)


def _write_events(folder: Path) -> None:
    """Write a small log as events of every format."""
    import clickshift as cs
    from tests.io.events.test_round_trip import WRITERS

    log = cs.simulate(cs.builtin_corpus(queries=3), cs.Uniform(), cs.users.DBN(), 12, ranks=4, rng=0)
    folder.mkdir()
    for name, write in WRITERS.items():
        (folder / name).mkdir()
        written = write(log, folder / name)
        if not isinstance(written, Path):  # a data frame
            written.to_csv(folder / name / "events.csv", index=False)


def _write_letor(path: Path, pairs: list[tuple[int, int, int]]) -> None:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for query, doc, _ in sorted(pairs):
            features = " ".join(f"{k + 1}:{value:.3f}" for k, value in enumerate(rng.random(5)))
            file.write(f"{doc % 3} qid:{query} {features} # docid = {doc}\n")


def _write_ranker(folder: Path) -> None:
    """Write trees with several leaves: the corpus is too small for LightGBM's defaults."""
    import lightgbm

    from clickshift.ranking import TreeRanker, save_ranker

    rng = np.random.default_rng(1)
    settings = {"objective": "lambdarank", "num_leaves": 4, "min_data_in_leaf": 2, "verbosity": -1}
    data = lightgbm.Dataset(rng.random((60, 5)), rng.integers(0, 3, 60), group=[20, 20, 20])
    save_ranker(TreeRanker(lightgbm.train(settings, data, 3).model_to_string(), 5, "BoostedRanker(trees=3)"), folder)


def _shorten(path: Path, lines: int, name: str) -> None:
    """Keep the first lines of a gzip file."""
    text = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)[:lines]
    Path(name).write_bytes(gzip.compress("".join(text).encode()))
