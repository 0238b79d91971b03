"""Artifacts: directories with a JSON header and files of arrays, e.g. saved models. Reading one never runs code.

The names of the files contain a digest of their content, and the header, which names them, is replaced last and
atomically. A reader therefore sees the old artifact or the new one, and a full disk or a kill leaves the old one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

from clickshift._version import __version__
from clickshift.core.files import cannot_write, content_key, replace
from clickshift.core.interrupts import removed_at_end
from clickshift.core.leftovers import remove_leftovers, temporary_name
from clickshift.errors import FileError

_log = logging.getLogger(__name__)

Contents = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]
"""Header entries and arrays of an artifact."""
_MAX_HEADER = 1 << 24
"""Largest header that is read, in bytes."""
_MAX_READS = 100
"""Number of times that a reader follows a header which another process has just replaced."""
_MAX_UNCHANGED = 4
"""Number of times that a file may be missing although the header that refers to it has not changed."""
_LOCK_SECONDS = 5.0
"""Longest time to wait for another process that replaces the same artifact."""
_DTYPES = {
    **{f"f{size}": f"F{8 * size}" for size in (2, 4, 8)},
    **{f"{kind}{size}": f"{kind.upper()}{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)},
    "b1": "BOOL",
}
"""Names of numpy's types in safetensors files."""
_Read = TypeVar("_Read")


@final
@dataclass(frozen=True)
class ArtifactFormat:
    """Format of the artifact directories of one kind. Other, damaged and newer directories are refused.

    Parameters
    ----------
    kind
        Kind of artifact, e.g. "model"; also the stem of the file names.
    format
        Version of the format, raised when an older reader could not read the new one. Older versions are read, too.
    recreate
        How to get another artifact, to end a sentence that begins with "Upgrade clickshift, or".
    command
        Command that writes such directories.
    data
        Stems of the names of data files that the artifact may have besides its arrays, e.g. "pair" for pair.bin.
    """

    kind: str
    format: int
    recreate: str
    command: str
    data: tuple[str, ...] = ()

    @property
    def header(self) -> str:
        """Name of the header file."""
        return f"{self.kind}.json"

    @property
    def advice(self) -> str:
        """Last sentence of an error message: what to do."""
        return f"{self.recreate.capitalize()}, or pass the directory that `{self.command}` wrote."

    def write(
        self,
        folder: str | Path,
        facts: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        *,
        seeds: Sequence[Contents] | None = None,
    ) -> None:
        """Write an artifact, or replace the one in the directory; other files in it are kept.

        Parameters
        ----------
        folder
            Directory to write to; it is created if necessary.
        facts
            JSON values of the header.
        arrays
            Arrays by name.
        seeds
            Artifacts of several seeds, for the subdirectories seed-0, seed-1, ... All are replaced at once, and other
            seeds are removed. None leaves such subdirectories alone.

        Raises
        ------
        FileError
            If the directory cannot be written ("not-writable"), or the disk is full ("disk-full").
        """
        with self.replacing(folder) as temporary:
            headers = []
            for k, contents in enumerate(seeds or ()):
                (temporary / f"seed-{k}").mkdir()
                headers.append(self.write_files(temporary / f"seed-{k}", *contents))
            self.write_files(temporary, facts if seeds is None else {**facts, "seeds": headers}, arrays)

    @contextmanager
    def replacing(self, folder: str | Path) -> Iterator[Path]:
        """Yield a temporary directory for a new artifact, which replaces that of `folder` if the block succeeds.

        Parameters
        ----------
        folder
            Directory of the artifact. If there is none, the temporary directory is renamed.

        Raises
        ------
        FileError
            As for `write`.
        """
        folder = Path(folder)
        temporary = temporary_name(folder)
        try:
            remove_leftovers(folder.parent)
            if folder.is_dir():  # inside, because the directory may be a mounted disk
                remove_leftovers(folder)
                temporary = folder / temporary.name
            with removed_at_end(temporary):
                temporary.mkdir(parents=True)
                yield temporary
                if temporary.parent == folder or not _renamed(temporary, folder):
                    self._move_into(temporary, folder)
            _log.debug("wrote %s", folder)
        except OSError as error:
            raise cannot_write(folder, error) from error

    def write_files(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        data: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Write the files of an artifact to an empty directory, e.g. that of `replacing`, and return the header.

        Parameters
        ----------
        folder
            Directory to write to.
        facts
            JSON values of the header.
        arrays
            Arrays by name.
        data
            Names of the data files in the directory, by stem.
        """
        path = folder / f"{self.kind}.safetensors"
        _write_safetensors(path, arrays)
        digest = content_key([path])
        name = f"{self.kind}-{digest[:16]}.safetensors"
        replace(path, folder / name)
        files = {"files": {"arrays": name, **(data or {})}}
        header = {"format": self.format, "clickshift": __version__, **facts, "arrays": digest, **files}
        with (folder / self.header).open("w", encoding="utf-8") as file:
            file.write(json.dumps(header, indent=1))
            file.flush()
            os.fsync(file.fileno())
        return header

    def _move_into(self, temporary: Path, folder: Path) -> None:
        """Replace the artifact of a directory by one in a temporary directory on the same disk."""
        header = json.loads((temporary / self.header).read_text(encoding="utf-8"))
        seeds = {f"seed-{k}": seed for k, seed in enumerate(header.get("seeds", ()))}
        with _locked(folder):
            try:
                for name, part in {**seeds, "": header}.items():
                    if not (folder / name).is_dir():
                        (folder / name).mkdir()
                    for file in part["files"].values():
                        replace(temporary / name / file, folder / name / file)
                replace(temporary / self.header, folder / self.header)
                for name in seeds:
                    replace(temporary / name / self.header, folder / name / self.header)
            finally:
                with suppress(OSError, FileError):
                    self._remove_replaced(folder)

    def _remove_replaced(self, folder: Path) -> None:
        """Remove the files that no header refers to any more, and the seeds that the header does not list."""
        header = self.read_header(folder)
        self._remove_unused_files(folder, [header])
        seeds = header.get("seeds", ())
        for path in folder.glob("seed-*") if "seeds" in header else ():
            if not path.name[5:].isdecimal():
                continue
            used = seeds[int(path.name[5:]) :][:1]
            if not used:
                (path / self.header).unlink(missing_ok=True)
            elif (path / self.header).exists():  # an older one, if it could not be replaced
                used.append(self.read_header(path))
            self._remove_unused_files(path, used)
            with suppress(OSError):  # it is a seed of the header, or has other files, which are kept
                path.rmdir()

    def _remove_unused_files(self, folder: Path, headers: Sequence[Mapping[str, Any]]) -> None:
        """Remove the files of arrays and data that none of the headers of a directory refers to."""
        used = {name for header in headers for name in header.get("files", self._first_names()).values()}
        stems = "|".join(self.data)
        ours = re.compile(rf"{self.kind}(-[0-9a-f]{{16}})?\.safetensors|({stems})(-[0-9a-f]{{16}})?\.bin")
        for path in list(folder.iterdir()):
            if ours.fullmatch(path.name) and path.name not in used:
                path.unlink()

    def _first_names(self) -> dict[str, str]:
        """Return the names of the files in the first version of all formats, whose headers do not name them."""
        return {"arrays": f"{self.kind}.safetensors"} | {stem: f"{stem}.bin" for stem in self.data}

    def file_names(self, header: Mapping[str, Any]) -> dict[str, str]:
        """Return the names of the files of an artifact: "arrays", and the stems of data files.

        Parameters
        ----------
        header
            Its header.

        Raises
        ------
        ValueError
            If a name is not that of a file of this kind, e.g. a path out of the directory.
        """
        files = header.get("files", self._first_names())
        for stem, name in files.items():
            pattern = rf"{self.kind}(-\w+)?\.safetensors" if stem == "arrays" else rf"{re.escape(stem)}(-\w+)?\.bin"
            if stem not in {"arrays", *self.data} or not re.fullmatch(pattern, name):
                raise ValueError(f"{name!r} is not the name of a file of a {self.kind}")
        return dict(files)

    def read(self, folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Read the header and the arrays of an artifact, and check that they belong together.

        Parameters
        ----------
        folder
            Directory of the artifact.

        Returns
        -------
        tuple[dict, dict]
            The header, and the arrays by name.

        Raises
        ------
        FileError
            If the directory holds no such artifact ("not-a-model", "not-a-log", ... after its kind), is damaged
            ("damaged-file"), or has another version of the format ("newer-format", "older-format").
        """
        return self._follow(folder, lambda header: (header, self._read_arrays(Path(folder), header)))

    def read_seeds(self, folder: str | Path) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]] | None:
        """Read the artifacts of several seeds, as `read` does; None if the header does not list any.

        Parameters
        ----------
        folder
            Directory that contains the seeds.
        """

        def read(header: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]] | None:
            seeds = header.get("seeds")
            if not seeds:
                return None if seeds is None else [(header, self._read_arrays(Path(folder), header))]
            with self.checking(folder):
                return [
                    (dict(seed), self._read_arrays(Path(folder) / f"seed-{k}", seed)) for k, seed in enumerate(seeds)
                ]

        return self._follow(folder, read)

    def _follow(self, folder: str | Path, read: Callable[[dict[str, Any]], _Read]) -> _Read:
        """Read what a header refers to; if that is gone because the header was replaced, read the new one."""
        header, unchanged = self.read_header(folder), 0
        for _ in range(_MAX_READS):
            try:
                return read(header)
            except FileError as error:
                newer = self.read_header(folder)
                # the same header may be back: two processes replace an artifact by each other's
                unchanged = unchanged + 1 if newer == header else 0
                if error.code != "file-not-found" or unchanged == _MAX_UNCHANGED:
                    raise
                header = newer
                time.sleep(0.001 * unchanged)
        raise FileError(
            folder, "is replaced again and again by another process. Read it later.", code="busy-folder"
        ) from None

    def _read_arrays(self, folder: Path, header: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Read the arrays that a header refers to, and check their digest."""
        with self.checking(folder):
            path = folder / self.file_names(header)["arrays"]
        arrays = _read_safetensors(path, self.advice)
        if content_key([path]) != header.get("arrays"):
            raise FileError(
                folder,
                f"the header does not belong to the arrays: one of them was changed. {self.advice}",
                code="damaged-file",
                cause="arrays-changed",
            )
        return arrays

    def read_header(self, folder: str | Path) -> dict[str, Any]:
        """Read the header alone; it raises like `read`."""
        path = Path(folder) / self.header
        try:
            with path.open("rb") as file:
                text = file.read(_MAX_HEADER + 1)
            if len(text) > _MAX_HEADER:
                raise ValueError(f"it has more than {_MAX_HEADER:,} bytes")
            header = json.loads(text.decode("utf-8"))
            if not isinstance(header, dict):
                raise ValueError("not an object")
            version = int(header["format"])
        except (FileNotFoundError, NotADirectoryError):
            raise FileError(
                folder, f"is not a {self.kind}: it has no {self.header}. {self.advice}", code=f"not-a-{self.kind}"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise FileError(
                path, f"is not the header of a {self.kind}: {error}. {self.advice}", code="damaged-file"
            ) from None
        if version < 1:
            raise FileError(
                path,
                f"has format {version} of an older clickshift, this one reads {self.format}. "
                f"{self.recreate.capitalize()}.",
                code="older-format",
                format=version,
                supported=self.format,
            )
        if version > self.format:
            raise FileError(
                path,
                f"has format {version}, this clickshift reads {self.format}. Upgrade clickshift, or {self.recreate}.",
                code="newer-format",
                format=version,
                supported=self.format,
            )
        return header

    @contextmanager
    def checking(self, folder: str | Path) -> Iterator[None]:
        """Turn the exceptions of using what an artifact contains into one `FileError` ("damaged-file").

        Parameters
        ----------
        folder
            Directory of the artifact.
        """
        try:
            yield
        except FileError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise self.damaged(folder, error) from None

    def damaged(self, folder: str | Path, error: Exception) -> FileError:
        """Return the error for an artifact whose header and arrays can be read but not used."""
        cause = type(error).__name__
        problem = f"is damaged: {cause} {error}. {self.advice}"
        return FileError(folder, problem, code="damaged-file", cause=cause, detail=str(error))


def _renamed(temporary: Path, folder: Path) -> bool:
    """Rename a directory if there is no other of the new name, and return whether it was."""
    try:
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        return False  # another process was faster
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from replacing an artifact, for the few renames that it takes.

    Without locks, as on Windows and some network disks, two processes that replace the same artifact within a
    millisecond could remove each other's files.
    """
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.001)
            except OSError:  # the disk has no locks
                break
        yield
    finally:
        os.close(descriptor)


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as the safetensors library does, whose files other users may not read, and flush them to disk."""
    parts = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in arrays.items()}
    names = sorted(parts, key=lambda name: (-parts[name].itemsize, name))
    entries, end = dict[str, Any](), 0
    for name in names:
        begin, end = end, end + parts[name].nbytes
        kind = _DTYPES[parts[name].dtype.str[1:]]
        entries[name] = {"dtype": kind, "shape": parts[name].shape, "data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in names:
            file.write(parts[name].astype(parts[name].dtype.newbyteorder("<"), copy=False).data)
        file.flush()
        os.fsync(file.fileno())


def _read_safetensors(path: Path, advice: str) -> dict[str, np.ndarray]:
    """Read a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except FileNotFoundError:
        raise FileError(path, f"is missing. {advice}", code="file-not-found") from None
    except (SafetensorError, OSError, ValueError, TypeError, LookupError) as error:
        raise FileError(path, f"is damaged or of another type: {error}. {advice}", code="damaged-file") from None
