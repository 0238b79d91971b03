"""Where results live on disk: tidy rows in one Parquet file, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.files import write_atomically


def write_rows(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with write_atomically(path) as temporary:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), temporary)
