"""Run a function over ranges of rows on all cores.

Kernels are compiled without the interpreter lock, so plain threads suffice, and they compile several times faster than
numba's own parallel loops. Results do not depend on the number of threads: random streams belong to rows, not to
threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

CHUNK = 1 << 15
"""Rows worked on at once: enough to keep numpy busy, few enough to stay in the cache."""


def n_threads() -> int:
    """All cores that this process may use, or what CLICKSHIFT_THREADS says."""
    return int(os.environ.get("CLICKSHIFT_THREADS") or len(os.sched_getaffinity(0)))


def for_each(work: Callable[[int], None], n: int) -> None:
    """Call `work` with 0 to n - 1, several at a time."""
    threads = min(n_threads(), n)
    if threads <= 1:
        for k in range(n):
            work(k)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, range(n)):
            pass


def for_ranges(work: Callable[[slice], None], rows: int, *, chunk: int = CHUNK) -> None:
    """Call `work` with slices that together cover all rows, several at a time."""
    for_each(lambda k: work(slice(k * chunk, min((k + 1) * chunk, rows))), -(-rows // chunk))
