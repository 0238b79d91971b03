"""Summary: a result that is a few facts by name, such as the size of a file that was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from clickshift.display.document import Document, Section
from clickshift.display.result import Result
from clickshift.display.tables import Row, Rows

__all__ = ["Summary", "two_columns"]


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
