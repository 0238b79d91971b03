"""Artifacts: directories with a JSON header and a safetensors file, e.g. saved models. Reading one never runs code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from clickshift._version import __version__
from clickshift.core.files import content_key, write_atomically
from clickshift.errors import FileError


@final
@dataclass(frozen=True)
class ArtifactFormat:
    """Format of the artifact directories of one kind. Other, damaged and newer directories are refused.

    Parameters
    ----------
    kind
        Kind of artifact, e.g. "model"; also the stem of the file names.
    format
        Version of the format, raised when an older reader could not read the new one.
    recreate
        How to get another artifact, to end a sentence that begins with "Upgrade clickshift, or".
    command
        Command that writes such directories.
    """

    kind: str
    format: int
    recreate: str
    command: str

    @property
    def header(self) -> str:
        """Name of the header file."""
        return f"{self.kind}.json"

    @property
    def arrays(self) -> str:
        """Name of the file of arrays."""
        return f"{self.kind}.safetensors"

    @property
    def advice(self) -> str:
        """Last sentence of an error message: what to do."""
        return f"{self.recreate.capitalize()}, or pass the directory that `{self.command}` wrote."

    def write(self, folder: str | Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write an artifact. The header is written last, so that an interrupted write leaves no valid artifact.

        Parameters
        ----------
        folder
            Directory to write to; it is created if necessary.
        facts
            JSON values of the header.
        arrays
            Arrays by name.

        Raises
        ------
        FileError
            If the directory cannot be written ("not-writable").
        """
        from safetensors.numpy import save_file

        folder = Path(folder)
        header = {"format": self.format, "clickshift": __version__, **facts}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / self.header).unlink(missing_ok=True)
            with write_atomically(folder / self.arrays) as path:
                save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
                header["arrays"] = content_key([path])
            with write_atomically(folder / self.header) as path:
                path.write_text(json.dumps(header, indent=1))
        except OSError as error:
            raise FileError(
                folder, f"cannot be written: {error.strerror}. Choose another directory.", code="not-writable"
            ) from None

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
        header, path = self.read_header(folder), Path(folder) / self.arrays
        arrays = _read_arrays(path, self.advice)
        if content_key([path]) != header.get("arrays"):
            raise FileError(
                folder,
                f"the header does not belong to the arrays: one of them was changed. {self.advice}",
                code="damaged-file",
                cause="arrays-changed",
            )
        return header, arrays

    def read_header(self, folder: str | Path) -> dict[str, Any]:
        """Read the header alone; it raises like `read`."""
        path = Path(folder) / self.header
        try:
            header = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(header, dict):
                raise ValueError("not an object")
            version = int(header["format"])
        except (FileNotFoundError, NotADirectoryError):
            raise FileError(
                folder, f"is not a {self.kind}: it has no {self.header}. {self.advice}", code=f"not-a-{self.kind}"
            ) from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FileError(
                path, f"is not the header of a {self.kind}: {error}. {self.advice}", code="damaged-file"
            ) from None
        if version < self.format:
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

    def damaged(self, folder: str | Path, error: Exception) -> FileError:
        """Return the error for an artifact whose header and arrays can be read but not used."""
        cause = type(error).__name__
        problem = f"is damaged: {cause} {error}. {self.advice}"
        return FileError(folder, problem, code="damaged-file", cause=cause, detail=str(error))


def _read_arrays(path: Path, advice: str) -> dict[str, np.ndarray]:
    """Read a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise FileError(path, f"is missing. {advice}", code="file-not-found")
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(path, f"is damaged or of another type: {error}. {advice}", code="damaged-file") from None
