"""A log of any size, written quickly and the same every time: wide Parquet, text ids, one folder per day.

    python benchmarks/scale_log.py FOLDER --sessions 10000000

Lists of ten out of 25 candidates per query, drawn by Plackett-Luce and clicked by DBN users. Queries follow Zipf's law
(exponent 1.12), and there are 40 n^0.5 of them in n sessions, so that distinct pairs grow with the log: 0.6 million of
one million sessions, 2.6 million of ten. Documents belong to several queries.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import no_type_check

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numba import njit

RANKS, CANDIDATES, EXPONENT = 10, 25, 1.12
FILE, GROUP, DAYS = 1_000_000, 250_000, 10
_STRIDE = 101


def write_log(folder: Path, sessions: int, *, seed: int = 0) -> None:
    """Files of a million sessions, in as many days as there are files, at most ten."""
    n_queries = int(40 * sessions**0.5)
    n_docs = n_queries * CANDIDATES // 4
    share = np.cumsum(np.arange(1, n_queries + 1.0) ** -EXPONENT)
    share /= share[-1]
    queries, docs = _names("query ", n_queries), _names("https://example.org/", n_docs)
    n_files = -(-sessions // FILE)
    for k in range(n_files):
        rows = min(FILE, sessions - k * FILE)
        query, doc, click = (
            np.empty((rows, n), kind) for n, kind in ((1, np.int32), (RANKS, np.int32), (RANKS, np.int8))
        )
        query[:, 0] = np.searchsorted(share, np.random.default_rng([seed, k]).random(rows))
        _sessions(query[:, 0], np.uint64(seed * 1_000_003 + k + 1), n_docs, doc, click)
        day = k * min(DAYS, n_files) // n_files + 1
        path = folder / f"day=2026-01-{day:02d}" / f"part-{k:04d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(
            {
                "query": queries.take(pa.array(query[:, 0])),
                "docs": _lists(docs.take(pa.array(doc.ravel()))),
                "clicks": _lists(pa.array(click.ravel())),
            }
        )
        pq.write_table(table, path, row_group_size=GROUP)


def _names(prefix: str, n: int) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(np.arange(n)).cast(pa.string()), "")


def _lists(flat: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, RANKS, dtype=np.int32)), flat)


@njit(cache=True, nogil=True)
@no_type_check
def _mixed(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
@no_type_check
def _uniform(x):
    return (_mixed(x) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
@no_type_check
def _sessions(query, seed, n_docs, doc, click):
    """Attractiveness and satisfaction belong to the pair; a draw belongs to the session's row."""
    arrival = np.empty(CANDIDATES)
    state = seed << np.uint64(40)
    for i in range(len(query)):
        home = _mixed(np.uint64(query[i]) + np.uint64(1) << np.uint64(8))
        for j in range(CANDIDATES):
            good = _uniform(home + np.uint64(j))
            state += np.uint64(1)
            arrival[j] = -np.log(_uniform(state) + 1e-300) * np.exp(-3.0 * good)
        examined = True
        for r in range(RANKS):
            best = 0
            for j in range(1, CANDIDATES):
                if arrival[j] < arrival[best]:
                    best = j
            arrival[best] = np.inf
            doc[i, r] = np.int64((home >> np.uint64(20)) % np.uint64(n_docs) + np.uint64(best * _STRIDE)) % n_docs
            attractive = 0.03 + 0.5 * _uniform(home + np.uint64(best)) ** 3
            state += np.uint64(3)
            clicked = examined and _uniform(state) < attractive
            click[i, r] = clicked
            satisfied = clicked and _uniform(state - np.uint64(1)) < 0.2 + 0.6 * _uniform(home + np.uint64(64 + best))
            if satisfied or _uniform(state - np.uint64(2)) > 0.9:
                examined = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.perf_counter()
    write_log(args.folder, args.sessions, seed=args.seed)
    print(f"{args.sessions:,} sessions in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
