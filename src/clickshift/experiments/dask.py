"""A Dask cluster as an executor: tasks run on many machines as on this one, and write their rows to one folder.

The workers are started by others, so they are checked before anything runs: they must have the same versions as this
process, one thread each, and access to the folder. When a worker is lost, the scheduler gives its task to another one.
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
"""Seconds to wait for the scheduler to answer, for a first worker to connect, and for a file to appear."""


@contextmanager
def cluster(address: str, folder: str | Path) -> Iterator[Executor]:
    """Connect to a Dask cluster as an executor for `clickshift.experiments.runner.run_tasks`.

    Parameters
    ----------
    address
        Address of the scheduler, e.g. "tcp://host:8786".
    folder
        Folder of the run. All workers must have access to it under the same path.

    Yields
    ------
    Executor
        Runs calls on the workers; workers that connect later are used too.

    Raises
    ------
    RunError
        If the address is malformed ("bad-address"), Dask is not installed ("missing-package"), no scheduler answers
        ("no-scheduler"), the connection fails ("cluster-unusable"), there are no workers ("no-workers"), or a worker
        has other versions ("version-mismatch"), no clickshift ("cluster-without-clickshift"), no access to the folder
        ("folder-not-shared"), or several threads ("too-many-threads").

    Examples
    --------
    >>> with cluster("host", "out"):
    ...     pass
    Traceback (most recent call last):
    clickshift.errors.RunError: the address of a cluster must be like tcp://host:8786: got 'host'.
    """
    _check_address(address)
    with _quiet_dask(), closing(_connect(address)) as client, _probe(Path(folder).absolute()) as probe:
        cores = _assign_cores(_checked_workers(client, address, probe))
        environment = _Environment(os.getcwd(), tuple(sys.path), probe, _versions(), cores)
        yield _DaskExecutor(client, address, environment)


def _check_address(address: str) -> None:
    """Check that the address has a scheme, a host and a port."""
    try:
        url = urlsplit(address)
        if url.scheme and url.hostname and url.port:
            return
    except ValueError:  # the port is not a number, or is too large
        pass
    raise RunError(
        f"the address of a cluster must be like tcp://host:8786: got {address!r}.", code="bad-address", address=address
    )


@contextmanager
def _quiet_dask() -> Iterator[None]:
    """Silence Dask, which logs a traceback for every lost connection; the errors raised here say what matters."""
    try:
        import distributed  # noqa: F401 (importing it turns its logging on)
    except ImportError:
        raise RunError(
            "a cluster needs Dask, which is not installed. Run: pip install 'clickshift[dask]'",
            code="missing-package",
            package="distributed",
        ) from None
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado.application")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _connect(address: str) -> Any:
    """Open a Dask client."""
    from distributed import Client

    try:
        with warnings.catch_warnings(), ThreadPoolExecutor(1) as thread:
            warnings.simplefilter("ignore")  # about versions that differ: they are checked below
            # in a thread of its own, as this one may already run an event loop, e.g. in a notebook
            thread.submit(lambda: asyncio.run(_check_handshake(address))).result()
            return Client(address, timeout=_TIMEOUT, set_as_default=False, name="clickshift")
    except OSError:
        raise RunError(
            f"no Dask scheduler answers at {address} within {_TIMEOUT:.0f} s. Start one with `dask scheduler`, or "
            "fix the address.",
            code="no-scheduler",
            address=address,
        ) from None
    except Exception as error:  # e.g. another version of Dask, a wrong scheme, or missing certificates
        raise RunError(
            f"the cluster at {address} cannot be used: {type(error).__name__}: {error}",
            code="cluster-unusable",
            address=address,
            error=type(error).__name__,
        ) from None


async def _check_handshake(address: str) -> None:
    """Check that a Dask server answers: a client would wait for ever for a server that accepts and stays silent."""
    from distributed import Security
    from distributed.comm import connect

    connection = connect(address, timeout=_TIMEOUT, **Security().get_connection_args("client"))
    comm = await asyncio.wait_for(connection, _TIMEOUT)
    await comm.close()


@contextmanager
def _probe(folder: Path) -> Iterator[Path]:
    """Create a file that every worker must see. It stays while the run lasts, because workers may connect late."""
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
    """What a worker reports about itself; `sees_folder` is whether it sees the probe file."""

    versions: Mapping[str, str]
    host: str
    cores: tuple[int, ...]
    sees_folder: bool
    threads: int


def _worker_info(probe: Path, timeout: float, dask_worker: Any) -> _WorkerInfo:
    """Describe the worker that runs this function; Dask passes the argument named `dask_worker`."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    sees_folder = wait_for_file(probe, timeout=timeout)
    return _WorkerInfo(_versions(), socket.gethostname(), tuple(cores), sees_folder, dask_worker.state.nthreads)


def _versions() -> dict[str, str]:
    """Versions that must be the same on all machines."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "numpy": np.__version__, "clickshift": __version__}


def _checked_workers(client: Any, address: str, probe: Path) -> dict[str, _WorkerInfo]:
    """Describe every worker by its address; raise if the scheduler or a worker cannot be used."""
    with suppress(TimeoutError):
        client.wait_for_workers(1, timeout=_TIMEOUT)
    try:
        _check_versions("the scheduler", client.run_on_scheduler(_versions), _versions())
    except RunError:
        raise
    except Exception as error:
        raise _not_installed("the scheduler", error) from None
    workers: dict[str, Any] = client.run(_worker_info, probe, _TIMEOUT / 2, on_error="return")
    if not workers:
        raise RunError(
            f"the cluster at {address} has no workers. Start some: dask worker {address} --nthreads 1",
            code="no-workers",
            address=address,
        )
    for worker, info in workers.items():
        if isinstance(info, Exception):
            raise _not_installed(f"the worker {worker}", info)
        _check_worker(f"the worker {worker}", info, probe, _versions())
    return workers


def _not_installed(name: str, error: Exception) -> RunError:
    """The error for a scheduler or worker that cannot import this version of clickshift."""
    return RunError(
        f"{name} cannot use clickshift {__version__} ({type(error).__name__}: {error}). Install it there.",
        code="cluster-without-clickshift",
    )


def _check_worker(name: str, info: _WorkerInfo, probe: Path, versions: Mapping[str, str]) -> None:
    """Check a worker's versions, its access to the folder, and its number of threads."""
    _check_versions(name, info.versions, versions)
    if not info.sees_folder:
        raise RunError(
            f"{name} on {info.host} does not see the folder {probe.parent}. Choose a folder on a file system that all "
            "machines share, under the same path.",
            code="folder-not-shared",
            host=info.host,
            folder=probe.parent,
        )
    if info.threads != 1:  # warning filters and the current folder belong to a process, not to a thread
        raise RunError(
            f"{name} has {info.threads} threads, but must have one. Start it with --nthreads 1, and more of them with "
            "--nworkers.",
            code="too-many-threads",
            threads=info.threads,
        )


def _check_versions(name: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Check that another machine has the same versions as this one."""
    for package, version in ours.items():
        if theirs.get(package) != version:
            raise RunError(
                f"{name} has {package} {theirs.get(package)}, but must have {version}, as this machine does.",
                code="version-mismatch",
                name=name,
                package=package,
                version=theirs.get(package),
                expected=version,
            )


def _assign_cores(workers: Mapping[str, _WorkerInfo]) -> dict[str, tuple[int, ...]]:
    """Divide the cores of each machine among its workers, as `process_pool` does; by the worker's address."""
    by_machine = defaultdict(list)
    for worker, info in workers.items():
        by_machine[info.host, info.cores].append(worker)
    return {
        worker: cores[k :: len(together)] or cores[k % len(cores) :][:1] if cores else ()
        for (_, cores), together in by_machine.items()
        for k, worker in enumerate(together)
    }


@dataclass(frozen=True)
class _Environment:
    """The environment of this process that a worker reproduces: current folder, module path, versions and cores."""

    folder: str
    path: tuple[str, ...]
    probe: Path
    versions: Mapping[str, str]
    cores: Mapping[str, tuple[int, ...]]

    def call(self, packed: bytes) -> Any:
        """Call a pickled function on the worker that runs this method."""
        import pickle

        from distributed import get_worker

        worker = get_worker()
        if worker.address not in self.cores:  # it connected after the others were checked
            try:
                info = _worker_info(self.probe, _TIMEOUT / 2, worker)
                _check_worker(f"the worker {worker.address}", info, self.probe, self.versions)
            except RunError as error:  # it would take task after task, and fail all of them
                raise BrokenExecutor(str(error)) from None
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        with ExitStack() as stack:
            if os.path.isdir(self.folder):
                stack.enter_context(chdir(self.folder))
            stack.enter_context(_pinned_to(self.cores.get(worker.address, ())))
            # The client pickled it, and it came by Dask's own protocol: a cluster runs what it is sent.
            function, args, kwargs = pickle.loads(packed)
            return function(*args, **kwargs)


@contextmanager
def _pinned_to(cores: Sequence[int]) -> Iterator[None]:
    """Pin this thread, and threads that it starts, to cores, so that libraries start as many threads as these cores."""
    if not cores:
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


class _DaskExecutor(Executor):
    """Executor on a Dask client.

    Dask's own executor merges equal calls into one, and leaves a future pending whose result is lost in transit.
    """

    def __init__(self, client: Any, address: str, environment: _Environment) -> None:
        self._client, self._address, self._environment = client, address, environment
        self._pending: set[Any] = set()  # Dask cancels a call whose future nobody holds

    @property
    def _max_workers(self) -> int:
        """Current number of workers, of one thread each; workers that connect later are used too."""
        try:
            return max(1, len(self._client.nthreads()))
        except Exception:  # the scheduler is lost, which `submit` and the futures report
            return 1

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on a worker."""
        from distributed.protocol.pickle import dumps  # unlike pickle's, it packs functions of the main program too

        if self._client.status != "running":
            raise self._scheduler_lost()
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        packed = dumps((fn, args, kwargs))  # unpacked where our modules are found
        remote = self._client.submit(
            self._environment.call, packed, pure=False, key=f"clickshift-{secrets.token_hex(8)}"
        )
        self._pending.add(remote)
        remote.add_done_callback(lambda done: self._settle(done, future))
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel pending calls if asked to; the client is closed by `cluster`."""
        if cancel_futures:
            with suppress(Exception):  # a scheduler that is lost has nothing to cancel
                self._client.cancel(list(self._pending), force=True)

    def _settle(self, remote: Any, future: Future[Any]) -> None:
        """Copy the outcome of a Dask future to ours."""
        from distributed import KilledWorker

        self._pending.discard(remote)
        try:
            # not for ever: Dask has one thread for the callbacks of all clients, and rows are on disk, not in transit
            future.set_result(remote.result(timeout=_TIMEOUT))
        except TimeoutError:
            if self._client.status != "running":
                future.set_exception(self._scheduler_lost())
            else:  # the worker that had the outcome died: Dask computes it again
                self._pending.add(remote)
                remote.add_done_callback(lambda done: self._settle(done, future))
        except KilledWorker as error:
            attempts = error.allowed_failures + 1
            future.set_exception(
                RunError(
                    f"{attempts} workers died while computing it, one after another, perhaps for lack of memory.",
                    code="workers-died",
                    count=attempts,
                )
            )
        except (CancelledError, OSError):
            future.set_exception(self._scheduler_lost())
        except BrokenExecutor as error:
            future.set_exception(error)
        except BaseException as error:
            future.set_exception(RunError(f"{type(error).__name__}: {error}", code="task-failed"))

    def _scheduler_lost(self) -> BrokenExecutor:
        """The error for a scheduler that no longer answers."""
        return BrokenExecutor(f"the Dask scheduler at {self._address} was lost or restarted.")
