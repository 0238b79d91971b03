"""What the benchmarks share: a process of one's own, a quiet machine, an environment for each peer, and ratios."""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def alone(work: Callable[..., Any], *args: Any) -> Any:
    """Call in a fresh process, so that nobody's memory counts but its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, args)


def peer_python(peer: str, folder: Path, *, complete: bool = True) -> Path:
    """The interpreter of a peer's environment, which is made from requirements-PEER.txt where it is missing.

    A `complete` list of requirements is installed as it is: what a peer asks for beside it may not exist any more.
    """
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"making the environment of {peer} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", *["--no-deps"] * complete]
        subprocess.run([*install, "-r", HERE / f"requirements-{peer}.txt"], check=True)
        ready.touch()
    return python


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Row:
    """How many times faster we are: of the medians over repeats, and the least and most that any two of them give."""
    spread = [min(theirs) / max(ours), max(theirs) / min(ours)]
    return {"ratio": statistics.median(theirs) / statistics.median(ours), "ratio_range": spread}


class Machine:
    """Says how busy the machine is with other work, and waits until it is not."""

    def __init__(self, load: float, patience: float) -> None:
        self.load, self.patience = load, patience

    def measure(self, work: Callable[[], Row]) -> Row:
        """Wait for a quiet moment, work, and add what else went on: mean number of cores busy with other work."""
        waited = self._wait()
        start, busy, own = time.perf_counter(), _busy(), _own()
        row = work()
        others = (_busy() - busy - (_own() - own)) / (time.perf_counter() - start)
        return {**row, "load_before": waited, "other_work_cores": max(others, 0.0)}

    def _wait(self) -> float:
        end = time.perf_counter() + self.patience
        while (load := os.getloadavg()[0]) >= self.load and time.perf_counter() < end:
            start, busy = time.perf_counter(), _busy()
            time.sleep(5)
            if (_busy() - busy) / (time.perf_counter() - start) < 0.1:
                break  # the average remembers the last minute: nothing runs now
        return load

    def about(self) -> Row:
        cpu = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        usable = len(os.sched_getaffinity(0))
        return {"cpu": cpu[0] if cpu else platform.machine(), "cores": usable, "memory_gb": round(memory, 1)}


def _busy() -> float:
    """CPU seconds that all processes together have used."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(map(int, (user, nice, system, *interrupts[:3]))) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
