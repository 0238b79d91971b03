"""Experiments: a protocol yields tasks, a run keeps the rows of finished tasks in a folder, and the rows make a result.

`Experiment` is the base class of protocols, `ExperimentResult` that of their results. The settings of a run are kept in
its folder, so that the run can be continued, inspected (`run_status`) and reported again (`read_run`).
"""

from __future__ import annotations

import dataclasses
import math
import platform
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from clickshift._version import __version__
from clickshift.core.interrupts import keep_after_interrupt, temporary_folder
from clickshift.core.progress import Progress, silent
from clickshift.core.spec import key, parse
from clickshift.core.versions import library_versions
from clickshift.display.document import Document, Section
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.errors import ClickshiftError, ClickshiftWarning, FileError, RunError, SpecError
from clickshift.experiments import runner
from clickshift.experiments.runner import DAMAGED, DONE, FinishedTask, RunFolder, Task, digest
from clickshift.simulation.search_engine import BUILTIN, SearchEngine

_REGISTRY = {
    "PolicyShift": "clickshift.experiments.policy_shift.protocol:PolicyShift",
    "Contender": "clickshift.experiments.models:Contender",
    "World": "clickshift.simulation.search_engine:World",
    "DerivedPolicies": "clickshift.experiments.policy_shift.derived_policies:DerivedPolicies",
    "RealLogs": "clickshift.experiments.real_logs:RealLogs",
    "ModelSelection": "clickshift.experiments.model_selection.protocol:ModelSelection",
    "SelectionWorld": "clickshift.simulation.search_engine:SelectionWorld",
    "Preparation": "clickshift.experiments.real_logs:Preparation",
    "LogFile": "clickshift.experiments.log_files:LogFile",
    "JudgmentFile": "clickshift.experiments.log_files:JudgmentFile",
    "Pointwise": "clickshift.experiments.click_vs_ips.protocol:Pointwise",
    "Tuning": "clickshift.experiments.click_vs_ips.tuning:Tuning",
    "PointwiseChecks": "clickshift.experiments.click_vs_ips.checks:PointwiseChecks",
    "PointwiseData": "clickshift.experiments.click_vs_ips.data:PointwiseData",
    "SharedFeatures": "clickshift.experiments.click_vs_ips.losses:SharedFeatures",
    "LossByRank": "clickshift.experiments.click_vs_ips.losses:LossByRank",
    "GradientByRank": "clickshift.experiments.click_vs_ips.losses:GradientByRank",
    "OffPolicyFigure": "clickshift.experiments.off_policy_paper:OffPolicyFigure",
    "DriftingLog": "clickshift.simulation.drifting_log:DriftingLog",
}
"""Classes that may occur in the text of a protocol."""
_COMMANDS = {"PolicyShift": "shift run", "RealLogs": "shift logs", "ModelSelection": "selection run"}
"""Commands that run a protocol, other than `reproduce`."""
_NUMERIC_LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "jax", "optax")
"""Libraries whose version may change the last digits of a result."""
_MAX_COMBINATIONS = 200_000
"""Largest number of combinations of a protocol's settings and seeds, and so of tasks; the papers have a few hundred."""


@dataclass(frozen=True, repr=False)
class ExperimentResult(Result):
    """The result of an experiment: the rows of its finished tasks.

    Parameters
    ----------
    task_rows
        Tidy rows of the finished tasks.
    settings
        Settings of the run, which end the page.
    failures
        Messages of the tasks that failed; the other tasks are in the rows.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `rows`, the tidy rows of the finished tasks; `failures`, the messages of
    failed tasks. Policy shift and real logs add `verdicts`, one per model: its name (`model`), a short `verdict` and a
    `text` with the numbers. Real logs add `logs` (sizes of each log, and its distance from the training log) and
    `warnings`. Model selection adds `regret` (by `strategy`, `user` and `training`, with interval and published value)
    and `r2` (by `metrics`, `way` and `regressor`).
    """

    task_rows: Rows
    settings: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    def rows(self) -> Rows:
        """Return the tidy rows of the finished tasks."""
        return self.task_rows

    @property
    def conclusion(self) -> str:
        """The answer, preceded by the number of failed tasks if there are any."""
        failed = f"{self._failed}; these are the results of the others. " if self.failures else ""
        return failed + self._answer()

    @property
    def _failed(self) -> str:
        """How many tasks failed, e.g. "2 tasks failed"."""
        return f"{len(self.failures):,} task{'s' * (len(self.failures) > 1)} failed"

    def _answer(self) -> str:
        """Return the answer of the finished tasks."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, the rows and the messages of failed tasks."""
        return {"conclusion": self.conclusion, "rows": self.rows(), "failures": self.failures}

    def check_complete(self) -> None:
        """Raise an error if a task failed.

        Raises
        ------
        RunError
            "failed-tasks".
        """
        if self.failures:
            raise RunError(
                f"{self._failed}, the results of the others are kept. The first: "
                f"{self.failures[0]} Fix the cause and run again: only missing tasks run.",
                code="failed-tasks",
                count=len(self.failures),
                first=self.failures[0],
            )


AnyResult = TypeVar("AnyResult", bound=ExperimentResult)


class Experiment(Generic[AnyResult]):
    """A protocol: a frozen dataclass that yields the tasks of an experiment and makes a result of their rows."""

    def tasks(self) -> Sequence[Task]:
        """Return the tasks. Tasks that share data follow each other, so that a process prepares the data once."""
        raise NotImplementedError

    def facts(self) -> Sequence[Task]:
        """Return the short tasks, such as those that describe the data: they are computed first and in this process."""
        return ()

    def check_models(self) -> None:
        """Check that every model of the protocol can be fitted, which imports the candidates.

        A run calls this before any work. A protocol that is read from a run's folder is not checked, because nothing
        may be imported because a file names it.
        """

    def check_data(self) -> None:
        """Read the corpus if it is in files, so that a bad line is one error before the tasks, not one for each."""
        world = getattr(self, "world", None)
        if isinstance(world, SearchEngine) and world.corpus != BUILTIN:
            world.candidates()

    def prepare(self, folder: RunFolder, progress: Progress) -> None:
        """Compute the rows of `facts`, before the other tasks run."""
        for task in self.facts():
            if not folder.has(task):
                folder.write(task, task.rows())
            progress(1)

    def result(self, rows: Rows, settings: Mapping[str, Any], failures: tuple[str, ...] = ()) -> AnyResult:
        """Make the result of the rows of finished tasks."""
        raise NotImplementedError

    def sources(self) -> dict[str, Any]:
        """Return where the data are, by name, for the settings of a run."""
        return {}

    def run(
        self,
        output: str | Path | None = None,
        *,
        reference: bool = False,
        workers: int | None = None,
        cluster: str | None = None,
        progress: Progress = silent,
        table: str | None = None,
    ) -> AnyResult:
        """Run the tasks whose rows are missing, and return the result of all.

        Parameters
        ----------
        output
            Folder that keeps the rows of finished tasks: after an interruption, run again, and only the missing ones
            run. By default, a temporary folder.
        reference
            Whether to use the reference rows that come with the package, where they apply.
        workers
            Number of worker processes; by default, one per core. With 0, the tasks run in this process.
        cluster
            Address of a Dask cluster to run on instead of this machine, e.g. "tcp://host:8786".
        progress
            Called with a line and a step for each finished task, and with texts on how far running tasks are.
        table
            Name of the table or figure that the run makes, as in `reproduce`.

        Returns
        -------
        ExperimentResult
            The result of the finished tasks, with the messages of those that failed.

        Raises
        ------
        SpecError
            "bad-option" if both `workers` and `cluster` are given.
        FileError
            "other-report" if the folder holds the report of something else, which would be replaced.
        RunError
            "failed-tasks" if no task could be finished, "process-died" or "executor-lost" if the run was cut short.
        """
        if workers is not None and cluster is not None:
            raise SpecError(
                "pass `workers` or `cluster`, not both: a cluster has as many workers as were started.",
                code="bad-option",
                option="workers",
            )
        self.check_models()
        with _run_folder(output) as folder:
            settings, facts, tasks = start_run(self, folder, table=table), self.facts(), self.tasks()
            progress(0, total=len(facts) + len(tasks))
            n_copied = runner.copy_reference_rows(tasks, folder) if reference else 0
            if n_copied:
                progress(f"{n_copied} of {len(tasks)} tasks are taken from the reference rows of the package.\n")
            if not all(map(folder.has, tasks)):
                self.check_data()
            self.prepare(folder, progress)
            try:
                failures = _run_missing(tasks, folder, workers, cluster, progress)
            except KeyboardInterrupt:
                if output is not None:
                    keep_after_interrupt(
                        f"{sum(map(folder.has, tasks))} of {len(tasks)} tasks are finished and kept in {output}: run "
                        "the same again, and only the others run"
                    )
                raise
            finished = len(failures) < len(tasks) or not tasks
            rows = folder.rows([*facts, *tasks])
        if not finished:
            ExperimentResult([], failures=failures).check_complete()
        return self.result(rows, settings, failures)


def settings_at_scale(scale: str, scales: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of a protocol at a scale.

    Parameters
    ----------
    scale
        Name of the scale.
    scales
        Settings by scale.

    Returns
    -------
    dict
        The settings, to be changed and passed to the protocol's class.

    Raises
    ------
    SpecError
        "unknown-name" for another scale.
    """
    if scale not in scales:
        raise SpecError(
            f"a scale must be one of {', '.join(scales)}: got {scale!r}.",
            code="unknown-name",
            value=scale,
            known=list(scales),
        )
    return dict(scales[scale])


@contextmanager
def _run_folder(output: str | Path | None) -> Iterator[RunFolder]:
    """Yield the folder of a run, which is temporary if none is given."""
    if output is not None:
        yield RunFolder(Path(output))
        return
    with temporary_folder("clickshift-run-") as folder:
        yield RunFolder(folder)


@contextmanager
def corpus_folder(output: str | Path | None) -> Iterator[Path]:
    """Yield the folder for the corpus of a run that is an object: in the run's folder, or a temporary one.

    Parameters
    ----------
    output
        Folder of the run; None for a temporary one.

    Yields
    ------
    Path
        The folder, which may not exist yet.
    """
    if output is not None:
        yield Path(output) / "corpus"
        return
    with temporary_folder("clickshift-corpus-") as folder:
        yield folder


def _run_missing(
    tasks: Sequence[Task], folder: RunFolder, workers: int | None, cluster: str | None, progress: Progress
) -> tuple[str, ...]:
    """Run the tasks whose rows are missing, with a line of progress per finished task; return messages of failures."""
    missing = [task for task in tasks if not folder.has(task)]
    progress(len(tasks) - len(missing))
    if not missing:
        return ()
    failures, notes, done, start = list[str](), dict[str, str](), len(tasks) - len(missing), time.perf_counter()

    def report(finished: FinishedTask) -> None:
        nonlocal done
        done += 1
        name, left = finished.task.name, len(tasks) - done
        remaining = (time.perf_counter() - start) / (len(missing) - left) * left
        outcome = finished.error or f"{finished.seconds:.1f} s"
        progress(f"[{done}/{len(tasks)}] {name}: {outcome} (about {_duration(remaining)} left)\n")
        progress(1)
        if finished.error:
            failures.append(f"{name}: {finished.error}")
        for note in finished.notes:
            notes.setdefault(note, name)

    def state(task: Task, text: str) -> None:
        progress(f"{task.name}: {text}")

    with _executor(workers, cluster, folder) as executor:
        runner.run_tasks(missing, folder, executor, progress=report, state=state)
    for note, name in notes.items():
        warnings.warn(f"{name}: {note}", ClickshiftWarning, stacklevel=2)
    return tuple(failures)


def _executor(workers: int | None, cluster: str | None, folder: RunFolder) -> Any:
    """Start processes, or connect to the cluster; without workers, run in this process."""
    if workers == 0:
        return runner.ThisProcess()
    if cluster is None:
        return runner.process_pool(workers)
    from clickshift.experiments import dask

    return dask.cluster(cluster, folder.path)


def _duration(seconds: float) -> str:
    """Format a duration in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def start_run(protocol: Experiment[Any], folder: RunFolder, *, table: str | None = None) -> dict[str, Any]:
    """Write the settings of a run into its folder, which may be new or hold an earlier run of the same kind.

    Parameters
    ----------
    protocol
        Protocol of the run.
    folder
        Folder of the run.
    table
        Name of the table or figure that the run makes, as in `reproduce`.

    Returns
    -------
    dict
        The settings: sources, the text of the protocol, the name of the table, modules of candidates, and versions of
        libraries.

    Raises
    ------
    SpecError
        "too-many-tasks".
    FileError
        "other-report".
    """
    _check_size(protocol)
    check_report(folder, table, type(protocol).__name__)
    modules = [contender.module for contender in getattr(protocol, "contenders", ()) if contender.module]
    settings: dict[str, Any] = {**protocol.sources(), "protocol": key(protocol), "table": table, "modules": modules}
    settings |= {"clickshift": __version__, "python": platform.python_version(), **library_versions(_NUMERIC_LIBRARIES)}
    folder.write_settings(settings)
    return settings


def check_report(folder: RunFolder, table: str | None, protocol: str) -> None:
    """Check that the report of a run replaces none but its own.

    Parameters
    ----------
    folder
        Folder of the run, which may be new.
    table
        Name of the table or figure that the run makes; None if it makes none of a paper.
    protocol
        Name of the class of the protocol.

    Raises
    ------
    FileError
        "other-report" if the folder holds a run or a report of something else.
    """
    if not (folder.path / "report.html").exists() and not any(folder.path.glob("cells/*.parquet")):
        return  # nothing is finished
    try:
        settings = folder.read_settings()
    except FileError as error:  # a damaged run is started again
        other = "another command" if error.code == "not-a-run" and not (folder.path / "cells").exists() else ""
    else:
        found = settings["protocol"].partition("(")[0]
        same = found == protocol and settings.get("table", table) == table  # runs of older versions have no table
        other = "" if same else settings.get("table") or _COMMANDS.get(found, found)
    if other:
        raise FileError(
            folder.path,
            f"holds the report of {other}, which that of {table or _COMMANDS.get(protocol, protocol)} would replace. "
            "Choose another folder, or remove this one.",
            code="other-report",
            found=other,
        )


def _check_size(protocol: Experiment[Any]) -> None:
    """Raise unless the grid of a protocol is small enough to be listed: a short text may ask for billions of tasks."""
    values = [getattr(protocol, field.name) for field in dataclasses.fields(protocol)]  # type: ignore[arg-type]
    combinations = math.prod(max(1, len(value)) for value in values if isinstance(value, tuple))
    combinations *= max(1, getattr(protocol, "seeds", 1))
    if combinations > _MAX_COMBINATIONS:
        raise SpecError(
            f"a run must have at most {_MAX_COMBINATIONS:,} combinations of users, policies, models, sizes and seeds: "
            f"got {combinations:,}. Use fewer seeds, or split the run.",
            code="too-many-tasks",
            value=combinations,
            limit=_MAX_COMBINATIONS,
        )


def open_run(path: str | Path) -> tuple[Experiment[Any], RunFolder, dict[str, Any]]:
    """Open the folder of a run, without importing its candidates: names and rows suffice to inspect a run.

    Parameters
    ----------
    path
        Folder of the run.

    Returns
    -------
    Experiment
        The protocol of the run.
    RunFolder
        The folder.
    dict
        The settings that `start_run` wrote.

    Raises
    ------
    FileError
        If the folder holds no run ("not-a-run"), its settings cannot be read ("damaged-file"), or its protocol is that
        of another version ("other-version").
    """
    folder = RunFolder(Path(path))
    settings = folder.read_settings()
    try:
        protocol: Experiment[Any] = parse(settings["protocol"], _REGISTRY)
        _check_size(protocol)
        for task in (*protocol.facts(), *protocol.tasks()):
            digest(task)
    except Exception as error:  # settings of another version, or from another hand, may break any rule of a protocol
        raise FileError(
            path, f"holds a run of another version of clickshift ({error}) Start the run again.", code="other-version"
        ) from None
    return protocol, folder, settings


def read_run(output: str | Path, *, repeats: int | None = None) -> Any:
    """Return the result of the finished tasks of a run, without running any.

    Parameters
    ----------
    output
        Folder of the run, of `policy_shift`, `compare_logs`, `model_selection` or `reproduce`.
    repeats
        Number of repetitions of the published cross-validation, of model selection only; by default, that of the run.

    Returns
    -------
    ExperimentResult
        What the function that made the run returns.

    Raises
    ------
    RunError
        "empty-run" if no task is finished.
    FileError
        "not-a-run", "damaged-file" or "other-version" if the folder holds no run of this version.

    Examples
    --------
    >>> import tempfile
    >>> import clickshift as cs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = start_run(cs.PolicyShift(), RunFolder(Path(folder)))
    ...     try:
    ...         read_run(folder)
    ...     except RunError as error:
    ...         error.code
    'empty-run'
    """
    protocol, folder, settings = open_run(output)
    if repeats is not None and hasattr(protocol, "repeats"):
        protocol = replace(protocol, repeats=repeats)  # type: ignore[type-var]
    facts, tasks = protocol.facts(), protocol.tasks()
    if not any(map(folder.has, tasks or facts)):
        raise RunError(
            f"{output}: no task of this run is finished yet. Run it first.", code="empty-run", path=str(output)
        )
    if damaged := sum(folder.state(task) == DAMAGED for task in (*facts, *tasks)):
        warnings.warn(
            ClickshiftWarning(
                f"{output}: {damaged} files of rows are damaged or belong to other tasks, and are left out. Run again "
                "with the same options: only these tasks and missing ones run.",
                code="damaged-rows",
                count=damaged,
            ),
            stacklevel=2,
        )
    try:
        result = protocol.result(folder.rows([*facts, *tasks]), settings)
        # made of the rows, which another version or another hand may have written
        _ = result.document, result.to_arrow()
    except ClickshiftError:
        raise
    except Exception as error:
        raise FileError(
            output,
            f"its rows cannot be reported ({type(error).__name__}: {error}). Delete its folder `cells` and run again.",
            code="damaged-file",
        ) from error
    return result


@dataclass(frozen=True, repr=False)
class RunStatus(Result):
    """Which tasks of a run are finished.

    Parameters
    ----------
    path
        Folder of the run.
    task_rows
        One row per task.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `done` and `of`, the numbers of finished tasks and of all tasks;
    `damaged`, the number of tasks whose rows are damaged; `cells`, one per task: `log`, `model`, `done` and `damaged`.
    """

    path: str
    task_rows: Rows

    @property
    def n_done(self) -> int:
        """Number of finished tasks."""
        return sum(row["done"] for row in self.task_rows)

    @property
    def n_damaged(self) -> int:
        """Number of tasks whose rows are damaged or belong to another task."""
        return sum(row["damaged"] for row in self.task_rows)

    @property
    def conclusion(self) -> str:
        """How many tasks are finished, and how many files are damaged."""
        text = f"{self.path}: {self.n_done} of {len(self.task_rows)} tasks are finished."
        if self.n_damaged:
            text += f" {self.n_damaged} files of rows are damaged or belong to other tasks: run again to replace them."
        return text

    def rows(self) -> Rows:
        """Return one row per task: `log`, `model`, `done`, `damaged`."""
        return self.task_rows

    def facts(self) -> Mapping[str, Any]:
        """Return the counts and the tasks."""
        counts = {"done": self.n_done, "of": len(self.task_rows), "damaged": self.n_damaged}
        return {"conclusion": self.conclusion, **counts, "cells": self.task_rows}

    def _document(self) -> Document:
        """Show one line per log, with the models that are missing."""
        by_log: dict[str, list[Any]] = {}
        for row in self.task_rows:
            by_log.setdefault(row["log"], []).append(row)
        table = []
        for log, own in by_log.items():
            missing = ", ".join(row["model"] for row in own if not row["done"])
            done = sum(row["done"] for row in own)
            table.append({"log": log, "done": done, "of": len(own), "missing": missing or "none"})
        return Document("Tasks of a run", self.conclusion, [Section("Tasks by log", table=table)])


def run_status(output: str | Path) -> RunStatus:
    """Return which tasks of a run are finished.

    Parameters
    ----------
    output
        Folder of the run.

    Returns
    -------
    RunStatus
        One row per task.

    Raises
    ------
    FileError
        "not-a-run", "damaged-file" or "other-version" if the folder holds no run of this version.

    Examples
    --------
    >>> import tempfile
    >>> import clickshift as cs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = start_run(cs.PolicyShift(), RunFolder(Path(folder)))
    ...     status = run_status(folder)
    ...     (status.n_done, len(status.rows()))
    (0, 117)
    """
    protocol, folder, _ = open_run(output)
    rows = []
    for task in protocol.tasks():
        state = folder.state(task)
        rows.append({"log": _log(task), "model": _model(task), "done": state == DONE, "damaged": state == DAMAGED})
    return RunStatus(str(output), rows)


def _log(task: Any) -> str:
    """Return the name of a task's log; tasks that fit all models at once are named by themselves."""
    return str(getattr(task, "log", task.name))


def _model(task: Any) -> str:
    """Return the name of a task's model."""
    return task.contender.name if hasattr(task, "contender") else "all models"
