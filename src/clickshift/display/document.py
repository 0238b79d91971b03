"""Documents: the conclusion, figures, tables and settings of a result, as a self-contained HTML page or in a notebook.

The page opens without a network, and text from logs is escaped, so that it is always shown as text.
`display/terminal.py` prints the same document.
"""

from __future__ import annotations

import html
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.core.versions import library_versions
from clickshift.display.tables import Row
from clickshift.display.values import Measured, decimal
from clickshift.errors import FileError

# Content security policy: the browser loads nothing from outside the page, whatever the page contains.
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
_PLOTLY_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "showSendToCloud": False,  # some versions offer to upload the chart
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
}
_LONG = 28  # characters; a longer text may be broken into lines
_LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "jax", "plotly")


@dataclass(frozen=True)
class Section:
    """A section of a report: a heading with any of a figure, text, a table and subsections, in this order.

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
        The answer in one to three sentences, which comes first; paragraphs are separated by empty lines.
    sections
        Sections, in order.
    settings
        Settings of the computation, by name. The page ends with them and with the versions of the libraries.
    verdict
        One word for the answer, such as "usable", which decides the colour of the conclusion; may be empty.
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
    from plotly.offline import get_plotlyjs

    setting_rows = [
        {"setting": str(name), "value": _setting_text(value)}
        for name, value in {**document.settings, **_versions()}.items()
    ]
    shown = (section for section in document.all_sections if not section.file_only)
    sections = [*shown, Section("Settings", table=setting_rows)]
    links = "".join(
        f"<li><a href='#section-{number}'>{html.escape(section.title)}</a></li>"
        for number, section in enumerate(sections, 1)
    )
    body = "".join(_section(section, f"section-{number}") for number, section in enumerate(sections, 1))
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(document.title)}</title><style>{_asset('page.css')}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><header><h1>{html.escape(document.title)}</h1>"
        f"{_conclusion(document)}<nav aria-label='Sections'><ul>{links}</ul></nav></header>"
        "<noscript><p>Charts and sorting need JavaScript; text and tables do not.</p></noscript>"
        f"<main>{body}</main><script>{_asset('page.js')}</script></body></html>"
    )
    with write_atomically(path) as temporary:
        Path(temporary).write_text(page, encoding="utf-8")


def page_fragment(document: Document) -> str:
    """Return a document as HTML for a notebook: conclusion, then sections, of which all but the first are folded.

    The first document of a process brings the chart library along, so that charts are drawn without a network.
    """
    global _chart_library_sent
    number = next(_fragments)
    parts = []
    for k, section in enumerate(section for section in document.all_sections if not section.file_only):
        inner = _section(replace(section, folded=False), f"notebook-{number}-{k}", level=4)
        title = html.escape(section.title)
        parts.append(inner if k == 0 else f"<details><summary>{title}</summary>{inner}</details>")
    library = ""
    if document.figures and not _chart_library_sent:
        from plotly.offline import get_plotlyjs

        library, _chart_library_sent = f"<script>{get_plotlyjs()}</script>", True
    return (
        f"{library}<div class='clickshift'><h3>{html.escape(document.title)}</h3>{_conclusion(document)}"
        f"{''.join(parts)}</div>"
    )


_fragments = count(1)
_chart_library_sent = False


def _conclusion(document: Document) -> str:
    """Return the HTML of the conclusion."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in document.conclusion.split("\n\n")]
    text = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs if paragraph)
    text += f"<p class='caption'>{html.escape(document.data)}</p>" if document.data else ""
    return f"<div class='conclusion' data-verdict='{html.escape(document.verdict)}'>{text}</div>" if text else ""


def _asset(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("clickshift.display") / name).read_text(encoding="utf-8")


def _section(section: Section, name: str, level: int = 2) -> str:
    """Return the HTML of a section; `name` is its id, `level` that of its heading."""
    paragraphs = (" ".join(p.split()) for text in (section.explanation, section.text) for p in text.split("\n\n"))
    inner = _figure(section.drawn, section.title, f"figure-{name}") if section.figure is not None else ""
    inner += "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs if paragraph)
    inner += _table(section.table, section.title) if section.table else ""
    inner += f"<p class='caption'>{html.escape(section.caption)}</p>" if section.caption else ""
    if _is_figure(section) and level > 2:  # the figure shows its title itself
        return inner
    parts = "".join(_section(part, f"{name}-{number}", level + 1) for number, part in enumerate(section.parts, 1))
    if section.parts and all(_is_figure(part) for part in section.parts):
        parts = f"<div class='grid'>{parts}</div>"
    elif section.parts and all(_is_text(part) for part in section.parts):
        parts = f"<div class='cards'>{parts}</div>"
    heading = f"<h{level}>{html.escape(section.title)}</h{level}>"
    if section.folded:
        return f"<section id='{name}'><details><summary>{heading}</summary>{inner}{parts}</details></section>"
    return f"<section id='{name}'>{heading}{inner}{parts}</section>"


def _is_figure(section: Section) -> bool:
    """Return whether a section holds nothing but a figure."""
    return section.figure is not None and not (section.text or section.explanation or section.table or section.parts)


def _is_text(section: Section) -> bool:
    """Return whether a section holds nothing but text."""
    return bool(section.text) and not (section.table or section.parts) and section.figure is None


def _figure(figure: Any, title: str, name: str) -> str:
    """Return the HTML of a Plotly figure."""
    import plotly.graph_objects as go

    responsive, style = go.Figure(figure), ""
    responsive.update_layout(  # scrolling by touch does not zoom, and the buttons do not cover the title
        dragmode=False, modebar={"orientation": "v", "bgcolor": "rgba(255,255,255,0)"}
    )
    if figure.layout.width and figure.layout.height:
        style = f" class='shaped' style='aspect-ratio: {figure.layout.width:g} / {figure.layout.height:g}'"
        responsive.update_layout(width=None, height=None, autosize=True)
    markup = responsive.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_PLOTLY_CONFIG)
    return f"<figure{style} role='img' aria-label='{html.escape(title)}'>{markup}</figure>"


def _table(rows: Sequence[Row], title: str) -> str:
    """Return the HTML of a table."""
    kinds = {name: _column_kind([row[name] for row in rows]) for name in rows[0]}
    head = "".join(_header(str(name), kinds[name], sortable=len(rows) > 1) for name in rows[0])
    body = "".join(f"<tr>{''.join(_cell(row, name, kinds[name]) for name in rows[0])}</tr>" for row in rows)
    return (
        f"<div class='scroll' role='region' tabindex='0' aria-label='{html.escape(title)}'>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _column_kind(values: Sequence[Any]) -> str:
    """Return the CSS class of a column: numbers are right-aligned, long texts may wrap."""
    if all(isinstance(value, int | float | Measured | None) and not isinstance(value, bool) for value in values):
        return "number"
    return "long" if max(len(_text(value)) for value in values) > _LONG else "text"


def _header(name: str, kind: str, *, sortable: bool) -> str:
    """Return the HTML of a column's header, with a button to sort by it."""
    if not sortable:
        return f"<th scope='col' class='{kind}'>{html.escape(name)}</th>"
    return f"<th scope='col' class='{kind}' aria-sort='none'><button type='button'>{html.escape(name)}</button></th>"


def _cell(row: Row, name: str, kind: str) -> str:
    """Return the HTML of a cell, with the number to sort by."""
    value = row[name]
    number = value.mean if isinstance(value, Measured) else value if isinstance(value, int | float) else math.nan
    key = "" if math.isnan(number) else f" data-value='{float(number)!r}'"
    if name == next(iter(row)):
        return f"<th scope='row' class='{kind}'{key}>{_markup(value)}</th>"
    return f"<td class='{kind}'{key}>{_markup(value)}</td>"


def _markup(value: Any) -> str:
    """Return a value as HTML; its own text is escaped."""
    if isinstance(value, Measured):
        mark = "<sup>†</sup>" * value.dagger + "<sup>=</sup>" * (value.standing == "=")
        number = f"<strong>{value.number}</strong>" if value.standing == "best" else value.number
        markup = f"{mark}{number}" + (f" <small>{value.spread}</small>" if value.spread else "")
        return f"({markup})" if value.aside else markup
    return html.escape(_text(value))


def _text(value: Any) -> str:
    """Format a value of a table as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return decimal(value)
    return "" if value is None else str(value)


def _setting_text(value: Any, inner: bool = False) -> str:
    """Format a setting as the text of one cell: nested values are written out, numbers are exact."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{name}: {_setting_text(part, True)}" for name, part in value.items())
    elif isinstance(value, list | tuple):
        text = ", ".join(_setting_text(part, True) for part in value)
    else:
        return "none" if value is None else str(value)
    return f"({text})" if inner else text


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that are installed."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return {"Python": python, **library_versions(_LIBRARIES)}
