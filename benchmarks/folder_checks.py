"""What the checks of an encoded log cost, as a share of the first pass over it: opening and counting, as commands do.

    python benchmarks/folder_checks.py [--sessions 1000000] [--repeats 40]

Both are CPU times within one run, and each is the smallest of several: on a busy machine, larger ones are due to other
processes. The checks are timed block by block, after an access to the pages of the files, which counting pays for
without checks. The queries of the rows, which they find in passing, are subtracted, because readers would look them up.
A pass is timed without checks, and the share is that of checks in both together. The goal is 5 %.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import clickshift as cs
from clickshift.core import artifacts
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.data import encoded_log
from clickshift.data.encoded_files import CLICKS, PAIRS, LogFiles, query_ranges
from clickshift.io.encode.writer import open_encoded

GOAL = 0.05
PASSES: dict[str, Callable[[Path], Any]] = {
    "count by rank (PBM)": lambda folder: Cells.of(open_encoded(folder)),
    "count by last click (UBM)": lambda folder: Cells.of(open_encoded(folder), "last_click"),
    "count the cascade (DBN)": lambda folder: Cascade.of(open_encoded(folder)),
    "log info": cs.log_summary,
    "fit PBM": lambda folder: cs.fit("PBM", folder),
    "fit UBM": lambda folder: cs.fit("UBM", folder),
}
CHECKS: dict[tuple[Any, str], Callable[..., Any]] = {
    (artifacts, "content_key"): lambda paths: json.loads((paths[0].parent / "log.json").read_text())["arrays"],
    (LogFiles, "check_block"): lambda *args: None,
    (LogFiles, "check_column"): lambda *args: None,
    (encoded_log, "query_ranges"): lambda vocabulary: (),
}
"""What checks, and what takes its place in passes without checks."""


def smallest(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.thread_time) -> float:
    """Return the smallest CPU time of some calls, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return 1000 * min(times)


def check_times(folder: Path, repeats: int) -> dict[str, float]:
    """Return the CPU milliseconds of each kind of check, and of what a check saves."""
    log = open_encoded(folder)
    files, vocabulary = log.files, log.vocabulary
    header = json.loads((folder / "log.json").read_text())
    arrays = folder / header["files"]["arrays"]
    found = dict.fromkeys(("pairs and clicks", "queries found in passing", "columns"), 0.0)
    found["arrays"] = smallest(lambda: artifacts.content_key([arrays]), repeats)
    found["tables"] = smallest(lambda: query_ranges(vocabulary), repeats)
    queries = query_ranges(vocabulary)
    pairs, bits = files.map(PAIRS, "<i4"), files.map(CLICKS, "u1")
    for number, block in enumerate(log.blocks):
        pair = np.asarray(pairs[block.pair_slice]).reshape(block.rows, block.ranks)
        packed = np.asarray(bits[block.click_slice]).reshape(block.rows, block.click_bytes)
        click = np.unpackbits(packed, axis=1, count=block.ranks).view(bool)

        def check(number: int = number, block: tuple[np.ndarray, ...] = (pair, packed, click)) -> None:
            files.checked.discard(number)
            files.check_block(number, *block, queries)

        found["pairs and clicks"] += smallest(check, repeats)
        look_up = partial(lambda pair: vocabulary.pair_query[pair[:, 0]].astype(np.int32), pair)
        found["queries found in passing"] -= smallest(look_up, repeats)
    for name in log.kinds:
        column = np.asarray(files.map(name, log.kinds[name]))
        found["columns"] += smallest(lambda name=name, c=column: files.check_column(name, c), repeats)  # type: ignore[misc]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clickshift-checks-") as temporary:
        folder = Path(temporary) / "log"
        policy = cs.PlackettLuce(cs.BM25(), temperature=0.03, scores="log")
        log = cs.simulate(cs.builtin_corpus(1000), policy, cs.users.DBN(), options.sessions, ranks=10, rng=0)
        cs.encode_log(log, folder)
        times = check_times(folder, options.repeats)
        checks = sum(times.values())
        for name, ms in times.items():
            print(f"{ms:7.1f} CPU ms  {name}", flush=True)
        print(f"{checks:7.1f} CPU ms  all checks")
        with ExitStack() as stack:
            for (owner, check), nothing in CHECKS.items():
                stack.enter_context(mock.patch.object(owner, check, nothing))
            for name, work in PASSES.items():
                work(folder)
                ms = smallest(partial(work, folder), max(options.repeats // 3, 3), time.process_time)
                share = checks / (checks + ms)
                print(
                    f"{ms:7.1f} CPU ms  {name}: checks are {share:.1%}{'' if share <= GOAL else ', too much'}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
