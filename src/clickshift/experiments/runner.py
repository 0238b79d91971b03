"""Run the tasks of an experiment in parallel and keep their result rows on disk.

A run is a folder with one Parquet file of tidy rows per finished task. The file is named by a digest of everything that
the rows depend on, and it appears whole or not at all. So an interrupted run continues with the missing tasks, a
changed setting never reuses old rows, and several runs may share a folder: a task that another process is computing is
left to that process. A file that is cut short, damaged or of another task counts as missing: its task runs again.

The folder may be on a file system that many machines share. It stays correct there because files are renamed into
place, and two processes that compute the same task write the same rows. Locks only save work. They end with the process
that holds them, but a shared file system may keep the lock of a crashed machine for a while, or for ever. An executor
gives each task of a run to one process at a time, so a lock of the same run belongs to a lost process and is ignored.
Where a file system has no locks, the run continues without them.

Reference rows of the policy-shift protocol at paper scale on the built-in corpus are shipped with the package, so that
a new click model can be compared without training the others again. They are made by this code
(`benchmarks/policy_shift.py --reference`). The rows of a task are used only while its digest, and so every setting and
the version of the rows, is unchanged.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import multiprocessing
import os
import secrets
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from clickshift.core.files import write_atomically
from clickshift.core.parallel import available_cores
from clickshift.core.spec import key
from clickshift.display.tables import Rows, read_rows, write_rows
from clickshift.errors import ClickshiftError, ClickshiftWarning, FileError, RunError

_log = logging.getLogger(__name__)
_POLL = 0.5
"""Seconds between two checks of a task that another run is computing."""
_MAX_STATE = 200
"""Length of a text on how far a task is."""
_TIMEOUT = 90.0
"""Seconds to wait for a file of another machine: NFS caches for up to a minute that a folder does not have it."""
_MAX_SETTINGS = 1 << 22
"""Largest run.json that is read, in bytes."""
DONE, DAMAGED, MISSING = "done", "damaged", "missing"
"""States of a task's rows. Damaged ones are cut short, changed or of another task, and will be computed again."""


@runtime_checkable
class Task(Protocol):
    """A task: a frozen dataclass whose specification text names its file, and which computes its rows."""

    @property
    def name(self) -> str:
        """Name of the task in progress messages."""

    def rows(self) -> Rows:
        """Compute the tidy rows; called in a worker process. It may take a `progress` to report its state to."""


def digest(task: Any) -> str:
    """Compute the digest that names a task's file: the same on every machine, and different for any other setting.

    Parameters
    ----------
    task
        A frozen dataclass; its full specification text is hashed.

    Returns
    -------
    str
        24 hexadecimal digits.
    """
    return hashlib.blake2b(key(task).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run: result rows of finished tasks, and the settings of the run.

    Parameters
    ----------
    path
        The folder; it is created when the first file is written.
    """

    path: Path

    def file(self, task: Any) -> Path:
        """Path of the task's rows, whether or not it is finished."""
        return self._path(digest(task))

    def has(self, task: Any) -> bool:
        """Whether the task is finished: its rows are there and undamaged."""
        return self.state(task) == DONE

    def state(self, task: Any) -> str:
        """State of the task's rows: `DONE`, `DAMAGED` or `MISSING`."""
        name = digest(task)
        path = self._path(name)
        if not path.exists():
            return MISSING
        return DAMAGED if _read(path, name) is None else DONE

    def rows(self, tasks: Iterable[Any]) -> Rows:
        """Read the rows of the finished tasks, in the order of the tasks."""
        names = map(digest, tasks)
        return [row for name in names for row in _read(self._path(name), name) or []]

    def write(self, task: Any, rows: Rows) -> None:
        """Write the rows of a task."""
        write_rows(rows, self.file(task), owner=digest(task))

    def _path(self, name: str) -> Path:
        """Path of the rows of the task with a digest."""
        return self.path / "cells" / f"{name}.parquet"

    def write_state(self, task: Any, text: str) -> None:
        """Write how far a claimed task is, for the process that runs the experiment, perhaps on another machine."""
        with suppress(OSError):
            self._hidden(task, "state").write_text(text[:_MAX_STATE], encoding="utf-8")

    def read_state(self, task: Any) -> str:
        """Read how far a task is; empty if it is not known."""
        with suppress(OSError), self._hidden(task, "state").open("rb") as file:
            return file.read(4 * _MAX_STATE).decode("utf-8", "replace")
        return ""

    def _hidden(self, task: Any, ending: str) -> Path:
        """Path of a file beside the rows of a task, which exists while it is computed."""
        return self.path / "cells" / f".{digest(task)}.{ending}"

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write the settings of the run to run.json."""
        with write_atomically(self.path / "run.json") as temporary:
            temporary.write_text(json.dumps(settings, indent=1, ensure_ascii=False), encoding="utf-8")

    def read_settings(self) -> dict[str, Any]:
        """Read the settings of the run.

        Returns
        -------
        dict
            What `write_settings` wrote.

        Raises
        ------
        FileError
            If the folder holds no run ("not-a-run"), or its settings cannot be read ("damaged-file").
        """
        file = self.path / "run.json"
        try:
            with file.open("rb") as stream:
                text = stream.read(_MAX_SETTINGS + 1)
            if len(text) > _MAX_SETTINGS:
                raise ValueError(f"it has more than {_MAX_SETTINGS:,} bytes")
            settings = json.loads(text.decode("utf-8"))
        except FileNotFoundError:
            raise FileError(
                self.path, "holds no run. Choose the folder of a run, or start a run in this folder.", code="not-a-run"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise FileError(
                file, f"cannot be read ({error}). Start the run again with the same options.", code="damaged-file"
            ) from None
        if not isinstance(settings, dict) or not isinstance(settings.get("protocol"), str):
            raise FileError(
                file,
                "must be an object with the text of a protocol. Start the run again with the same options.",
                code="damaged-file",
            )
        return settings

    @contextmanager
    def claim(self, task: Any, *, run: str = "") -> Iterator[bool]:
        """Lock a task until the block ends or the process dies.

        Parameters
        ----------
        task
            The task to lock.
        run
            Identifier of the run; a lock of the same run is ignored.

        Yields
        ------
        bool
            False if another run is computing the task.
        """
        path = self._hidden(task, "lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:  # Windows: two runs may compute a task twice, and write the same rows
            yield True
            return

        with path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # NFS emulates flock by byte-range locks, refused with EACCES
                lock.seek(0)
                if not run or lock.read() != run:
                    yield False
                    return
            except OSError:  # a file system without locks
                pass
            else:
                lock.truncate(0)
                lock.write(run)
                lock.flush()
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)
                self._hidden(task, "state").unlink(missing_ok=True)


def _read(path: Path, name: str) -> Rows | None:
    """Read the rows of the task with a digest; None if they are missing or damaged."""
    try:
        return read_rows(path, owner=name) if path.exists() else None
    except FileError:
        return None


@dataclass(frozen=True)
class FinishedTask:
    """The outcome of one task, as reported to `progress`.

    Parameters
    ----------
    task
        The task.
    seconds
        Time that it took.
    error
        Message of the error if it failed.
    notes
        Messages of the warnings that it issued.
    """

    task: Any
    seconds: float
    error: str | None = None
    notes: tuple[str, ...] = ()


def run_tasks(
    tasks: Sequence[Task],
    folder: RunFolder,
    executor: Executor,
    *,
    progress: Callable[[FinishedTask], None] = lambda finished: None,
    state: Callable[[Task, str], None] = lambda task, text: None,
) -> None:
    """Compute the tasks whose rows are missing; a task that fails is reported, and the others continue.

    Each process writes the rows that it computes, so nothing that is finished is lost with the calling process.

    Parameters
    ----------
    tasks
        Frozen dataclasses; finished ones are skipped.
    folder
        Folder of the run.
    executor
        Where to compute: `process_pool`, `clickshift.experiments.dask.cluster`, or any other. It raises `RunError` for
        a single task that it could not compute, and `BrokenExecutor` if it cannot continue.
    progress
        Called with each finished task.
    state
        Called with a running task and a text on how far it is, each time that the text has changed.

    Raises
    ------
    RunError
        If a process died ("process-died") or the executor cannot continue ("executor-lost"). Finished tasks are kept.
    """
    folder, run_id = RunFolder(folder.path.absolute()), secrets.token_hex(8)
    missing: deque[Task] = deque(task for task in tasks if not folder.has(task))
    claimed_elsewhere: list[Task] = []
    running: dict[Future[FinishedTask | None], Task] = {}
    states: dict[str, str] = {}
    direct = (state,) if isinstance(executor, ThisProcess) else ()  # else the texts come by files
    try:
        while missing or running or claimed_elsewhere:
            # one task per process, so that a process that dies loses one task; asked every time, as a cluster may grow
            while missing and len(running) < getattr(executor, "_max_workers", len(tasks)):
                task = missing.popleft()
                _log.debug("start task %s: %s", digest(task), task.name)
                running[executor.submit(_run_task, task, folder, run_id, *direct)] = task
            done, _ = wait(running, timeout=_POLL, return_when=FIRST_COMPLETED)
            for future, task in running.items():
                text = "" if future in done else folder.read_state(task)
                if text and text != states.get(task.name):
                    state(task, text)
                    states[task.name] = text
            if not done:
                time.sleep(0 if running else _POLL)
                missing.extend(claimed_elsewhere)
                claimed_elsewhere.clear()
            for future in done:
                task = running.pop(future)
                finished = _finished(future, task, folder)
                if finished is None:  # another run is computing it: check again when there is nothing else to do
                    claimed_elsewhere.append(task)
                else:
                    progress(finished)
    except BrokenProcessPool:
        raise RunError(
            "a process of this run died, perhaps for lack of memory. Finished tasks are kept: run again, with fewer "
            "workers or smaller settings.",
            code="process-died",
        ) from None
    except BrokenExecutor as error:
        raise RunError(
            f"{error} Finished tasks are kept: run the same again, and only the missing tasks run.",
            code="executor-lost",
        ) from None
    except BaseException:  # Ctrl-C: do not wait for unfinished tasks
        executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise


def _finished(future: Future[FinishedTask | None], task: Task, folder: RunFolder) -> FinishedTask | None:
    """Outcome of a task; None if another run is computing it."""
    try:
        finished = future.result()
    except RunError as error:
        return FinishedTask(task, 0.0, str(error))
    if finished is not None and finished.error is None and not wait_for_file(folder.file(task)):
        problem = f"its rows do not appear in {folder.path} on this machine. Share that folder between the machines."
        return FinishedTask(task, finished.seconds, problem)
    return finished


def wait_for_file(path: Path, *, timeout: float | None = None) -> bool:
    """Wait until a file exists that another machine may just have written.

    Parameters
    ----------
    path
        The file.
    timeout
        Longest time to wait in seconds; 90 by default.

    Returns
    -------
    bool
        Whether the file exists.
    """
    end = time.monotonic() + (_TIMEOUT if timeout is None else timeout)
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
        with suppress(OSError):
            os.listdir(path.parent)  # listing a folder makes NFS refresh its cache
    return True


def _run_task(
    task: Task, folder: RunFolder, run_id: str, state: Callable[[Task, str], None] | None = None
) -> FinishedTask | None:
    """Compute one task in a worker process and write its rows; None if another run is computing it.

    Without `state`, which belongs to the calling process, texts on how far it is are written to the folder.
    """
    send = folder.write_state if state is None else state

    def report(step: int | str, /, *, total: int | None = None) -> None:
        if isinstance(step, str):
            send(task, step.strip())

    with folder.claim(task, run=run_id) as claimed:
        if not claimed:
            return None
        if folder.has(task):
            return FinishedTask(task, 0.0)
        start, cost, problem = time.perf_counter(), TaskCost(), None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ClickshiftWarning)
            try:
                takes_progress = "progress" in inspect.signature(task.rows).parameters
                rows = task.rows(**({"progress": report} if takes_progress else {}))
                used = cost.columns()
                folder.write(task, [row | used for row in rows])
            except ClickshiftError as error:
                problem = str(error)
            except Exception as error:  # a bug in one model, perhaps a user's own, must not stop the other tasks
                problem = f"{type(error).__name__}: {error}"
        return FinishedTask(task, time.perf_counter() - start, problem, clickshift_warnings(caught))


class TaskCost:
    """Time and memory that a task takes from the creation of this object on, as columns of its rows."""

    def __init__(self) -> None:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # Linux: the largest memory from now on
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def columns(self) -> dict[str, float]:
        """Columns ``task_seconds``, ``task_cpu_seconds`` and, where it is known, ``task_megabytes`` of the process."""
        columns = {
            "task_seconds": time.perf_counter() - self._wall,
            "task_cpu_seconds": time.process_time() - self._cpu,
        }
        with suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    columns["task_megabytes"] = int(line.split()[1]) / 1024
        return columns


def clickshift_warnings(caught: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """Select the messages of clickshift's own warnings, each once.

    Parameters
    ----------
    caught
        Warnings recorded by `warnings.catch_warnings(record=True)`.

    Returns
    -------
    tuple of str
        Messages in order of appearance.
    """
    return tuple(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ClickshiftWarning)))


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Create a pool with one process per core.

    Each process is pinned to its own core, so that libraries that start a thread per core start a single one.

    Parameters
    ----------
    workers
        Number of processes; by default, and at most, the number of available cores.

    Returns
    -------
    ProcessPoolExecutor
        The pool, for `run_tasks`.
    """
    cores = available_cores()
    workers = min(workers or len(cores), len(cores))
    shares = [cores[k::workers] for k in range(workers)]
    context = multiprocessing.get_context("spawn")  # a fork would copy locks held by threads that it does not copy
    queue = context.SimpleQueue()
    for share in shares:
        queue.put(share)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(queue, list(sys.path)))


class ThisProcess(Executor):
    """Executor of small runs: a task is computed in the calling process when it is submitted."""

    _max_workers = 1

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Call the function and return a finished future; an error that is not its own ends the run."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


def _start_worker(shares: Any, path: list[str]) -> None:
    """Initialise a worker process: pin it to its cores, use the parent's module path, and end with the parent."""
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends the pool
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    sys.path[:] = path
    share = shares.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share)


def _exit_with_parent() -> None:
    """Exit when the parent does: a killed parent cannot end its pool, whose processes would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


REFERENCE_FILE = "policy_shift.parquet"
"""Name of the shipped file of reference rows of policy shift; other files beside it are read, too."""
_DIGEST_COLUMN = "cell"
"""Column of the reference rows that holds the digest of their task."""


@cache
def _reference_rows() -> dict[str, list[dict[str, Any]]]:
    """Shipped rows by the digest of their task."""
    by_digest: dict[str, list[dict[str, Any]]] = {}
    with as_file(files("clickshift.experiments") / "reference_rows") as folder:
        for path in sorted(folder.glob("*.parquet")):
            for row in read_rows(path):
                by_digest.setdefault(row.pop(_DIGEST_COLUMN), []).append(row)
    return by_digest


def copy_reference_rows(tasks: Iterable[Any], folder: RunFolder) -> int:
    """Copy the shipped rows of unfinished tasks into a run.

    Parameters
    ----------
    tasks
        Tasks of the run; finished ones keep their own rows.
    folder
        Folder of the run.

    Returns
    -------
    int
        Number of tasks whose rows were copied.
    """
    shipped = [task for task in tasks if not folder.has(task) and digest(task) in _reference_rows()]
    for task in shipped:
        folder.write(task, _reference_rows()[digest(task)])
    return len(shipped)


def write_reference_rows(tasks: Iterable[Any], folder: RunFolder, path: Path) -> None:
    """Write the file of reference rows that is shipped with the package, from a finished run.

    Parameters
    ----------
    tasks
        Tasks whose rows to ship.
    folder
        Folder of the finished run.
    path
        File to write.
    """
    rows = [{_DIGEST_COLUMN: digest(task), **row} for task in tasks for row in folder.rows([task])]
    write_rows(rows, path)
