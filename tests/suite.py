"""The suite's own rules, as a pytest plugin: what tests cost, studies, and comparisons with real data.

- The run ends with the twenty most expensive tests, in CPU seconds of all threads and finished child processes, without
  the compilation of numba's kernels. `--cost-limit S` fails the run when one phase of an unmarked test takes longer,
  also when the test is run again by itself: beside other processes, the same test takes up to twice the time.
  A phase that has not ended after four minutes hangs: it fails. `--costs-by-file` lists all files, too, and
  `--write-costs` keeps their costs in tests/costs.json. Files that cost most run first, so that at the end of a run no
  worker waits long for the other one (with `--no-loadscope-reorder`; files that are not in the list come last).
- A test marked `study` measures a rate over many simulated logs. `--study` chooses what becomes of them: `off`
  (the default) deselects them, `smallest` runs each once at a size that only shows that it still works, `full` runs
  them whole and writes their numbers to benchmarks/results/studies.json.
- Doctests are those of the package: test files have none, and are not searched for them.
- Modules and the list of tests stay for the whole run, so the garbage collector does not go over them again and again.
- A comparison with a real data sample that is not here is skipped, and the run says in one line which samples were
  missed, by how many tests. What the code does with such files is tested all the same: see tests/standins.py.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from _pytest.doctest import DoctestModule
from numba.core import event

from tests.runtime_types import start_test

T = TypeVar("T")
Item = TypeVar("Item", bound=Any)
"""A test, which has a node id."""

NO_REAL_DATA = "no real data"
COSTS = Path(__file__).with_name("costs.json")
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "studies.json"
UNLIMITED = ("study", "spark")
"""Marks of tests that may take longer than the limit."""
SHOWN = 20
_ALONE = "CLICKSHIFT_TEST_ALONE"
"""Environment variable of a run that measures one test again."""
HANG_SECONDS = 240
"""Time after which a phase of an unmarked test is ended."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("clickshift")
    group.addoption("--study", choices=("off", "smallest", "full"), default="off", help="what becomes of studies")
    group.addoption("--costs-by-file", action="store_true", help="end with the CPU seconds of every test file")
    group.addoption("--write-costs", action="store_true", help="write the costs of files to tests/costs.json")
    group.addoption("--cost-limit", type=float, metavar="S", help="most CPU seconds of a phase of an unmarked test")


def pytest_configure(config: pytest.Config) -> None:
    # Several workers share the cores: threads that wait must not spin, and small products need no threads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    settings = {
        # Compiled JAX programs are keyed by what they compute: every worker and every later run may use them.
        "jax_compilation_cache_dir": str(config.rootpath / ".pytest_cache" / "jax"),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        # Nearly all of them run for less time than they are compiled; `optimising_compiler` is for the others.
        "jax_disable_most_optimizations": True,
    }
    for name, value in settings.items():
        if name.upper() not in os.environ:  # workers inherit it
            os.environ[name.upper()] = str(int(value) if value is True else value)
            if "jax" in sys.modules:  # a plugin of pytest has imported it already
                sys.modules["jax"].config.update(name, value)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Costs(config), "clickshift-costs")


@pytest.hookimpl(optionalhook=True)  # a test that is run again by itself needs no workers
def pytest_xdist_auto_num_workers() -> int:
    # One worker more than cores: many tests wait for other processes, and a core would wait with them.
    from clickshift.core.parallel import available_cores

    return len(available_cores()) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, Any]:
    collectors = yield
    return [each for each in collectors if has_doctests(file_path) or not isinstance(each, DoctestModule)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--study")
    studies = [item for item in items if item.get_closest_marker("study")]
    others = [item for item in items if not item.get_closest_marker("study")]
    if wanted == "off" and studies:
        config.hook.pytest_deselected(items=studies)
        items[:] = others
    if hasattr(config, "workerinput"):
        items[:] = by_cost(items, json.loads(COSTS.read_text(encoding="utf-8")))


def by_cost(items: Sequence[Item], costs: Mapping[str, float]) -> list[Item]:
    """Sort tests by the cost of their file, largest first; files of unknown cost come last, by number of tests."""
    number = Counter(file_of(item.nodeid) for item in items)

    def key(item: Item) -> tuple[float, int, str]:
        file = file_of(item.nodeid)
        return -costs.get(file, 0.0), -number[file], file

    return sorted(items, key=key)


def has_doctests(file: Path) -> bool:
    """Whether a file is searched for doctests."""
    return not file.is_relative_to(COSTS.parent)


def file_of(test: str) -> str:
    """The file of a test, by the test's node id."""
    return test.partition("::")[0]


class _KernelCompilation(event.Listener):
    """CPU seconds of numba's compilation of kernels: that happens once a run, whichever test comes first."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._start = 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._start = time.thread_time()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.thread_time() - self._start


_compilation = _KernelCompilation()
event.register("numba:compile", _compilation)


def cpu_seconds() -> float:
    """CPU time of this process, all its threads, and child processes that have ended, less compilation of kernels."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system - _compilation.seconds


_started = pytest.StashKey[float]()


@contextmanager
def watched(item: pytest.Item) -> Iterator[None]:
    """Note when a phase of a test starts, and end one that hangs, e.g. because it waits for another process."""
    item.stash[_started] = cpu_seconds()
    if not hasattr(signal, "setitimer") or any(item.get_closest_marker(mark) for mark in UNLIMITED):
        yield
        return

    def end(number: int, frame: object) -> None:
        pytest.fail(f"{item.nodeid} hangs: it has not ended after {HANG_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    start_test()
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    with watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    report.cpu_seconds = cpu_seconds() - item.stash[_started]
    limit = item.config.getoption("--cost-limit")
    report.over_limit = limit is not None and report.cpu_seconds > limit
    report.unlimited = any(item.get_closest_marker(mark) for mark in UNLIMITED)
    return report


class _Costs:
    """What the process that reports knows of all tests, whichever worker ran them."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._limit: float | None = config.getoption("--cost-limit")
        self._list_files: bool = config.getoption("--costs-by-file")
        self._write_costs: bool = config.getoption("--write-costs")
        self._costs: list[tuple[float, str]] = []
        self._over: dict[str, float] = {}
        self._not_compared: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        phase = "" if report.when == "call" else f" ({report.when})"
        self._costs.append((getattr(report, "cpu_seconds", 0.0), report.nodeid + phase))
        if getattr(report, "over_limit", False) and not report.unlimited:
            self._over[report.nodeid] = report.cpu_seconds
        if report.skipped and isinstance(report.longrepr, tuple):
            _, found, rest = report.longrepr[2].partition(f"{NO_REAL_DATA}: ")
            if found:
                self._not_compared[rest.split(" ")[0]] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.OK:
            return
        if _ALONE not in os.environ:
            self._over = {test: cost for test, cost in self._over.items() if not self._passes_alone(test)}
        if self._over:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _passes_alone(self, test: str) -> bool:
        """Whether a test keeps within the limit when nothing runs beside it."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--cost-limit", str(self._limit), test]
        environment = os.environ | {_ALONE: "1", "PYTEST_ADDOPTS": ""}
        return subprocess.run(command, cwd=self._root, env=environment, capture_output=True).returncode == 0

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section(
            f"{SHOWN} most expensive tests, CPU seconds ({sum(c for c, _ in self._costs):.0f} in all)"
        )
        for cost, name in sorted(self._costs, reverse=True)[:SHOWN]:
            terminalreporter.write_line(f"{cost:7.1f}  {name}")
        by_file: dict[str, float] = {}
        for cost, name in self._costs:
            by_file[file_of(name)] = by_file.get(file_of(name), 0.0) + cost
        by_file = dict(sorted(by_file.items(), key=lambda one: -one[1]))
        if self._list_files:
            terminalreporter.section("CPU seconds by file")
            for name, cost in by_file.items():
                terminalreporter.write_line(f"{cost:7.1f}  {name}")
        if self._write_costs:
            kept = {name: round(cost, 1) for name, cost in by_file.items() if cost >= 1}
            COSTS.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        for name, cost in self._over.items():
            terminalreporter.write_line(
                f"over the limit of {self._limit:g} CPU seconds: {name} took {cost:.1f}", red=True
            )
        if self._not_compared:
            tests = self._not_compared.total()
            samples = ", ".join(f"{name} ({number})" for name, number in sorted(self._not_compared.items()))
            terminalreporter.write_line(
                f"Not compared with real samples, which are not here ({tests} tests skipped): {samples}", yellow=True
            )


class Study:
    """The size at which a study runs, and where its numbers go."""

    def __init__(self, *, full: bool) -> None:
        self.full = full

    def choose(self, *, smallest: T, full: T) -> T:
        """One of two sizes. Assert rates only where `full` holds: the smallest run shows that the study still works."""
        return full if self.full else smallest

    def record(self, name: str, **numbers: Any) -> None:
        """Keep the numbers of a whole run with the benchmarks' results."""
        if not self.full:
            return
        with RESULTS.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several workers keep numbers in one file
            kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
            kept[name] = numbers
            RESULTS.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n", encoding="utf-8")


@pytest.fixture
def optimising_compiler() -> Iterator[None]:
    """JAX compiles as it does for users: for programs that run for longer than they are compiled."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def study(request: pytest.FixtureRequest) -> Study:
    return Study(full=request.config.getoption("--study") == "full")


class Samples:
    """The folder of real data samples. Asking for one that is not there skips the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __truediv__(self, name: str) -> Path:
        sample = Path(name).parts[0]
        if not (self._folder / sample).is_dir():
            pytest.skip(f"{NO_REAL_DATA}: {sample} is not in {self._folder}; CLICKSHIFT_TEST_DATA names another folder")
        return self._folder / name


@pytest.fixture(scope="session")
def shared_data() -> Samples:
    """Real data samples, which are not part of the project: in $CLICKSHIFT_TEST_DATA or ../shared/data."""
    return Samples(Path(os.environ.get("CLICKSHIFT_TEST_DATA", Path(__file__).parents[2] / "shared" / "data")))


@pytest.fixture(scope="session")
def standins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the real samples, with small files in the same formats: see tests/standins.py."""
    from tests.standins import write_standins

    return write_standins(tmp_path_factory.mktemp("standins"))
