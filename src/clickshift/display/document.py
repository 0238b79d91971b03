"""Documents: the conclusion, figures, tables and settings of a result, as a self-contained HTML page or in a notebook.

The page opens without a network, and text from logs is escaped, so that it is always shown as text.
`display/terminal.py` prints the same document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.display.tables import Row
from clickshift.errors import FileError


@dataclass(frozen=True)
class Section:
    """A section of a report: a heading with any of a figure, text, a table and subsections, in this order.

    On a page, the table of a section with a figure is folded.

    Parameters
    ----------
    title
        Heading of the section.
    text
        Paragraphs, separated by empty lines.
    table
        Rows with equal keys.
    figure
        Plotly figure, or a function that makes it, which a terminal never calls; one with a width and a height keeps
        their ratio at any width of the page.
    parts
        Subsections, shown side by side if all of them hold nothing but a figure, or nothing but text.
    caption
        Explanation below the table.
    name
        Name of the files of the table and the figure; by default, the title. Names are unique in a document.
    page_only
        Whether the terminal leaves the section out.
    explanation
        How to read the section: paragraphs before its text, on the page only.
    folded
        Whether the page shows only the heading until a reader opens the section.
    file_only
        Whether the section is neither in the terminal nor on the page: its table and figure are files only.
    """

    title: str
    text: str = ""
    table: Sequence[Row] = ()
    figure: Any = None
    parts: Sequence[Section] = ()
    caption: str = ""
    name: str = ""
    page_only: bool = False
    explanation: str = ""
    folded: bool = False
    file_only: bool = False

    @cached_property
    def drawn(self) -> Any:
        """The figure, made when it is first asked for."""
        return self.figure() if callable(self.figure) else self.figure

    def flat(self) -> Iterator[Section]:
        """Yield the section and all its subsections."""
        yield self
        for part in self.parts:
            yield from part.flat()


@dataclass(frozen=True)
class Document:
    """What a result looks like, wherever it is shown: a conclusion and its figure, then sections, then settings.

    Parameters
    ----------
    title
        Heading.
    conclusion
        The answer in one to three sentences, which comes first; paragraphs are separated by empty lines, and those
        after the first are smaller.
    sections
        Sections, in order.
    settings
        Settings of the computation, by name. The page ends with them and with the versions of the libraries.
    verdict
        One word for the answer, such as "usable", which is shown as a badge with a colour and an icon
        (`display/verdicts.py`); may be empty.
    data
        What the data were, in one line below the conclusion.
    headline
        The section whose figure shows the conclusion: it comes before all others, without its heading on a page.
    """

    title: str
    conclusion: str = ""
    sections: Sequence[Section] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    verdict: str = ""
    data: str = ""
    headline: Section | None = None

    @property
    def tables(self) -> dict[str, Sequence[Row]]:
        """Tables of all sections, by name."""
        found: dict[str, Sequence[Row]] = {}
        for section in self._flat():
            if section.table:
                found[_unique(section.name or section.title, found)] = section.table
        return found

    @property
    def figures(self) -> dict[str, Any]:
        """Plotly figures of all sections, by name."""
        found: dict[str, Any] = {}
        for section in self._flat():
            if section.figure is not None:
                found[_unique(section.name or section.title, found)] = section.drawn
        return found

    def _flat(self) -> Iterator[Section]:
        """Yield all sections and subsections."""
        for section in self.all_sections:
            yield from section.flat()

    @property
    def all_sections(self) -> Sequence[Section]:
        """The headline, if there is one, and the other sections."""
        return self.sections if self.headline is None else [self.headline, *self.sections]


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, numbered if it is taken."""
    names = (name if n == 1 else f"{name} {n}" for n in count(1))
    return next(each for each in names if each not in taken)


def check_page(path: str | Path) -> None:
    """Check that a report can be written to a path; call it before the work whose result is to be written.

    Parameters
    ----------
    path
        The file to be written.

    Raises
    ------
    FileError
        "unknown-format" if the ending is not .html or .htm, "is-a-folder".
    """
    path = Path(path)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise FileError(
            path,
            "the ending of a page must be .html. Choose such a name.",
            code="unknown-format",
            known=[".html", ".htm"],
        )
    if path.is_dir():
        raise FileError(path, "is a folder; a page must be written to a file. Pass a file in it.", code="is-a-folder")


def write_page(path: str | Path, document: Document) -> None:
    """Write a document as one HTML page, which appears complete or not at all.

    Parameters
    ----------
    path
        The file.
    document
        The document.
    """
    from clickshift.display import _page

    text = _page.page(document)
    with write_atomically(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8", newline="\n")


def page_fragment(document: Document) -> str:
    """Return a document as HTML for a notebook: its opening, then its sections, folded.

    The first document of a process brings the chart library along, so that charts are drawn without a network.

    Parameters
    ----------
    document
        The document.

    Returns
    -------
    str
        The HTML.
    """
    from clickshift.display import _page

    return _page.fragment(document)
