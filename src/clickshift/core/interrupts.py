"""Interrupts: Ctrl-C and SIGTERM end a command within seconds, and its temporary files are removed.

Python handles signals in the main thread, between two steps of the interpreter. A call into compiled code, such as
training or compiling a network, may take minutes until the next step. So long calls are waited for in the main thread
(`wait_interruptibly`), and a command has a second thread that ends the process if the main thread does not
(`end_on_signals`).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from types import FrameType
from typing import Any, NoReturn, TypeVar

_Result = TypeVar("_Result")

_PATIENCE = 1.5
"""Seconds that the main thread has to stop after a signal, before its process is ended."""
_PATIENCE_WITH_JAX = 4.5
"""The same once JAX is in use, which cannot be interrupted while it compiles."""

_temporary: set[Path] = set()
_received: list[int] = []
_kept: list[str] = []
_is_saving, _is_told = threading.Event(), threading.Event()
_abandoned: list[Future[Any]] = []


def received_signal() -> int | None:
    """Return the number of the first signal that asked this process to stop; None if there was none."""
    return _received[0] if _received else None


def was_interrupted() -> bool:
    """Return whether a signal asked to stop, or an interrupted computation returned what it had so far."""
    return bool(_received) or _is_saving.is_set()


def forget_interrupts() -> None:
    """Begin a new command in this process."""
    _received.clear()
    _kept.clear()
    _is_saving.clear()
    _is_told.clear()


def keep_after_interrupt(text: str) -> None:
    """Note what an interrupted command leaves for the next one, e.g. "3 of 5 tasks are kept in out"."""
    _kept.append(text)


def kept_after_interrupt() -> str:
    """Return what an interrupted command leaves for the next one, which its last message tells."""
    _is_told.set()
    return _kept[-1] if _kept else "nothing half-written was left behind"


def save_after_interrupt() -> None:
    """Let the process take its time after a signal, because a result is about to be kept; a second signal ends it."""
    _is_saving.set()


@contextmanager
def removed_at_end(path: Path) -> Iterator[Path]:
    """Remove a temporary file or folder at the end of the block, and if a signal ends the process before.

    Parameters
    ----------
    path
        File or folder, which need not exist yet.

    Yields
    ------
    Path
        The same path.
    """
    _temporary.add(path)
    try:
        yield path
    finally:
        remove(path)
        _temporary.discard(path)


@contextmanager
def temporary_folder(prefix: str = "clickshift-", *, parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder for temporary files, which is removed at the end of the block or of the process."""
    with removed_at_end(Path(mkdtemp(prefix=prefix, dir=parent))) as folder:
        yield folder


def wait_interruptibly(work: Callable[[], _Result]) -> _Result:
    """Call a function that may stay in compiled code for long, so that Ctrl-C does not have to wait for it.

    After an interrupt, the call continues in its thread, and its result is lost. Outside the main thread, where nothing
    is interrupted, the function is called directly.

    Parameters
    ----------
    work
        The function. It must not change anything that is used after an interrupt.

    Examples
    --------
    >>> wait_interruptibly(lambda: 6 * 7)
    42
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    try:
        return future.result()
    finally:
        pool.shutdown(wait=False)
        if not future.done():
            _abandoned.append(future)


def is_computing() -> bool:
    """Return whether a call that was interrupted is still in compiled code."""
    return not all(future.done() for future in _abandoned)


def end_on_signals() -> None:
    """Make SIGINT and SIGTERM end this process, which runs one command, within seconds.

    The first signal raises `KeyboardInterrupt` in the main thread. If the process has not ended after a few seconds, or
    if there is a second signal, a thread removes its temporary files and ends it.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    for number in _stop_signals():
        signal.signal(number, _interrupt)
    threading.Thread(target=_end_if_stuck, args=(reader, writer), daemon=True).start()


def end_process(code: int) -> NoReturn:
    """End this process now, although threads may be in compiled code, where Python's own exit would wait or crash.

    Temporary files are removed, and worker processes ended. What is buffered in standard output is lost.

    Parameters
    ----------
    code
        Exit code.
    """
    for process in multiprocessing.active_children():
        process.terminate()
    for path in list(_temporary):
        remove(path)
    os._exit(code)


def _stop_signals() -> list[int]:
    """Return the signals that ask a process to stop, as far as this system has them."""
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal in the main thread."""
    _received.append(number)
    if len(_received) == 1:
        raise KeyboardInterrupt


def _end_if_stuck(reader: socket.socket, writer: socket.socket) -> None:
    """Wait for signals in a thread of its own; `writer` is kept open as long as it runs."""
    first = _next_signal(reader, None)
    patience = _PATIENCE_WITH_JAX if "jax" in sys.modules else _PATIENCE
    second = _next_signal(reader, patience)
    if second is None and _is_saving.is_set():
        second = _next_signal(reader, None)
    what = "ended at once" if second is not None else "interrupted"
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # show the cursor that a progress bar hides
        if not _is_told.is_set():  # not by print, whose lock the main thread may hold
            os.write(2, f"clickshift: {what}; {kept_after_interrupt()}.\n".encode())
    end_process(128 + (first or signal.SIGINT))


def _next_signal(reader: socket.socket, patience: float | None) -> int | None:
    """Return the number of the next signal that asks to stop; None if there is none in that time."""
    reader.settimeout(patience)
    with suppress(TimeoutError):
        while number := reader.recv(1):
            if number[0] in _stop_signals():
                return number[0]
    return None


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there and can be removed.

    Parameters
    ----------
    path
        File or folder.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
