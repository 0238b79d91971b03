"""TREC Session 2014: whole files with their exact contents, small ones, broken ones; the counts of the real ones."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickshift.errors import ClickshiftError, ClickshiftWarning, FileError
from clickshift.io.datasets.trec import read_trec, read_trec_relevance
from tests.codes import raises_code, warns_code, warns_of_conflicting_labels
from tests.standins import TREC_CONFLICTS, TREC_REPEAT, TREC_SIZES, Page, trec_labelled, trec_pages


def write(folder: Path, text: str) -> Path:
    path = folder / "log.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


SMALL = "7\t3\t[10, 11, 12]\t[1, 1, 2]\t[0, 1, 0]\n\n7\t4\t[12,10]\t[1,1]\t[1,1]\n8\t3\t[5, 5]\t[1, 1]\t[1, 0]\n"
LABELLED = "7\t3\t[10, 11]\t[1, 1]\t[0, 1]\t[-2, 4]\n8\t3\t[11, 12]\t[1, 1]\t[0, 0]\t[4, 0]\n"


def test_a_small_log(tmp_path: Path) -> None:
    with warns_code("skipped-input", bad_lines=0, left_out={"duplicate-document": 1}):
        log = read_trec(write(tmp_path, SMALL))
    words = log.vocabulary
    assert words.query_ids[log.rankings.query].tolist() == [3, 4]
    assert log.rankings.shown.tolist() == [[True, True, True], [True, True, False]]
    shown = words.doc_ids[words.pair_doc[log.rankings.pair[log.rankings.shown]]]
    assert shown.tolist() == [10, 11, 12, 12, 10]
    assert log.click.tolist() == [[False, True, False], [True, True, False]]
    assert log.user is not None
    assert log.user.tolist() == [7, 7]
    assert log.time is None


def test_the_labelled_file_is_a_log_too(tmp_path: Path) -> None:
    path = write(tmp_path, LABELLED)
    assert read_trec(path).click.tolist() == [[False, True], [False, False]]
    judged = read_trec_relevance(path)
    assert list(zip(judged.query.tolist(), judged.doc.tolist(), judged.label.tolist(), strict=True)) == [
        (3, 10, -2.0),
        (3, 11, 4.0),
        (3, 12, 0.0),
    ]


def test_a_pair_with_two_labels_is_left_unjudged(tmp_path: Path) -> None:
    path = write(tmp_path, LABELLED.replace("[4, 0]", "[1, 0]"))
    with warns_of_conflicting_labels("3", "11", (1.0, 4.0), total=3):
        assert read_trec_relevance(path).doc.tolist() == [10, 12]


@pytest.mark.parametrize(
    "line",
    [
        "7\t3\t[10, 11]\t[1, 1]",
        "7\t3\t[10, 11]\t[1, 1]\t[0, 1]\t[1, 1]\t[1, 1]",
        "7\t3\t[10, 11]\t[1, 1]\t[0]",
        "7\t3\t[10, 11]\t[1]\t[0, 1]",
        "7\t3\t[10, 11]\t[1, 1]\t[0, 1]\t[0]",
        "7\t3\t[10, 11]\t[1, 1]\t[0, 2]",
        "7\t3\t[]\t[]\t[]",
        "7\t3\t[10, -11]\t[1, 1]\t[0, 1]",
        "7\t3\t[10, 11\t[1, 1]\t[0, 1]",
        "7\t3\t10, 11\t[1, 1]\t[0, 1]",
        "7\t3\t[10, 1.5]\t[1, 1]\t[0, 1]",
        "x\t3\t[10, 11]\t[1, 1]\t[0, 1]",
        "7\t-3\t[10, 11]\t[1, 1]\t[0, 1]",
        f"7\t{'9' * 30}\t[10, 11]\t[1, 1]\t[0, 1]",
        "7 3 [10, 11] [1, 1] [0, 1]",
        "oops",
    ],
)
def test_a_bad_line_is_an_error_with_its_number_or_is_skipped(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, f"{LABELLED}{line}\n")
    for read, expected in ((read_trec, 2), (read_trec_relevance, 3)):
        with raises_code("bad-line", FileError, line=3) as caught:
            read(path)
        assert caught.value.line == 3
        with warns_code("skipped-input", bad_lines=1, left_out={}, line=3):
            assert len(read(path, on_bad_line="skip")) == expected


def test_labels_are_asked_of_a_file_without_them(tmp_path: Path) -> None:
    with raises_code("bad-line", FileError, value="7\t3\t[10, 11, 12]\t[1, 1, 2]\t[0, 1, 0]", line=1):
        read_trec_relevance(write(tmp_path, SMALL))
    for read in (read_trec, read_trec_relevance):
        with raises_code("empty-file", FileError, bad_lines=0, left_out={}):
            read(write(tmp_path, "\n"))


@pytest.mark.parametrize("part", TREC_SIZES)
def test_a_published_file_is_read_page_by_page(standins: Path, part: str) -> None:
    repeats = TREC_SIZES[part] // TREC_REPEAT
    with warns_code("skipped-input", bad_lines=0, left_out={"duplicate-document": repeats}):
        log = read_trec(standins / "trec_session2014" / f"{part}_per_query_quid.txt.gz")
    words = log.vocabulary
    assert len(log) == TREC_SIZES[part] - repeats
    assert log.rankings.shown.all()
    assert log.user is not None
    columns = (log.user, words.query_ids[log.rankings.query], words.doc_ids[words.pair_doc[log.rankings.pair]])
    found = zip(*(column.tolist() for column in (*columns, log.click.astype(int))), strict=True)
    pages = [Page(user, query, tuple(docs), tuple(clicks)) for user, query, docs, clicks in found]
    assert pages == [page for page in trec_pages(part) if not page.repeats]


def test_labels_of_a_published_file_are_read_pair_by_pair(standins: Path) -> None:
    path = standins / "trec_session2014" / "human_label_for_GraphCM_per_query_quid.txt.gz"
    said: dict[tuple[int, int], set[int]] = {}
    for page in trec_labelled():
        for doc, label in zip(page.docs, page.labels, strict=True):
            said.setdefault((page.query, doc), set()).add(label)
    agreed = {pair: labels.pop() for pair, labels in said.items() if len(labels) == 1}
    assert len(said) - len(agreed) == TREC_CONFLICTS
    with warns_code(
        "skipped-input",
        bad_lines=0,
        left_out={"conflicting-labels": TREC_CONFLICTS},
        total=len(said),
    ):
        judged = read_trec_relevance(path)
    pairs = zip(judged.query.tolist(), judged.doc.tolist(), strict=True)
    assert dict(zip(pairs, judged.label.tolist(), strict=True)) == agreed
    assert np.unique(judged.label).tolist() == [-2, 0, 1, 2, 3, 4]
    with warns_code("skipped-input", bad_lines=0, left_out={"duplicate-document": 2}):
        log = read_trec(path)
    shown = {(page.query, doc) for page in trec_labelled() if not page.repeats for doc in page.docs}
    labels = judged.labels_for(log.vocabulary)
    assert len(labels) == len(shown)
    assert np.isnan(labels).sum() == len(shown - set(agreed)) == TREC_CONFLICTS


@pytest.mark.parametrize(
    ("part", "lines", "repeats", "clicks"), [("train", 2872, 79, 1250), ("valid", 361, 9, 150), ("test", 363, 13, 164)]
)
def test_the_real_files(shared_data: Path, part: str, lines: int, repeats: int, clicks: int) -> None:
    path = shared_data / "trec_session2014" / f"{part}_per_query_quid.txt.gz"
    with warns_code("skipped-input", bad_lines=0, left_out={"duplicate-document": repeats}):
        log = read_trec(path)
    assert len(log) + repeats == lines
    assert log.rankings.shown.all()
    assert log.click.sum() == clicks


def test_the_real_labels(shared_data: Path) -> None:
    path = shared_data / "trec_session2014" / "human_label_for_GraphCM_per_query_quid.txt.gz"
    with warns_code("skipped-input", bad_lines=0, left_out={"duplicate-document": 7}):
        log = read_trec(path)
    assert len(log) == 856 - 7
    with warns_of_conflicting_labels("9", "43", (0.0, 1.0), total=5_209, left_out=17):
        judged = read_trec_relevance(path)
    assert len(judged) == 5209 - 17
    assert len(judged.queries) == 488
    assert np.unique(judged.label).tolist() == [-2, 0, 1, 2, 3, 4]
    labels = judged.labels_for(log.vocabulary)
    assert np.isnan(labels).sum() == 17  # every other document that is shown was judged


pieces = st.sampled_from(["\t", "\n", "[", "]", ",", " ", "1", "0", "-", "9" * 20, "[1, 0]", "7\t3\t[1]\t[1]\t[1]"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(), st.lists(pieces).map("".join)), skip=st.booleans())
def test_no_text_raises_anything_but_our_own_errors(text: str, skip: bool, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    for read in (read_trec, read_trec_relevance):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickshiftWarning)
            with contextlib.suppress(ClickshiftError):
                read(path, on_bad_line="skip" if skip else "error")
