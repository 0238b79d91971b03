"""Anonymous temporary files for data that does not fit in memory; they are deleted when they are no longer used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO

import numpy as np

from clickshift.errors import FileError


@dataclass(frozen=True)
class TemporaryStorage:
    """Directory for temporary files.

    Data is written, and only mapped after that: a full disk then raises an error instead of killing the process.

    Parameters
    ----------
    folder
        Directory, e.g. that of an encoded log; None for that of the operating system.
    """

    folder: Path | None = None

    @classmethod
    def in_first_writable(cls, *folders: Path | None) -> TemporaryStorage:
        """Return storage in the first directory that can be written to; None, for a log in memory, is skipped."""
        return cls(next((folder for folder in folders if folder is not None and os.access(folder, os.W_OK)), None))

    def file(self) -> IO[bytes]:
        """Open a new temporary file."""
        return TemporaryFile(dir=self.folder)

    @contextmanager
    def room_for(self, what: str) -> Iterator[None]:
        """Turn a failed write of `what` into an error with advice.

        Raises
        ------
        FileError
            If the disk is full or cannot be written ("no-space").
        """
        try:
            yield
        except OSError as error:
            advice = (
                "Set TMPDIR to a directory with free space."
                if self.folder is None
                else "Encode the log into a directory with free space (`clickshift log encode`)."
            )
            raise FileError(
                self.folder or gettempdir(),
                f"there is no space for {what} ({error.strerror or error}). {advice}",
                code="no-space",
                reason=error.strerror or str(error),
            ) from None


SYSTEM_STORAGE = TemporaryStorage()
"""Storage in the temporary directory of the operating system."""


class ArraySpool:
    """List of arrays in a temporary file; they differ only in the length of the first axis.

    Parameters
    ----------
    scratch
        Storage for the file.

    Examples
    --------
    >>> with ArraySpool(TemporaryStorage()) as spool:
    ...     spool.append(np.array([1, 2]))
    ...     spool.append(np.array([3]))
    ...     spool[0].tolist(), spool.whole.tolist()
    ([1, 2], [1, 2, 3])
    """

    def __init__(self, scratch: TemporaryStorage) -> None:
        self._file, self._ends = scratch.file(), [0]
        self._template = np.empty(0)

    def append(self, array: np.ndarray) -> None:
        """Append an array to the file."""
        self._template = array[:0].copy()  # a view would keep the whole array alive
        self._file.write(array.tobytes())
        self._ends.append(self._ends[-1] + len(array))

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._ends) - 1

    def __getitem__(self, k: int) -> np.ndarray:
        """Return array number k, after all arrays were appended."""
        return self.whole[self._ends[k] : self._ends[k + 1]]

    @cached_property
    def whole(self) -> np.ndarray:
        """Concatenation of all arrays, mapped from the file, which is kept as long as the array."""
        self._file.flush()
        shape = self._ends[-1], *self._template.shape[1:]
        if 0 in shape:  # an empty file cannot be mapped
            return np.empty(shape, self._template.dtype)
        # writable, though nothing writes to it: kernels would be compiled again for read-only arrays
        return np.memmap(self._file, self._template.dtype, "r+", shape=shape)

    def __enter__(self) -> ArraySpool:
        return self

    def __exit__(self, *error: object) -> None:
        self.__dict__.pop("whole", None)  # arrays in use stay valid
        self._file.close()
