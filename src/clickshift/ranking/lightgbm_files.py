"""Corrected labels as files for LightGBM and XGBoost: a table, or LightGBM's own text with its files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import write_atomically
from clickshift.errors import FileError
from clickshift.io.table_writer import ENDINGS, table_ending, write_table
from clickshift.ranking.lambdamart import BoostingData
from clickshift.ranking.ranker import network_features

TEXT = (".txt", ".train")
_AT_ONCE = 20_000  # rows


def boosting_ending(path: str | Path) -> str:
    """The ending of a file that `write_boosting_data` can write: ask before the work whose result is to be written."""
    return table_ending(path, (*ENDINGS, *TEXT))


def write_boosting_data(data: BoostingData, path: str | Path, *, notes: dict[str, Any] | None = None) -> list[Path]:
    """Write the rows, and tell which files there are now.

    .parquet, .csv, .jsonl: `BoostingData.table`, with LightGBM's `label_gain` in Parquet's notes. .txt, .train: lines
    of grade and features, which LightGBM reads along with PATH.query (rows of each query), PATH.weight, PATH.position,
    and PATH.conf, which has `label_gain`. The file that is named comes last: without it, the others are of no use.
    """
    path = Path(path)
    known = {"label_gain": data.gain.tolist(), **(notes or {})}
    if boosting_ending(path) not in TEXT:
        write_table(data.table(), path, notes=known)
        return [path]
    if path.suffix == path.name:
        raise FileError(path, "must have a name before its ending. Choose one.")
    path.unlink(missing_ok=True)
    gains = ",".join(f"{gain:.9g}" for gain in data.gain.tolist())
    beside = {
        "query": _lines(data.group),
        "weight": _lines(data.weight),
        "position": _lines(data.position + 1),
        "conf": f"objective = lambdarank\nlabel_gain = {gains}\n",
    }
    files = []
    for name, text in beside.items():
        files.append(path.with_name(f"{path.name}.{name}"))
        with write_atomically(files[-1]) as temporary:
            temporary.write_text(text, encoding="ascii")
    with write_atomically(path) as temporary, temporary.open("w", encoding="ascii") as file:
        for first in range(0, len(data.pair), _AT_ONCE):
            file.write(_text(data, slice(first, first + _AT_ONCE)))
    return [path, *files]


def _lines(values: np.ndarray) -> str:
    return "".join(f"{value:.9g}\n" for value in values.tolist())


def _text(data: BoostingData, rows: slice) -> str:
    """Lines such as "3 1:0.5 2:0": every feature is written, numbered from 1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    features = network_features(data.corpus)[data.pair[rows]]
    parts: list[Any] = [pa.array(data.grade[rows]).cast(pa.string())]
    for k in range(features.shape[1]):
        parts.append(pc.binary_join_element_wise(f"{k + 1}", pa.array(features[:, k]).cast(pa.string()), ":"))
    lines = pc.binary_join_element_wise(*parts, " ").to_pylist()
    return "".join(f"{line}\n" for line in lines)
