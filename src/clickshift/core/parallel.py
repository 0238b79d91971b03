"""Run a function over ranges of rows on all cores.

Kernels are compiled without the interpreter lock, so plain threads suffice, and they compile several times faster than
numba's own parallel loops. Results do not depend on the number of threads: random streams belong to rows, not to
threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

CHUNK = 1 << 15
"""Rows worked on at once: enough to keep numpy busy, few enough to stay in the cache."""


def n_threads() -> int:
    """All cores that this process may use, or what CLICKSHIFT_THREADS says."""
    return int(os.environ.get("CLICKSHIFT_THREADS") or len(os.sched_getaffinity(0)))


def for_each(work: Callable[[int], None], n: int) -> None:
    """Call `work` with 0 to n - 1, several at a time; or one after the other inside such work, which all cores have."""
    if min(n_threads(), n) <= 1 or getattr(_this_thread, "works", False):
        for k in range(n):
            work(k)
        return
    futures = [_workers(n_threads()).submit(work, k) for k in range(n)]
    try:
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


_this_thread = threading.local()


@lru_cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """Kept: to start a thread takes a millisecond, a tenth of what many a kernel takes."""
    return ThreadPoolExecutor(threads, initializer=lambda: setattr(_this_thread, "works", True))


os.register_at_fork(after_in_child=_workers.cache_clear)  # a fork has no threads but its own


def for_ranges(work: Callable[[slice], None], rows: int, *, chunk: int = CHUNK) -> None:
    """Call `work` with slices that together cover all rows, several at a time."""
    for_each(lambda k: work(slice(k * chunk, min((k + 1) * chunk, rows))), -(-rows // chunk))


def map_in_order(work: Callable[[Given], Made], items: Iterable[Given]) -> Iterator[Made]:
    """What `work` makes of each item, in their order, a few items ahead of who asks: what is made need not all fit."""
    threads = n_threads()
    if threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[Made]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                if len(ahead) > threads + 1:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
