"""Names of temporary files and directories, and the removal of those that killed processes left behind.

A name says who writes: `.NAME.MACHINE-PROCESS-RANDOM.SUFFIX`. What a process of this machine that no longer exists left
is removed at once; what another machine writes to a shared directory, only when it is a day old.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from clickshift.core.interrupts import remove

_NAME = re.compile(r"\..+\.(?:(?P<machine>[0-9a-f]{4})-)?(?P<process>[0-9]{1,10})-[0-9a-f]{8}(?:\.[^.]*)?")
_MAX_AGE = 24 * 3600.0
"""Age in seconds from which a temporary file is nobody's, if its process cannot be asked for."""
_swept: set[Path] = set()
"""Directories from which this process has removed leftovers."""


def temporary_name(path: Path) -> Path:
    """Return a new name for a temporary file or directory next to `path`, with the same suffix.

    Parameters
    ----------
    path
        Final path; some writers choose a format by its suffix.

    Examples
    --------
    >>> name = temporary_name(Path("out/table.csv")).name
    >>> name.startswith(".table."), name.endswith(".csv")
    (True, True)
    """
    return path.with_name(f".{path.stem[:150]}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{path.suffix}")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and directories of killed processes, once per directory and process.

    Parameters
    ----------
    folder
        Directory that is about to be written to.
    """
    folder = Path(os.path.abspath(folder))
    if folder in _swept:
        return
    _swept.add(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        abandoned = [Path(entry.path) for entry in entries if entry.name.startswith(".") and _is_abandoned(entry)]
        for path in abandoned:
            remove(path)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Return whether a temporary file or directory belongs to a process that is gone, or is a day old."""
    match = _NAME.fullmatch(entry.name)
    if match is None:
        return False
    if match["machine"] == _machine() and sys.platform != "win32":
        return not _exists(int(match["process"]))
    return _last_change(entry) < time.time() - _MAX_AGE


def _last_change(entry: os.DirEntry[str]) -> float:
    """Return when a file, or a file of a directory, was last written."""
    times = [entry.stat(follow_symlinks=False).st_mtime]
    if entry.is_dir(follow_symlinks=False):
        with os.scandir(entry.path) as inner:
            times += [part.stat(follow_symlinks=False).st_mtime for part in inner]
    return max(times)


def _exists(process: int) -> bool:
    """Return whether this machine runs a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # a process of another user
        return True
    return True


@cache
def _machine() -> str:
    """Return four digits for this machine, or for this container, which numbers processes by itself."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return hashlib.blake2b(f"{platform.node()} {namespace}".encode(), digest_size=2).hexdigest()
