"""Lists that nobody may have seen yet: what a ranker would show, without clicks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import FileError
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables._layouts import TableRows, read_wide
from clickshift.io.tables.columns import Column, ListColumn
from clickshift.io.tables.formats import read_table

_COLUMNS = ("query", "docs")


def read_rankings(path: str | Path, *, on_bad_line: OnBadLine = "error") -> Rankings:
    """Lists from one table (Parquet, CSV or JSON lines) with the columns `query` and `docs`; others are ignored.

    They come with a vocabulary of their own; `Rankings.in_vocabulary` translates them, and a model does so by itself.
    With `on_bad_line="skip"` lists that break a rule are dropped, counted, and reported in one `ClickshiftWarning`.
    """
    path, skip = Path(path), on_bad_line == "skip"
    part = read_table(path, lambda names: _choose(path, names))
    unreadable = [f"line {line}: {problem}" for line, problem in part.unreadable]
    if unreadable and not skip:
        line, problem = part.unreadable[0]
        advice = 'Mend or remove it, or read with on_bad_line="skip".'
        raise FileError(path, f"{problem} ({len(unreadable):,} such lines). {advice}", line=line)
    if not part.table.num_rows:
        raise FileError(path, "has no rows. There must be at least one list.")
    lists, faults = read_wide(_Unclicked([part]), skip=skip)
    faults.report(str(path), unreadable=unreadable)
    owner = np.repeat(np.arange(len(lists.length)), lists.length)
    vocabulary, query, pair = Vocabulary.of(lists.query[owner].ids(), lists.doc.ids())
    shown = np.arange(lists.length.max()) < lists.length[:, None]
    places = np.full(shown.shape, UNSEEN, np.int32)
    places[shown] = pair
    return Rankings(vocabulary, query[np.cumsum(lists.length) - lists.length], places, shown)


class _Unclicked(TableRows):
    """Rows whose lists have no click, whatever else their file says."""

    @override
    def lists(self, name: str) -> ListColumn:
        docs = super().lists("docs")
        if name == "docs":
            return docs
        nothing = np.zeros(len(docs.items), np.int64)
        return ListColumn(docs.length, docs.bad, Column(nothing, nothing > 0))

    @override
    def show(self, name: str, row: int) -> str:
        return super().show("docs" if name == "clicks" else name, row)


def _choose(path: Path, names: Sequence[str]) -> dict[str, str]:
    if missing := [name for name in _COLUMNS if name not in names]:
        raise FileError(
            path,
            f"a table of lists must have the columns {' and '.join(_COLUMNS)} (one row per list, docs a list of ids): "
            f"{' and '.join(missing)} not found; the file has {', '.join(names) or 'none'}. Rename or add them.",
        )
    if twice := [name for name in _COLUMNS if names.count(name) > 1]:
        raise FileError(path, f"the name of a column must be its own: {twice[0]} stands twice. Rename one.")
    return {name: name for name in _COLUMNS}
