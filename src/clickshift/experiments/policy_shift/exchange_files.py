"""The policy-shift protocol for models from elsewhere: training logs and test lists as files, predictions as a file.

`export_policy_shift` writes the logs of the protocol. A model of any library is trained on them and predicts the clicks
on the test lists. `score_policy_shift` checks these predictions and reports them beside the other models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.files import write_atomically
from clickshift.core.progress import Progress, silent
from clickshift.data.sessions import Sessions
from clickshift.display.document import Document, Section
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.errors import FileError, SpecError
from clickshift.experiments import runner
from clickshift.experiments._rows import above_oracle
from clickshift.experiments.experiment import open_run, start_run
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from clickshift.experiments.policy_shift.own_tables import TableLike
from clickshift.experiments.policy_shift.protocol import PolicyShift, protocol_at_scale
from clickshift.experiments.runner import FinishedTask, RunFolder
from clickshift.io.datasets.letor import CorpusLike
from clickshift.io.frames import read_source
from clickshift.io.table_writer import write_table
from clickshift.metrics.click_prediction import conditional_row
from clickshift.metrics.predictions import Predictions
from clickshift.simulation.search_engine import BUILTIN, IND, SimulatedLogs

__all__ = ["PolicyShiftExport", "export_policy_shift", "score_policy_shift"]

_README = """# Policy shift: train a model on one ranker's log, predict clicks on other rankers' lists

Each folder has the log of one kind of simulated users and one ranker. Train a model on each log separately.

| file | content |
|---|---|
| `FOLDER/train.parquet` | sessions to learn from |
| `FOLDER/held_out.parquet` | sessions of the same ranker, for early stopping |
| `FOLDER/test.parquet` | sessions to predict, of the same ranker (`testing` is "ind") and of others |

| column | content |
|---|---|
| `session` | number of the session; numbers of test sessions are unique in all folders |
| `testing` | policy that ranked the list (test sessions only) |
| `query`, `docs` | query, and its documents in the order in which they were shown |
| `clicks` | 1 where a result was clicked |
| `propensity` | probability of the list under the policy, where it is known |

Write one table of predictions (Parquet, CSV or JSON lines) with a row for every test session of every folder:

| column | content |
|---|---|
| `session` | number of the test session |
| `click_prob` | list (in CSV, [0.3, 0.1]): the probability of a click on each result, **given the clicks above it** |
| `seed` | optional: number of the model, from 0, if several were trained with different random seeds |

The probability of a click must not depend on that click, or on clicks below it. A model that does so predicts better
than the users' own click model, and the report says so.

    clickshift shift score predictions.parquet --export THIS_FOLDER --name "My model" -o report

Click models and baselines are in the report if their rows are shipped with clickshift (paper scale), or if they were
computed in this folder: `clickshift shift run` with the options of the export and `-o THIS_FOLDER` computes them.
"""
_PARTS = ("train", "held_out")
_WIDE_RESULTS = 1 << 40  # results of one Arrow table: a log is written as one


@dataclass(frozen=True, repr=False)
class PolicyShiftExport(Result):
    """Logs of the policy-shift protocol that were written as files.

    Parameters
    ----------
    path
        Folder of the export.
    files
        One row per file.

    Notes
    -----
    Facts (`to_dict`, `--json`): `conclusion`; `path`; `test_sessions`, the number of sessions to predict; `files`, one
    per file: `file`, `user`, `training`, `part` and `sessions`.
    """

    path: str
    files: Rows

    @property
    def test_sessions(self) -> int:
        """Number of sessions to predict."""
        return sum(int(row["sessions"]) for row in self.files if row["part"] == "test")

    @property
    def conclusion(self) -> str:
        """How many logs were written, and what to do with them."""
        n_logs = len({(row["user"], row["training"]) for row in self.files})
        logs = "training log" if n_logs == 1 else "training logs"
        return (
            f"{n_logs} {logs} and {self.test_sessions:,} test sessions are in {self.path}; README.md there says what "
            "their columns are.\n\nTrain a model on each log, predict the test sessions, and run `clickshift shift "
            f"score predictions.parquet --export {self.path}`."
        )

    def rows(self) -> Rows:
        """Return one row per file."""
        return self.files

    def facts(self) -> dict[str, Any]:
        """Return the folder, the number of test sessions and the files."""
        return {
            "conclusion": self.conclusion,
            "path": self.path,
            "test_sessions": self.test_sessions,
            "files": self.files,
        }

    def _document(self) -> Document:
        return Document("Logs of the policy-shift protocol", self.conclusion, [Section("Files", table=self.files)])


def export_policy_shift(
    output: str | Path,
    *,
    scale: str = "quick",
    corpus: CorpusLike = BUILTIN,
    users: Sequence[str] = (),
    training: Sequence[str] = (),
    testing: Sequence[str] = (),
    scores: TableLike | Sequence[TableLike] | Mapping[str, TableLike] | None = None,
    query_counts: TableLike | None = None,
    queries: int | None = None,
    sessions: int | None = None,
    test_sessions: int | None = None,
    seed: int | None = None,
    progress: Progress = silent,
) -> PolicyShiftExport:
    """Write the training logs and test lists of the policy-shift protocol as Parquet files, for models from elsewhere.

    Parameters
    ----------
    output
        Folder to write, with a README.md of its columns. `score_policy_shift` takes it.
    scale, corpus, users, training, testing, scores, query_counts, queries, sessions, test_sessions, seed
        As in `policy_shift`.
    progress
        Called with a step for each log.

    Returns
    -------
    PolicyShiftExport
        The files that were written.

    Raises
    ------
    SpecError
        If a name or text cannot be used, before any work.

    Examples
    --------
    >>> import tempfile
    >>> import clickshift as cs
    >>> small = {"users": ["DBN"], "testing": ["random"], "queries": 20, "sessions": 2000, "test_sessions": 200}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export = cs.export_policy_shift(folder, **small)
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['DBN, PL-oracle', 'README.md', 'run.json']
    >>> export.test_sessions
    400
    """
    folder = Path(output)
    protocol = protocol_at_scale(
        scale,
        folder / "corpus",
        corpus=corpus,
        users=users,
        training=training,
        testing=testing,
        scores=scores,
        query_counts=query_counts,
        queries=queries,
        sessions=sessions,
        test_sessions=test_sessions,
        seed=seed,
    )
    start_run(protocol, RunFolder(folder))
    files: Rows = []
    progress(0, total=len(protocol.users) * len(protocol.training))
    for log in _logs(protocol):
        for part in (*_PARTS, "test"):
            table = log.test_table() if part == "test" else log.table(getattr(log.logs, part))
            file = folder / log.folder / f"{part}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_table(table, file)
            row = {"file": str(file.relative_to(folder)), "user": log.user, "training": log.training}
            files.append(row | {"part": part, "sessions": table.num_rows})
        progress(1)
    with write_atomically(folder / "README.md") as temporary:
        temporary.write_text(_README, encoding="utf-8")
    return PolicyShiftExport(str(output), files)


@dataclass(frozen=True, eq=False)
class _Log:
    """One training log of a protocol with its test logs.

    Parameters
    ----------
    user, training
        Names of the users and of the training policy.
    logs
        The logs.
    first
        Number of the first test session: numbers are unique in an export.
    """

    user: str
    training: str
    logs: SimulatedLogs
    first: int

    @property
    def folder(self) -> str:
        """Name of the folder of the files."""
        return "".join("-" if c in '/\\:*?"<>|' else c for c in f"{self.user}, {self.training}")

    @property
    def n_test(self) -> int:
        """Number of test sessions."""
        return sum(map(len, self.logs.test.values()))

    def table(self, log: Sessions, first: int = 0) -> Any:
        """Return sessions as a pyarrow table, with their numbers."""
        import pyarrow as pa

        from clickshift.data._arrow import arrow_tables

        table = pa.concat_tables(arrow_tables(log, "wide", _WIDE_RESULTS))
        return table.add_column(0, "session", pa.array(np.arange(first, first + len(log))))

    def test_table(self) -> Any:
        """Return all test sessions as one pyarrow table."""
        import pyarrow as pa

        tables = []
        for name, first, log in self.test_logs():
            testing = pa.array([name] * len(log), pa.string())
            tables.append(self.table(log, first).add_column(1, "testing", testing))
        return pa.concat_tables(tables, promote_options="default")

    def test_logs(self) -> Iterator[tuple[str, int, Sessions]]:
        """Yield name, number of the first session and sessions of each test log."""
        first = self.first
        for name, log in self.logs.test.items():
            yield name, first, log
            first += len(log)


def _logs(protocol: PolicyShift) -> Iterator[_Log]:
    """Simulate the logs of a protocol, one after the other."""
    first = 0
    for user, user_text in protocol.users:
        for training, training_text in protocol.training:
            log = _Log(user, training, protocol.world.logs(user_text, training_text), first)
            first += log.n_test
            yield log


def score_policy_shift(
    predictions: Any,
    *,
    export: str | Path,
    name: str = "own model",
    progress: Progress = silent,
) -> PolicyShiftResult:
    """Compare the click predictions of a model from elsewhere with other click models under policy shift.

    The simulated users' own model and the baselines are computed where they are missing. Click models are compared if
    their rows come with the package (paper scale) or were computed in the folder of the export.

    Parameters
    ----------
    predictions
        A table file (Parquet, CSV, JSON lines) or data frame, or a sequence of files that belong together, with the
        columns `session` and `click_prob`: for each test session, the probability of a click on each result given the
        clicks above it. The column `seed` numbers models that were trained with different random seeds.
    export
        Folder that `export_policy_shift` wrote.
    name
        Name of the model in tables.
    progress
        Called with a step for each log.

    Returns
    -------
    PolicyShiftResult
        The report of the protocol, with the model as a candidate. A model that predicts better than the simulated
        users' own is reported as impossible, and not compared.

    Raises
    ------
    FileError
        If the folder is not an export ("not-a-run", "damaged-file", "other-version"), or the predictions cannot be
        used: "missing-column", "bad-column" (numbers of sessions or seeds that are no integers, probabilities that are
        no lists of numbers), "empty-file", "unknown-session", "duplicate-prediction", "missing-prediction",
        "wrong-length" (not one probability per result) and "bad-probability" (outside 0 to 1).
    SpecError
        "bad-option" if the name is empty or that of a model of the protocol.

    Examples
    --------
    >>> import tempfile
    >>> import clickshift as cs
    >>> import pandas as pd
    >>> small = {"users": ["DBN"], "testing": ["random"], "queries": 20, "sessions": 2000, "test_sessions": 200}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cs.export_policy_shift(folder, **small)
    ...     test = pd.read_parquet(Path(folder) / "DBN, PL-oracle" / "test.parquet")
    ...     test["click_prob"] = [[0.1] * len(docs) for docs in test.docs]
    ...     result = cs.score_policy_shift(test[["session", "click_prob"]], export=folder, name="constant")
    >>> {row["model"] for row in result.rows() if row["role"] == "candidate"}
    {'constant'}
    """
    protocol, folder, settings = open_run(export)
    if not isinstance(protocol, PolicyShift):
        raise FileError(
            export, "holds another kind of run. Choose a folder that `shift export` wrote.", code="not-a-run"
        )
    if not name or name in {contender.name for contender in protocol.contenders}:
        raise SpecError(
            f"the name of the model must not be empty or that of another model of the report: got {name!r}.",
            code="bad-option",
            option="name",
            value=name,
        )
    table = _Predictions.read(predictions)
    tasks = protocol.tasks()
    runner.copy_reference_rows(tasks, folder)
    own: Rows = []
    progress(0, total=len(protocol.users) * len(protocol.training))
    n_test = 0
    for log in _logs(protocol):
        own += _candidate_rows(log, table, name)
        n_test += log.n_test
        cheap = [
            task
            for task in tasks
            if (task.user[0], task.training[0]) == (log.user, log.training)
            and task.contender.role in {"oracle", "baseline"}
        ]
        runner.run_tasks(cheap, folder, runner.ThisProcess(), progress=_raise_failure)
        progress(1)
    table.check_known(n_test)
    return protocol.result([*folder.rows(tasks), *own], settings | {"candidate": name})


def _raise_failure(finished: FinishedTask) -> None:
    """Raise an error if an own task failed: the oracle and the baselines must not."""
    if finished.error:
        raise RuntimeError(f"{finished.task.name}: {finished.error}")


def _candidate_rows(log: _Log, table: _Predictions, name: str) -> Rows:
    """Evaluate the predictions of one log: rows of click prediction by seed, and one of the comparison with users."""
    rows: Rows = []
    above = [-np.inf]
    for seed in range(table.n_seeds):
        for testing, first, sessions in log.test_logs():
            found = Predictions(sessions, table.of(sessions, first, seed))
            shift = "ind" if testing == IND else "ood"
            row = {"kind": "clicks", "testing": testing, "shift": shift, "seed": seed}
            rows.append(row | conditional_row(found, _unseen_share(log, sessions)))
            above.append(above_oracle(found, log.logs.user))
    rows.append({"kind": "check", "seed": 0, "peeks": False, "above_oracle": max(above)})
    common = {"user": log.user, "training": log.training, "model": name, "role": "candidate"}
    return [common | row for row in rows]


def _unseen_share(log: _Log, sessions: Sessions) -> float:
    """Return the share of the results that were not shown in training."""
    shown = log.logs.train.rankings.pair[log.logs.train.rankings.shown]
    impressions = np.append(np.bincount(shown, minlength=log.logs.train.vocabulary.n_pairs), 0)
    pair = sessions.in_vocabulary(log.logs.train.vocabulary).rankings.pair
    return float((impressions[pair[sessions.rankings.shown]] == 0).mean())


@dataclass(frozen=True, eq=False)
class _Predictions:
    """A table of predictions, sorted by seed and session.

    Parameters
    ----------
    source
        The file or frame that error messages name.
    session, seed
        Number of the test session and of the seed of each row.
    offset
        Position of the first probability of each row, and the number of probabilities.
    prob
        The probabilities of all rows.
    n_seeds
        Number of seeds.
    """

    source: str
    session: Int[np.ndarray, " row"]
    seed: Int[np.ndarray, " row"]
    offset: Int[np.ndarray, " row_and_end"]
    prob: Float[np.ndarray, " probability"]
    n_seeds: int

    @classmethod
    def read(cls, source: Any) -> _Predictions:
        """Read files or a data frame, and check what can be checked without the test sessions."""
        several = isinstance(source, list | tuple)
        sources = list(source) if several else [source]
        place = os.fspath(sources[0]) if sources and isinstance(sources[0], str | Path) else "the table of predictions"
        parts = [read_source(part, _choose).table for part in sources]
        if not parts or not sum(part.num_rows for part in parts):
            raise FileError(place, "has no predictions. Write a row for every test session.", code="empty-file")
        session = np.concatenate([_integers(place, part, "session") for part in parts])
        seed = np.concatenate([_integers(place, part, "seed") for part in parts])
        columns = [_probability_lists(place, part["click_prob"]) for part in parts]
        lengths = np.concatenate([length for length, _ in columns])
        prob = np.concatenate([values for _, values in columns])
        bad = np.flatnonzero(~((prob >= 0) & (prob <= 1)))
        if len(bad):
            row = int(np.searchsorted(np.cumsum(lengths), bad[0], side="right"))
            raise FileError(
                place,
                f"a click probability must be between 0 and 1: got {prob[bad[0]]:g} for session {session[row]} "
                f"({len(bad):,} such values). Fix the predictions.",
                code="bad-probability",
                session=int(session[row]),
                value=float(prob[bad[0]]),
                count=len(bad),
            )
        seeds, seed = np.unique(seed, return_inverse=True)
        order = np.lexsort((session, seed))
        same = np.flatnonzero((np.diff(session[order]) == 0) & (np.diff(seed[order]) == 0))
        if len(same):
            raise FileError(
                place,
                f"a session must have one prediction per seed: session {session[order[same[0]]]} has several. Remove "
                "the others.",
                code="duplicate-prediction",
                session=int(session[order[same[0]]]),
                count=len(same),
            )
        starts = np.cumsum(lengths) - lengths
        gathered = np.repeat(starts[order] - (np.cumsum(lengths[order]) - lengths[order]), lengths[order])
        prob = prob[gathered + np.arange(len(prob))]
        offset = np.append(0, np.cumsum(lengths[order]))
        return cls(place, session[order], seed[order], offset, prob, len(seeds))

    def of(self, sessions: Sessions, first: int, seed: int) -> Float[np.ndarray, "session rank"]:
        """Return the probabilities of test sessions, which are numbered from `first`; 0 where nothing is shown."""
        wanted = np.arange(first, first + len(sessions))
        begin, end = np.searchsorted(self.seed, [seed, seed + 1])
        row = begin + np.searchsorted(self.session[begin:end], wanted)
        found: Bool[np.ndarray, " session"] = np.zeros(len(wanted), bool)
        inside = row < end
        found[inside] = self.session[row[inside]] == wanted[inside]
        if not found.all():
            raise FileError(
                self.source,
                f"every test session must have a prediction: session {wanted[~found][0]} has none ({(~found).sum():,} "
                "such sessions of its log). Predict all sessions of all folders of the export.",
                code="missing-prediction",
                session=int(wanted[~found][0]),
                count=int((~found).sum()),
            )
        length = self.offset[row + 1] - self.offset[row]
        wrong = np.flatnonzero(length != sessions.rankings.length)
        if len(wrong):
            raise FileError(
                self.source,
                f"there must be one probability per result: session {wanted[wrong[0]]} has {length[wrong[0]]} for "
                f"{sessions.rankings.length[wrong[0]]} results ({len(wrong):,} such sessions of its log). Fix the "
                "predictions.",
                code="wrong-length",
                session=int(wanted[wrong[0]]),
                count=len(wrong),
            )
        shown, prob = sessions.rankings.shown, np.zeros((len(sessions), sessions.n_ranks))
        position = self.offset[row][:, None] + np.arange(sessions.n_ranks)
        prob[shown] = self.prob[position[shown]]
        return prob

    def check_known(self, n_test: int) -> None:
        """Raise an error for predictions of sessions that the export does not have."""
        unknown = self.session[(self.session < 0) | (self.session >= n_test)]
        if len(unknown):
            raise FileError(
                self.source,
                f"test sessions are numbered from 0 to {n_test - 1}: there is a prediction of session {unknown[0]}. "
                "Use the predictions of this export.",
                code="unknown-session",
                session=int(unknown[0]),
                count=len(unknown),
            )


def _choose(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Choose the columns of a table of predictions."""
    for column in ("session", "click_prob"):
        if column not in names:
            raise FileError(
                path,
                f"a table of predictions must have the columns session and click_prob: {column} not found; it has "
                f"{', '.join(names) or 'none'}. Rename or add it.",
                code="missing-column",
                column=column,
                known=list(names),
            )
    return {name: name for name in ("session", "click_prob", "seed") if name in names}


def _integers(place: str, table: Any, name: str) -> Int[np.ndarray, " row"]:
    """Return a column of integers; 0 for a missing column of seeds."""
    import pyarrow as pa

    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    column = table[name]
    try:
        if column.null_count:
            raise pa.ArrowInvalid("it has empty values")
        return np.asarray(column.cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FileError(
            place, f"column {name} must have integers ({error}). Fix it.", code="bad-column", column=name
        ) from None


def _probability_lists(place: str, column: Any) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, " probability"]]:
    """Return the length of each list of probabilities, and all probabilities; texts are lists in JSON."""
    import json

    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):  # texts of CSV files
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pa.array([json.loads(text) for text in column.to_pylist()], pa.list_(pa.float64()))
        column = column.cast(pa.list_(pa.float64()))
        if column.null_count or pc.list_flatten(column).null_count:
            raise pa.ArrowInvalid("it has empty values")
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise FileError(
            place,
            f"column click_prob must have lists of numbers ({error}). Write one list per session, in CSV as "
            "[0.3, 0.1].",
            code="bad-column",
            column="click_prob",
        ) from None
    return np.asarray(pc.list_value_length(column), np.int64), np.asarray(pc.list_flatten(column), np.float64)
