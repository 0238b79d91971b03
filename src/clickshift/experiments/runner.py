"""Where results live on disk, and how many small experiments become one long run that survives anything.

A run is a folder with one Parquet file of tidy rows per finished task, named by a digest of everything that the rows
depend on. A file appears whole or not at all, so a run that was killed goes on with what is missing, a changed setting
never meets old rows, and several runs may share a folder: a task that another process works on is left to it.

The folder may be on a file system that many machines share. What keeps it right there is that a file is renamed into
place: two who do the same task write the same rows. Locks only save work. They end with the process that holds them; a
shared file system may keep that of a machine that died for a while, or for ever. So a lock of the same run, whose
executor gives a task to one process at a time, is that of a process that was lost and is passed over; and where a file
system has no locks, it goes without.
"""

from __future__ import annotations

import hashlib
import json
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
from typing import Any, Generic, TypeVar

from clickshift.core.files import write_atomically
from clickshift.core.spec import key
from clickshift.display.tables import Rows
from clickshift.errors import ClickshiftError, ClickshiftWarning, FileError, RunError
from clickshift.io.table_writer import read_rows, write_rows

Task = TypeVar("Task")
_POLL = 0.5
"""Seconds between two looks at a task that another run works on."""
_TIMEOUT = 90.0
"""Seconds until another machine's file is surely seen: NFS remembers for up to a minute what a folder did not have."""


def digest(task: Any) -> str:
    """The name of a task: equal for equal tasks on every machine, and changed by any setting."""
    return hashlib.blake2b(key(task).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class RunFolder:
    """Rows of finished tasks, and a note of what the run is to hold."""

    path: Path

    def file(self, task: Any) -> Path:
        return self.path / "cells" / f"{digest(task)}.parquet"

    def has(self, task: Any) -> bool:
        return self.file(task).exists()

    def rows(self, tasks: Iterable[Any]) -> Rows:
        """Of the tasks that are done, in the order of the tasks."""
        return [row for task in tasks if self.has(task) for row in read_rows(self.file(task))]

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        with write_atomically(self.path / "run.json") as temporary:
            temporary.write_text(json.dumps(settings, indent=1, ensure_ascii=False), encoding="utf-8")

    def read_settings(self) -> dict[str, Any]:
        file = self.path / "run.json"
        try:
            settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileError(self.path, "holds no run. Name the folder of one, or start it with `run`.") from None
        except (OSError, ValueError) as error:
            raise FileError(file, f"cannot be read ({error}). Start the run again with the same options.") from None
        return settings

    @contextmanager
    def claim(self, task: Any, *, run: str = "") -> Iterator[bool]:
        """Whether nobody else works on the task; if so, it is ours until the block ends or the process dies.

        `run` names who asks: a lock of the same run is passed over.
        """
        path = self.path / "cells" / f".{digest(task)}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":  # no advisory locks: two runs may do a task twice, and write the same rows
            yield True
            return
        import fcntl

        with path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # NFS makes it a lock of bytes, which may be refused as EACCES
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


@dataclass(frozen=True)
class FinishedTask(Generic[Task]):
    """News of one task."""

    task: Task
    seconds: float
    error: str | None = None
    notes: tuple[str, ...] = ()
    """Warnings that the work gave."""


def run_tasks(
    tasks: Sequence[Task],
    work: Callable[[Task], Rows],
    folder: RunFolder,
    executor: Executor,
    *,
    progress: Callable[[FinishedTask[Task]], None] = lambda news: None,
) -> None:
    """Do the tasks whose rows are missing. One that fails is told and left out; the others go on.

    `work` and the tasks go to the executor's processes, so `work` is a function at the top of a module. Rows are
    written by whoever computes them: nothing that is finished is lost with this process. An executor tells by a
    `RunError` that it could not do one task, and by a `BrokenExecutor` that it can do no more.
    """
    folder, run = RunFolder(folder.path.absolute()), secrets.token_hex(8)
    missing: deque[Task] = deque(task for task in tasks if not folder.has(task))
    elsewhere: list[Task] = []
    running: dict[Future[FinishedTask[Task] | None], Task] = {}
    try:
        while missing or running or elsewhere:
            # no more at once than there are processes: one that dies then takes one task with it. A cluster may grow
            while missing and len(running) < getattr(executor, "_max_workers", len(tasks)):
                task = missing.popleft()
                running[executor.submit(_do, task, work, folder, run)] = task
            done, _ = wait(running, timeout=_POLL, return_when=FIRST_COMPLETED)
            if not done:
                time.sleep(0 if running else _POLL)
                missing.extend(elsewhere)
                elsewhere.clear()
            for future in done:
                task = running.pop(future)
                news = _news(future, task, folder)
                if news is None:  # another run has it: look again when there is nothing else to do
                    elsewhere.append(task)
                else:
                    progress(news)
    except BrokenProcessPool:
        raise RunError(
            "a process of this run died, perhaps for lack of memory. What is finished is kept: run again, with fewer "
            "workers or smaller settings."
        ) from None
    except BrokenExecutor as error:
        raise RunError(f"{error} What is finished is kept: run the same again, and only the rest runs.") from None
    except BaseException:  # Ctrl-C: what is half done is not worth waiting for
        executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise


def _news(future: Future[FinishedTask[Task] | None], task: Task, folder: RunFolder) -> FinishedTask[Task] | None:
    try:
        news = future.result()
    except RunError as error:
        return FinishedTask(task, 0.0, str(error))
    if news is not None and news.error is None and not wait_for_file(folder.file(task)):
        return FinishedTask(
            task, news.seconds, f"its rows are not in {folder.path}, as seen from here. Share that folder."
        )
    return news


def wait_for_file(path: Path, *, patience: float | None = None) -> bool:
    """Whether a file is there that another machine may just have written."""
    end = time.monotonic() + (_TIMEOUT if patience is None else patience)
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
        with suppress(OSError):
            os.listdir(path.parent)  # opening a folder makes NFS ask its server what is new in it
    return True


def _do(task: Task, work: Callable[[Task], Rows], folder: RunFolder, run: str) -> FinishedTask[Task] | None:
    with folder.claim(task, run=run) as ours:
        if not ours:
            return None
        if folder.has(task):
            return FinishedTask(task, 0.0)
        start, fault = time.perf_counter(), None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ClickshiftWarning)
            try:
                rows = work(task)
                seconds = time.perf_counter() - start
                write_rows([{**row, "task_seconds": seconds} for row in rows], folder.file(task))
            except ClickshiftError as error:
                fault = str(error)
            except Exception as error:  # a fault of one model, perhaps not ours, must not cost the others' results
                fault = f"{type(error).__name__}: {error}"
        return FinishedTask(task, time.perf_counter() - start, fault, clickshift_warnings(caught))


def clickshift_warnings(caught: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """Our own among the warnings that were caught, each once."""
    return tuple(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ClickshiftWarning)))


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """One process per core, each kept to its own core: libraries that start a thread per core then start one."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    workers = min(workers or len(cores), len(cores))
    shares = [cores[k::workers] for k in range(workers)]
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of threads that it does not copy
    queue = context.SimpleQueue()
    for share in shares:
        queue.put(share)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_keep_to, initargs=(queue, list(sys.path)))


def _keep_to(shares: Any, path: list[str]) -> None:
    """Take a share of the cores, look for modules where the parent does, and do not outlive it."""
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path[:] = path
    share = shares.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its pool, whose processes would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


REFERENCE_FILE = "policy_shift.parquet"


_DIGEST = "cell"


@cache
def _by_digest() -> dict[str, list[dict[str, Any]]]:
    cells: dict[str, list[dict[str, Any]]] = {}
    with as_file(files("clickshift.experiments") / "reference_rows" / REFERENCE_FILE) as path:
        for row in read_rows(path) if path.exists() else []:
            cells.setdefault(row.pop(_DIGEST), []).append(row)
    return cells


def copy_reference_rows(tasks: Iterable[Any], folder: RunFolder) -> int:
    """Put the shipped rows of these tasks into a run, where it does not have its own. Returns for how many."""
    known = [task for task in tasks if not folder.has(task) and digest(task) in _by_digest()]
    for task in known:
        write_rows(_by_digest()[digest(task)], folder.file(task))
    return len(known)


def write_reference_rows(tasks: Iterable[Any], folder: RunFolder, path: Path) -> None:
    """Make the file to be shipped from a finished run."""
    rows = [{_DIGEST: digest(task), **row} for task in tasks for row in read_rows(folder.file(task))]
    write_rows(rows, path)
