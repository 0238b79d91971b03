"""Files: every way in which reading fails is one clear FileError; writing is all or nothing."""

from __future__ import annotations

import codecs
import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.core import files
from clickshift.core.files import (
    _CheckedTextStream,
    cache_folder,
    content_key,
    files_in,
    line_blocks,
    open_bytes,
    open_text,
    read_arrays,
    unpacked_name,
    write_arrays,
    write_atomically,
)
from clickshift.errors import FileError
from tests.codes import raises_code

TEXT = "naïve\r\nlines, 日本\n"


@pytest.mark.parametrize("name", ["plain.gz", "packed.txt"])  # the bytes decide, not the name
@pytest.mark.parametrize("start", [b"", codecs.BOM_UTF8])
def test_plain_and_gzip_read_the_same(tmp_path: Path, name: str, start: bytes) -> None:
    file, data = tmp_path / name, start + TEXT.encode()
    file.write_bytes(gzip.compress(data) if name.startswith("packed") else data)
    with open_bytes(file) as stream:
        assert stream.read() == TEXT.encode()
    with open_text(file) as lines:
        assert list(lines) == ["naïve\n", "lines, 日本\n"]


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    file = tmp_path / "two"
    file.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert open_text(file).read() == "one two"


PACKED = gzip.compress(bytes(range(32, 127)) * 500, mtime=0)
DAMAGED = {
    "gzip cut short": (PACKED[:-20], "damaged-file", {"format": "gzip", "truncated": True}),
    "gzip cut very short": (PACKED[:2], "damaged-file", {"format": "gzip", "truncated": True}),
    "gzip with a wrong checksum": (PACKED[:-8] + bytes(8), "damaged-file", {"format": "gzip", "truncated": False}),
    "gzip with wrong bytes": (
        PACKED[:40] + b"\xff" * 40 + PACKED[80:],
        "damaged-file",
        {"format": "gzip", "truncated": False},
    ),
    "gzip with something after it": (PACKED + b"more", "damaged-file", {"format": "gzip", "truncated": False}),
    "gzip of binary": (gzip.compress(b"a\nb\0"), "not-text", {"value": "byte 0x00", "line": 2}),
    "binary": (b"\0", "not-text", {"value": "byte 0x00", "line": 1}),
    "Latin-1": ("a\nb\ncafé".encode("latin-1"), "not-text", {"value": "byte 0xE9", "line": 3}),
    "UTF-8 cut short": ("a\n日本".encode()[:-1], "not-text", {"value": "byte 0xE6", "line": 2}),
    "UTF-16": ("wide".encode("utf-16"), "not-text", {"value": "UTF-16 text"}),
    "zip": (b"PK\x03\x04....", "not-text", {"value": "a zip archive"}),
    "bzip2 in gzip": (gzip.compress(b"BZh91AY"), "not-text", {"value": "compressed with bzip2"}),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("way", [open_text, open_bytes])
def test_damaged_files_have_one_clear_message(tmp_path: Path, damage: str, way: Callable[[Path], IO[Any]]) -> None:
    file = tmp_path / "file"
    data, code, facts = DAMAGED[damage]
    file.write_bytes(data)
    with raises_code(code, FileError, **facts) as caught, way(file) as stream:
        stream.read()
    assert caught.value.path == file
    assert str(caught.value).startswith(str(file))


def test_bad_bytes_are_found_far_into_the_file(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(b"x" * 99 + b"\n" + "é".encode() * 300_000 + b"\n\xff")
    with raises_code("not-text", FileError, value="byte 0xFF", line=3), open_text(file) as stream:
        stream.read()


def test_a_character_may_lie_across_two_reads(tmp_path: Path) -> None:
    file, text = tmp_path / "long", "x" + "é" * 300_000
    file.write_text(text, encoding="utf-8")
    with open_text(file) as stream:
        assert stream.read() == text


def test_what_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for way in (open_text, open_bytes, lambda path: content_key([path])):
        with raises_code("file-not-found", FileError):
            way(tmp_path / "absent")
        with raises_code("is-a-folder", FileError):
            way(tmp_path)
        (tmp_path / "file").touch()
        with raises_code("unreadable-file", FileError, reason="Not a directory"):
            way(tmp_path / "file" / "below")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # permissions do not stop every user who runs tests
    with raises_code("permission-denied", FileError, reason="Permission denied"):
        open_text(tmp_path / "file")


@given(data=st.binary(max_size=60), packed=st.booleans())
def test_any_bytes_are_text_or_a_file_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, packed: bool
) -> None:
    file = tmp_path_factory.mktemp("any") / "file"
    file.write_bytes(gzip.compress(data) if packed else data)
    try:
        with open_bytes(file) as stream:
            found = stream.read()
    except FileError:
        return
    assert found == data.removeprefix(codecs.BOM_UTF8)
    assert "\0" not in found.decode("utf-8")


@given(data=st.lists(st.text("ab", max_size=9)).map("\n".join), size=st.integers(1, 12))
def test_blocks_are_whole_lines(tmp_path_factory: pytest.TempPathFactory, data: str, size: int) -> None:
    file = tmp_path_factory.mktemp("blocks") / "file"
    file.write_text(data)
    blocks = list(line_blocks(file, size=size))
    assert all(block.endswith(b"\n") for block in blocks)
    assert b"".join(blocks).decode() == data + "\n" * (data != "" and not data.endswith("\n"))


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    for text, longest in (("a\n" + "b" * 50, 50), ("b" * 50 + "\n" + "a" * 9, 50), ("a\r" + "b" * 50 + "\r\nc", 50)):
        file.write_text(text)
        for buffer in (1, 7, 49, 51, 1000):
            monkeypatch.setattr(files, "LONGEST_LINE", longest)
            with _CheckedTextStream(file) as stream:
                assert b"".join(iter(lambda stream=stream, size=buffer: stream.read(size), b"")) == text.encode()
            monkeypatch.setattr(files, "LONGEST_LINE", longest - 1)
            if buffer < longest:
                with (
                    raises_code("line-too-long", FileError, limit=longest - 1, path=file),
                    _CheckedTextStream(file) as stream,
                ):
                    list(iter(lambda stream=stream, size=buffer: stream.read(size), b""))


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.txt", "a.TXT.gz", "README.txt", ".hidden.txt", "c.query"):
        (tmp_path / name).touch()
    (tmp_path / "folder.txt").mkdir()
    assert [file.name for file in files_in(tmp_path, [".txt"])] == ["a.TXT.gz", "b.txt"]
    with raises_code("no-data-files", FileError, suffixes=(".dat",)):
        files_in(tmp_path, [".dat"])
    with raises_code("unreadable-folder", FileError, reason="No such file or directory"):
        files_in(tmp_path / "absent", [".dat"])
    assert unpacked_name(Path("x/a.txt.gz")) == Path("x/a.txt")


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_appears_whole(tmp_path: Path, sync: bool) -> None:
    target = tmp_path / "new" / "table.csv"
    with write_atomically(target, sync=sync) as temporary:
        temporary.write_text("first")
        assert temporary.parent == target.parent
        assert temporary.suffix == ".csv"
        assert not target.exists()
    assert target.read_text() == "first"
    assert os.listdir(target.parent) == ["table.csv"]


def test_a_failure_leaves_the_old_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")

    def write_half() -> None:
        with write_atomically(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises_code("not-writable", FileError, reason="File exists"), write_atomically(tmp_path / "file" / "below"):
        pytest.fail("there is no such folder")
    with raises_code("disk-full", FileError, reason="No space left"), write_atomically(tmp_path / "x"):
        raise OSError(28, "No space left")


def test_arrays_survive_and_damage_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "arrays.npz"
    assert read_arrays(file) is None
    write_arrays(file, {"a": np.arange(3), "b": np.eye(2, dtype=np.float32)})
    found = read_arrays(file)
    assert found is not None
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"].dtype == np.float32
    whole = file.read_bytes()
    at = whole.index(np.arange(3).tobytes())
    for damaged in (b"", whole[:-30], whole[:at] + b"\7" + whole[at + 1 :], b"garbage"):
        file.write_bytes(damaged)
        assert read_arrays(file) is None


def test_arrays_never_hold_code(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_arrays(tmp_path / "arrays.npz", {"a": np.array([print])})
    np.savez(tmp_path / "arrays.npz", a=np.array([print]))
    assert read_arrays(tmp_path / "arrays.npz") is None


def test_the_key_is_of_contents_and_settings(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    a.write_bytes(b"one")
    b.write_bytes(b"two")
    c.write_bytes(b"one")
    key = content_key([a, b], "kind", 1, None)
    assert key == content_key([c, b], "kind", 1, None)  # the name does not matter
    others = [
        content_key([b, a], "kind", 1, None),
        content_key([a], "kind", 1, None),
        content_key([a, b], "kind", "1", None),
        content_key([a, b], "kind", 1),
        content_key([a, b], "kind", 1, "None"),
    ]
    assert len({key, *others}) == 6
    a.write_bytes(b"ont")
    assert key != content_key([a, b], "kind", 1, None)


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKSHIFT_CACHE", str(tmp_path / "chosen" / "cache"))
    assert cache_folder() == tmp_path / "chosen" / "cache"
    assert cache_folder().is_dir()
    monkeypatch.delenv("CLICKSHIFT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "xdg" / "clickshift"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "clickshift"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "clickshift"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "clickshift" / "Cache"
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLICKSHIFT_CACHE", str(tmp_path / "file" / "below"))
    with raises_code("not-writable", FileError, reason="Not a directory", variable="CLICKSHIFT_CACHE"):
        cache_folder()


def test_an_error_of_another_process_arrives_as_what_it_is() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(FileError("log.csv", "is empty.", line=3)))
    assert (str(error), error.line, error.problem) == ("log.csv, line 3: is empty.", 3, "is empty.")
