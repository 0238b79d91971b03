"""Parallel loops in threads.

Kernels release the interpreter lock, so plain threads suffice, and they compile several times faster than numba's own
parallel loops. Results do not depend on the number of threads: random streams belong to rows, not to threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import chain, islice
from typing import TypeVar

from clickshift.errors import SpecError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_CHUNK_ROWS = 1 << 15
"""Default number of rows in a range: enough to keep numpy busy, few enough to stay in the cache."""
_ITEMS_PER_THREAD = 1 << 13
"""Number of items below which a loop takes no further thread."""


def available_cores() -> list[int]:
    """Return the numbers of the cores that this process may use; all of the machine where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def n_threads(items: int | None = None) -> int:
    """Return the number of threads to use: CLICKSHIFT_THREADS, or the number of cores available to this process.

    Parameters
    ----------
    items
        Number of items that a loop goes over, such as cells or sessions. A thread gets a few thousand of them: below
        that, handing over the work takes longer than the work.

    Raises
    ------
    SpecError
        "bad-option" if CLICKSHIFT_THREADS is not a number from 1 to 1024.
    """
    if items is not None:
        enough = 1 + items // _ITEMS_PER_THREAD
        return enough if enough == 1 else min(n_threads(), enough)
    chosen = os.environ.get("CLICKSHIFT_THREADS")
    if not chosen:
        return len(available_cores())
    if not chosen.isascii() or not chosen.isdigit() or not 1 <= int(chosen[:9]) <= 1024:
        raise SpecError(
            f"CLICKSHIFT_THREADS must be a number of threads from 1 to 1024: got {chosen!r}.",
            code="bad-option",
            option="CLICKSHIFT_THREADS",
            value=chosen,
        )
    return int(chosen)


def for_each(work: Callable[[int], None], n: int) -> None:
    """Call `work` with 0 to n - 1 in threads; sequentially when nested in such a call, since all cores are in use.

    The calling thread works, too, and waits only for numbers that another thread has begun: small work is done before
    another thread wakes up.

    Parameters
    ----------
    work
        Function of the number; an exception ends the loop. Of several, that of the smallest number is raised.
    n
        Number of calls.

    Examples
    --------
    >>> squares = [0] * 4
    >>> for_each(lambda k: squares.__setitem__(k, k * k), 4)
    >>> squares
    [0, 1, 4, 9]
    """
    threads = 1 if n <= 1 or getattr(_thread_state, "is_worker", False) else min(n_threads(), n)
    if threads == 1:
        for k in range(n):
            work(k)
        return
    numbers, next_number = iter(range(n)), threading.Lock()
    failures: list[tuple[int, BaseException]] = []

    def take_turns() -> None:
        while not failures:
            with next_number:
                k = next(numbers, n)
            if k == n:
                return
            try:
                work(k)
            except BaseException as error:  # an interrupt, too, waits until no other thread works
                failures.append((k, error))

    pool = _thread_pool(n_threads() - 1)
    helpers = [pool.submit(take_turns) for _ in range(threads - 1)]
    _thread_state.is_worker = True
    try:
        take_turns()
    finally:
        _thread_state.is_worker = False
        with next_number:
            deque(numbers, maxlen=0)  # after an interrupt between two calls, nothing more is begun
        wait([helper for helper in helpers if not helper.cancel()])
    if failures:
        try:
            raise min(failures, key=lambda failure: failure[0])[1]
        finally:
            failures.clear()  # which the traceback refers to, and which refers to the traceback


def in_threads(work: Callable[[int], _Result], n: int) -> list[_Result]:
    """Call `work` with 0 to n - 1 in threads, as `for_each` does, and return its results in order.

    Parameters
    ----------
    work
        Function of the number.
    n
        Number of calls.

    Examples
    --------
    >>> in_threads(lambda k: k * k, 4)
    [0, 1, 4, 9]
    """
    results: dict[int, _Result] = {}

    def keep(k: int) -> None:
        results[k] = work(k)

    for_each(keep, n)
    return [results[k] for k in range(n)]


_thread_state = threading.local()


@lru_cache
def _thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of further threads that is kept: starting one takes a millisecond, as long as a small kernel."""
    return ThreadPoolExecutor(threads, initializer=lambda: setattr(_thread_state, "is_worker", True))


if hasattr(os, "register_at_fork"):  # a forked process does not inherit the threads; Windows has no fork
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)


def for_ranges(work: Callable[[slice], None], rows: int, *, chunk: int = _CHUNK_ROWS) -> None:
    """Call `work` in threads with slices that together cover all rows.

    Parameters
    ----------
    work
        Function of a slice of rows.
    rows
        Number of rows.
    chunk
        Number of rows in a slice.
    """
    for_each(lambda k: work(slice(k * chunk, min((k + 1) * chunk, rows))), -(-rows // chunk))


def map_in_order(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Map `work` over items in threads and yield the results in order, with bounded look-ahead.

    Only a few results are in memory at a time.

    Parameters
    ----------
    work
        Function of an item.
    items
        Items, which may be an iterator.

    Examples
    --------
    >>> list(map_in_order(lambda k: k * k, range(4)))
    [0, 1, 4, 9]
    """
    items = iter(items)
    first = list(islice(items, 2))
    threads = n_threads() if len(first) > 1 else 1
    if threads <= 1:
        yield from map(work, chain(first, items))
        return
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[_Result]] = deque()
        try:
            for item in chain(first, items):
                pending.append(pool.submit(work, item))
                if len(pending) > threads + 1:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
