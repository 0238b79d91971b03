"""clickshift simulate and corpus info, as a user calls them and as functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.errors import ClickshiftError, DataError, FileError, SpecError
from tests.cli.shell import Shell
from tests.codes import raises_code


def test_functions_return_what_the_commands_print(shell: Shell, tmp_path: Path) -> None:
    path, truth = tmp_path / "log.parquet", tmp_path / "truth.csv"
    options = ("--sessions", 200, "--queries", 5, "--documents", 8, "--ranks", 4, "--seed", 3, "--truth", truth)
    said = shell.json("simulate", "-o", path, *options)
    first = cs.read_log(path)
    found = cs.simulate_log(path, sessions=200, queries=5, documents=8, ranks=4, seed=3, truth=truth)
    assert said == found.to_dict()
    np.testing.assert_array_equal(first.click, cs.read_log(path).click)
    np.testing.assert_array_equal(found.log.click, first.click)
    assert shell.json("corpus", "info", "--queries", 7) == cs.corpus_summary(queries=7).to_dict()
    corpus = cs.builtin_corpus(7)
    assert cs.corpus_summary(corpus).to_dict() == cs.corpus_summary(queries=7).to_dict()


def test_short_queries_count_among_those_with_different_labels(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("2 qid:1 1:0.5\n0 qid:1 1:0.1\n1 qid:2 1:0.1\n1 qid:2 1:0.2\n1 qid:3 1:0\n")
    summary = cs.corpus_summary(tmp_path / "corpus.txt")
    assert (summary.values()["queries"], summary.values()["usable_queries"]) == (3, 1)


def test_objects_in_place_of_texts() -> None:
    corpus = cs.builtin_corpus(5, seed=2)
    texts = cs.simulate_log(sessions=100, queries=5, policy="Uniform", user="PBM", query_law="uniform", seed=2)
    objects = cs.simulate_log(
        sessions=100, corpus=corpus, policy=cs.Uniform(), user=cs.users.PBM(), query_law="uniform", seed=2
    )
    assert texts.to_dict() == objects.to_dict()


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        ({"query_law": "zipf"}, "bad-option", SpecError),
        ({"layout": "tall"}, "bad-option", DataError),
        ({"policy": "Best"}, "unknown-name", SpecError),
        ({"user": "Nobody"}, "unknown-name", SpecError),
        ({"output": "log.txt"}, "unknown-format", FileError),
        ({"truth": "truth.txt"}, "unknown-format", FileError),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, str], code: str, error: type[ClickshiftError]) -> None:
    paths = {name: tmp_path / options.pop(name) for name in ("output", "truth") if name in options}
    with raises_code(code, error):
        cs.simulate_log(**{"output": tmp_path / "log.csv", **paths, **options})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
