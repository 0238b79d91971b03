"""Faults in every kind of folder and in every long function: several writers, a full disk, an interrupt.

`tests/core/test_artifacts.py` has the faults of folders of arrays in detail, `tests/fuzz/kills.py` kills commands.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.cli._exit_codes import is_full_disk
from clickshift.counts import open_log
from clickshift.counts.daily import DayCounts
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftError, FileError
from clickshift.experiments.models import Contender
from clickshift.experiments.runner import RunFolder
from clickshift.simulation.search_engine import World
from tests.core.test_artifacts import nth

pytestmark = pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
SIZES = (60, 80, 100)
"""Numbers of sessions, by which the outputs of three writers are told apart."""


@dataclass(frozen=True)
class Inputs:
    """Three logs, and what is made of them."""

    logs: list[Sessions]
    models: list[Any]
    counts: list[DayCounts]
    rankers: list[Any]
    corpus: Any
    file: Path
    """A log that is as large as one that does not fit into memory, after a patch of the limit."""
    target: Any


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    corpus = cs.builtin_corpus(queries=10)
    logs = [cs.simulate(corpus, cs.BM25(), cs.users.PBM(), n, ranks=4, rng=0) for n in SIZES]
    counts = []
    for log in logs:
        folder = tmp_path_factory.mktemp("counts") / "counts"
        cs.count_log(log, folder)
        counts.append(DayCounts.load(folder))
    learners = [cs.ranking.BoostedRanker(trees=k + 1, leaves=3) for k in range(3)]
    rankers = [cs.train_ranker(corpus, logs[0], loss=learner, examination="1/rank").ranker for learner in learners]
    file = tmp_path_factory.mktemp("log") / "log.parquet"
    table = logs[2].to_arrow()
    pq.write_table(table, file)
    lists = {row["query"]: row["docs"][::-1] for row in table.to_pylist()}
    target = pa.table({"query": list(lists), "docs": list(lists.values())})
    models = [cs.fit("rCTR", log) for log in logs]
    return Inputs(logs, models, counts, rankers, corpus, file, target)


def write_model(inputs: Inputs, k: int, folder: Path) -> None:
    cs.save_model(inputs.models[k], folder)


def read_model(folder: Path) -> int:
    evidence = cs.load_model(folder).evidence
    assert evidence is not None
    return evidence.sessions


def write_ranker(inputs: Inputs, k: int, folder: Path) -> None:
    cs.ranking.save_ranker(inputs.rankers[k], folder)


def read_ranker(folder: Path) -> int:
    return SIZES[cs.load_ranker(folder).n_trees - 1]


TASK = World(queries=3)
"""Any frozen dataclass can be a task."""


def write_run(inputs: Inputs, k: int, folder: Path) -> None:
    run = RunFolder(folder)
    run.write_settings({"protocol": f"World(queries={k})"})
    run.write(TASK, [{"model": "PBM", "sessions": SIZES[k]}] * 50)


def read_run(folder: Path) -> int:
    run = RunFolder(folder)
    assert run.read_settings()["protocol"].startswith("World(")
    (sessions,) = {row["sessions"] for row in run.rows([TASK])}
    return int(sessions)


KINDS: dict[str, tuple[Callable[[Inputs, int, Path], Any], Callable[[Path], int]]] = {
    "model": (write_model, read_model),
    "counts": (
        lambda inputs, k, folder: inputs.counts[k].save(folder),
        lambda folder: int(DayCounts.load(folder).sessions),
    ),
    "encoded log": (
        lambda inputs, k, folder: cs.encode_log(inputs.logs[k], folder),
        lambda folder: int(cs.log_summary(folder).to_dict()["sessions"]),
    ),
    "ranker": (write_ranker, read_ranker),
    "run": (write_run, read_run),
}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


@contextmanager
def suppress_replaced() -> Iterator[None]:
    """Ignore that an encoded log, whose files are opened when they are needed, was replaced; its error says so."""
    try:
        yield
    except FileError as error:
        if error.code != "file-not-found" or not error.path.suffix == ".bin":
            raise


@pytest.mark.parametrize("writers", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_several_writers_leave_the_folder_of_one(kind: str, writers: int, inputs: Inputs, tmp_path: Path) -> None:
    write, read = KINDS[kind]
    folder, start = tmp_path / "out", threading.Barrier(writers)
    write(inputs, 0, folder)

    def work(k: int) -> None:
        start.wait()
        for _ in range(4):
            with suppress_replaced():
                write(inputs, k, folder)

    seen = set()
    with ThreadPoolExecutor(writers) as pool:
        futures = [pool.submit(work, k) for k in range(writers)]
        while not all(future.done() for future in futures):
            with suppress_replaced():
                seen.add(read(folder))
        for future in futures:
            future.result()
    assert {*seen, read(folder)} <= set(SIZES[:writers])
    assert not hidden(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_at_any_change_leaves_the_old_folder_or_the_new_one(
    kind: str, inputs: Inputs, tmp_path: Path
) -> None:
    write, read = KINDS[kind]
    folder = tmp_path / "out"
    write(inputs, 0, folder)
    with pytest.MonkeyPatch.context() as patch:
        calls = nth(patch, lambda _: None)
        write(inputs, 1, folder)
    assert len(calls) >= 2
    failed = 0
    for n, name in enumerate(calls, start=1):
        if name in {"unlink", "rmdir"}:  # which need no space
            continue
        write(inputs, 0, folder)
        with pytest.MonkeyPatch.context() as patch:
            nth(patch, lambda k, n=n: OSError(28, "No space left on device") if k == n else None)  # type: ignore[misc]
            try:
                write(inputs, 1, folder)
            except (ClickshiftError, OSError) as error:
                failed += is_full_disk(error)
        assert read(folder) in SIZES[:2]
        assert not hidden(tmp_path), name
    assert failed, "a folder that exists need not be made"
    write(inputs, 1, folder)
    assert read(folder) == SIZES[1]


SHIFT = cs.PolicyShift(
    users=(("DBN", "DBN"),),
    training=(("random", "Uniform"),),
    contenders=tuple(Contender(name, name, "baseline") for name in ("gCTR", "dCTR")),
    world=World(testing=(("random", "Uniform"),), queries=5, sessions=50, test_sessions=10),
    seeds=1,
    derived=None,
)
LONG: dict[str, Callable[[Inputs, Path, Any], Any]] = {
    "fit": lambda inputs, out, progress: cs.fit("DBN", inputs.file, progress=progress),
    "fit by gradient": lambda inputs, out, progress: cs.fit(
        "Gradient('PBM', rounds=2)", inputs.logs[0], progress=progress
    ),
    "compare": lambda inputs, out, progress: cs.compare(
        inputs.logs[2], models=["gCTR", "dCTR"], output=out, progress=progress
    ),
    "evaluate_policy": lambda inputs, out, progress: cs.evaluate_policy(
        inputs.file, inputs.target, replicates=20, progress=progress
    ),
    "propensities": lambda inputs, out, progress: cs.propensities(inputs.file, replicates=5, progress=progress),
    "encode_log": lambda inputs, out, progress: cs.encode_log(inputs.logs[0], out, progress=progress),
    "count_log": lambda inputs, out, progress: cs.count_log(inputs.file, out, progress=progress),
    "policy_shift": lambda inputs, out, progress: SHIFT.run(out, workers=0, progress=progress),
    "train_ranker": lambda inputs, out, progress: cs.train_ranker(
        inputs.corpus, inputs.file, loss=cs.ranking.BoostedRanker(trees=2), examination="1/rank", progress=progress
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_an_interrupt_of_a_long_function_leaves_nothing_half_written(
    name: str, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(open_log, "MEMORY_LIMIT", 0)
    monkeypatch.setenv("CLICKSHIFT_CACHE", str(tmp_path / "cache"))
    work, steps = LONG[name], list[Any]()

    def interrupted_at(n: int) -> Callable[..., None]:
        def progress(step: int | str, /, *, total: int | None = None) -> None:
            steps.append(step)
            if len(steps) == n:
                raise KeyboardInterrupt

        return progress

    work(inputs, tmp_path / "whole", interrupted_at(0))
    n_steps = len(steps)
    assert n_steps
    gone_on_from = list[dict[str, int]]()
    for n in sorted({1, (n_steps + 1) // 2, n_steps}):
        steps.clear()
        encoded = inputs.file.parent / ".clickshift"
        shutil.rmtree(encoded, ignore_errors=True)
        out = tmp_path / f"out-{n}"
        try:
            work(inputs, out, interrupted_at(n))
        except KeyboardInterrupt:
            pass
        else:
            assert name in {"fit by gradient"}, "which returns the best round so far"
        assert not hidden(tmp_path)
        assert not list(temporary.iterdir())
        left = {
            f"{folder.name if folder != out else 'out'}/{file.relative_to(folder)}": file.stat().st_size
            for folder in (out, encoded, tmp_path / "cache")
            for file in folder.rglob("*")
        }
        if left not in gone_on_from:  # from the same files, the next run is the same
            gone_on_from.append(left)
            work(inputs, out, interrupted_at(0))
