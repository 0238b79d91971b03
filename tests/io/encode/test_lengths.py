"""Lists of any length: what is stored and what is allocated follows the number of results, not the longest list."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.counts import tails
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.count_log import count_log
from clickshift.counts.log_summary import log_summary
from clickshift.counts.open_log import open_log
from clickshift.data import encoded_log, sessions
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import MAX_PADDING, Sessions
from clickshift.errors import DataError
from clickshift.io.encode import writer
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.pbm import PBM
from clickshift.models.ubm import UBM
from tests.codes import raises_code
from tests.full_logs import content

SHORT, LONG = 4000, 1000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lists of 1,000 among 4,000 of 1 to 3, in batches of 2,000 rows."""
    rng = np.random.default_rng(0)
    docs = [rng.permutation(6)[: rng.integers(1, 4)].tolist() for _ in range(SHORT)]
    for at in (1700, 3001):
        docs.insert(at, rng.permutation(LONG).tolist())
    clicks = [(rng.random(len(shown)) < 0.2).astype(int).tolist() for shown in docs]
    rows = {"query": rng.integers(0, 4, len(docs)), "docs": docs, "clicks": clicks}
    pq.write_table(pa.table(rows), path := tmp_path_factory.mktemp("log") / "log.parquet", row_group_size=2000)
    return path


@pytest.fixture(scope="module")
def in_memory(path: Path) -> Sessions:
    return cs.read_log(path)


@pytest.fixture(scope="module")
def log(path: Path) -> EncodedLog:
    found = open_log(path, in_memory=False)
    assert isinstance(found, EncodedLog)
    return found


def peak_of(work: Callable[[], object]) -> int:
    """The largest memory that Python and numpy had allocated while something was computed, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_stored_follows_the_number_of_results(log: EncodedLog, in_memory: Sessions) -> None:
    results = int(in_memory.rankings.shown.sum())
    size = sum(file.stat().st_size for name, file in files(log).items() if name in {"pair", "click"})
    assert size <= (4 + 1) * MAX_PADDING * results
    assert size < 4 * in_memory.click.size / 50
    assert len(log.blocks) < 12
    assert content(log) == content(in_memory), "in the same order"


def files(log: EncodedLog) -> dict[str, Path]:
    return {name: log.folder / file for name, file in log.files.names.items()}


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("work", ["info", "count", "DBN", "PBM", "write"])
def test_what_is_allocated_follows_the_number_of_results(
    work: str, log: EncodedLog, in_memory: Sessions, tmp_path: Path
) -> None:
    works: dict[str, Callable[[], object]] = {
        "info": lambda: log_summary(log).facts(),
        "count": lambda: count_log(log, tmp_path / "counts"),
        "DBN": lambda: cs.fit("DBN", log),
        "PBM": lambda: cs.fit("PBM", log),
        "write": lambda: cs.write_log(log, tmp_path / "out.parquet"),  # type: ignore[arg-type]
    }
    works[work]()  # compiled and imported
    rectangle = 6 * in_memory.click.size
    matrix = 8 * LONG**2  # of the swaps between all ranks, or of the curvature of examination
    assert peak_of(works[work]) < {"info": 3 * matrix, "PBM": 5 * matrix, "count": rectangle}.get(work, rectangle / 3)


@pytest.mark.parametrize("by", ["rank", "last_click"])
@pytest.mark.parametrize("sparse", [True, False])
def test_counts_are_those_of_the_log_in_memory(
    by: By, sparse: bool, log: EncodedLog, in_memory: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sparse:
        monkeypatch.setattr("clickshift.counts.cells._MAX_DENSE_CELLS", 0)
        monkeypatch.setattr("clickshift.counts.cells._MANY_SITUATIONS", 0)
        monkeypatch.setattr("clickshift.counts.cells._KEYS_SORTED", 1000)
    found = Cells.of(log, by)
    monkeypatch.undo()
    wanted = Cells.of(in_memory, by)
    for name in ("pair", "situation", "impressions", "clicks"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_tails_are_those_of_the_log_in_memory(
    log: EncodedLog, in_memory: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Cascade.of(log)
    monkeypatch.setattr(tails, "_MAX_SHAPES", 0)
    monkeypatch.setattr(tails, "_SHAPES_PER_LIST", 0)
    numbered = Cascade.of(in_memory)
    models = [MaximumLikelihood("DBN", iterations=3).fit(counts) for counts in (found, numbered)]
    np.testing.assert_allclose(models[0].relevance(), models[1].relevance(), rtol=1e-9)
    monkeypatch.undo()
    short = in_memory[in_memory.rankings.length < 4]
    wanted = Cascade.of(short).tails.parts[0]
    monkeypatch.setattr(tails, "_MAX_SHAPES", 0)
    monkeypatch.setattr(tails, "_SHAPES_PER_LIST", 0)
    other = Cascade.of(short).tails.parts[0]
    for name in ("start", "length", "sessions", "first_place"):
        np.testing.assert_array_equal(getattr(other, name), getattr(wanted, name))
    merged = [tails.merge_tails([part]) for part in (other, wanted)]
    np.testing.assert_array_equal(merged[0].sessions, merged[1].sessions)
    assert other.pair.sum() == wanted.pair.sum()


def test_a_small_file_whose_matrix_would_be_large_is_encoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_PADDED_BYTES", 1 << 20)
    assert isinstance(cs.open_log(path), EncodedLog)
    with raises_code("lists-too-long", DataError, ranks=LONG):
        cs.open_log(path, in_memory=True)
    encoded = cs.open_log(path)
    assert isinstance(encoded, EncodedLog)
    with raises_code("lists-too-long", DataError, ranks=LONG):
        encoded.sessions()


def test_chunks_have_all_ranks_unless_narrow_ones_are_taken(
    log: EncodedLog, in_memory: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_log, "_PADDED_PLACES", 100 * LONG)
    parts = list(log.chunks())
    assert {part.n_ranks for part in parts} == {LONG}
    assert max(map(len, parts)) == 100
    np.testing.assert_array_equal(np.concatenate([part.click for part in parts]), in_memory.click)
    np.testing.assert_array_equal(np.concatenate([part.rankings.pair for part in parts]), in_memory.rankings.pair)
    assert {part.n_ranks for part in log.chunks(narrow=True)} == {3, LONG}


def test_a_summary_and_likelihoods_equal_those_in_memory(log: EncodedLog, in_memory: Sessions) -> None:
    found, wanted = log_summary(log).facts(), log_summary(in_memory).facts()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_equal(found[name], value)
    model = cs.fit("dCTR", in_memory)
    likelihood = np.concatenate([model.log_likelihood(part) for part in log.chunks(narrow=True)])
    np.testing.assert_allclose(likelihood, model.log_likelihood(in_memory), rtol=1e-12)


def test_a_list_of_holes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_MAX_HOLES", 1 << 12)
    rows = {
        "session": [1, 1, 2],
        "query": ["q"] * 3,
        "rank": [1, 90_000, 2],
        "doc": ["a", "b", "a"],
        "click": [0, 1, 1],
    }
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    with raises_code("lists-too-long", DataError, results=3, ranks=90_002):
        open_log(tmp_path / "log.parquet", in_memory=False)


@pytest.mark.parametrize("by", ["rank", "last_click"])
def test_known_ranks_count_as_models_predict_them(by: By) -> None:
    rng = np.random.default_rng(1)
    pair = np.arange(8)[None].repeat(50, axis=0)
    vocabulary, query, _ = cs.Vocabulary.of(["q"] * 8, list(range(8)))
    log = Sessions(cs.Rankings(vocabulary, query[:1].repeat(50), pair), rng.random((50, 8)) < 0.3)
    known, cells = 4, Cells.of(log, by)
    pooled = cells.with_known_ranks(known)
    matrix = UBM(vocabulary, np.full(9, 0.5), np.arange(known * (known + 1) // 2, dtype=float)).examination_matrix(8)
    expected: dict[tuple[int, int], list[float]] = {}
    for clicks in log.click:
        last = 0
        for rank, clicked in enumerate(clicks):
            situation = min(rank, known - 1) if by == "rank" else int(matrix[rank, last])
            counts = expected.setdefault((int(rank), situation), [0.0, 0.0])
            counts[0] += 1
            counts[1] += clicked
            last = rank + 1 if clicked else last
    found = zip(pooled.pair, pooled.situation, pooled.impressions, pooled.clicks, strict=True)
    assert {(int(p), int(s)): [n, c] for p, s, n, c in found} == expected
    pooled.validate()
    assert cells.with_known_ranks(8) is cells


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_ubm_and_pbm_of_long_lists_have_few_parameters(log: EncodedLog) -> None:
    ubm, pbm = cs.fit("UBM", log), cs.fit("PBM", log)
    assert isinstance(ubm, UBM)
    assert isinstance(pbm, PBM)
    assert (ubm.n_known_ranks, len(pbm.examination)) == (50, 500)
