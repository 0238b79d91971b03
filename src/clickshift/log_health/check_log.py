"""Check a log for the ways in which tracking lies: every check once, corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.progress import Progress, silent
from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import swap_graph
from clickshift.counts.import_events import ImportedEvents, read_events
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.description import log_source
from clickshift.data.encoded_log import Log
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.frames import read_source
from clickshift.io.read_log import choose_columns, log_files, read_log
from clickshift.io.read_report import OnBadLine
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.log_health import events
from clickshift.log_health._columns import LogColumns
from clickshift.log_health._report import LogHealth
from clickshift.log_health._tests import holm
from clickshift.log_health.checks import CHECKS
from clickshift.log_health.finding import SEVERITIES, Check, CheckOptions, Effect, Evidence, Finding, NeedsError

__all__ = ["check_log"]

ARM_ALARM_RATE, FALSE_ALARM_RATE = 0.02, 0.02
"""Probabilities with which the test of arms, and any of the other tests, find a defect in a log without one.

Those of the others are approximate, and 5 % must hold for all together. The test of arms is exact, and needs its share:
20,000 sessions have few users.
"""
_EXAMPLES, _EXAMPLE_DOCS = 5, 5
_MIN_CLICKS = 50
"""Clicks at a rank from which on curves are compared there."""


def check_log(
    log: LogLike | ImportedEvents,
    *,
    checks: Sequence[str] | None = None,
    arm_shares: Mapping[str, float] | None = None,
    level: float = 0.95,
    effects: bool = True,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> LogHealth:
    """Check whether a log says what it seems to say, before anything is learned from it.

    Each check looks for one way in which tracking lies. Tests are corrected for their number (Holm), so that a log
    without defects passes all of them with a probability of at least 95 %.

    Parameters
    ----------
    log
        Anything that `open_log` opens; the result of `read_events`, whose counts by reason are checked too; or a file
        or data frame of events that `read_events` recognises.
    checks
        Names of the checks to run; by default, all.
    arm_shares
        Share of the traffic that each label of the segment `arm` was given; by default equal shares.
    level
        Level of the confidence intervals.
    effects
        Whether examination is estimated with and without the sessions, or events, of each finding.
    columns
        The log's names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called with the name of each check.

    Returns
    -------
    LogHealth
        The findings, the checks that found nothing, and those that this log has no columns for.

    Raises
    ------
    SpecError
        "unknown-name" for a check that does not exist.
    DataError
        "level-out-of-range", "bad-option" for shares that are not above 0.
    FileError
        If the log cannot be read; see `open_log` and `read_events`.

    Examples
    --------
    >>> import pandas as pd
    >>> log = pd.DataFrame({"query": ["shoes"] * 4, "docs": [["a", "b"]] * 4, "clicks": [[1, 0]] * 4})
    >>> health = check_log(log)
    >>> [(finding.check, finding.severity) for finding in health.findings]
    [('one-rank', 'severe')]
    """
    chosen = _chosen(checks)
    if not 0 < level < 1:
        raise DataError(f"level must be between 0 and 1: got {level}.", code="level-out-of-range", value=level)
    if arm_shares is not None and not all(share > 0 for share in arm_shares.values()):
        raise DataError(f"arm_shares must be above 0: got {dict(arm_shares)}.", code="bad-option", option="arm_shares")
    opened, imported, shift = _opened(log, columns, on_bad_line, progress)
    gathered = LogColumns.of(opened, shift)
    options = CheckOptions(level, arm_shares, imported, imported is not None and imported is not log)
    evidence: dict[str, Evidence] = {}
    not_run: dict[str, str] = {}
    for check in chosen:
        progress(check.title.lower())
        try:
            evidence[check.name] = check.find(gathered, options)
        except NeedsError as missing:
            not_run[check.name] = str(missing)
    tests = {name: found.p_value for name, found in evidence.items() if found.p_value is not None}
    arms = {name: tests.pop(name) for name in ("sample-ratio",) if name in tests}
    rejected = holm(tests, FALSE_ALARM_RATE) | holm(arms, ARM_ALARM_RATE)
    findings, passed = [], []
    effect = _Effects(gathered, enabled=effects)
    for check in chosen:
        if check.name not in evidence:
            continue
        found = evidence[check.name]
        if found.p_value is not None and check.name not in rejected:
            passed.append(check.name)
            continue
        severity = check.severity(found)
        if severity == "none":
            passed.append(check.name)
            continue
        progress(f"effect of {check.title.lower()}")
        low, high = found.interval(level)
        done = effect.of(found)
        findings.append(
            Finding(
                check.name,
                check.title,
                severity,
                found.text,
                found.rate,
                low,
                high,
                found.affected,
                found.unit,
                found.p_value,
                check.remedy,
                _examples(gathered, found),
                done if isinstance(done, Effect) else None,
                "" if isinstance(done, Effect) else done,
            )
        )
    findings.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    impressions, clicks = gathered.cells.by_rank()
    return LogHealth(
        tuple(findings),
        tuple(passed),
        not_run,
        gathered.total,
        int((np.bincount(gathered.query + 1)[1:] > 0).sum()),
        clicks / np.maximum(impressions, 1),
        imported.numbers["title"] if imported is log and imported is not None else log_source(log),
        level,
    )


def _chosen(checks: Sequence[str] | None) -> list[Check]:
    """Return the checks of some names, in our order."""
    for name in checks or ():
        if name not in CHECKS:
            raise SpecError(
                f"a check must be one of {', '.join(CHECKS)}: got {name!r}.",
                code="unknown-name",
                value=name,
                known=list(CHECKS),
            )
    return [check for name, check in CHECKS.items() if checks is None or name in checks]


def _opened(
    log: Any, columns: Mapping[str, str] | None, on_bad_line: OnBadLine, progress: Progress
) -> tuple[Log, ImportedEvents | None, int]:
    """Open a log, or events; return what was added to its ranks if they begin at 0."""
    if isinstance(log, ImportedEvents):
        return log.sessions, log, 0
    try:
        return open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress), None, 0
    except FileError as error:
        if error.code in {"missing-column", "unknown-format"}:
            imported = _imported(log, columns, on_bad_line, progress)
            if imported is not None:
                return imported.sessions, imported, 0
        if error.code == "bad-ranks" and on_bad_line == "error":
            shifted = _with_ranks_from_one(log, columns)
            if shifted is not None:
                return shifted, None, 1
        raise


def _imported(
    log: Any, columns: Mapping[str, str] | None, on_bad_line: OnBadLine, progress: Progress
) -> ImportedEvents | None:
    """Import a source that is no log as events; None if its format is not recognised."""
    for window in (events.WINDOW, None):
        try:
            return read_events(log, columns=columns, window=window, on_bad_line=on_bad_line, progress=progress)
        except SpecError as error:  # events without times have no window
            if window is None or error.facts.get("column") != "time":
                raise
        except FileError as error:
            if error.code in {"unknown-format", "missing-column"}:
                break
            raise
    return None


def _with_ranks_from_one(log: Any, columns: Mapping[str, str] | None) -> Log | None:
    """Read a log whose ranks begin at 0 with ranks that are one higher; None if that is not what is wrong."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sources = log_files(log) if isinstance(log, str | Path | list | tuple) else [log]
    tables = [
        read_source(source, lambda path, names: choose_columns(path, columns or {}, names)).table for source in sources
    ]
    table = pa.concat_tables(tables, promote_options="permissive")
    try:
        rank = pc.cast(table["rank"], pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if pc.min(rank).as_py() != 0:
        return None
    shifted = table.set_column(table.column_names.index("rank"), "rank", pc.add(rank, 1))
    try:
        return read_log(shifted)
    except FileError:
        return None


class _Effects:
    """Examination by rank with and without some sessions, or events.

    Parameters
    ----------
    log
        Columns of the log.
    enabled
        Whether effects are computed.
    """

    def __init__(self, log: LogColumns, *, enabled: bool) -> None:
        self._log, self._enabled = log, enabled
        self._whole: tuple[str, np.ndarray] | None = None

    def of(self, found: Evidence) -> Effect | str:
        """Return the effect of what was found, or why there is none; an empty text if effects are not computed."""
        log = self._log
        if not self._enabled:
            return ""
        if log.log.n_ranks == 1:
            return "the log has one rank"
        counts = self._counts(found)
        if isinstance(counts, str):
            return counts
        if self._whole is None:
            identified = swap_graph(log.cells).verdict == "identified"
            name = "examination" if identified else "click-through rate"
            self._whole = name, _curve(log.cells, name)
        name, whole = self._whole
        with_it, without = counts
        clicks = np.minimum(with_it.by_rank()[1], without.by_rank()[1])
        enough = clicks >= min(_MIN_CLICKS, clicks.max())
        if not (clicks.any() and enough[0] and enough.sum() > 1):
            return f"that needs {_MIN_CLICKS} clicks at rank 1 and at another rank"
        before, after = (whole if cells is log.cells else _curve(cells, name) for cells in (with_it, without))
        return Effect(name, np.where(enough, before, 0.0), np.where(enough, after, 0.0), found.name)

    def _counts(self, found: Evidence) -> tuple[Cells, Cells] | str:
        """Return the counts with and without what was found, or why there are none."""
        log, rows = self._log, found.rows
        if found.compared is not None:
            return found.compared()
        if rows is None or not rows.any():
            return found.no_effect
        if log.sessions_of(~rows) < 0.05 * log.total:
            return "nearly all sessions are affected"
        return log.cells, Cells.of(log.log, weight=log.count * ~rows)


def _curve(cells: Cells, name: str) -> np.ndarray:
    """Return examination by PBM, or click-through rates, relative to the first rank."""
    if name == "examination":
        model: Any = MaximumLikelihood("PBM").fit_from(cells, errors=False)
        curve = np.asarray(model.examination, np.float64)
    else:
        impressions, clicks = cells.by_rank()
        curve = clicks / np.maximum(impressions, 1)
    curve = np.pad(curve, (0, max(cells.n_ranks - len(curve), 0)))[: cells.n_ranks]
    return curve / curve[0] if curve[0] > 0 else curve


def _examples(log: LogColumns, found: Evidence) -> list[Mapping[str, Any]]:
    """Return the first affected sessions as rows: number, time, user, query, documents and clicked ranks."""
    if found.shown or found.rows is None:
        return list(found.shown)
    rows = np.flatnonzero(found.rows)[:_EXAMPLES]
    if not len(rows):
        return []
    part, vocabulary = log.take(rows), log.log.vocabulary
    examples: list[Mapping[str, Any]] = []
    for k, row in enumerate(rows.tolist()):
        query, pairs = int(part.rankings.query[k]), part.rankings.pair[k]
        shown = np.flatnonzero(part.rankings.shown[k])
        docs = [
            f"{rank + 1}: {vocabulary.doc_ids[vocabulary.pair_doc[pairs[rank]]]}" if pairs[rank] != UNSEEN else "?"
            for rank in shown[:_EXAMPLE_DOCS]
        ]
        example: dict[str, Any] = {"session": row + 1}
        if part.time is not None:
            time = part.time[k]
            example["time"] = str(time.astype("datetime64[s]") if isinstance(time, np.datetime64) else time)
        if part.user is not None:
            example["user"] = str(part.user[k])
        example["query"] = str(vocabulary.query_ids[query]) if query >= 0 else "?"
        example["documents"] = ", ".join(docs) + (", ..." if len(shown) > _EXAMPLE_DOCS else "")
        example["clicked ranks"] = ", ".join(str(rank + 1) for rank in np.flatnonzero(part.click[k])) or "none"
        examples.append(example)
    return examples
