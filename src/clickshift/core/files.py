"""Safe reading and writing of files: all errors of opening, decompressing, decoding and saving are handled here.

Every failure is one `FileError` with advice. Text is UTF-8, plain or gzip (recognised by its first two bytes, not by
its name). Writing is atomic: a file appears under its name complete or not at all.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import hashlib
import io
import logging
import os
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from clickshift.core.interrupts import removed_at_end
from clickshift.core.leftovers import remove_leftovers, temporary_name
from clickshift.errors import FileError

_log = logging.getLogger(__name__)

Setting = str | int | float | bool | None
"""Value that may enter a cache key."""

_GZIP = b"\x1f\x8b"
_BOM = codecs.BOM_UTF8
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    codecs.BOM_UTF16_LE: "UTF-16 text",
    codecs.BOM_UTF16_BE: "UTF-16 text",
}


def open_text(path: str | Path) -> io.TextIOWrapper:
    """Open a UTF-8 text file, plain or gzip, for reading; line ends of all systems become `\\n`.

    Parameters
    ----------
    path
        File to read.

    Raises
    ------
    FileError
        If there is no such file ("file-not-found"), it is a directory ("is-a-folder"), may not be read
        ("permission-denied", "unreadable-file"), is damaged ("damaged-file"), is not UTF-8 text ("not-text"), or has a
        line of more than `LONGEST_LINE` bytes ("line-too-long").
        Errors in the content are raised while reading.
    """
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8")


def open_bytes(path: str | Path) -> io.BufferedReader:
    """Open a UTF-8 text file, plain or gzip, for reading as bytes; line ends are those of the file.

    Parameters
    ----------
    path
        File to read.

    Raises
    ------
    FileError
        As for `open_text`.
    """
    return io.BufferedReader(_CheckedTextStream(Path(path)), 1 << 17)


LONGEST_LINE = 1 << 24
"""Longest line of a text file that is read, in bytes: a file of a few kilobytes may unpack to a line of gigabytes."""


def line_blocks(path: str | Path, *, size: int = 1 << 23) -> Iterator[bytes]:
    """Yield a text file in blocks of whole lines; each block ends with a line end.

    Parameters
    ----------
    path
        UTF-8 text file, plain or gzip.
    size
        Approximate size of a block, in bytes.

    Raises
    ------
    FileError
        As for `open_text`.
    """
    rest = b""
    with open_bytes(path) as stream:
        while chunk := stream.read(size):
            if cut := chunk.rfind(b"\n") + 1:
                yield rest + chunk[:cut]
                rest = b""
            rest += chunk[cut:]
    if rest:
        yield rest + b"\n"


def files_in(folder: str | Path, suffixes: Sequence[str]) -> list[Path]:
    """List the data files of a directory, sorted; hidden files and READMEs are left out.

    Parameters
    ----------
    folder
        Directory to list.
    suffixes
        Accepted suffixes in lower case, e.g. [".txt"]; .gz may follow.

    Raises
    ------
    FileError
        If the directory cannot be listed ("unreadable-folder") or has no such file ("no-data-files").
    """
    try:
        entries = sorted(file for file in Path(folder).iterdir() if file.is_file())
    except OSError as error:
        raise FileError(
            folder,
            f"the directory cannot be listed ({_error_text(error)}). Check its permissions.",
            code="unreadable-folder",
            reason=_error_text(error),
        ) from None
    named = [file for file in entries if unpacked_name(file).suffix.lower() in suffixes]
    files = [file for file in named if not file.name.lower().startswith((".", "readme"))]
    if not files:
        wanted = " or ".join(suffixes)
        raise FileError(
            folder,
            f"the directory has no data files: none ends in {wanted} (or .gz after it). Pass the files by name.",
            code="no-data-files",
            suffixes=tuple(suffixes),
        )
    return files


def unpacked_name(path: Path) -> Path:
    """Return the path without the suffix .gz, if it has one.

    Examples
    --------
    >>> unpacked_name(Path("log.csv.gz")).name
    'log.csv'
    """
    return path.with_suffix("") if path.suffix == ".gz" else path


@contextmanager
def write_atomically(path: str | Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `path` if the block succeeds and removed if it fails.

    Parameters
    ----------
    path
        File to write; missing directories are created.
    sync
        Whether to flush the bytes to disk before renaming: a power cut then leaves the old file or the new one.

    Raises
    ------
    FileError
        If the file cannot be written ("not-writable"), or the disk is full ("disk-full").

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with write_atomically(f"{folder}/a.txt") as temporary:
    ...         _ = temporary.write_text("hello")
    ...     Path(folder, "a.txt").read_text()
    'hello'
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent)
        # not tempfile, whose files would stay unreadable for other users; the suffix is kept, as some writers need it
        # absolute, because pyarrow takes a relative path with a colon for the address of a file system
        with removed_at_end(temporary_name(path.absolute())) as temporary:
            yield temporary
            if sync:
                with temporary.open("rb+") as file:
                    os.fsync(file.fileno())
            replace(temporary, path)
        _log.debug("wrote %s", path)
    except OSError as error:
        raise cannot_write(path, error) from error


def replace(source: Path, target: Path) -> None:
    """Rename a file over another one; on Windows, wait up to a second for readers that have it open.

    Parameters
    ----------
    source, target
        The two files.
    """
    patience = time.monotonic() + (1.0 if sys.platform == "win32" else 0.0)
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if time.monotonic() >= patience:
                raise
            time.sleep(0.02)


def cannot_write(path: str | Path, error: OSError) -> FileError:
    """Return the error for a file or directory that cannot be written ("disk-full" or "not-writable").

    Parameters
    ----------
    path
        What was to be written.
    error
        The error of the operating system.
    """
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # no space, a quota, a limit of `ulimit -f`
    advice = (
        "Free some space, or choose a directory on another disk. Nothing was replaced."
        if full
        else "Choose a directory that you can write to."
    )
    reason = _error_text(error)
    code = "disk-full" if full else "not-writable"
    return FileError(path, f"cannot be written ({reason}). {advice}", code=code, reason=reason)


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Save arrays of numbers by name as one `.npz` file, atomically.

    Parameters
    ----------
    path
        File to write.
    arrays
        Arrays by name.

    Raises
    ------
    FileError
        If the file cannot be written ("not-writable").
    """
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: str | Path) -> dict[str, np.ndarray] | None:
    """Read the arrays that `write_arrays` saved.

    Parameters
    ----------
    path
        File to read.

    Returns
    -------
    dict or None
        The arrays by name; None if the file is missing or damaged, so that a cache writes it again.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception:  # a damaged zip, header or number can raise any error; each means that the file is useless
        return None


def content_key(paths: Sequence[str | Path], *settings: Setting) -> str:
    """Return a digest of the contents of files, in this order, and of settings: the key of a cache entry.

    Parameters
    ----------
    paths
        Files to read.
    *settings
        Values that the cached result depends on.

    Raises
    ------
    FileError
        If a file cannot be read; see `open_text`.

    Examples
    --------
    >>> content_key([], "letor", 1) == content_key([], "letor", "1")
    False
    """
    digest = hashlib.blake2b(repr((len(paths), settings)).encode(), digest_size=16)
    for path in paths:
        with _file_errors(path), Path(path).open("rb") as file:
            digest.update(hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).digest())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the cache directory, which is created if necessary: $CLICKSHIFT_CACHE, or that of the operating system.

    Raises
    ------
    FileError
        If the directory cannot be created ("not-writable").
    """
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
        advice = "Set CLICKSHIFT_CACHE to a directory that you can write to."
        raise FileError(
            folder,
            f"the cache directory cannot be created ({_error_text(error)}). {advice}",
            code="not-writable",
            reason=_error_text(error),
            variable="CLICKSHIFT_CACHE",
        ) from error
    return folder


class _CheckedTextStream(io.RawIOBase):
    """Decompressed bytes of a text file, validated as they are read; a byte order mark is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 1
        self._line_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        with _file_errors(path):
            self._file = path.open("rb")
        try:
            with _file_errors(path):
                self._source = self._open_source()
        except BaseException:
            self._file.close()
            raise

    def _open_source(self) -> io.BufferedReader | gzip.GzipFile:
        """Return the stream of text after its byte order mark, or raise for other formats."""
        is_gzip = self._file.peek(len(_GZIP)).startswith(_GZIP)
        source = gzip.GzipFile(fileobj=self._file) if is_gzip else self._file
        head = source.peek(8)
        for mark, name in _OTHER_FORMATS.items():
            if head.startswith(mark):
                raise FileError(
                    self._path,
                    f"is {name}, not UTF-8 text or gzip. Decompress or convert it first.",
                    code="not-text",
                    value=name,
                )
        if head.startswith(_BOM):
            source.read(len(_BOM))
        return source

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any, /) -> int:
        with _file_errors(self._path), memoryview(buffer).cast("B") as view:
            size = self._source.readinto(view)
            self._check(bytes(view[:size]))
        return size

    def _check(self, chunk: bytes) -> None:
        """Raise unless the chunk is UTF-8 without NUL bytes; the empty chunk is the end of the file."""
        if (nul := chunk.find(0)) >= 0:
            line = self._line + chunk.count(b"\n", 0, nul)
            raise FileError(
                self._path,
                "contains a NUL byte, so it is not a text file. Check the format.",
                line=line,
                code="not-text",
                value="byte 0x00",
            )
        try:
            if not chunk.isascii() or self._decoder.getstate()[0] or not chunk:
                self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line = self._line + error.object.count(b"\n", 0, error.start)
            byte = f"byte 0x{error.object[error.start]:02X}"
            advice = "Convert the file to UTF-8, e.g. with iconv."
            raise FileError(
                self._path, f"must be UTF-8 text: got {byte}. {advice}", line=line, code="not-text", value=byte
            ) from None
        self._check_line_length(chunk)
        self._line += chunk.count(b"\n")

    def _check_line_length(self, chunk: bytes) -> None:
        """Raise if a line that begins before the chunk is too long; lines within a chunk are shorter."""
        end = min((at for mark in (b"\n", b"\r") if (at := chunk.find(mark)) >= 0), default=-1)
        if self._line_bytes + (len(chunk) if end < 0 else end) > LONGEST_LINE:
            raise FileError(
                self._path,
                f"has a line of more than {LONGEST_LINE:,} bytes. Check that this is the right file.",
                line=self._line,
                code="line-too-long",
                limit=LONGEST_LINE,
            )
        rest = len(chunk) - max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) - 1
        self._line_bytes = self._line_bytes + rest if end < 0 else rest

    @override
    def close(self) -> None:
        if hasattr(self, "_source"):  # absent if opening failed
            self._source.close()
            self._file.close()
        super().close()


@contextmanager
def _file_errors(path: str | Path) -> Iterator[None]:
    """Turn the exceptions of opening and reading a file into a `FileError`."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(path, "there is no such file. Check the path.", code="file-not-found") from None
    except (IsADirectoryError, PermissionError) as error:
        if Path(path).is_dir():  # Windows reports that permission is denied
            raise FileError(
                path, "is a directory, but a file is expected. Pass a file in it.", code="is-a-folder"
            ) from None
        raise FileError(
            path,
            f"may not be opened ({_error_text(error)}). Ask its owner, or change its permissions.",
            code="permission-denied",
            reason=_error_text(error),
        ) from None
    except EOFError:
        raise FileError(
            path,
            "is a gzip file that ends too early. Copy or download it again.",
            code="damaged-file",
            format="gzip",
            truncated=True,
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(
            path,
            f"is a damaged gzip file ({error}). Copy or download it again.",
            code="damaged-file",
            format="gzip",
            truncated=False,
        ) from None
    except OSError as error:
        raise FileError(
            path,
            f"cannot be read ({_error_text(error)}). Check the path and the disk.",
            code="unreadable-file",
            reason=_error_text(error),
        ) from error


def _error_text(error: OSError) -> str:
    """Return the operating system's description of an error."""
    return error.strerror or str(error)
