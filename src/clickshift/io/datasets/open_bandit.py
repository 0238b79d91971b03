"""Open Bandit Dataset: items recommended in a fashion shop, with the propensity of each.

The shop shows three items side by side, but the data does not record which rows were shown together: every row is one
item at one position, with its own time and click, and `propensity_score` is the probability of the item *at that
position*. So a row becomes a session of one item, and its query is the slot that the policy had to fill,
"campaign/position": propensities at two positions belong to different choices and stay apart, and the items of two
campaigns, both numbered from 0, are not confused. The data cannot show how the click on one item depends on the items
next to it. The propensity is that of the list and of its one item: `log_prob` is its logarithm, and `propensity` is
the same by position.

References
----------
Saito, Y. et al. (2020). Open Bandit Dataset and Pipeline: towards realistic and reproducible off-policy evaluation.
arXiv:2008.07146.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import open_bytes
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import FileError
from clickshift.io.read_report import OnBadLine, ReadReport

_PATTERNS = {
    "timestamp": r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$",
    "item_id": r"^\d{1,18}$",
    "position": r"^[1-9]\d{0,8}$",
    "click": r"^[01]$",
    "propensity_score": r"^\d*\.?\d+([eE][-+]?\d+)?$",
}
_RULE = (
    "a row must have as many fields as the header, with a timestamp and zone, an item_id from 0, a position from 1, "
    "click 0 or 1, and a propensity_score above 0 and at most 1"
)


def read_open_bandit(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Sessions:
    """Read the log of one campaign under one policy.

    Parameters
    ----------
    path
        The CSV file, plain or gzip, whose name is the campaign; or the folder that holds it, such as `random/men`. The
        columns timestamp, item_id, position, click and propensity_score are read.
    on_bad_line
        "error" raises at the first row that breaks the format; "skip" counts such rows in one warning (code
        "skipped-input").

    Returns
    -------
    Sessions
        One session of one item per row, with the query "campaign/position", times in UTC, and the propensity of the
        item, which is also that of the list.

    Raises
    ------
    FileError
        "bad-line", "empty-file", "no-files" if the folder does not hold one log, "missing-column" or "damaged-file".
    """
    import pyarrow as pa

    file = _csv_in(Path(path))
    report = ReadReport(file, on_bad_line)
    campaign = file.name.split(".")[0]
    batches = list(_batches(file, report))
    if not sum(map(len, batches)):
        report.fail_empty("row")
    table = pa.Table.from_batches(batches)
    time, item, position, click, propensity = (table[name].to_numpy() for name in _PATTERNS)
    positions, index = np.unique(position, return_inverse=True)
    query = pa.DictionaryArray.from_arrays(index, pa.array([f"{campaign}/{position}" for position in positions]))
    vocabulary, query_row, pair = Vocabulary.of(query, item)
    log_prob = np.log(propensity)
    rankings = Rankings(vocabulary, query_row, pair[:, None], log_prob=log_prob, propensity=propensity[:, None])
    report.report()
    return Sessions(rankings, click[:, None] == 1, time=time)


def _csv_in(path: Path) -> Path:
    """Return the file itself, or the only CSV file of actions in a folder."""
    if not path.is_dir():
        return path
    files = sorted(file for pattern in ("*.csv", "*.csv.gz") for file in path.glob(pattern))
    logs = [file for file in files if not file.name.startswith("item_context.")]
    if len(logs) != 1:
        names = ", ".join(file.name for file in logs) or "none"
        raise FileError(
            path,
            f"must hold one CSV file besides item_context: got {names}. Pass the file itself.",
            code="no-files",
            names=[file.name for file in logs],
            count=len(logs),
        )
    return logs[0]


def _batches(path: Path, report: ReadReport) -> Iterator[Any]:
    """Yield the valid rows in typed columns, block by block."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ragged: list[tuple[int, str]] = []
    n_rows = n_reported = 0
    for raw in _raw_batches(path, ragged):
        typed = pa.record_batch([_cast(name, raw[name]) for name in _PATTERNS], list(_PATTERNS))
        valid = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in typed.columns])
        propensity = pc.fill_null(typed["propensity_score"], 0).to_numpy()
        valid &= (propensity > 0) & (propensity <= 1)
        blank = np.logical_and.reduce([pc.equal(column, "").to_numpy(zero_copy_only=False) for column in raw.columns])
        invalid = np.flatnonzero(~valid & ~blank)
        texts = (", ".join(map(str, row.values())) for row in raw.take(invalid).to_pylist())
        bad = [*zip(_line_numbers(n_rows + invalid, ragged), texts, strict=True), *ragged[n_reported:]]
        for line, text in sorted(bad):
            report.bad_line(line, _RULE, text)
        n_rows, n_reported = n_rows + len(raw), len(ragged)
        yield typed.filter(pa.array(valid))
    for line, text in ragged[n_reported:]:
        report.bad_line(line, _RULE, text)


def _raw_batches(path: Path, ragged: list[tuple[int, str]]) -> Iterator[Any]:
    """Yield the columns as text, block by block.

    Rows with too few or too many fields are appended to `ragged`, with their line numbers.
    """
    import pyarrow as pa
    from pyarrow import csv

    def remember(row: Any) -> str:
        ragged.append((row.number, row.text))
        return "skip"

    with open_bytes(path) as file:
        try:
            yield from csv.open_csv(
                file,
                read_options=csv.ReadOptions(use_threads=False, block_size=1 << 22),
                # blank lines are kept as rows of empty fields, so that lines can be counted
                parse_options=csv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=remember),
                convert_options=csv.ConvertOptions(
                    include_columns=list(_PATTERNS), column_types=dict.fromkeys(_PATTERNS, pa.string())
                ),
            )
        except pa.ArrowKeyError as error:
            raise FileError(
                path,
                f"the header must name {', '.join(_PATTERNS)} ({error}).",
                line=1,
                code="missing-column",
                columns=list(_PATTERNS),
            ) from None
        except pa.ArrowInvalid as error:
            raise FileError(
                path, f"must be a CSV table with a header ({error}).", code="damaged-file", format="CSV"
            ) from None


def _line_numbers(row: np.ndarray, ragged: list[tuple[int, str]]) -> list[int]:
    """Return the line numbers of rows of the table, counted from 0: the header and ragged lines come in between."""
    rows_before = np.array([line - 2 for line, _ in ragged], np.int64) - np.arange(len(ragged))
    lines: list[int] = (row + 2 + np.searchsorted(rows_before, row, side="right")).tolist()
    return lines


def _cast(name: str, column: Any) -> Any:
    """Cast text to the type of its column, with null for text that does not match the column's pattern."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrow_type = {"timestamp": pa.timestamp("us", "UTC"), "propensity_score": pa.float64()}.get(name, pa.int64())
    column = pc.if_else(pc.match_substring_regex(column, _PATTERNS[name]), column, None)
    try:
        return column.cast(arrow_type)
    except pa.ArrowInvalid:  # a date such as the 31st of February: bisect to find it
        half = len(column) // 2
        if not half:
            return pa.nulls(1, arrow_type)
        return pa.concat_arrays([_cast(name, column[:half]), _cast(name, column[half:])])
