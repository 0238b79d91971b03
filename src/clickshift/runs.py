"""Where results live on disk, and how many small experiments become one long run that survives anything.

A run is a folder with one Parquet file of tidy rows per finished task, named by a digest of everything that the rows
depend on. A file appears whole or not at all, so a run that was killed goes on with what is missing, a changed setting
never meets old rows, and several runs may share a folder: a task that another process works on is left to it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from clickshift.errors import ClickshiftError, ClickshiftWarning, FileError, RunError
from clickshift.files import write_atomically
from clickshift.spec import key

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]
Task = TypeVar("Task")
_POLL = 0.5
"""Seconds between two looks at a task that another run works on."""


def write_rows(rows: Sequence[Row], path: str | Path) -> None:
    """Rows may lack keys that others have: missing is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in rows for name in row))
    with write_atomically(path) as temporary:
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), temporary)


def read_rows(path: str | Path) -> Rows:
    """What `write_rows` wrote, without the nulls."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise FileError(path, f"is not a file of rows ({error}). Delete it and run again.") from None
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


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
    def claim(self, task: Any) -> Iterator[bool]:
        """Whether nobody else works on the task; if so, it is ours until the block ends or the process dies."""
        path = self.path / "cells" / f".{digest(task)}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":  # no advisory locks: two runs may do a task twice, and write the same rows
            yield True
            return
        import fcntl

        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Finished(Generic[Task]):
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
    hear: Callable[[Finished[Task]], None] = lambda news: None,
) -> None:
    """Do the tasks whose rows are missing. One that fails is told and left out; the others go on.

    `work` and the tasks go to the executor's processes, so `work` is a function at the top of a module. Rows are
    written by whoever computes them: nothing that is finished is lost with this process.
    """
    missing: deque[Task] = deque(task for task in tasks if not folder.has(task))
    running: dict[Future[Finished[Task] | None], Task] = {}
    at_once = getattr(executor, "_max_workers", len(missing))  # a cluster's executor has a queue of its own
    try:
        while missing or running:
            while missing and len(running) < at_once:
                task = missing.popleft()
                running[executor.submit(_do, task, work, folder)] = task
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                news = future.result()
                if news is None:  # another run has it: look again when the rest is done
                    missing.append(task)
                    time.sleep(0 if running else _POLL)
                else:
                    hear(news)
    except BrokenProcessPool:
        raise RunError(
            "a process of this run died, perhaps for lack of memory. What is finished is kept: run again, with fewer "
            "workers or smaller settings."
        ) from None
    except BaseException:  # Ctrl-C: what is half done is not worth waiting for
        executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise


def _do(task: Task, work: Callable[[Task], Rows], folder: RunFolder) -> Finished[Task] | None:
    with folder.claim(task) as ours:
        if not ours:
            return None
        if folder.has(task):
            return Finished(task, 0.0)
        start, rows, fault = time.perf_counter(), None, None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ClickshiftWarning)
            try:
                rows = work(task)
            except ClickshiftError as error:
                fault = str(error)
            except Exception as error:  # a fault of one model, perhaps not ours, must not cost the others' results
                fault = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - start
        if rows is not None:
            write_rows([{**row, "task_seconds": seconds} for row in rows], folder.file(task))
        return Finished(task, seconds, fault, warnings_of(caught))


def warnings_of(caught: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """Our own among the warnings that were caught, each once."""
    return tuple(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ClickshiftWarning)))


def processes(workers: int | None = None) -> ProcessPoolExecutor:
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
