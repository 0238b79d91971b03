"""Files without names, where there is room for what memory is too small for; gone when nobody needs them any more."""

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
    """Everything is written, nothing is mapped that is not there yet: a full disk is an error, not the end of the
    process."""

    folder: Path | None = None
    """That of an encoded log; None is the system's, also where nothing can be written beside the log."""

    @classmethod
    def beside(cls, *folders: Path | None) -> TemporaryStorage:
        """In the first of these folders that can be written to; None is a log in memory."""
        return cls(next((folder for folder in folders if folder is not None and os.access(folder, os.W_OK)), None))

    def file(self) -> IO[bytes]:
        return TemporaryFile(dir=self.folder)

    @contextmanager
    def room_for(self, what: str) -> Iterator[None]:
        """Say what to do where there is none."""
        try:
            yield
        except OSError as error:
            advice = (
                "Set TMPDIR to a folder with free space."
                if self.folder is None
                else "Encode the log into a folder with free space: clickshift log encode LOG -o FOLDER."
            )
            raise FileError(
                self.folder or gettempdir(), f"there is no room for {what} ({error.strerror or error}). {advice}"
            ) from None


ANYWHERE = TemporaryStorage()


class ArraySpool:
    """Arrays that differ in length only, one after the other in a file: a list that takes no memory."""

    def __init__(self, scratch: TemporaryStorage) -> None:
        self._file, self._ends = scratch.file(), [0]
        self._like = np.empty(0)

    def append(self, array: np.ndarray) -> None:
        self._like = array[:0].copy()  # a view would hold on to all of it
        self._file.write(array.tobytes())
        self._ends.append(self._ends[-1] + len(array))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, k: int) -> np.ndarray:
        """Once all are there."""
        return self.whole[self._ends[k] : self._ends[k + 1]]

    @cached_property
    def whole(self) -> np.ndarray:
        """All of them as one array, mapped from the file, which stays as long as the array does."""
        self._file.flush()
        shape = self._ends[-1], *self._like.shape[1:]
        if 0 in shape:  # nothing cannot be mapped
            return np.empty(shape, self._like.dtype)
        # writable, though nobody writes: kernels would be compiled once more for what is not
        return np.memmap(self._file, self._like.dtype, "r+", shape=shape)

    def __enter__(self) -> ArraySpool:
        return self

    def __exit__(self, *error: object) -> None:
        self.__dict__.pop("whole", None)  # who has it keeps it
        self._file.close()
