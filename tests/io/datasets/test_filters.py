"""Judgments, qrels, and the steps from a log to the sessions of an experiment."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftError, ClickshiftWarning, DataError, FileError
from clickshift.io.datasets.filters import annotated_only, compact, drop_without_clicks
from clickshift.io.qrels import Judgments, read_qrels
from tests.codes import raises_code, warns_code, warns_of_conflicting_labels
from tests.standins import yandex_entries


@pytest.fixture
def log() -> Sessions:
    """Three queries, two documents each; the clicks of the third are none."""
    words, query, pair = Vocabulary.of(["a", "a", "b", "b", "c", "c"], [1, 2, 1, 3, 4, 5])
    click = np.array([[1, 0], [0, 1], [0, 0]])
    return Sessions(
        Rankings(words, query[::2], pair.reshape(3, 2)), click, count=np.array([2, 3, 4]), time=np.arange(3)
    )


def queries_of(sessions: Sessions) -> list[str]:
    ids: list[str] = sessions.vocabulary.query_ids[sessions.rankings.query].tolist()
    return ids


def test_only_judged_queries(log: Sessions) -> None:
    judged = Judgments.of(["c", "a", "z"], [4, 9, 1], [1, 0, 2])  # "a" is judged, though on a document that nobody saw
    assert queries_of(annotated_only(log, judged)) == ["a", "c"]
    assert queries_of(annotated_only(log, ["b"])) == ["b"]
    assert annotated_only(log, judged).total == 6
    assert annotated_only(log, judged).vocabulary is log.vocabulary
    with raises_code("no-judged-query", DataError, count=1):
        annotated_only(log, ["z"])


def test_only_pages_with_clicks(log: Sessions) -> None:
    kept = drop_without_clicks(log)
    assert queries_of(kept) == ["a", "b"]
    assert kept.total == 5
    with raises_code("no-clicks", DataError, total=4):
        drop_without_clicks(log[2:])


def test_compact_keeps_what_is_shown(log: Sessions) -> None:
    kept = compact(drop_without_clicks(log))
    assert (kept.vocabulary.n_queries, kept.vocabulary.n_docs, kept.vocabulary.n_pairs) == (2, 3, 4)
    assert queries_of(kept) == ["a", "b"]
    assert kept.vocabulary.doc_ids[kept.vocabulary.pair_doc[kept.rankings.pair]].tolist() == [[1, 2], [1, 3]]
    assert kept.click.tolist() == [[True, False], [False, True]]
    assert kept.count.tolist() == [2, 3]


def test_the_papers_steps_on_a_published_log(standins: Path) -> None:
    """Judged queries, pages with a click on what they show, and the vocabulary of what is left."""
    from clickshift.io.datasets.yandex import read_sample

    with pytest.warns(ClickshiftWarning):
        log = read_sample(standins / "yandex_wscd" / "trainSample.gz")
    kept = compact(drop_without_clicks(annotated_only(log, ["33_2", "9_3", "1_1"])))
    expected = [
        entry for entry in yandex_entries() if entry.query in {"33_2", "9_3"} and set(entry.clicked) & set(entry.docs)
    ]
    assert queries_of(kept) == [entry.query for entry in expected]
    words = kept.vocabulary
    assert words.doc_ids[words.pair_doc[kept.rankings.pair]].tolist() == [list(entry.docs) for entry in expected]
    assert words.n_pairs == len({(entry.query, doc) for entry in expected for doc in entry.docs})
    assert len(expected) < 150 + 60, "some pages have no click"


def test_labels_for_a_vocabulary() -> None:
    judged = Judgments.of([1, 1, 2, 1], [7, 8, 7, 7], [3, -2, 1, 3])
    assert len(judged) == 3
    assert judged.queries.tolist() == [1, 2]
    words = Vocabulary.of(["1", "1", "2", "3"], ["7", "9", "7", "8"])[0]  # the same ids as text
    np.testing.assert_array_equal(judged.labels_for(words), [3, np.nan, 1, np.nan])


def test_judgments_that_differ_are_left_out_and_columns_must_fit() -> None:
    with warns_of_conflicting_labels("q", "d", (0.0, 2.0), total=2):
        judged = Judgments.of(["q", "q", "q"], ["d", "e", "d"], [0, 1, 2])
    assert judged.doc.tolist() == ["e"]
    with warns_of_conflicting_labels("q", "d", (0.0, 2.0), total=1):
        nothing = Judgments.of(["q", "q"], ["d", "d"], [0, 2])
    assert np.isnan(nothing.labels_for(Vocabulary.of(["q"], ["d"])[0])).all()
    with raises_code("unequal-lengths", DataError, expected=2, shape=(1,)):
        Judgments.of(["q", "q"], ["d", "e"], [0])


def write(folder: Path, text: str) -> Path:
    path = folder / "qrels.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def test_qrels_that_agree_on_nothing(tmp_path: Path) -> None:
    with raises_code(
        "empty-file",
        FileError,
        bad_lines=0,
        left_out={"conflicting-labels": 1},
        total=1,
        query="q",
        document="d",
        labels=(1.0, 2.0),
    ):
        read_qrels(write(tmp_path, "q 0 d 1\nq 0 d 2\n"))
    with raises_code("empty-file", FileError, bad_lines=0, left_out={}):
        read_qrels(write(tmp_path, "\n"))


def test_qrels(tmp_path: Path) -> None:
    judged = read_qrels(write(tmp_path, "301 0 FBIS3-10082 1\n\n301\tQ0\tFR94-1 -2\n 302 0 FBIS3-10082 0 \n"))
    assert judged.query.tolist() == ["301", "301", "302"]
    assert judged.doc.tolist() == ["FBIS3-10082", "FR94-1", "FBIS3-10082"]
    assert judged.label.tolist() == [1, -2, 0]


@pytest.mark.parametrize("line", ["301 0 d", "301 0 d 1 1", "301 0 d x", "301 0 d 1.5", "301 0 d --1", "301 0 d ²"])
def test_a_bad_line_of_qrels(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, f"301 0 a 1\n{line}\n")
    with raises_code("bad-line", FileError, line=2):
        read_qrels(path)
    with warns_code("skipped-input", bad_lines=1, left_out={}, line=2):
        assert len(read_qrels(path, on_bad_line="skip")) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(st.text(), st.lists(st.sampled_from([" ", "\n", "1", "-", "q 0 d 1", "é", "²"])).map("".join)),
    skip=st.booleans(),
)
def test_no_text_raises_anything_but_our_own_errors(text: str, skip: bool, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        with contextlib.suppress(ClickshiftError):
            read_qrels(write(tmp_path, text), on_bad_line="skip" if skip else "error")
