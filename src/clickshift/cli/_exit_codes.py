"""Exit codes of commands, which are stable, and which of them an error has."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator

DONE, GATE_FAILED, INPUT, RESOURCES, INTERNAL = 0, 1, 2, 3, 70
"""Success; a check that the caller asked for failed; input that cannot be used; too little memory or disk; a bug."""
INTERRUPTED = 128
"""Added to the number of the signal that ended a command, as shells do: 130 after Ctrl-C, 143 after SIGTERM."""
PIPE_CLOSED = INTERRUPTED + 13
"""The program that reads the output ended first, e.g. `head`: what shells report of programs that SIGPIPE ends."""

_DISK_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_MEMORY_TEXTS = (
    "RESOURCE_EXHAUSTED",
    "OutOfMemoryException",
    "Out of Memory Error",
    "failed to map segment",
    "can't start new thread",
    "SystemError: error return without exception set",
)
"""What JAX, DuckDB, the loader of libraries, Python's threads and extension modules whose allocation failed call the
lack of memory; their classes cannot be imported here, or mean other things, too."""


def is_closed_output(error: BaseException) -> bool:
    """Return whether a command failed because nobody reads its standard output any more."""
    if not any(isinstance(cause, BrokenPipeError) for cause in _causes(error)):
        return False
    try:
        if os.path.samestat(os.fstat(1), os.stat(os.devnull)):
            return True  # rich has noticed it before, and discards what follows
        poll = select.poll()
        poll.register(1, 0)
        return bool(poll.poll(0))  # an error or a hang-up; other pipes, to worker processes, may break too
    except (AttributeError, OSError):  # Windows
        return True


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error, or one that it was made of, is a lack of memory."""
    return any(
        isinstance(cause, MemoryError)
        or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
        or any(text in f"{type(cause).__name__}: {cause}" for text in _MEMORY_TEXTS)
        for cause in _causes(error)
    )


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error, or one that it was made of, is a full disk, a quota or a limit of file sizes."""
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
