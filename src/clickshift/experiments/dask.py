"""A Dask cluster as an executor: tasks run on many machines as they would here, and write their rows to one folder.

Others start the workers, so they are looked at before anything runs: they must have our versions, one thread each, and
see the folder. A worker that is lost costs the task that it was at, which the scheduler gives to another one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import secrets
import socket
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, chdir, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import numpy as np
from typing_extensions import override

from clickshift._version import __version__
from clickshift.core.files import write_atomically
from clickshift.errors import RunError
from clickshift.experiments.runner import wait_for_file

P = ParamSpec("P")
T = TypeVar("T")
_TIMEOUT = 10.0
"""Seconds that a scheduler has to answer, a first worker to come, and a file to be seen."""


@contextmanager
def cluster(address: str, folder: str | Path) -> Iterator[Executor]:
    """Run on the workers of the Dask scheduler at an address such as tcp://host:8786; all of them must see the folder.

    >>> with cluster("host", "out"):
    ...     pass
    Traceback (most recent call last):
    clickshift.errors.RunError: a cluster's address must be like tcp://host:8786: got 'host'.
    """
    _check_address(address)
    with _quiet_dask(), closing(_connected(address)) as client, _probe(Path(folder).absolute()) as probe:
        cores = _assign_cores(_workers(client, address, probe))
        yield _DaskExecutor(client, address, _Place(os.getcwd(), tuple(sys.path), probe, _versions(), cores))


def _check_address(address: str) -> None:
    try:
        url = urlsplit(address)
        if url.scheme and url.hostname and url.port:
            return
    except ValueError:  # a port that is no number, or too large
        pass
    raise RunError(f"a cluster's address must be like tcp://host:8786: got {address!r}.")


@contextmanager
def _quiet_dask() -> Iterator[None]:
    """Dask logs a traceback for every lost connection; what matters of it is in our errors."""
    try:
        import distributed  # noqa: F401 (it turns its logging on)
    except ImportError:
        raise RunError("a cluster needs Dask, which is not installed. Run: pip install 'clickshift[dask]'") from None
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado.application")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _connected(address: str) -> Any:
    from distributed import Client

    try:
        with warnings.catch_warnings(), ThreadPoolExecutor(1) as thread:
            warnings.simplefilter("ignore")  # of versions that differ: we look for ourselves
            thread.submit(lambda: asyncio.run(_shake_hands(address))).result()  # ours may have a loop, as notebooks do
            return Client(address, timeout=_TIMEOUT, set_as_default=False, name="clickshift")
    except OSError:
        raise RunError(
            f"no Dask scheduler answers at {address} within {_TIMEOUT:.0f} s. Start one with `dask scheduler`, or "
            "mend the address."
        ) from None
    except Exception as error:  # whatever another version, a wrong scheme or missing certificates lead to
        raise RunError(f"the cluster at {address} cannot be used: {type(error).__name__}: {error}") from None


async def _shake_hands(address: str) -> None:
    """A client would wait for ever for a server that takes the call and says nothing, such as one of another kind."""
    from distributed import Security
    from distributed.comm import connect

    call = connect(address, timeout=_TIMEOUT, **Security().get_connection_args("client"))
    comm = await asyncio.wait_for(call, _TIMEOUT)
    await comm.close()


@contextmanager
def _probe(folder: Path) -> Iterator[Path]:
    """A file that every worker must see, as long as the run lasts: some may come late."""
    path = folder / f".{secrets.token_hex(8)}.probe"
    with write_atomically(path) as temporary:
        temporary.touch()
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _WorkerInfo:
    """What a worker says of itself."""

    versions: Mapping[str, str]
    host: str
    cores: tuple[int, ...]
    sees: bool
    threads: int


def _look(probe: Path, patience: float, dask_worker: Any) -> _WorkerInfo:
    """On a worker; Dask gives what is called `dask_worker`."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    sees = wait_for_file(probe, patience=patience)
    return _WorkerInfo(_versions(), socket.gethostname(), tuple(cores), sees, dask_worker.state.nthreads)


def _versions() -> dict[str, str]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "numpy": np.__version__, "clickshift": __version__}


def _workers(client: Any, address: str, probe: Path) -> dict[str, _WorkerInfo]:
    """Every worker by its address, if all of them will do."""
    with suppress(TimeoutError):
        client.wait_for_workers(1, timeout=_TIMEOUT)
    try:
        _compare("the scheduler", client.run_on_scheduler(_versions), _versions())
    except RunError:
        raise
    except Exception as error:
        raise _without("the scheduler", error) from None
    found: dict[str, Any] = client.run(_look, probe, _TIMEOUT / 2, on_error="return")
    if not found:
        raise RunError(f"the cluster at {address} has no workers. Start some: dask worker {address} --nthreads 1")
    for at, looks in found.items():
        if isinstance(looks, Exception):
            raise _without(f"the worker {at}", looks)
        _check(f"the worker {at}", looks, probe, _versions())
    return found


def _without(name: str, error: Exception) -> RunError:
    return RunError(f"{name} cannot use clickshift {__version__} ({type(error).__name__}: {error}). Install it there.")


def _check(name: str, looks: _WorkerInfo, probe: Path, versions: Mapping[str, str]) -> None:
    _compare(name, looks.versions, versions)
    if not looks.sees:
        raise RunError(
            f"{name} on {looks.host} does not see the folder {probe.parent}. Choose a folder on a file system that all "
            "machines share, under the same path."
        )
    if looks.threads != 1:  # warnings and the current folder belong to a process
        raise RunError(
            f"{name} has {looks.threads} threads, but must have one. Start it with --nthreads 1, and more of them with "
            "--nworkers."
        )


def _compare(name: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    for what, version in ours.items():
        if theirs.get(what) != version:
            raise RunError(f"{name} has {what} {theirs.get(what)}, but must have {version}, as this machine does.")


def _assign_cores(found: Mapping[str, _WorkerInfo]) -> dict[str, tuple[int, ...]]:
    """The cores that each worker keeps to: those of a machine are dealt out among its workers, as `processes` does."""
    together = defaultdict(list)
    for at, looks in found.items():
        together[looks.host, looks.cores].append(at)
    return {
        at: cores[k :: len(workers)] or cores[k % len(cores) :][:1] if cores else ()
        for (_, cores), workers in together.items()
        for k, at in enumerate(workers)
    }


@dataclass(frozen=True)
class _Place:
    """What makes a worker work as if it were here: paths mean the same, and modules are found."""

    folder: str
    path: tuple[str, ...]
    probe: Path
    versions: Mapping[str, str]
    cores: Mapping[str, tuple[int, ...]]

    def call(self, packed: bytes) -> Any:
        """What was packed here, done there."""
        import pickle

        from distributed import get_worker

        worker = get_worker()
        if worker.address not in self.cores:  # it came late
            try:
                looks = _look(self.probe, _TIMEOUT / 2, worker)
                _check(f"the worker {worker.address}", looks, self.probe, self.versions)
            except RunError as error:  # it would take task after task, and do none
                raise BrokenExecutor(str(error)) from None
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        with ExitStack() as stack:
            if os.path.isdir(self.folder):
                stack.enter_context(chdir(self.folder))
            stack.enter_context(_kept_to(self.cores.get(worker.address, ())))
            # what the client packed, which came as Dask's own messages do: a cluster runs what it is sent
            function, args, kwargs = pickle.loads(packed)
            return function(*args, **kwargs)


@contextmanager
def _kept_to(cores: Sequence[int]) -> Iterator[None]:
    """This thread, and those that it starts, on these cores: libraries that start a thread per core then start few."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class _DaskExecutor(Executor):
    """Dask's own executor takes equal calls for one, and leaves a future waiting whose result is lost on its way."""

    def __init__(self, client: Any, address: str, place: _Place) -> None:
        self._client, self._address, self._place = client, address, place
        self._sent: set[Any] = set()  # a call that nobody holds is cancelled

    @property
    def _max_workers(self) -> int:
        """As many as there are now, of one thread each; one that comes later is made use of."""
        try:
            return max(1, len(self._client.nthreads()))
        except Exception:  # the scheduler is lost, which `submit` and the futures tell
            return 1

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        from distributed.protocol.pickle import dumps  # unlike Python's own, also what is in the main program

        if self._client.status != "running":
            raise self._lost()
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        packed = dumps((fn, args, kwargs))  # unpacked where our modules are found
        there = self._client.submit(self._place.call, packed, pure=False, key=f"clickshift-{secrets.token_hex(8)}")
        self._sent.add(there)
        there.add_done_callback(lambda done: self._settle(done, future))
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            with suppress(Exception):  # a scheduler that is lost has nothing to cancel
                self._client.cancel(list(self._sent), force=True)

    def _settle(self, there: Any, future: Future[Any]) -> None:
        from distributed import KilledWorker

        self._sent.discard(there)
        try:
            future.set_result(there.result())
        except KilledWorker as error:
            tries = error.allowed_failures + 1
            future.set_exception(
                RunError(f"{tries} workers died of it, one after another, perhaps for lack of memory.")
            )
        except (CancelledError, OSError):
            future.set_exception(self._lost())
        except BrokenExecutor as error:
            future.set_exception(error)
        except BaseException as error:
            future.set_exception(RunError(f"{type(error).__name__}: {error}"))

    def _lost(self) -> BrokenExecutor:
        return BrokenExecutor(f"the Dask scheduler at {self._address} was lost or started anew.")
