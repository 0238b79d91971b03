"""The Yandex logs: the packaged sample, hand-written logs, broken ones, and a plain re-telling of the rules to compare
with."""

from __future__ import annotations

import contextlib
import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftError, ClickshiftWarning, DataError, FileError
from clickshift.io.datasets import _yandex_parser as yandex_parser
from clickshift.io.datasets.yandex import read_kaggle, read_relevance, read_sample, read_wscd
from clickshift.io.qrels import Judgments
from tests.codes import raises_code, warns_code
from tests.standins import YANDEX_SIZES, YANDEX_STRAY, yandex_entries

Page = tuple[str | int, list[int], list[int]]
"""Query id, documents, and the ranks that were clicked, from 1."""


def pages(sessions: Sessions) -> list[Page]:
    words = sessions.vocabulary
    docs = words.doc_ids[words.pair_doc[sessions.rankings.pair]]
    return [
        (words.query_ids[query], docs[i][shown].tolist(), (np.flatnonzero(click) + 1).tolist())
        for i, (query, shown, click) in enumerate(
            zip(sessions.rankings.query, sessions.rankings.shown, sessions.click, strict=True)
        )
    ]


def wscd_query(session: int, query: int, region: int, docs: list[int]) -> str:
    return "\t".join(map(str, [session, 0, "Q", query, region, *docs])) + "\n"


def write(folder: Path, text: str | bytes, name: str = "log.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


TEN, TWENTIES = list(range(10, 20)), list(range(20, 30))
MIXED = [10, *range(31, 40)]

WSCD = (
    wscd_query(1, 5, 2, TEN)
    + "1\t8\tC\t12\n"  # rank 3 of the first page
    + "1\t9\tC\t12\n"  # again: still one click
    + wscd_query(1, 5, 2, MIXED)
    + "1\t20\tC\t10\n"  # on both pages: the latest has it
    + "1\t30\tC\t19\n"  # back to the first page
    + "1\t31\tC\t999\n"  # nowhere
    + wscd_query(2, 5, 3, TWENTIES)
    + "2\t5\tC\t10\n"  # shown in another session only
    + "2\t6\tC\t29\n"
)
WSCD_PAGES: list[Page] = [("5_2", TEN, [3, 10]), ("5_2", MIXED, [1]), ("5_3", TWENTIES, [10])]


def test_a_click_belongs_to_the_latest_page_of_its_session_that_shows_it(tmp_path: Path) -> None:
    with warns_code("skipped-input", bad_lines=0, left_out={"unshown-click": 2}):
        log = read_wscd(write(tmp_path, WSCD))
    assert pages(log) == WSCD_PAGES
    assert log.time is not None
    assert log.time.tolist() == [0, 1, 2]
    assert log.user is not None
    assert log.user.tolist() == [1, 1, 2]
    assert log.vocabulary.doc_ids.dtype == np.int64


@pytest.mark.parametrize("size", [1, 7, 64, 100])
@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_a_log_read_in_small_blocks_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(yandex_parser, "BLOCK", size)
    assert pages(read_wscd(write(tmp_path, WSCD))) == WSCD_PAGES
    assert pages(read_kaggle(write(tmp_path, KAGGLE))) == KAGGLE_PAGES


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_gzip_windows_line_ends_blank_lines_and_no_last_line_end(tmp_path: Path) -> None:
    text = "\n" + WSCD.replace("\n", "\r\n").replace("2\t5\tC", "\r\n2\t5\tC").rstrip("\r\n")
    assert pages(read_wscd(write(tmp_path, gzip.compress(text.encode()), "log"))) == WSCD_PAGES


def test_pages_of_some_queries_and_the_first_pages(tmp_path: Path) -> None:
    path = write(tmp_path, WSCD)
    with pytest.warns(ClickshiftWarning):
        log = read_wscd(path, queries=["5_3", "6_1"])
    assert pages(log) == WSCD_PAGES[2:]
    assert log.time is not None
    assert log.time.tolist() == [2]  # its number among all query actions
    with pytest.warns(ClickshiftWarning):
        assert pages(read_wscd(path, queries=Judgments.of(["5_2"], [10], [1]))) == WSCD_PAGES[:2]
    with pytest.warns(ClickshiftWarning):
        assert pages(read_wscd(path, limit=2)) == WSCD_PAGES[:2]
    with raises_code("empty-file", FileError, bad_lines=0, left_out={"unshown-click": 2}):
        read_wscd(path, queries=["1_1"])
    with raises_code("bad-option", DataError, option="limit", value=0):
        read_wscd(path, limit=0)
    with raises_code("bad-option", DataError, option="queries", value="5_3"):
        read_wscd(path, queries="5_3")


def test_a_page_that_shows_a_document_twice_is_dropped(tmp_path: Path) -> None:
    text = wscd_query(1, 1, 1, TEN) + wscd_query(1, 1, 1, [*TEN[:9], 10])
    with warns_code("skipped-input", bad_lines=0, left_out={"duplicate-document": 1}):
        assert pages(read_wscd(write(tmp_path, text))) == [("1_1", TEN, [])]


def test_ids_of_64_bits_are_kept_and_longer_ones_refused(tmp_path: Path) -> None:
    largest = 2**63 - 1
    text = wscd_query(largest, largest, largest, [*TEN[:9], largest])
    assert pages(read_wscd(write(tmp_path, text))) == [(f"{largest}_{largest}", [*TEN[:9], largest], [])]
    for number in (str(largest + 1), "9" * 19, "1" + "0" * 30):
        with raises_code("bad-line", FileError, line=1):
            read_wscd(write(tmp_path, text.replace(str(largest), number)))


BAD_WSCD = [
    "1\t0\tQ\t5\t2\t1\t2\t3\t4\t5\t6\t7\t8\t9",  # nine URLs
    "1\t0\tQ\t5\t2\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11",  # eleven
    "1\t0\tQ\t5\t2\t1,2\t3\t4\t5\t6\t7\t8\t9\t10",  # a comma
    "1\t0\tC",
    "1\t0\tC\t",
    "1\t0\tC\t5\t6",
    "1\t0\tX\t5",
    "1\t0\tCC\t5",
    "1\t0\tC1\t5",
    "1\tC\tC\t5",
    "Q\t0\tC\t5",
    "1 0 C 5",
    "1\t0\tC\t-5",
    "1\t0\tC\t5.5",
    "1\t0\tC\tQ",
    "1",
    "C",
    "  ",
    "\t",
    "null",
    "ünï",
    "\t".join(map(str, range(3000))),
]


@pytest.mark.parametrize("line", BAD_WSCD)
def test_a_bad_line_is_an_error_with_its_number_or_is_skipped(tmp_path: Path, line: str) -> None:
    first = wscd_query(1, 5, 2, TEN)
    path = write(tmp_path, f"{first}\n{line}\n1\t2\tC\t12\n")
    with raises_code("bad-line", FileError, line=3) as caught:
        read_wscd(path)
    assert caught.value.line == 3
    with warns_code("skipped-input", bad_lines=1, left_out={}, line=3):
        assert pages(read_wscd(path, on_bad_line="skip")) == [("5_2", TEN, [3])]


def test_line_numbers_go_on_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yandex_parser, "BLOCK", 50)
    path = write(tmp_path, "".join(wscd_query(i, 1, 1, TEN) for i in range(99)) + "oops\n")
    with raises_code("bad-line", FileError, value="oops", line=100):
        read_wscd(path)


@pytest.mark.parametrize("read", [read_wscd, read_kaggle, read_sample, read_relevance])
def test_files_that_hold_nothing_or_are_broken(tmp_path: Path, read: object) -> None:
    assert callable(read)
    with raises_code("empty-file", FileError, bad_lines=0, left_out={}):
        read(write(tmp_path, ""))
    with raises_code("file-not-found", FileError):
        read(tmp_path / "none")
    with raises_code("damaged-file", FileError, format="gzip", truncated=True):
        read(write(tmp_path, gzip.compress(b"\n" * 5000)[:-9]))
    with raises_code("not-text", FileError, value="byte 0xFF", line=1):
        read(write(tmp_path, b"1\t\xff\n"))


def kaggle_query(session: int, page: int, query: int, docs: list[int], *, kind: str = "Q", terms: str = "7,8") -> str:
    urls = "\t".join(f"{doc},{doc % 3}" for doc in docs)
    return f"{session}\t0\t{kind}\t{page}\t{query}\t{terms}\t{urls}\n"


KAGGLE = (
    "1\tM\t23\t500\n"
    + kaggle_query(1, 0, 40, TEN)
    + "1\t5\tC\t0\t11\n"
    + kaggle_query(1, 1, 41, TEN, terms="9")
    + "1\t6\tC\t0\t12\n"  # the page number says which of the two
    + "1\t7\tC\t1\t99\n"  # not on page 1
    + "1\t8\tC\t2\t12\n"  # there is no page 2
    + kaggle_query(1, 3, 42, TEN, kind="T")
    + "2\tM\t24\t501\n"
    + "3\tM\t25\t500\n"
    + kaggle_query(3, 0, 40, TWENTIES)
)
KAGGLE_PAGES: list[Page] = [(40, TEN, [2, 3]), (41, TEN, []), (40, TWENTIES, [])]


def test_a_kaggle_click_names_its_page(tmp_path: Path) -> None:
    with warns_code("skipped-input", bad_lines=0, left_out={"withheld-clicks": 1, "unshown-click": 2}):
        log = read_kaggle(write(tmp_path, KAGGLE))
    assert pages(log) == KAGGLE_PAGES
    assert log.time is not None
    assert log.time.tolist() == [23, 23, 25]
    assert log.user is not None
    assert log.user.tolist() == [500, 500, 500]
    with pytest.warns(ClickshiftWarning):
        assert pages(read_kaggle(tmp_path / "log.txt", queries=[41])) == KAGGLE_PAGES[1:2]


BAD_KAGGLE = [
    kaggle_query(1, 0, 40, TEN[:9]),
    kaggle_query(1, 0, 40, [*TEN, 20]),
    kaggle_query(1, 0, 40, TEN, terms=""),
    kaggle_query(1, 0, 40, TEN, terms="7\t8"),
    kaggle_query(1, 0, 40, TEN).replace("10,1", "10\t1"),
    kaggle_query(1, 0, 40, TEN).replace("10,1\t", "10,1,"),
    kaggle_query(1, 0, 40, TEN, kind="R"),
    kaggle_query(1, 0, 40, TEN).replace("\t40\t", ",40,"),
    "1\tM\t23\n",
    "1\tM\tM\t23\n",
    "1\tN\t23\t4\n",
    "1\tM\t23,4\n",
    "1\tM\t23\t4\t5\n",
    "1\t6\tC\t0\n",
    "1\t6\tC\t0,5\n",
    "1\tC\tC\t0\t5\n",
    "1\t6\tC\t0\t5\t6\n",
    "M\t6\tC\t0\t5\n",
    "5\t0\n",
]


@pytest.mark.parametrize("line", BAD_KAGGLE)
def test_a_bad_kaggle_line(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "1\tM\t23\t500\n" + kaggle_query(1, 0, 40, TEN) + line)
    with raises_code("bad-line", FileError, line=3):
        read_kaggle(path)
    with warns_code("skipped-input", bad_lines=1, left_out={}, line=3):
        assert pages(read_kaggle(path, on_bad_line="skip")) == [(40, TEN, [])]


def test_a_kaggle_query_without_its_session_metadata_is_bad(tmp_path: Path) -> None:
    path = write(tmp_path, "1\tM\t23\t500\n" + kaggle_query(1, 0, 40, TEN) + kaggle_query(2, 0, 40, TEN))
    with raises_code("bad-line", FileError, value="a query of session 2, which has none", line=3):
        read_kaggle(path)
    with warns_code("skipped-input", bad_lines=1, left_out={}, line=3):
        assert pages(read_kaggle(path, on_bad_line="skip")) == [(40, TEN, [])]


Action = tuple[int, int | None, int, list[int]]
"""Session, query (None: a click), region or page number, and documents (of a click: one)."""

docs_of_a_page = st.permutations(range(12)).map(lambda docs: docs[:10])
an_action = st.one_of(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1), docs_of_a_page),
    st.tuples(st.integers(0, 2), st.none(), st.integers(0, 1), st.lists(st.integers(0, 12), min_size=1, max_size=1)),
)


def told_plainly(log: list[Action], *, kaggle: bool) -> list[Page]:
    """The rules in the shortest Python."""
    found: list[tuple[Page, int]] = []
    open_pages: list[tuple[Page, int]] = []
    for i, (session, query, number, docs) in enumerate(log):
        if i == 0 or session != log[i - 1][0]:
            open_pages = []
        if query is not None:
            page: Page = (query if kaggle else f"{query}_{number}", docs, [])
            found.append((page, number))
            open_pages.append((page, number))
            continue
        for (_, shown, ranks), page_number in reversed(open_pages):
            if docs[0] in shown and (not kaggle or page_number == number):
                ranks.append(shown.index(docs[0]) + 1)
                break
    return [(query, docs, sorted(set(ranks))) for (query, docs, ranks), _ in found]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=st.lists(an_action, min_size=1, max_size=12), kaggle=st.booleans(), size=st.sampled_from([5, 60, 1 << 20]))
def test_any_log_is_read_as_the_rules_say(
    log: list[Action], kaggle: bool, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yandex_parser, "BLOCK", size)
    text, last = "", None
    for session, query, number, docs in log:
        if kaggle and session != last:
            text += f"{session}\tM\t1\t1\n"
        last = session
        if query is None:
            text += f"{session}\t0\tC\t{number}\t{docs[0]}\n" if kaggle else f"{session}\t0\tC\t{docs[0]}\n"
        else:
            make = kaggle_query if kaggle else wscd_query
            text += make(session, *((number, query) if kaggle else (query, number)), docs)
    expected = told_plainly(log, kaggle=kaggle)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        path = write(tmp_path, text)
        if expected:
            assert pages((read_kaggle if kaggle else read_wscd)(path)) == expected
        else:
            with raises_code("empty-file", FileError, bad_lines=0):
                (read_kaggle if kaggle else read_wscd)(path)


pieces = st.sampled_from(
    ["\t", "\n", "\r", ",", ";", ":", "_", " ", "Q", "C", "M", "T", "0", "7", "12", "9" * 20, "-", "é", "1_1", "1,2,3"]
)
arbitrary_text = st.one_of(
    st.text(), st.lists(pieces).map("".join), st.sampled_from([WSCD, KAGGLE]).map(lambda t: t[:200])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=arbitrary_text, skip=st.booleans())
def test_no_text_raises_anything_but_our_own_errors(text: str, skip: bool, tmp_path: Path) -> None:
    path = write(tmp_path, text.encode("utf-8", "surrogatepass"))
    for read in (read_wscd, read_kaggle, read_sample, read_relevance):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickshiftWarning)
            with contextlib.suppress(ClickshiftError):
                read(path, on_bad_line="skip" if skip else "error")


# The packaged sample


def test_a_packaged_sample_is_read_entry_by_entry(standins: Path) -> None:
    """Repeated clicks count once, clicks on documents that are not shown do not count; there is no time."""
    stray = len(yandex_entries()) // YANDEX_STRAY
    with warns_code("skipped-input", bad_lines=0, left_out={"unshown-click": stray}):
        log = read_sample(standins / "yandex_wscd" / "trainSample.gz")
    assert pages(log) == [
        (entry.query, list(entry.docs), [rank for rank, doc in enumerate(entry.docs, 1) if doc in entry.clicked])
        for entry in yandex_entries()
    ]
    assert (len(log), log.n_ranks, log.vocabulary.n_queries) == (1200, 10, len(YANDEX_SIZES))
    assert log.rankings.shown.all()
    assert log.time is None


def test_the_real_sample(shared_data: Path) -> None:
    with warns_code("skipped-input", bad_lines=0, left_out={"unshown-click": 417}):
        log = read_sample(shared_data / "yandex_wscd" / "trainSample.gz")
    assert len(log) == 35_064
    assert log.rankings.shown.all()
    assert log.n_ranks == 10
    assert log.vocabulary.n_queries == 20
    assert len(np.unique(np.column_stack([log.rankings.query, log.rankings.pair]), axis=0)) == 951
    assert log.click.sum() == 42_703
    assert pages(log[:1])[0] == (
        "98435_1",
        [232429, 688835, 50189248, 16704940, 688844, 2105824, 688847, 48780108, 688841, 102825202],
        [1, 2, 4],
    )
    assert log.time is None


SAMPLE = "1_2\t10,11,12 : 12 , 10 , 12;  1_2\t10,11,12 :;\n3_0\t 20 , 11 :  ; 1_2\t12,10,11 : 99; \n"


def test_a_small_sample(tmp_path: Path) -> None:
    with warns_code("skipped-input", bad_lines=0, left_out={"unshown-click": 1}):
        log = read_sample(write(tmp_path, SAMPLE))
    assert pages(log) == [
        ("1_2", [10, 11, 12], [1, 3]),
        ("1_2", [10, 11, 12], []),
        ("3_0", [20, 11], []),
        ("1_2", [12, 10, 11], []),
    ]


BAD_ENTRIES = [
    "1_2 10,11 :",
    "1\t10,11 :",
    "1_2_3\t10 :",
    "1_2\t10,11",
    "1_2\t :",
    "1_2\t10,,11 :",
    "1_2\t10 : 10 ,",
    "1_2\t10 : 10 : 10",
    "1_x\t10 :",
    "",
    f"1_2\t{2**63} :",
    f"{'9' * 5000}_2\t1 :",
]


@pytest.mark.parametrize("entry", BAD_ENTRIES)
def test_a_bad_entry_of_a_sample(tmp_path: Path, entry: str) -> None:
    path = write(tmp_path, f"1_2\t10,11 :;\n{entry};1_2\t12,11 :;")
    with raises_code("bad-line", FileError, line=2):
        read_sample(path)
    with warns_code("skipped-input", bad_lines=1, left_out={}, line=2):
        assert len(read_sample(path, on_bad_line="skip")) == 2


def test_a_sample_that_was_cut_short_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, "1_2\t10,11 :;\n1_2\t10,11 : 10")
    with raises_code("bad-line", FileError, value="1_2\t10,11 : 10 (and no semicolon)", line=2):
        read_sample(path)


# Relevance labels


def test_relevance_labels(tmp_path: Path) -> None:
    judged = read_relevance(write(tmp_path, "5\t2\t10\t1\n\n5\t2\t11\t0\n5\t3\t10\t0\n5\t2\t10\t1\n"))
    assert judged.query.tolist() == ["5_2", "5_2", "5_3"]
    assert judged.doc.tolist() == [10, 11, 10]
    assert judged.label.tolist() == [1, 0, 0]
    with pytest.warns(ClickshiftWarning):
        log = read_wscd(write(tmp_path, WSCD))
    labels = judged.labels_for(log.vocabulary)[log.rankings.pair]
    assert labels[0, :2].tolist() == [1, 0]
    assert np.isnan(labels[0, 2:]).all()
    assert labels[1, 0] == 1


@pytest.mark.parametrize("line", ["5\t2\t10", "5\t2\t10\t1\t1", "5 2 10 1", "5\t2\tx\t1", "5\t2\t10\t-1"])
def test_a_bad_relevance_line(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, f"5\t2\t10\t1\n{line}\n")
    with raises_code("bad-line", FileError, line=2):
        read_relevance(path)
    with warns_code("skipped-input", bad_lines=1, left_out={}, line=2):
        assert len(read_relevance(path, on_bad_line="skip")) == 1
