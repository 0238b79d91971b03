"""Result: what every capability returns. It knows its conclusion, rows, facts, figures and document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from clickshift.display.document import Document, Section, check_page, page_fragment, write_page
from clickshift.display.export import Written, write_exports
from clickshift.display.tables import Row, Rows, arrow_table, write_rows
from clickshift.errors import CapabilityError

__all__ = ["Result", "Summary", "plain", "two_columns"]


class Result:
    """What a capability returns: a value that describes itself.

    A subclass is a frozen dataclass (``@dataclass(frozen=True, repr=False)``) that implements `conclusion`, `rows` and
    `_document`; `facts` where rows alone do not tell everything. Everything else follows: data frames, JSON, figures,
    a notebook's display, and files.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, repr=False)
    ... class Coin(Result):
    ...     heads: int
    ...     tosses: int
    ...     conclusion = property(lambda self: f"{self.heads} of {self.tosses} tosses show heads.")
    ...     def rows(self):
    ...         return [{"side": "heads", "share": self.heads / self.tosses}]
    >>> Coin(3, 4)
    <Coin: 3 of 4 tosses show heads.>
    >>> Coin(3, 4).to_dict()
    {'conclusion': '3 of 4 tosses show heads.', 'rows': [{'side': 'heads', 'share': 0.75}]}
    """

    @property
    def conclusion(self) -> str:
        """The answer, in one to three sentences."""
        raise NotImplementedError

    def rows(self) -> Rows:
        """Return the tidy rows of the result: one dict per row, with plain values."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """Return what `to_dict` holds, before its values are made plain."""
        return {"conclusion": self.conclusion, "rows": self.rows()}

    def _document(self) -> Document:
        """Make the document; called once."""
        raise NotImplementedError

    @cached_property
    def document(self) -> Document:
        """The conclusion, figures, tables and settings, computed once and rendered anywhere."""
        return self._document()

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values: exactly what the command prints with --json.

        Returns
        -------
        dict
            Texts, numbers, lists and dicts; None in place of NaN and infinity.
        """
        facts: dict[str, Any] = plain(self.facts())
        return facts

    def to_arrow(self) -> Any:
        """Return the tidy rows as a pyarrow table.

        Returns
        -------
        pyarrow.Table
            One row per row, with a column for every key.
        """
        return arrow_table(self.rows())

    def to_pandas(self) -> Any:
        """Return the tidy rows as a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            One row per row, with a column for every key.
        """
        return self.to_arrow().to_pandas()

    @property
    def figures(self) -> dict[str, Any]:
        """Plotly figures, by name."""
        return self.document.figures

    def figure(self, name: str | None = None) -> Any:
        """Return one Plotly figure.

        Parameters
        ----------
        name
            Name of the figure; by default, the first one.

        Returns
        -------
        plotly.graph_objects.Figure
            The figure.

        Raises
        ------
        CapabilityError
            "unknown-figure" if the result has no such figure.
        """
        figures = self.figures
        if not figures or (name is not None and name not in figures):
            known = ", ".join(figures) or "none"
            raise CapabilityError(
                f"a figure must be one of the result's: got {name!r}; this {type(self).__name__} has {known}.",
                code="unknown-figure",
                name=name,
                known=list(figures),
            )
        return next(iter(figures.values())) if name is None else figures[name]

    @classmethod
    def check_output(cls, path: str | Path) -> None:
        """Check that `write` can write to a path; call it before the work whose result is to be written.

        Parameters
        ----------
        path
            The path.

        Raises
        ------
        FileError
            If the ending of the path is not known ("unknown-format").
        """
        if Path(path).suffix:
            check_page(path)

    def write(self, path: str | Path) -> Written:
        """Write the result to files.

        Parameters
        ----------
        path
            A page (.html), or a folder for the page (report.html), the tidy rows (rows.parquet), and a folder
            `exports` with every table (CSV, LaTeX) and, where Chromium or Chrome is installed, every figure (PNG, SVG)
            as a file; the page saves figures without it.

        Returns
        -------
        Written
            Paths of what was written.
        """
        path = Path(path)
        if path.suffix.lower() in {".html", ".htm"}:
            check_page(path)
            write_page(path, self.document)
            return Written(page=path)
        rows = path / "rows.parquet"
        write_rows(self.rows(), rows)
        write_page(path / "report.html", self.document)
        folder = path / "exports"
        exports = write_exports(folder, self.document.tables, self.document.figures)
        notes = [exports.note] if exports.note and not exports.no_browser else []
        return Written(path / "report.html", rows, exports.files, notes, folder if exports.files else None)

    def __repr__(self) -> str:
        text = " ".join(self.conclusion.split())
        return f"<{type(self).__name__}: {text if len(text) <= _REPR_LENGTH else text[: _REPR_LENGTH - 1] + '…'}>"

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        return page_fragment(self.document)


class Summary(Result):
    """A result whose facts are its values by name; a subclass implements `conclusion` and `values`."""

    title: ClassVar[str] = "Summary"

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        raise NotImplementedError

    def rows(self) -> Rows:
        """Return the values as one row."""
        return [self.values()]

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion and the values."""
        return {"conclusion": self.conclusion, **self.values()}

    def _document(self) -> Document:
        """Show the values as a table of two columns."""
        return Document(self.title, self.conclusion, [Section(self.title, table=two_columns(self.values()))])


def two_columns(values: Row) -> Rows:
    """Tabulate values by name, one row each.

    Parameters
    ----------
    values
        Values by name.

    Returns
    -------
    list of dict
        Rows with the name in words and the value, without headings.

    Examples
    --------
    >>> two_columns({"mean_length": 3})
    [{'': 'mean length', ' ': 3}]
    """
    return [{"": name.replace("_", " "), " ": value} for name, value in values.items()]


_REPR_LENGTH = 160
"""Most characters of a conclusion in a repr."""


_PLAIN = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: it has no NaN, no infinity, no numpy arrays and no paths.

    Parameters
    ----------
    value
        A value, which may contain others.

    Returns
    -------
    object
        Texts, numbers, lists, dicts and None.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"share": float("nan"), 1: (np.float64(0.5), np.arange(2))})
    {'share': None, '1': [0.5, [0, 1]]}
    """
    if type(value) in _PLAIN:  # nearly all values: looking for the others takes ten times as long
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
