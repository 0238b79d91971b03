"""LETOR files: whole ones with their exact contents; every kind of bad line; any bytes at all; real ones as a slow,
plain reader gives them."""

from __future__ import annotations

import contextlib
import gzip
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clickshift.core import files
from clickshift.data.corpus import Corpus
from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.io.datasets import _letor_parser as letor_parser
from clickshift.io.datasets import letor
from clickshift.io.datasets.letor import read_corpus
from clickshift.io.table_writer import write_table
from tests.codes import raises_code, warns_code
from tests.standins import (
    LIGHTGBM_QUERIES,
    MQ2008_QUERIES,
    MSLR_QUERIES,
    Documents,
    lightgbm_documents,
    mq2008_documents,
    mslr_documents,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLICKSHIFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(text: str | bytes, name: str = "data.txt") -> Path:
        file = tmp_path / name
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return write


EVERY = 8


def read_slowly(paths: list[Path], n_features: int) -> dict[str, np.ndarray]:
    """The same by the letter, one line at a time; the features of every eighth line."""
    label, query, doc, features = [], [], [], []
    for path in paths:
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            fields, _, comment = line.partition("#")
            grade, *fields = fields.split()
            label.append(int(grade))
            query.append(fields.pop(0).removeprefix("qid:") if fields[0].startswith("qid:") else "")
            doc.append(comment.split()[2] if comment else "")
            if len(label) % EVERY != 1:
                continue
            row = np.zeros(n_features, np.float32)
            for field in fields:
                number, value = field.split(":")
                row[int(number) - 1] = float(value)
            features.append(row)
    return {"label": np.array(label), "query": np.array(query), "doc": np.array(doc), "features": np.array(features)}


def assert_same(corpus: Corpus, query: np.ndarray, doc: np.ndarray, expected: dict[str, np.ndarray]) -> None:
    pair = corpus.vocabulary.pair_numbers(query, doc)
    assert sorted(pair.tolist()) == list(range(corpus.n_pairs))
    assert np.array_equal(corpus.label[pair], expected["label"])
    assert corpus.features is not None
    assert corpus.features.dtype == np.float32
    assert np.array_equal(corpus.features[pair][::EVERY], expected["features"])


def assert_holds(corpus: Corpus, parts: list[Documents], doc: list[str] | np.ndarray) -> None:
    """A corpus has the labels and features of these lines, each where its query and document belong."""
    pair = corpus.vocabulary.pair_numbers(np.concatenate([part.query for part in parts]), doc)
    assert sorted(pair.tolist()) == list(range(corpus.n_pairs))
    assert np.array_equal(corpus.label[pair], np.concatenate([part.label for part in parts]))
    assert corpus.features is not None
    assert corpus.features.dtype == np.float32
    assert np.array_equal(corpus.features[pair], np.concatenate([part.features for part in parts]))


def test_a_folder_like_mslr_is_read_line_by_line(standins: Path) -> None:
    corpus = read_corpus(standins / "mslr_sample")
    parts = [mslr_documents(part) for part in ("test", "train")]  # in order of the files' names
    n = sum(len(part.label) for part in parts)
    assert (corpus.n_queries, corpus.n_pairs, corpus.max_label) == (2 * MSLR_QUERIES, n, 4)
    assert_holds(corpus, parts, np.arange(1, n + 1))


def test_a_folder_like_mq2008_is_read_line_by_line(standins: Path) -> None:
    parts = [mq2008_documents(number) for number in range(1, 6)]
    corpus = read_corpus([standins / "mq2008" / f"S{number}.txt.gz" for number in range(1, 6)])
    assert (corpus.n_queries, corpus.max_label) == (5 * MQ2008_QUERIES, 2)
    assert_holds(corpus, parts, [doc for part in parts for doc in part.doc])
    # documents have names: all but the last query of a part share a document with the next one
    assert corpus.n_pairs - corpus.vocabulary.n_docs == 5 * (MQ2008_QUERIES - 1)
    assert (np.maximum.reduceat(corpus.label, corpus.offsets[:-1]) == 0).sum() == 5 * 2


def test_files_like_lightgbms_are_read_line_by_line(standins: Path) -> None:
    folder, parts = standins / "lightgbm_rank", [lightgbm_documents(part) for part in ("train", "test")]
    corpus = read_corpus([folder / "rank.train.gz", folder / "rank.test.gz"])
    n = sum(len(part.label) for part in parts)
    assert (corpus.n_queries, corpus.n_pairs, corpus.max_label) == (sum(LIGHTGBM_QUERIES.values()), n, 4)
    assert_holds(corpus, parts, np.arange(1, n + 1))
    assert read_corpus(folder).n_queries == sum(LIGHTGBM_QUERIES.values())
    assert read_corpus(folder / "rank.test.gz").n_candidates.tolist() == parts[1].sizes


def test_mslr(shared_data: Path) -> None:
    paths = sorted((shared_data / "mslr_sample").glob("*.gz"))
    corpus = read_corpus(shared_data / "mslr_sample")
    assert (corpus.n_queries, corpus.n_pairs, corpus.max_label) == (86, 10_000, 4)
    expected = read_slowly(paths, 136)
    assert_same(corpus, expected["query"].astype(int), np.arange(1, 10_001), expected)


def test_mq2008(shared_data: Path) -> None:
    paths = sorted((shared_data / "mq2008").glob("*.gz"))
    corpus = read_corpus(paths)
    assert (corpus.n_queries, corpus.n_pairs, corpus.max_label) == (784, 15_211, 2)
    expected = read_slowly(paths, 46)
    assert_same(corpus, expected["query"].astype(int), expected["doc"].tolist(), expected)
    assert corpus.vocabulary.n_docs < corpus.n_pairs  # documents have names, and some are candidates twice
    without_relevant = np.maximum.reduceat(corpus.label, corpus.offsets[:-1]) == 0
    assert without_relevant.sum() == 220


def test_lightgbm(shared_data: Path) -> None:
    folder = shared_data / "lightgbm_rank"
    corpus = read_corpus([folder / "rank.train.gz", folder / "rank.test.gz"])
    assert (corpus.n_queries, corpus.n_pairs, corpus.max_label) == (201 + 50, 3_005 + 768, 4)
    expected = read_slowly([folder / "rank.train.gz", folder / "rank.test.gz"], 300)
    sizes = [int(size) for name in ("train", "test") for size in (folder / f"rank.{name}.query").read_text().split()]
    assert_same(corpus, np.repeat(np.arange(1, 252), sizes), np.arange(1, 3_774), expected)
    assert read_corpus(folder).n_queries == 251


def test_comments_blanks_line_ends_and_gaps(write) -> None:  # type: ignore[no-untyped-def]
    text = "# header\r\n\r\n2 qid:7\t2:1.5  4:-2#docid\r\n \t\n 0 qid:7 \r\n1 qid:3 1:+.5 #docid = \n0. qid:3 4:1e1"
    for data in (text, gzip.compress(text.encode()), "\ufeff" + text):
        corpus = read_corpus(write(data), cache=False)
        assert corpus.vocabulary.query_ids.tolist() == [3, 7]
        assert corpus.vocabulary.doc_ids.tolist() == [1, 2, 3, 4]  # numbers of data lines
        assert corpus.label.tolist() == [1, 0, 2, 0]
        assert corpus.features is not None
        assert corpus.features.tolist() == [[0.5, 0, 0, 0], [0, 0, 0, 10], [0, 1.5, 0, -2], [0, 0, 0, 0]]
    assert read_corpus(write("0 qid:1\n1 qid:1\n"), cache=False).features is None
    wide = read_corpus(write(text), features=6, cache=False).features
    assert wide is not None
    assert wide.shape == (4, 6)


def test_ids(write) -> None:  # type: ignore[no-untyped-def]
    def ids(lines: str) -> tuple[list[object], list[object]]:
        words = read_corpus(write(lines), cache=False).vocabulary
        return words.query_ids.tolist(), words.doc_ids.tolist()

    assert ids("0 qid:10 #docid = 30\n0 qid:9 # docid=4 inc = 1\n") == ([9, 10], [4, 30])
    assert ids("0 qid:10 #docid = b\n0 qid:9 #docid = 4\n") == ([9, 10], ["4", "b"])
    assert ids("0 qid:é #docid = 1\n0 qid:9\n") == (["9", "é"], [1, 2])  # not every line names its document
    assert ids("0 qid:7\n0 qid:007\n0 qid:99999999999999999999\n")[0] == ["007", "7", "99999999999999999999"]
    assert ids("0 qid:2\n0 qid:1\n0 qid:2\n") == ([1, 2], [1, 2, 3])  # a query's lines need not be neighbours


def test_the_scale_of_labels(write) -> None:  # type: ignore[no-untyped-def]
    for label, scale in ((0, 1), (1, 1), (2, 2), (3, 4), (4, 4)):
        assert read_corpus(write(f"0 qid:1\n{label} qid:1\n"), cache=False).max_label == scale
    assert read_corpus(write("1 qid:1"), max_label=4, cache=False).max_label == 4
    assert read_corpus(write("10 qid:1"), max_label=10, cache=False).label.tolist() == [10]
    with raises_code("unknown-label-scale", FileError, value=5, line=2):
        read_corpus(write("0 qid:1\n5 qid:1"), on_bad_line="skip")
    for options in ({"max_label": 0}, {"max_label": 32}, {"features": 0}):
        ((option, value),) = options.items()
        with raises_code("bad-option", DataError, option=option, value=value):
            read_corpus(write("0 qid:1"), **options)


BAD_LINES = {
    "Hello qid:1 1:1": ("bad-label", "Hello"),
    "-1 qid:1 1:1": ("bad-label", "-1"),
    "1.5 qid:1 1:1": ("bad-label", "1.5"),
    "5 qid:1 1:1": ("bad-label", "5"),
    "1x qid:1 1:1": ("bad-label", "1x"),
    "nan qid:1": ("bad-label", "nan"),
    "1qid:1": ("bad-label", "1qid:1"),
    "1 1:1": ("missing-qid", "1:1"),
    "1": ("missing-qid", ""),
    "1 qid: 1:1": ("empty-qid", "qid:"),
    "1 qid:1 1": ("bad-feature", "1"),
    "1 qid:1 x:1": ("bad-feature", "x:1"),
    "1 qid:1 -1:1": ("bad-feature", "-1:1"),
    "1 qid:1 0:1": ("feature-order", "0:1"),
    "1 qid:1 2:1 2:1": ("feature-order", "2:1"),
    "1 qid:1 2:1 1:1": ("feature-order", "1:1"),
    "1 qid:1 4:1": ("feature-number", "4:1"),
    "1 qid:1 99999999999999999999:1": ("feature-number", "99999999999999999999:1"),
}
for value in [
    "",
    "x",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e",
    "1e+",
    "1.2.3",
    ".",
    "-",
    "--1",
    "0x1",
    "1_0",
    "1,5",
    "1e5.",
]:
    BAD_LINES[f"1 qid:1 1:{value}"] = ("bad-feature-value", f"1:{value}")


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_lines(write, line: str) -> None:  # type: ignore[no-untyped-def]
    file = write(f"1 qid:1 1:1 3:2\n\n{line}\n2 qid:1 2:5\n")
    rule, token = BAD_LINES[line]
    with raises_code("bad-line", FileError, path=file, line=3, rule=rule, value=token) as caught:
        read_corpus(file, features=3, max_label=4)
    for _ in range(2):  # the second from the cache
        with pytest.warns(ClickshiftWarning) as told:
            corpus = read_corpus(file, features=3, max_label=4, on_bad_line="skip")
        (warning,) = (one.message for one in told)
        assert isinstance(warning, ClickshiftWarning)
        assert warning.code == "skipped-input"
        assert (warning.facts["bad_lines"], warning.facts["path"], warning.facts["line"]) == (1, file, 3)
        assert caught.value.problem.startswith(warning.facts["problem"]), "it is the same rule and token"
        assert corpus.label.tolist() == [1, 2]
        assert corpus.vocabulary.doc_ids.tolist() == [1, 3]  # a number is a line's own, whatever is skipped
        assert corpus.features is not None
        assert corpus.features.tolist() == [[1, 0, 2], [0, 5, 0]]


def test_skipping_counts_over_all_files(write) -> None:  # type: ignore[no-untyped-def]
    paths = [write("0 qid:1\n", "a.txt"), write("0 qid:2\nx\ny\n", "b.txt"), write("z\n0 qid:3\n", "c.txt")]
    with warns_code("skipped-input", bad_lines=3, path=paths[1], line=2):
        assert read_corpus(paths, on_bad_line="skip").n_queries == 3
    with raises_code("empty-file", FileError, count=2, line=1):
        read_corpus([*paths, write("x\ny", "d.txt")], on_bad_line="skip")


def test_a_document_twice(write) -> None:  # type: ignore[no-untyped-def]
    text = "1 qid:1 1:1 #docid = a\n0 qid:2 1:2 #docid = a\n2 qid:1 1:3 #docid = a\n0 qid:1 1:4 #docid = b"
    with raises_code("duplicate-document", FileError, query="1", document="a", count=1, line=3):
        read_corpus(write(text))
    with warns_code("skipped-input", bad_lines=1, line=3):
        corpus = read_corpus(write(text), on_bad_line="skip")
    assert corpus.max_label == 1
    assert corpus.label.tolist() == [1, 0, 0]
    assert corpus.features is not None
    assert corpus.features[:, 0].tolist() == [1, 4, 2]


def test_a_query_in_two_files(write) -> None:  # type: ignore[no-untyped-def]
    a, b = write("0 qid:1\n1 qid:2\n", "a.txt"), write("0 qid:3\n\n1 qid:2\n", "b.txt")
    with raises_code("shared-query", FileError, path=b, query="2", first=a, line=3):
        read_corpus([a, b])
    with raises_code("shared-query", FileError, path=a, query="1", first=a, line=1):
        read_corpus([a, a])


def test_files_that_are_none(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    good = gzip.compress(b"1 qid:1 1:1\n" * 100, mtime=0)
    cases: dict[bytes, tuple[str, dict[str, Any]]] = {
        b"": ("empty-file", {"lines": 0}),
        b"# nothing\n\n": ("empty-file", {"lines": 2}),
        good[:-9]: ("damaged-file", {"format": "gzip", "truncated": True}),
        good[:-8] + bytes(8): ("damaged-file", {"format": "gzip", "truncated": False}),
        b"0 qid:1\n0 qid:\xe9\n": ("not-text", {"value": "byte 0xE9", "line": 2}),
        b"0 qid:1\n\0": ("not-text", {"value": "byte 0x00", "line": 2}),
        b"PK\x03\x04": ("not-text", {"value": "a zip archive"}),
    }
    for data, (code, facts) in cases.items():
        with raises_code(code, FileError, **facts):
            read_corpus(write(data))
    with raises_code("file-not-found", FileError):
        read_corpus(tmp_path / "absent.txt", cache=False)
    (tmp_path / "Fold1").mkdir()
    with raises_code("no-data-files", FileError, path=tmp_path / "Fold1"):
        read_corpus(tmp_path / "Fold1")
    with raises_code("no-files", DataError):
        read_corpus([])


def test_groups(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    data = write("1 1:1\n0 1:2\n# comment\n0 1:3\n")
    with raises_code("missing-groups", FileError, expected="data.txt.query"):
        read_corpus(data)
    sizes = write("1\n2\n", "sizes")
    with raises_code("bad-option", DataError, option="groups", expected=1, count=2):
        read_corpus(data, groups=[sizes, sizes])
    assert np.diff(read_corpus(data, groups=sizes).offsets).tolist() == [1, 2]
    write("2\r\n\r\n1\r\n", "data.txt.query")
    assert np.diff(read_corpus(data).offsets).tolist() == [2, 1]
    write("2\n2\n", "data.txt.query")
    with raises_code("group-sizes", FileError, path=tmp_path / "data.txt.query", expected=3, total=4):
        read_corpus(data)
    for text in ("2\nx\n", "2\n0\n", "2\n-1\n", "2\n1.0\n", "2\n" + "9" * 5000):
        write(text, "data.txt.query")
        with raises_code("bad-line", FileError, path=tmp_path / "data.txt.query", line=2):
            read_corpus(data)
    with raises_code("unexpected-groups", FileError):
        read_corpus(write("0 qid:1"), groups=sizes)
    with raises_code("bad-line", FileError, rule="unexpected-qid", value="qid:1", line=2):
        read_corpus(write("0 1:1\n0 qid:1 1:1"), groups=sizes)


def test_a_skipped_line_keeps_its_place_in_its_group(write) -> None:  # type: ignore[no-untyped-def]
    write("2\n2\n", "data.txt.query")
    with warns_code("skipped-input", bad_lines=1, line=2):
        corpus = read_corpus(write("1 1:1\nbad\n0 1:3\n1 1:4\n"), on_bad_line="skip")
    assert np.diff(corpus.offsets).tolist() == [1, 2]


def assert_equal(a: Corpus, b: Corpus) -> None:
    assert a.vocabulary.fingerprint == b.vocabulary.fingerprint
    assert a.max_label == b.max_label
    assert np.array_equal(a.label, b.label)
    assert a.features is not None
    assert b.features is not None
    assert a.features.dtype == b.features.dtype
    assert np.array_equal(a.features, b.features)


@pytest.mark.parametrize("qid", ["1", "é"])
def test_the_cache(write, own_cache: Path, monkeypatch: pytest.MonkeyPatch, qid: str) -> None:  # type: ignore[no-untyped-def]
    file = write(f"1 qid:{qid} 1:1 #docid = x\n0 qid:{qid} 2:2 #docid = ß\n")
    fresh = read_corpus(file)
    (entry,) = (own_cache / "letor").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(letor, "LetorRows", None)  # nothing may be parsed again
        assert_equal(read_corpus(str(file)), fresh)
    whole = entry.read_bytes()
    for damaged in (whole[:-20], b"", b"garbage", whole.replace(b"label", b"lebal")):
        entry.write_bytes(damaged)
        assert_equal(read_corpus(file), fresh)
        assert entry.read_bytes() != damaged
    assert read_corpus(file, max_label=4).max_label == 4  # other settings, other entry
    write(f"0 qid:{qid} 1:1 #docid = x\n0 qid:{qid} 2:2 #docid = ß\n")
    assert read_corpus(file).label.max() == 0  # other content, other entry
    assert len(list((own_cache / "letor").iterdir())) == 3


def test_no_cache(write, own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = write("1 qid:1 1:1\n")
    read_corpus(file, cache=False)
    assert not own_cache.exists()
    monkeypatch.setenv("CLICKSHIFT_CACHE", str(file / "below"))
    with warns_code("not-cached"):
        assert read_corpus(file).n_pairs == 1
    monkeypatch.setenv("CLICKSHIFT_CACHE", str(tmp_path))
    write("a file where the folder should be", "letor")
    with warns_code("not-cached"):
        assert read_corpus(file).n_pairs == 1


def test_small_blocks_and_tables_change_nothing(standins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 60 KB in blocks of 10 KB, and in tables of 16 lines."""
    path = standins / "lightgbm_rank" / "rank.train.gz"
    assert len(gzip.decompress(path.read_bytes())) > 40_000
    expected = read_corpus(path, cache=False)
    monkeypatch.setattr(letor_parser, "_TABLE", 5000)
    monkeypatch.setattr(letor_parser, "line_blocks", lambda path: files.line_blocks(path, size=10_000))
    assert_equal(read_corpus(path, cache=False), expected)


def values_of(texts: list[str], folder: Path) -> np.ndarray:
    file = folder / "values.txt"
    file.write_text("".join(f"0 qid:1 1:{text}\n" for text in texts))
    features = read_corpus(file, cache=False).features
    assert features is not None
    return features[:, 0]


def assert_nearest(text: str, value: np.float32) -> None:
    """Within half a unit in the last place of the number that is written, and a millionth for double rounding."""
    exact, largest = Fraction(text), Fraction(float(np.finfo(np.float32).max))
    exact = max(min(exact, largest), -largest)
    last_place = Fraction(2) ** (max(math.frexp(value)[1], -125) - 24)
    assert abs(Fraction(float(value)) - exact) <= last_place * Fraction(500_001, 1_000_000)


def test_numbers_are_read_to_the_last_bit(tmp_path: Path, rng: np.random.Generator) -> None:
    doubles = rng.normal(size=2000) * 10.0 ** rng.integers(-50, 45, 2000)
    texts = [repr(x) for x in doubles.tolist()] + [f"{x:.6f}" for x in rng.normal(0, 100, 2000)]
    texts += [f"{x:+.3E}" for x in doubles] + [f"{x:.25f}" for x in rng.normal(size=500)]
    texts += ["0", "-0", "00012", "1.", ".5", "1e0005", "16777217", "340282346638528859811704183484516925440"]
    texts += [
        "3.5e38",
        "1.79769313486232e+308",
        "-1e400",
        "1e-400",
        "0e999",
        "9" * 60,
        "0." + "0" * 60 + "1e61",
    ]
    for text, value in zip(texts, values_of(texts, tmp_path), strict=True):
        assert_nearest(text, value)
    assert values_of(["0e99999999999999999999", "1e-99999999999999999999"], tmp_path).tolist() == [0, 0]


def test_short_numbers_are_what_python_reads(tmp_path: Path, rng: np.random.Generator) -> None:
    """Up to 15 digits and 22 powers of ten every step is exact."""
    mantissa, power = rng.integers(-(10**15), 10**15, 3000), rng.integers(-22, 23, 3000)
    texts = [f"{m}e{p}" for m, p in zip(mantissa.tolist(), power.tolist(), strict=True)]
    assert np.array_equal(values_of(texts, tmp_path), np.array([float(text) for text in texts]).astype(np.float32))


@given(
    st.lists(
        st.from_regex(r"[+-]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?", fullmatch=True),
        min_size=1,
    )
)
def test_any_decimal_number(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    for text, value in zip(texts, values_of(texts, tmp_path_factory.mktemp("numbers")), strict=True):
        assert_nearest(text, value)


PIECES = st.sampled_from(
    [
        "0",
        "4",
        " ",
        " qid:1",
        " qid:b",
        "qid:",
        " 1:0.5",
        " 2:-1e9",
        ":",
        "#docid = a",
        "docid",
        "=",
        "#",
        "\n",
        "\r",
        "é",
        "10000:1",
        "e",
        "-",
        "\t",
    ]
)


@given(
    data=st.binary(max_size=200) | st.lists(PIECES, max_size=40).map(lambda parts: "".join(parts).encode()),
    packed=st.booleans(),
    cut=st.integers(0, 3),
)
@example(data=b"0 qid:1 #docid", packed=False, cut=0)
@example(data=b"0 qid", packed=False, cut=0)
@example(data=b"1e", packed=False, cut=0)
@pytest.mark.parametrize("on_bad_line", ["error", "skip"])
@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_any_bytes_give_a_corpus_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, on_bad_line: str, data: bytes, packed: bool, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    written = gzip.compress(data) if packed else data
    (folder / "data.txt").write_bytes(written[: len(written) - cut])
    (folder / "data.txt.query").write_text("2\n1\n")
    try:
        corpus = read_corpus(folder / "data.txt", on_bad_line=on_bad_line, cache=False)
    except (FileError, DataError):
        return
    assert 1 <= corpus.n_pairs <= data.count(b"\n") + 1


FRAME = {"query": ["a", "a", "b"], "doc": [1, 2, 1], "bm25": [1.5, 2.0, 3.0], "length": [10, 0, 5], "label": [0, 2, 1]}


def test_a_frame_is_read_by_column_names(tmp_path: Path) -> None:
    """From any kind of frame and from files; features are in the order of the frame, labels are optional."""
    frames = [pa.table(FRAME), pa.table(FRAME).take([2, 0, 1]), pa.table(FRAME).to_pandas()]
    for ending in (".parquet", ".csv", ".jsonl"):
        write_table(frames[0], tmp_path / f"docs{ending}")
        frames.append(tmp_path / f"docs{ending}")
    with contextlib.suppress(ImportError):
        import polars

        frames.append(polars.DataFrame(FRAME))
    for frame in frames:
        corpus = read_corpus(frame)
        assert corpus.features is not None
        assert corpus.features.tolist() == [[1.5, 10], [2, 0], [3, 5]]
        assert (corpus.label.tolist(), corpus.max_label) == ([0, 2, 1], 2)
        assert corpus.vocabulary.query_ids.tolist() == ["a", "b"]
    renamed = pa.table(FRAME).rename_columns(["q", "product", "bm25", "length", "grade"])
    corpus = read_corpus(renamed, columns={"query": "q", "doc": "product", "label": "grade"}, max_label=4)
    assert (corpus.features.shape[1], corpus.max_label, corpus.label.sum()) == (2, 4, 3)  # type: ignore[union-attr]
    few = read_corpus(pa.table(FRAME).select(["doc", "query"]))
    assert (few.features, few.label.tolist()) == (None, [0, 0, 0])


@pytest.mark.parametrize(
    ("changed", "code", "facts"),
    [
        ({"doc": None}, "missing-column", {"columns": ["doc"], "found": ["query", "bm25", "length", "label"]}),
        ({"bm25": ["x", "y", "z"]}, "bad-column", {"column": "bm25", "type": "string"}),
        ({"bm25": [1.0, None, 2.0]}, "not-finite", {"column": "bm25", "row": 1, "count": 1}),
        ({"length": [1.0, 2.0, float("nan")]}, "not-finite", {"column": "length", "row": 2}),
        ({"length": [float("inf"), 2.0, 1.0]}, "not-finite", {"column": "length", "row": 0}),
        ({"query": ["a", "a", "a"]}, "duplicate-document", {"query": "a", "document": "1", "row": 2, "count": 1}),
        ({"query": ["a", None, "a"]}, "missing-id", {"column": "query", "row": 1}),
        ({"doc": [1.5, 2.0, 3.0]}, "bad-column", {"column": "doc"}),
        ({"label": [0, 9, 0]}, "unknown-label-scale", {"value": 9.0}),
    ],
)
def test_a_frame_that_is_wrong(changed: dict[str, list[object] | None], code: str, facts: dict[str, object]) -> None:
    columns = {name: values for name, values in (FRAME | changed).items() if values is not None}
    with raises_code(code, DataError, **facts):
        read_corpus(pa.table(columns))


def test_what_is_no_frame() -> None:
    with raises_code("not-a-table", DataError, type="int"):
        read_corpus(3)
    with raises_code("empty-table", DataError):
        read_corpus(pa.table(FRAME).slice(0, 0))
    with raises_code("duplicate-columns", DataError, columns=["bm25"]):
        read_corpus(pa.table(FRAME).rename_columns(["query", "doc", "bm25", "bm25", "label"]))
    with raises_code("wrong-feature-count", DataError, expected=3, count=2):
        read_corpus(pa.table(FRAME), features=3)
