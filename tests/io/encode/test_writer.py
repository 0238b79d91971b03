"""Logs larger than memory: what is encoded is what `read_log` reads, and everything computed from it agrees."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.core import leftovers
from clickshift.core.leftovers import temporary_name
from clickshift.counts import open_log as opening
from clickshift.counts.cells import Cells
from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.io.encode import writer
from clickshift.io.encode._id_table import IdTable, hashes_of
from clickshift.io.encode.duckdb import DuckdbLimits
from clickshift.io.read_log import read_log
from clickshift.io.tables.formats import TableFile, with_partition_day
from clickshift.metrics.click_prediction import evaluation
from tests.codes import raises_code, warns_code
from tests.folders import data_file

RANKS = 5


def table_of(seed: int, rows: int = 300, *, text: bool = True, ragged: bool = True) -> pa.Table:
    rng = np.random.default_rng(seed)
    query, docs, clicks = [], [], []
    for _ in range(rows):
        q = int(rng.integers(6))
        n = int(rng.integers(1, RANKS + 1)) if ragged else RANKS
        some = rng.permutation(8)[:n] + 10 * q
        query.append(f"query {q}" if text else q)
        docs.append([f"d{d}" for d in some] if text else some.tolist())
        luck, going = rng.random((3, n)), 1
        for rank, doc in enumerate(some):  # a DBN user
            luck[0, rank] = clicked = going and luck[0, rank] < 0.1 + 0.08 * (doc % 10)
            going = going and luck[1, rank] < 0.9 and not (clicked and luck[2, rank] < 0.5)
        clicks.append(luck[0].astype(int).tolist())
    return pa.table({"query": query, "docs": docs, "clicks": clicks})


def write_days(folder: Path, rows: int) -> Path:
    """Three days, in folders of their own, each in five row groups."""
    for day in range(3):
        place = folder / f"day=2026-03-0{day + 1}"
        place.mkdir(parents=True)
        pq.write_table(table_of(day, rows), place / "part.parquet", row_group_size=-(-rows // 5))
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_days(tmp_path / "log", 300)


def encoded(path: object, **options: object) -> EncodedLog:
    found = open_log(path, in_memory=False, **options)  # type: ignore[arg-type]
    assert isinstance(found, EncodedLog)
    return found


def same(found: EncodedLog, wanted: Sessions) -> None:
    have = found.sessions()
    assert found.total == wanted.total
    assert have.vocabulary.fingerprint == wanted.vocabulary.fingerprint
    np.testing.assert_array_equal(have.rankings.query, wanted.rankings.query)
    np.testing.assert_array_equal(have.rankings.pair, wanted.rankings.pair)
    np.testing.assert_array_equal(have.rankings.shown, wanted.rankings.shown)
    np.testing.assert_array_equal(have.click, wanted.click)
    np.testing.assert_array_equal(have.count, wanted.count)
    if wanted.time is not None:
        assert have.time is not None
        np.testing.assert_array_equal(have.time, wanted.time)


def test_an_encoded_log_is_what_the_reader_reads(log: Path) -> None:
    wanted = cs.read_log(log)
    assert wanted.time is not None
    assert wanted.time.min() == np.datetime64("2026-03-01")
    found = encoded(log)
    same(found, wanted)
    assert len(found.blocks) == 15
    assert found.folder.parent == log / ".clickshift"


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("ragged", [True, False])
def test_all_kinds_of_ids_and_lists(tmp_path: Path, text: bool, ragged: bool) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(table_of(0, text=text, ragged=ragged), path)
    same(encoded(path), cs.read_log(path))


def test_integers_in_one_file_and_text_in_another_are_text(tmp_path: Path) -> None:
    pq.write_table(table_of(0, text=False), tmp_path / "a.parquet")
    pq.write_table(table_of(1, text=True), tmp_path / "b.parquet")
    pq.write_table(table_of(2, text=False), tmp_path / "c.parquet")
    same(encoded(tmp_path), cs.read_log(tmp_path))


def test_columns_in_any_order_extra_ones_and_dictionaries(tmp_path: Path) -> None:
    table = table_of(0)
    pq.write_table(table, tmp_path / "a.parquet")
    other = table_of(1).select(["clicks", "docs", "query"]).append_column("extra", pa.array(range(300)))
    other = other.set_column(2, "query", other["query"].dictionary_encode())
    pq.write_table(other, tmp_path / "b.parquet")
    pq.write_table(table_of(2, rows=0).cast(table.schema), tmp_path / "c.parquet")
    same(encoded(tmp_path), cs.read_log(tmp_path))


def test_what_is_told_of_sessions_is_kept(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "log.parquet"
    table = table_of(0)
    about = {
        "time": pa.array(rng.integers(0, 9, 300)),
        "count": pa.array(rng.integers(1, 4, 300)),
        "user": pa.array([f"u{k}" for k in rng.integers(0, 20, 300)]),
        "propensity": pa.array(rng.uniform(0.1, 1, 300)),
    }
    for name, column in about.items():
        table = table.append_column(name, column)
    pq.write_table(table, path, row_group_size=100)
    found, wanted = encoded(path), cs.read_log(path)
    same(found, wanted)
    have = found.sessions()
    np.testing.assert_allclose(have.rankings.log_prob, wanted.rankings.log_prob)
    assert wanted.user is not None
    users, theirs = np.unique(have.user, return_inverse=True)[1], np.unique(wanted.user, return_inverse=True)[1]
    assert len(set(zip(users.tolist(), theirs.tolist(), strict=True))) == len(np.unique(theirs))


@pytest.mark.parametrize("write", ["csv", "jsonl", "long", "database", "long database"])
def test_other_files_layouts_and_tables(tmp_path: Path, write: str) -> None:
    pq.write_table(table_of(0, ragged=False), tmp_path / "wide.parquet")
    wanted = cs.read_log(tmp_path / "wide.parquet")
    if "database" in write:
        import duckdb

        layout = "long" if "long" in write else "wide"
        cs.write_log(wanted, tmp_path / "some.parquet", layout=layout)
        with duckdb.connect(str(tmp_path / "clicks.duckdb")) as connection:
            connection.sql(f"CREATE TABLE clicks AS SELECT * FROM '{tmp_path / 'some.parquet'}'")
        found = encoded(f"{tmp_path / 'clicks.duckdb'}::clicks", output=tmp_path / "out")
    else:
        path = tmp_path / ("log.parquet" if write == "long" else f"log.{write}")
        cs.write_log(wanted, path, layout="long" if write == "long" else "wide")
        found = encoded(path, spill=DuckdbLimits("1GB", tmp_path / "spill"))
    # a database may give rows in any order
    have, merged = found.sessions().merged(), wanted.merged()
    assert have.vocabulary.fingerprint == merged.vocabulary.fingerprint
    key = [np.column_stack([s.rankings.pair, s.click, s.count]) for s in (have, merged)]
    np.testing.assert_array_equal(*(np.unique(rows, axis=0) for rows in key))


def test_everything_computed_from_it_agrees(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickshift.counts.cells._MAX_DENSE_CELLS", 64)
    monkeypatch.setattr("clickshift.counts.cells._CELLS_PER_THREAD", 64)  # several passes over several queries
    wanted, found = cs.read_log(log), encoded(log)
    for by in ("rank", "last_click", "prefix"):
        cells = [Cells.of(source, by) for source in (wanted, found)]  # type: ignore[arg-type]
        for name in ("pair", "situation", "impressions", "clicks"):
            np.testing.assert_array_equal(getattr(cells[0], name), getattr(cells[1], name))
    one, two = cs.log_summary(wanted).to_dict(), cs.log_summary(found).to_dict()
    assert one.pop("time") == [time.split("T")[0] for time in two.pop("time")]
    np.testing.assert_allclose(one.pop("effective_swaps"), two.pop("effective_swaps"))
    assert one == two


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sessions, EncodedLog]:
    """A log that determines models, in memory and encoded."""
    log = write_days(tmp_path_factory.mktemp("both") / "log", 1500)
    return cs.read_log(log), encoded(log)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("model", ["dCTR", "drCTR", "PBM", "UBM", "CM", "DCM", "SDBN", "DBN", "CCM"])
def test_models_are_the_same(both: tuple[Sessions, EncodedLog], model: str) -> None:
    """On a log that determines them: elsewhere the climb is long, and the last digits of sums decide where it goes."""
    wanted, found = both
    one, two = cs.fit(model, wanted), cs.fit(model, found)
    pairs = np.arange(wanted.vocabulary.n_pairs)
    np.testing.assert_allclose(one.relevance(pairs), two.relevance(pairs), atol=1e-9)
    for part in found.chunks():
        np.testing.assert_allclose(one.click_prob_given_history(part), two.click_prob_given_history(part), atol=1e-9)
    whole, streamed = evaluation(one, wanted), evaluation(two, found)
    for name in whole:
        tolerance = 2e-3 if "auroc" in name else 1e-9
        np.testing.assert_allclose(whole[name], streamed[name], atol=tolerance, err_msg=name)


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_a_mixture_is_fitted_from_the_file(log: Path) -> None:
    learner = cs.MixtureEM(("PBM", "DBN"), iterations=3)
    found = encoded(log)
    model = cs.fit(learner, found)
    assert model.evidence is not None
    assert np.isfinite(model.evidence.log_likelihood)
    share = evaluation(model, found)["log_likelihood"] * found.total
    assert share == pytest.approx(model.evidence.log_likelihood, rel=1e-9)


def test_another_vocabulary_is_translated_as_the_log_is_read(log: Path) -> None:
    found = encoded(log)
    half = found.vocabulary.with_pairs(np.arange(0, found.vocabulary.n_pairs, 2))
    wanted = found.sessions().in_vocabulary(half)
    have = found.in_vocabulary(half).sessions()
    np.testing.assert_array_equal(have.rankings.pair, wanted.rankings.pair)
    np.testing.assert_array_equal(have.rankings.query, wanted.rankings.query)
    np.testing.assert_array_equal(have.rankings.shown, wanted.rankings.shown)


@pytest.mark.parametrize("how", ["random", "time", "order", "within-query"])
def test_splits_part_the_log(log: Path, how: str) -> None:
    from clickshift.data.splits import SPLITS

    found, wanted = encoded(log), cs.read_log(log)
    first, rest = SPLITS[how](found, 0.7, 0)
    assert first.total + rest.total == found.total
    assert not (first.kept & rest.kept).any()
    if how in {"order", "within-query"}:
        mine, _ = SPLITS[how](wanted, 0.7, 0)
        np.testing.assert_array_equal(first.sessions().rankings.pair, mine.rankings.pair)
    elif how == "time":
        mine, _ = SPLITS[how](wanted, 0.7, 0)
        assert sorted(first.time) == sorted(mine.time)
    else:
        assert first.total == pytest.approx(0.7 * found.total, rel=0.1)
    with raises_code("empty-split", DataError, fraction=1.5, total=900):
        SPLITS[how](found, 1.5, 0)


def test_it_is_encoded_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = encoded(log)
    calls: list[int] = []
    monkeypatch.setattr(writer, "write_encoded_log", lambda *args, **named: calls.append(1))
    assert encoded(log).folder == first.folder
    assert not calls
    (log / "day=2026-03-01" / "part.parquet").touch()
    with pytest.raises(TypeError):
        encoded(log)
    assert calls
    assert isinstance(open_log(first.folder), EncodedLog)


def test_what_is_damaged_is_encoded_again(log: Path) -> None:
    first = encoded(log)
    data_file(first.folder, "pair").write_bytes(b"1234")
    same(encoded(log), cs.read_log(log))
    data_file(first.folder, "pair").write_bytes(b"1234")
    with raises_code("damaged-file", FileError, path=first.folder):
        open_log(first.folder)


def test_a_file_among_many_that_cannot_be_read(log: Path) -> None:
    wanted = cs.read_log(log)
    bad = log / "day=2026-03-02" / "bad.parquet"
    bad.write_bytes((log / "day=2026-03-02" / "part.parquet").read_bytes()[:-200])
    with raises_code("damaged-file", FileError, format="Parquet", path=bad):
        encoded(log)
    assert not list((log / ".clickshift").glob(".*"))
    with warns_code("skipped-sessions", count=0, files=1, paths=[str(bad)]):
        found = encoded(log, on_bad_line="skip")
    same(found, wanted)
    assert found.facts["files_left_out"] == [str(bad)]
    with warns_code("skipped-sessions", count=0, files=1):
        encoded(log, on_bad_line="skip")


def test_damage_in_the_middle_of_a_file(log: Path) -> None:
    path = log / "day=2026-03-02" / "part.parquet"
    data = bytearray(path.read_bytes())
    data[200:1200] = os.urandom(1000)
    path.write_bytes(bytes(data))
    with raises_code("damaged-file", FileError, format="Parquet", path=path):
        encoded(log)


def test_bad_sessions_are_told_or_left_out(tmp_path: Path) -> None:
    table = table_of(0, rows=100).to_pydict()
    table["clicks"][73] = [2] * len(table["docs"][73])
    table["docs"][88] = None
    table["docs"][91] = ["x", "x"]
    table["clicks"][91] = [0, 1]
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(table), path, row_group_size=40)
    with raises_code("not-zero-or-one", FileError, path=path, column="clicks", value="[2, 2, 2, 2]", row=74, count=1):
        encoded(path)
    with warns_code("skipped-sessions", count=3, files=0):
        found = encoded(path, on_bad_line="skip")
    with pytest.warns(ClickshiftWarning):
        same(found, cs.read_log(path, on_bad_line="skip"))


def test_files_of_different_columns_are_refused(tmp_path: Path) -> None:
    pq.write_table(table_of(0), tmp_path / "a.parquet")
    pq.write_table(table_of(1).append_column("count", pa.array([1] * 300)), tmp_path / "b.parquet")
    with raises_code("inconsistent-columns", FileError, path=tmp_path / "b.parquet", columns=["count"]):
        encoded(tmp_path)


@pytest.mark.parametrize("fault", ["disk full", "killed"])
def test_nothing_half_written_is_left(log: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device") if fault == "disk full" else KeyboardInterrupt

    monkeypatch.setattr(writer, "_renumber", fail)
    if fault == "disk full":
        with raises_code("disk-full", FileError, reason="No space left on device"):
            encoded(log)
    else:
        with pytest.raises(KeyboardInterrupt):
            encoded(log)
    assert not list((log / ".clickshift").iterdir())


def test_no_room_for_tails(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError(28, "No space left on device")

    found = encoded(log)
    monkeypatch.setattr("clickshift.core.tempfiles.TemporaryFile", fail)
    with raises_code("no-space", FileError, reason="No space left on device"):
        cs.fit("DBN", found)


def test_what_a_killed_process_left_is_removed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = encoded(log)
    forgotten = temporary_name(first.folder)
    forgotten = forgotten.with_name(forgotten.name.replace(f"-{os.getpid()}-", "-4194999-"))
    shutil.copytree(first.folder, forgotten)
    shutil.rmtree(first.folder)
    monkeypatch.setattr(leftovers, "_swept", set())
    encoded(log)
    assert not forgotten.exists()


def test_a_log_in_a_folder_that_cannot_be_written_to(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICKSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(opening.os, "access", lambda *_: False)
    assert (tmp_path / "cache") in encoded(log).folder.parents


def test_messages_about_paths_and_tables(tmp_path: Path, log: Path) -> None:
    import duckdb

    with raises_code("unreadable-file", FileError):
        encoded(tmp_path / "nothing.parquet")
    with raises_code("file-not-found", FileError):
        encoded(f"{tmp_path / 'none.duckdb'}::clicks", output=tmp_path / "out")
    with duckdb.connect(str(tmp_path / "clicks.duckdb")) as connection:
        connection.sql("CREATE TABLE other AS SELECT 1 AS x")
    with raises_code("unknown-table", FileError, value="clicks", known=["other"]):
        encoded(f"{tmp_path / 'clicks.duckdb'}::clicks", output=tmp_path / "out")
    with raises_code("folder-exists", FileError):
        encoded(log, output=log)


def test_a_long_session_with_a_rank_twice_is_named(tmp_path: Path) -> None:
    rows = {
        "session": ["a", "a", "b", "b"],
        "query": ["q"] * 4,
        "rank": [1, 4, 3, 3],
        "doc": list("wxyz"),
        "click": [0] * 4,
    }
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    with raises_code("bad-ranks", FileError, session="b", count=1):
        encoded(tmp_path / "log.parquet")


def test_a_spill_folder_that_cannot_be_used(tmp_path: Path) -> None:
    rows = 200_000
    long = {
        "session": np.repeat(np.arange(rows // 2), 2),
        "query": np.repeat(np.arange(rows // 2), 2),
        "rank": np.tile([1, 2], rows // 2),
        "doc": np.arange(rows),
        "click": np.zeros(rows, int),
    }
    pq.write_table(pa.table(long), tmp_path / "log.parquet")
    (tmp_path / "file").touch()
    with raises_code("unreadable-log", FileError) as caught:
        encoded(tmp_path / "log.parquet", spill=DuckdbLimits("4MB", tmp_path / "file" / "spill"))
    assert "spill=" in str(caught.value), "the option that helps is named"


def test_equal_hashes_of_different_ids_are_told_apart() -> None:
    numbering = IdTable()
    one = np.array([[7, 7, 7, 9], [1 << 40, 2 << 40, 1 << 40, 1 << 40]], np.uint64)
    numbers, new = numbering.number(one)
    assert numbers.tolist() == [0, 1, 0, 2]
    assert new.tolist() == [0, 1, 3]
    again, none = numbering.number(one[:, ::-1].copy())
    assert again.tolist() == [2, 0, 1, 0]
    assert not len(none)


def test_many_ids_are_numbered_as_they_appear() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 50_000, 200_000)
    texts = pa.array([f"document {value}" for value in values])
    for ids in (texts, texts.cast(pa.large_string()), pa.array(values), texts[1000:]):
        expected: dict[object, int] = {}
        wanted = [expected.setdefault(value, len(expected)) for value in ids.to_pylist()]
        numbers, new = IdTable().number(hashes_of(ids))
        assert numbers.tolist() == wanted
        assert ids.take(pa.array(new)).to_pylist() == list(expected)


def test_days_of_folders() -> None:
    def day(folder: str) -> object:
        part = with_partition_day(TableFile(Path(folder) / "part.parquet", pa.table({"query": [1]})))
        return part.table["day"][0].as_py() if "day" in part.table.column_names else None

    assert str(day("log/day=2026-01-31")) == "2026-01-31"
    assert str(day("log/date=20260131/hour=3")) == "2026-01-31"
    assert day("log/day=17") == 17
    assert day("log/day=monday") is None
    assert day("log") is None


def long_rows(**changes: list[Any]) -> dict[str, list[Any]]:
    """Three sessions of two results, of which changes replace columns."""
    rows = {"session": list("ccaabb"), "query": ["q"] * 6, "rank": [1, 2] * 3, "doc": list("uvwxyz"), "click": [1] * 6}
    return rows | changes


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"rank": [1, 2, 1, 1.5, 1, 2]}, "bad-ranks", {}),
        ({"rank": ["1", "2", "1", "second", "1", "2"]}, "bad-ranks", {}),
        ({"query": list("qqqrqq")}, "inconsistent-session", {"column": "query"}),
        ({"time": [1, 1, 1, 2, 1, 1]}, "inconsistent-session", {"column": "time"}),
        ({"user": [*"uu", "u", None, *"uu"]}, "inconsistent-session", {"column": "user"}),
        ({"propensity": [0.5, 0.5, 0.5, 0.25, 0.5, 0.5]}, "inconsistent-session", {"column": "propensity"}),
    ],
)
def test_a_session_of_a_long_log_whose_rows_disagree_is_refused_or_skipped_alone(
    changes: dict[str, list[Any]], code: str, facts: dict[str, str], tmp_path: Path
) -> None:
    pq.write_table(pa.table(long_rows(**changes)), tmp_path / "log.parquet")
    with raises_code(code, FileError, session="a", count=1, **facts):
        encoded(tmp_path / "log.parquet")
    with warns_code("skipped-sessions", count=1):
        left = encoded(tmp_path / "log.parquet", on_bad_line="skip")
    assert left.sessions().to_arrow()["docs"].to_pylist() == [["u", "v"], ["y", "z"]]


def test_a_long_log_with_bad_sessions_only_is_empty(tmp_path: Path) -> None:
    pq.write_table(pa.table(long_rows(rank=[0] * 6)), tmp_path / "log.parquet")
    with raises_code("empty-log", FileError):
        encoded(tmp_path / "log.parquet", on_bad_line="skip")


def test_sessions_of_a_long_log_are_in_the_order_of_their_first_rows(tmp_path: Path) -> None:
    """However many threads group them: as in memory."""
    rng = np.random.default_rng(0)
    order = rng.permutation(60_000)
    session, rank = np.divmod(order, 2)
    columns = {"session": session, "query": session % 7, "rank": rank + 1, "doc": order % 11 + rank, "click": rank}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=5_000)
    found = encoded(tmp_path / "log.parquet").sessions()
    assert found.to_arrow().equals(read_log(tmp_path / "log.parquet").to_arrow())


@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.77])
def test_a_chronological_split_is_that_of_sessions_in_memory(fraction: float, tmp_path: Path) -> None:
    time = np.random.default_rng(0).integers(0, 9, 101).tolist()
    rows = {"query": ["q"] * 101, "docs": [[i, 500] for i in range(101)], "clicks": [[0, 1]] * 101, "time": time}
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    parts = zip(
        encoded(tmp_path / "log.parquet").split_by_time(fraction),
        read_log(tmp_path / "log.parquet").split_by_time(fraction),
        strict=True,
    )
    for one, other in parts:
        docs = (sorted(x.to_arrow()["docs"].to_pylist()) for x in (one.sessions(), other))
        assert next(docs) == next(docs)


def test_a_part_of_a_log_is_split_by_the_fraction_that_was_asked_for(log: Path) -> None:
    """Also with the seed of the first split."""
    first, _ = encoded(log).split(0.5, rng=0)
    part, _ = first.split(0.5, rng=0)
    assert 0.4 < len(part) / len(first) < 0.6
