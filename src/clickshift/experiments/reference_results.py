"""Rows that are shipped with the package: the policy-shift protocol at paper scale on the built-in corpus.

Who has a new click model compares it with these without training the others again. They are made by this very code
(`benchmarks/policy_shift.py --reference`); rows of a cell count only while its digest, and so every setting and the
version of the rows, is what it was when they were made.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from clickshift.experiments.runner import RunFolder, digest
from clickshift.io.table_writer import read_rows, write_rows

FILE = "policy_shift.parquet"
_DIGEST = "cell"


@cache
def _by_digest() -> dict[str, list[dict[str, Any]]]:
    cells: dict[str, list[dict[str, Any]]] = {}
    with as_file(files("clickshift.experiments") / "reference_rows" / FILE) as path:
        for row in read_rows(path) if path.exists() else []:
            cells.setdefault(row.pop(_DIGEST), []).append(row)
    return cells


def copy_reference(tasks: Iterable[Any], folder: RunFolder) -> int:
    """Put the shipped rows of these tasks into a run, where it does not have its own. Returns for how many."""
    known = [task for task in tasks if not folder.has(task) and digest(task) in _by_digest()]
    for task in known:
        write_rows(_by_digest()[digest(task)], folder.file(task))
    return len(known)


def write_reference(tasks: Iterable[Any], folder: RunFolder, path: Path) -> None:
    """Make the file to be shipped from a finished run."""
    rows = [{_DIGEST: digest(task), **row} for task in tasks for row in read_rows(folder.file(task))]
    write_rows(rows, path)
