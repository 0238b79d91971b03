"""The Open Bandit Dataset (Saito et al., 2020): items recommended in a fashion shop, with the propensity of each.

The shop shows three items side by side, but the data does not say which rows were shown together: every row is one item
at one position, with its own time and click, and `propensity_score` is the probability of the item *at that position*.
So a row becomes a session of one item, and its query is the place that a policy had to fill, "campaign/position":
propensities at two positions are of different choices and stay apart, and items of two campaigns, both numbered from 0,
are not confused. What is lost is lost in the data: it cannot tell how the click on one item depends on the items beside
it. `log_prob` is the logarithm of the propensity, for inverse propensity estimates.
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

_FORMS = {
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
    """One campaign under one policy: the CSV file (plain or gzip), or the folder that holds it, such as `random/men`.

    Only the columns `timestamp, item_id, position, click, propensity_score` are read. The file's name is the campaign.
    Times are in UTC.
    """
    import pyarrow as pa

    file = _csv_in(Path(path))
    notes = ReadReport(file, on_bad_line)
    campaign = file.name.split(".")[0]
    batches = list(_batches(file, notes))
    if not sum(map(len, batches)):
        notes.nothing("row")
    table = pa.Table.from_batches(batches)
    time, item, position, click, propensity = (table[name].to_numpy() for name in _FORMS)
    positions, place = np.unique(position, return_inverse=True)
    query = pa.DictionaryArray.from_arrays(place, pa.array([f"{campaign}/{position}" for position in positions]))
    vocabulary, query_row, pair = Vocabulary.of(query, item)
    rankings = Rankings(vocabulary, query_row, pair[:, None], log_prob=np.log(propensity))
    notes.report()
    return Sessions(rankings, click[:, None] == 1, time=time)


def _csv_in(path: Path) -> Path:
    """The file itself, or the one CSV file of actions in the folder."""
    if not path.is_dir():
        return path
    found = sorted(file for pattern in ("*.csv", "*.csv.gz") for file in path.glob(pattern))
    logs = [file for file in found if not file.name.startswith("item_context.")]
    if len(logs) != 1:
        names = ", ".join(file.name for file in logs) or "none"
        raise FileError(path, f"must hold one CSV file beside item_context: got {names}. Name the file itself.")
    return logs[0]


def _batches(path: Path, notes: ReadReport) -> Iterator[Any]:
    """The good rows in typed columns, block by block."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ragged: list[tuple[int, str]] = []
    rows = told = 0
    for raw in _raw_batches(path, ragged):
        typed = pa.record_batch([_cast(name, raw[name]) for name in _FORMS], list(_FORMS))
        good = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in typed.columns])
        propensity = pc.fill_null(typed["propensity_score"], 0).to_numpy()
        good &= (propensity > 0) & (propensity <= 1)
        blank = np.logical_and.reduce([pc.equal(column, "").to_numpy(zero_copy_only=False) for column in raw.columns])
        doubtful = np.flatnonzero(~good & ~blank)
        texts = (", ".join(map(str, row.values())) for row in raw.take(doubtful).to_pylist())
        bad = [*zip(_line_numbers(rows + doubtful, ragged), texts, strict=True), *ragged[told:]]
        for line, text in sorted(bad):
            notes.bad_line(line, _RULE, text)
        rows, told = rows + len(raw), len(ragged)
        yield typed.filter(pa.array(good))
    for line, text in ragged[told:]:
        notes.bad_line(line, _RULE, text)


def _raw_batches(path: Path, ragged: list[tuple[int, str]]) -> Iterator[Any]:
    """The columns as text, block by block. Rows with too few or too many fields go, with their lines, to `ragged`."""
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
                # blank lines are kept, as rows of empty fields: lines can be counted
                parse_options=csv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=remember),
                convert_options=csv.ConvertOptions(
                    include_columns=list(_FORMS), column_types=dict.fromkeys(_FORMS, pa.string())
                ),
            )
        except pa.ArrowKeyError as error:
            raise FileError(path, f"the header must name {', '.join(_FORMS)} ({error}).", line=1) from None
        except pa.ArrowInvalid as error:
            raise FileError(path, f"must be a CSV table with a header ({error}).") from None


def _line_numbers(row: np.ndarray, ragged: list[tuple[int, str]]) -> list[int]:
    """The lines that these rows of the table, counted from 0, stand in: below the header and between ragged lines."""
    rows_before = np.array([line - 2 for line, _ in ragged], np.int64) - np.arange(len(ragged))
    lines: list[int] = (row + 2 + np.searchsorted(rows_before, row, side="right")).tolist()
    return lines


def _cast(name: str, column: Any) -> Any:
    """Text as values of its column's type, null where it breaks the form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = {"timestamp": pa.timestamp("us", "UTC"), "propensity_score": pa.float64()}.get(name, pa.int64())
    column = pc.if_else(pc.match_substring_regex(column, _FORMS[name]), column, None)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # the 31st of February: look for it
        half = len(column) // 2
        if not half:
            return pa.nulls(1, kind)
        return pa.concat_arrays([_cast(name, column[:half]), _cast(name, column[half:])])
