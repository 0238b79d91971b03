"""Corrected labels as files for LightGBM and XGBoost: a table, or LightGBM's own text with its side files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.errors import FileError
from clickshift.io.table_writer import ENDINGS, table_ending, write_table
from clickshift.ranking.lambdamart import BoostingData
from clickshift.ranking.ranker import checked_features

_TEXT_ENDINGS = (".txt", ".train")
_CHUNK = 20_000
"""Number of rows that are written at once."""


def boosting_ending(path: str | Path) -> str:
    """Return the ending of a file that `write_boosting_data` can write; raise a FileError for any other.

    Call it before the computation whose result is to be written.
    """
    return table_ending(path, (*ENDINGS, *_TEXT_ENDINGS))


def write_boosting_data(data: BoostingData, path: str | Path, *, notes: dict[str, Any] | None = None) -> list[Path]:
    """Write training data for gradient boosting.

    A .parquet, .csv or .jsonl file holds `BoostingData.table`, with LightGBM's `label_gain` in the metadata of Parquet.
    A .txt or .train file holds lines of grade and features, which LightGBM reads along with PATH.query (rows of each
    query), PATH.weight, PATH.position, and PATH.conf with `label_gain`. The named file is written last: without it, the
    others are of no use.

    Parameters
    ----------
    data
        The training data.
    path
        File to write.
    notes
        Further metadata of a table.

    Returns
    -------
    list of Path
        The files that were written, the named one first.

    Raises
    ------
    FileError
        If the file cannot have this ending, or has no name before it ("bad-file-name").
    """
    path = Path(path)
    metadata = {"label_gain": data.gain.tolist(), **(notes or {})}
    if boosting_ending(path) not in _TEXT_ENDINGS:
        write_table(data.table(), path, notes=metadata)
        return [path]
    if path.suffix == path.name:
        raise FileError(path, "must have a name before its ending. Choose one.", code="bad-file-name")
    path.unlink(missing_ok=True)
    gains = ",".join(f"{gain:.9g}" for gain in data.gain.tolist())
    side_files = {
        "query": _lines(data.group),
        "weight": _lines(data.weight),
        "position": _lines(data.position + 1),
        "conf": f"objective = lambdarank\nlabel_gain = {gains}\n",
    }
    files = []
    for name, text in side_files.items():
        files.append(path.with_name(f"{path.name}.{name}"))
        with write_atomically(files[-1]) as temporary:
            temporary.write_text(text, encoding="ascii")
    with write_atomically(path) as temporary, temporary.open("w", encoding="ascii") as file:
        for first in range(0, len(data.pair), _CHUNK):
            file.write(_svmlight_text(data, slice(first, first + _CHUNK)))
    return [path, *files]


def _lines(values: np.ndarray) -> str:
    """Return one number per line."""
    return "".join(f"{value:.9g}\n" for value in values.tolist())


def _svmlight_text(data: BoostingData, rows: slice) -> str:
    """Return lines such as "3 1:0.5 2:0": every feature is written, numbered from 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    features = checked_features(data.corpus)[data.pair[rows]]
    columns: list[Any] = [pa.array(data.grade[rows]).cast(pa.string())]
    for k in range(features.shape[1]):
        columns.append(pc.binary_join_element_wise(f"{k + 1}", pa.array(features[:, k]).cast(pa.string()), ":"))
    lines = pc.binary_join_element_wise(*columns, " ").to_pylist()
    return "".join(f"{line}\n" for line in lines)
