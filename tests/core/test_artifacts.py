"""Folders of arrays: replaced at once or not at all, whatever fails and whoever else reads and writes them."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from clickshift.core import artifacts, leftovers
from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.files import write_atomically
from clickshift.core.leftovers import temporary_name
from clickshift.errors import FileError
from tests.codes import raises_code
from tests.folders import arrays_file

FORMAT = ArtifactFormat("thing", 2, "make it again", "clickshift thing")
CHANGES = ("replace", "rename", "mkdir", "fsync", "unlink", "rmdir")
"""Calls of the operating system that change a disk."""


def save_thing(folder: Path, value: int, seeds: int = 0) -> None:
    """A thing whose numbers all are `value`, as are those of its seeds."""
    contents = {"value": value}, {"numbers": np.full(50, value)}
    FORMAT.write(folder, *contents, seeds=[contents] * seeds)


def value_of(folder: Path) -> int:
    """The value of a thing and of all its seeds, which must agree."""
    read = FORMAT.read_seeds(folder) or [FORMAT.read(folder)]
    values = {header["value"] for header, _ in read} | {n for _, arrays in read for n in arrays["numbers"].tolist()}
    (value,) = values
    return int(value)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"a": np.arange(3), "b": np.ones((2, 3), np.float32), "ü": np.array([True]), "empty": np.zeros((0, 4))},
        {"scalar": np.array(2.5), "u": np.arange(5, dtype=np.uint8), "strided": np.arange(10)[::3]},
    ],
)
def test_arrays_are_read_by_the_library(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    FORMAT.write(tmp_path, {}, arrays)
    read = load_file(arrays_file(tmp_path))
    assert read.keys() == arrays.keys()
    for name, array in read.items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)
    as_library = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    assert len(arrays_file(tmp_path).read_bytes()) == len(as_library)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_all_files_are_readable_alike(tmp_path: Path) -> None:
    save_thing(tmp_path / "thing", 1, seeds=2)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "thing").rglob("*") if path.is_file()}
    mask = os.umask(0)
    os.umask(mask)
    assert modes == {0o666 & ~mask}


def nth(monkeypatch: pytest.MonkeyPatch, fault: Callable[[int], BaseException | None]) -> list[str]:
    """Let calls that change the disk fail, given their number; return the list of calls, filled as they happen."""
    calls: list[str] = []
    for name in CHANGES:
        real = getattr(os, name)

        def change(*arguments: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            calls.append(name)
            if (error := fault(len(calls))) is not None:
                raise error
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, change)
    return calls


def changes_of(folder: Path, seeds: int) -> list[str]:
    """The calls that change the disk while a thing is replaced."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        calls = nth(monkeypatch, lambda _: None)
        save_thing(folder, 0, seeds)
    return calls


@pytest.mark.parametrize("seeds", [0, 2])
def test_a_full_disk_at_any_write_leaves_the_old_folder(seeds: int, tmp_path: Path) -> None:
    folder = tmp_path / "thing"
    save_thing(folder, 0, seeds)
    for n, name in enumerate(changes_of(folder, seeds), start=1):
        save_thing(folder, n, seeds)
        before = files_below(folder)
        with pytest.MonkeyPatch.context() as monkeypatch:
            nth(monkeypatch, lambda k, n=n: OSError(28, "No space left on device") if k == n else None)  # type: ignore[misc]
            harmless = name in {"unlink", "rmdir"}  # what was replaced is removed by the next writer
            with nullcontext() if harmless else raises_code("disk-full", FileError, path=folder):
                save_thing(folder, -n, seeds)
        value = value_of(folder)
        assert value in {n, -n}
        assert value == -n or files_below(folder) == before, "nothing half-written"


class Killed(BaseException):
    """The end of a process: nothing that it would have done after it happens."""


@pytest.mark.parametrize("seeds", [0, 2])
def test_a_kill_at_any_change_leaves_the_old_folder_or_the_new_one(seeds: int, tmp_path: Path) -> None:
    folder, values = tmp_path / "thing", set()
    save_thing(folder, 0, seeds)
    for n in range(1, len(changes_of(folder, seeds)) + 1):
        save_thing(folder, 0, seeds)
        with pytest.MonkeyPatch.context() as monkeypatch:
            nth(monkeypatch, lambda k, n=n: Killed() if k >= n else None)  # type: ignore[misc]
            with pytest.raises(Killed):
                save_thing(folder, 1, seeds)
        values.add(value_of(folder))
    assert values == {0, 1}


def test_leftovers_of_a_kill_are_removed_by_the_next_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_thing(tmp_path / "thing", 1, seeds=1)
    expected = {"thing.json", "seed-0", "seed-0/thing.json"}
    gone = "-4194999-"  # larger than any process number
    for path in (tmp_path / "table.csv", tmp_path / "thing" / "thing", tmp_path / "other"):
        left = temporary_name(path)
        if path.suffix:
            left.with_name(left.name.replace(f"-{os.getpid()}-", gone)).write_text("half")
        else:
            left.with_name(left.name.replace(f"-{os.getpid()}-", gone)).mkdir()
    (tmp_path / "thing" / "thing-0123456789abcdef.safetensors").write_text("of a writer that was killed")
    alive, foreign = temporary_name(tmp_path / "alive.csv"), tmp_path / ".alive.0000-4194999-01234567.csv"
    old = tmp_path / ".old.4194999-01234567"
    for path in (alive, foreign, old):
        path.write_text("of another writer")
    os.utime(old, (1e9, 1e9))
    monkeypatch.setattr(leftovers, "_swept", set())
    save_thing(tmp_path / "thing", 2, seeds=1)
    with write_atomically(tmp_path / "table.csv") as temporary:
        temporary.write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"thing", "table.csv", alive.name, foreign.name}
    assert {name for name in files_below(tmp_path / "thing") if "safetensors" not in name} == expected
    assert value_of(tmp_path / "thing") == 2


@pytest.mark.parametrize("seeds", [0, 2])
def test_writers_and_readers_at_the_same_time(seeds: int, tmp_path: Path) -> None:
    folder, rounds = tmp_path / "thing", 25
    save_thing(folder, 0, seeds)

    def write(k: int) -> None:
        for n in range(rounds):
            save_thing(folder, 10 * n + k, seeds)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, k) for k in range(3)]
        while not all(writer.done() for writer in writers):
            value_of(folder)
    for writer in writers:
        writer.result()
    assert value_of(folder) in range(10 * (rounds - 1), 10 * rounds)
    assert len(list(folder.rglob("*.safetensors"))) == 1 + seeds, "those of replaced things are removed"


def test_other_files_of_the_folder_are_kept(tmp_path: Path) -> None:
    (tmp_path / "seed-7").mkdir()
    kept = ["README.md", "notes.safetensors", "seed-7/mine.txt", "pair.bin"]
    for name in kept:
        (tmp_path / name).write_text("x")
    for seeds in (3, 1):
        save_thing(tmp_path, 1, seeds)
    files = {name for name in files_below(tmp_path) if (tmp_path / name).is_file()}
    assert {name for name in files if "thing" not in name} == set(kept)
    assert not (tmp_path / "seed-2").exists()


def test_seeds_that_the_writer_does_not_name_are_left_alone(tmp_path: Path) -> None:
    save_thing(tmp_path / "seed-0", 1)
    FORMAT.write(tmp_path, {}, {})
    assert value_of(tmp_path / "seed-0") == 1


HOSTILE = ["[" * 200_000, '{"a":' * 100_000, '{"format": 1' + "0" * 5000 + "}", " " * ((1 << 24) + 1), '{"format": []}']


@pytest.mark.parametrize("text", HOSTILE, ids=["lists", "objects", "number", "long", "no-number"])
def test_a_hostile_header_is_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "thing.json").write_text(text)
    with pytest.raises(FileError) as caught:
        FORMAT.read(tmp_path)
    assert caught.value.code in {"damaged-file", "newer-format"}
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "thing-x/../y.safetensors", 7, None])
def test_a_header_names_no_file_elsewhere(name: object, tmp_path: Path) -> None:
    save_thing(tmp_path, 1)
    header = json.loads((tmp_path / "thing.json").read_text())
    (tmp_path / "thing.json").write_text(json.dumps(header | {"files": {"arrays": name}}))
    with raises_code("damaged-file", FileError, path=tmp_path):
        FORMAT.read(tmp_path)


def test_a_folder_that_is_always_replaced_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_thing(tmp_path, 1)
    headers = iter(range(10_000))
    real = ArtifactFormat.read_header
    monkeypatch.setattr(ArtifactFormat, "read_header", lambda *a: real(*a) | {"n": next(headers)})
    arrays_file(tmp_path).unlink()
    monkeypatch.setattr(artifacts, "_MAX_READS", 3)
    with raises_code("busy-folder", FileError, path=tmp_path):
        FORMAT.read(tmp_path)
