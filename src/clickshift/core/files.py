"""Files, read and written safely: the one place that knows how opening, unpacking, decoding and saving can fail.

Every failure is one `FileError` that says what to do. Text is UTF-8, plain or gzip (told by its first two bytes, not by
its name). What is written appears under its name complete or not at all.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import os
import secrets
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from clickshift.errors import FileError

Setting = str | int | float | bool | None

_GZIP = b"\x1f\x8b"
_BOM = codecs.BOM_UTF8
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ": "packed with xz",
    b"\x28\xb5\x2f\xfd": "packed with zstd",
    codecs.BOM_UTF16_LE: "UTF-16 text",
    codecs.BOM_UTF16_BE: "UTF-16 text",
}


def open_text(path: str | Path) -> io.TextIOWrapper:
    """A text file, plain or gzip, for reading; line ends of all systems become `\\n`."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8")


def open_bytes(path: str | Path) -> io.BufferedReader:
    """The same as undecoded UTF-8 bytes, for readers that parse bytes; line ends are as they are in the file."""
    return io.BufferedReader(_CheckedText(Path(path)), 1 << 17)


def line_blocks(path: str | Path, *, size: int = 1 << 23, longest_line: int = 1 << 24) -> Iterator[bytes]:
    """Whole lines of a text file, `size` bytes or so at a time, each block with a line end as its last byte."""
    rest = b""
    with open_bytes(path) as stream:
        while chunk := stream.read(size):
            if cut := chunk.rfind(b"\n") + 1:
                yield rest + chunk[:cut]
                rest = b""
            rest += chunk[cut:]
            if len(rest) > longest_line:
                raise FileError(path, f"has a line of more than {longest_line:,} bytes. Is this the right file?")
    if rest:
        yield rest + b"\n"


def files_in(folder: str | Path, suffixes: Sequence[str]) -> list[Path]:
    """The files of a folder whose names end so, perhaps with .gz after it, sorted; no hidden file and no README."""
    try:
        found = sorted(file for file in Path(folder).iterdir() if file.is_file())
    except OSError as error:
        raise FileError(folder, f"the folder cannot be listed ({_reason(error)}). Check its permissions.") from None
    named = [file for file in found if unpacked_name(file).suffix.lower() in suffixes]
    files = [file for file in named if not file.name.lower().startswith((".", "readme"))]
    if not files:
        wanted = " or ".join(suffixes)
        raise FileError(
            folder, f"the folder has no data files: none ends in {wanted} (or .gz after it). Name the files."
        )
    return files


def unpacked_name(path: Path) -> Path:
    """The path without .gz."""
    return path.with_suffix("") if path.suffix == ".gz" else path


@contextmanager
def write_atomically(path: str | Path, *, sync: bool = False) -> Iterator[Path]:
    """A temporary path in the same folder, renamed to `path` when the block ends well and removed when it fails.

    With `sync` the bytes are on the disk before the name is: a power cut leaves the old file or the new one.
    Missing folders are made.
    """
    path = Path(path)
    # not tempfile: its files are closed to other users, and would stay so; some writers look at the suffix, so it stays
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if sync:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        advice = "Choose a folder that you can write to, on a disk with free space."
        raise FileError(path, f"cannot be written ({_reason(error)}). {advice}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Save named arrays of numbers as one `.npz` file."""
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: str | Path) -> dict[str, np.ndarray] | None:
    """What `write_arrays` saved; None where there is no such file or it is damaged, so that a cache writes it anew."""
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception:  # damage can surface as any error of zip, header or number; each means that the entry is no use
        return None


def content_key(paths: Sequence[str | Path], *settings: Setting) -> str:
    """A digest of what the files hold, in this order, and of the settings: the name of a cache entry.

    >>> content_key([], "letor", 1) == content_key([], "letor", "1")
    False
    """
    digest = hashlib.blake2b(repr((len(paths), settings)).encode(), digest_size=16)
    for path in paths:
        with _reported(path), Path(path).open("rb") as file:
            digest.update(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).digest())
    return digest.hexdigest()


def cache_folder() -> Path:
    """The folder for what can be computed again: $CLICKSHIFT_CACHE, or the user's cache folder; made on demand."""
    if chosen := os.environ.get("CLICKSHIFT_CACHE"):
        folder = Path(chosen)
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser() / "clickshift" / "Cache"
    elif sys.platform == "darwin":
        folder = Path("~/Library/Caches/clickshift").expanduser()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "clickshift"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "Set CLICKSHIFT_CACHE to a folder that you can write to."
        raise FileError(folder, f"the cache folder cannot be made ({_reason(error)}). {advice}") from error
    return folder


class _CheckedText(io.RawIOBase):
    """The unpacked bytes of a text file, checked as they are read; a byte order mark is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 1
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        with _reported(path):
            self._file = path.open("rb")
        try:
            with _reported(path):
                self._source = self._unpacked()
        except BaseException:
            self._file.close()
            raise

    def _unpacked(self) -> io.BufferedReader | gzip.GzipFile:
        """The source of text, past its byte order mark."""
        is_gzip = self._file.peek(len(_GZIP)).startswith(_GZIP)
        source = gzip.GzipFile(fileobj=self._file) if is_gzip else self._file
        head = source.peek(8)
        for mark, name in _OTHER_FORMATS.items():
            if head.startswith(mark):
                raise FileError(self._path, f"is {name}, not UTF-8 text or gzip. Unpack or convert it first.")
        if head.startswith(_BOM):
            source.read(len(_BOM))
        return source

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any, /) -> int:
        with _reported(self._path), memoryview(buffer).cast("B") as view:
            size = self._source.readinto(view)
            self._check(bytes(view[:size]))
        return size

    def _check(self, chunk: bytes) -> None:
        """UTF-8 without NUL bytes; the empty chunk is the end of the file."""
        if (nul := chunk.find(0)) >= 0:
            line = self._line + chunk.count(b"\n", 0, nul)
            raise FileError(
                self._path, "holds a NUL byte, so this is not a text file. Is it another format?", line=line
            )
        try:
            if not chunk.isascii() or self._decoder.getstate()[0] or not chunk:
                self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line = self._line + error.object.count(b"\n", 0, error.start)
            found = f"byte 0x{error.object[error.start]:02X}"
            advice = "Convert the file to UTF-8, e.g. with iconv."
            raise FileError(self._path, f"must be UTF-8 text: got {found}. {advice}", line=line) from None
        self._line += chunk.count(b"\n")

    @override
    def close(self) -> None:
        if hasattr(self, "_source"):  # not where opening failed
            self._source.close()
            self._file.close()
        super().close()


@contextmanager
def _reported(path: str | Path) -> Iterator[None]:
    """Turn what opening and reading can raise into a FileError."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(path, "there is no such file. Check the path.") from None
    except (IsADirectoryError, PermissionError) as error:
        if Path(path).is_dir():  # of which Windows says that permission is denied
            raise FileError(path, "is a folder, where a file is expected. Name a file in it.") from None
        raise FileError(
            path, f"may not be opened ({_reason(error)}). Ask its owner, or change its permissions."
        ) from None
    except EOFError:
        raise FileError(path, "is a gzip file that ends too early. Copy or download it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(path, f"is a damaged gzip file ({error}). Copy or download it again.") from None
    except OSError as error:
        raise FileError(path, f"cannot be read ({_reason(error)}). Check the path and the disk.") from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
