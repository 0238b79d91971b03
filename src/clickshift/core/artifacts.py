"""What was learned, on disk: a folder with a JSON header and a safetensors file. Opening one never runs code."""

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
    """How folders of one kind of thing are written and read. What is no such folder, damaged or newer is refused."""

    kind: str
    format: int
    """Raised when a reader of the old format could no longer read the new one."""
    again: str
    """What makes another one, to end a sentence that begins with "Upgrade clickshift, or"."""
    command: str
    """What writes such folders."""

    @property
    def header(self) -> str:
        return f"{self.kind}.json"

    @property
    def arrays(self) -> str:
        return f"{self.kind}.safetensors"

    @property
    def advice(self) -> str:
        return f"{self.again.capitalize()}, or give the folder that `{self.command}` wrote."

    def write(self, folder: str | Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """The header comes last: a folder without it is nothing, so a killed write leaves nothing behind."""
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
            raise FileError(folder, f"cannot be written: {error.strerror}. Choose another folder.") from None

    def read(self, folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The header and the arrays, which belong to each other."""
        header, path = self.read_header(folder), Path(folder) / self.arrays
        arrays = _read_arrays(path, self.advice)
        if content_key([path]) != header.get("arrays"):
            raise FileError(folder, f"the header does not belong to the arrays: one of them was changed. {self.advice}")
        return header, arrays

    def read_header(self, folder: str | Path) -> dict[str, Any]:
        """The header alone."""
        path = Path(folder) / self.header
        try:
            header = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(header, dict):
                raise ValueError("not an object")
            version = header["format"]
        except FileNotFoundError:
            raise FileError(folder, f"is not a {self.kind}: it has no {self.header}. {self.advice}") from None
        except (OSError, ValueError, KeyError) as error:
            raise FileError(path, f"is not a {self.kind}'s header: {error}. {self.advice}") from None
        if version != self.format:
            raise FileError(
                path,
                f"has format {version}, this clickshift reads {self.format}. Upgrade clickshift, or {self.again}.",
            )
        return header

    def damaged(self, folder: str | Path, error: Exception) -> FileError:
        """What to raise where the parts are there, but do not make the thing."""
        return FileError(folder, f"is damaged: {type(error).__name__} {error}. {self.advice}")


def _read_arrays(path: Path, advice: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise FileError(path, f"is missing. {advice}")
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(path, f"is damaged or of another kind: {error}. {advice}") from None
