"""Exit codes of commands, which are stable, and which of them an error has."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

DONE, GATE_FAILED, INPUT, RESOURCES, INTERNAL = 0, 1, 2, 3, 70
"""Success; a check that the caller asked for failed; input that cannot be used; too little memory or disk; a bug."""
INTERRUPTED = 128
"""Added to the number of the signal that ended a command, as shells do: 130 after Ctrl-C, 143 after SIGTERM."""

_DISK_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_MEMORY_TEXTS = ("RESOURCE_EXHAUSTED", "OutOfMemoryException", "Out of Memory Error")
"""What JAX and DuckDB call the lack of memory; their classes cannot be imported here."""


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error, or one that it was made of, is a lack of memory."""
    return any(
        isinstance(cause, MemoryError) or any(text in f"{type(cause).__name__}: {cause}" for text in _MEMORY_TEXTS)
        for cause in _causes(error)
    )


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error, or one that it was made of, is a full disk or an exceeded quota."""
    texts = {os.strerror(number) for number in _DISK_FULL}
    return any(
        (isinstance(cause, OSError) and cause.errno in _DISK_FULL) or any(text in str(cause) for text in texts)
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it was made of."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
