"""Documents and tables on a terminal. Text is printed literally: control characters are escaped, markup is not read."""

from __future__ import annotations

import os
from collections.abc import Sequence

from clickshift.core.text import printable
from clickshift.display.cells import texts
from clickshift.display.document import Document, Section
from clickshift.display.tables import Row

__all__ = ["print_document", "print_table"]

_FILE_WIDTH = 160
"""Width of tables, in characters, where standard output is a file or a pipe."""


def print_document(document: Document) -> None:
    """Print a document on standard output: its conclusion, then the tables and texts of its sections.

    Parameters
    ----------
    document
        The document. Figures, settings and sections that are for the page only are left out.
    """
    _print_text(document.conclusion)
    _print_text(document.data)
    for section in document.all_sections:
        _print_section(section)


def _print_section(section: Section) -> None:
    """Print a section and its subsections."""
    if section.page_only or section.file_only:
        return
    if section.table:
        print_table(section.table, title=section.title, caption=" ".join(section.caption.split()))
    elif section.text:
        print(printable(section.title))
    _print_text(section.text)
    for part in section.parts:
        _print_section(part)


def _print_text(text: str) -> None:
    """Print paragraphs, one line each."""
    for paragraph in text.split("\n\n"):
        if line := " ".join(paragraph.split()):
            print(printable(line))


def print_table(rows: Sequence[Row], *, title: str = "", caption: str = "") -> None:
    """Print rows with the same keys as an aligned table.

    Parameters
    ----------
    rows
        The rows.
    title
        Heading above the table.
    caption
        Explanation below the table.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(rows[0]) if rows else []
    table = Table(
        title=Text(printable(title)) if title else None,
        caption=Text(printable(caption)) if caption else None,
        title_justify="left",
        show_header=any(column.strip() for column in columns),
    )
    for column in columns:
        values = [row[column] for row in rows if row[column] is not None]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        table.add_column(Text(printable(column)), justify="right" if numeric else "left", overflow="fold")
    for row in texts(rows):
        table.add_row(*(Text(printable(str(row[column]))) for column in columns))
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:  # a file or a pipe has no width to fold to
        console = Console(width=_FILE_WIDTH)
    console.print(table)
