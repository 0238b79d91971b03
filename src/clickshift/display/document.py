"""One self-contained HTML page: it opens without a network, and shows text from logs as text."""

from __future__ import annotations

import html
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.display.tables import Row
from clickshift.display.values import Measured, decimal
from clickshift.errors import FileError

_NO_NETWORK = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""A content security policy: a browser loads nothing that is not in the page, whatever the page says."""
_CHARTS = {
    "responsive": True,
    "displaylogo": False,
    "showSendToCloud": False,  # some versions offer to upload the chart
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
}
_LONG = 28
"""Letters: a text with more of them may be broken into lines."""
_LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "jax", "plotly")


@dataclass(frozen=True)
class Section:
    """A heading with any of: words (an empty line parts paragraphs), a table (rows with equal keys), a Plotly figure,
    and smaller sections, which stand side by side where they hold nothing but a figure, or nothing but words.

    A figure with a width and a height keeps their ratio at any width of the page.
    """

    title: str
    text: str = ""
    table: Sequence[Row] = ()
    figure: Any = None
    parts: Sequence[Section] = ()


def check_page(path: str | Path) -> None:
    """Whether a page can have this name: ask before the work that it is to show."""
    path = Path(path)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise FileError(path, "the ending of a page must be .html. Choose such a name.")
    if path.is_dir():
        raise FileError(path, "is a folder, where a page is to be written. Name a file in it.")


def write_report(path: str | Path, *, title: str, sections: Sequence[Section], settings: Mapping[str, Any]) -> None:
    """Write the page, whole or not at all. It ends with the settings and the versions of what computed it."""
    from plotly.offline import get_plotlyjs

    facts = [{"setting": str(name), "value": _plain(value)} for name, value in {**settings, **_versions()}.items()]
    sections = [*sections, Section("Settings", table=facts)]
    links = "".join(
        f"<li><a href='#section-{number}'>{html.escape(section.title)}</a></li>"
        for number, section in enumerate(sections, 1)
    )
    body = "".join(_section(section, f"section-{number}") for number, section in enumerate(sections, 1))
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_NETWORK}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_asset('page.css')}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><header><h1>{html.escape(title)}</h1>"
        f"<nav aria-label='Sections'><ul>{links}</ul></nav></header>"
        "<noscript><p>Charts and sorting need JavaScript; words and tables do not.</p></noscript>"
        f"<main>{body}</main><script>{_asset('page.js')}</script></body></html>"
    )
    with write_atomically(path) as temporary:
        Path(temporary).write_text(page, encoding="utf-8")


def _asset(name: str) -> str:
    return (files("clickshift.display") / name).read_text(encoding="utf-8")


def _section(section: Section, name: str, level: int = 2) -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in section.text.split("\n\n"))
    inner = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs if paragraph)
    inner += _table(section.table, section.title) if section.table else ""
    inner += _figure(section.figure, section.title, f"figure-{name}") if section.figure is not None else ""
    if _is_figure(section) and level > 2:  # its title is in the figure
        return inner
    parts = "".join(_section(part, f"{name}-{number}", level + 1) for number, part in enumerate(section.parts, 1))
    if section.parts and all(_is_figure(part) for part in section.parts):
        parts = f"<div class='grid'>{parts}</div>"
    elif section.parts and all(_is_words(part) for part in section.parts):
        parts = f"<div class='cards'>{parts}</div>"
    heading = f"<h{level}>{html.escape(section.title)}</h{level}>"
    return f"<section id='{name}'>{heading}{inner}{parts}</section>"


def _is_figure(section: Section) -> bool:
    return section.figure is not None and not (section.text or section.table or section.parts)


def _is_words(section: Section) -> bool:
    return bool(section.text) and not (section.table or section.parts) and section.figure is None


def _figure(figure: Any, title: str, name: str) -> str:
    import plotly.graph_objects as go

    shown, style = go.Figure(figure), ""
    shown.update_layout(  # a finger that scrolls the page does not zoom, and buttons leave the title free
        dragmode=False, modebar={"orientation": "v", "bgcolor": "rgba(255,255,255,0)"}
    )
    if figure.layout.width and figure.layout.height:
        style = f" class='shaped' style='aspect-ratio: {figure.layout.width:g} / {figure.layout.height:g}'"
        shown.update_layout(width=None, height=None, autosize=True)
    drawn = shown.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_CHARTS)
    return f"<figure{style} role='img' aria-label='{html.escape(title)}'>{drawn}</figure>"


def _table(rows: Sequence[Row], title: str) -> str:
    kinds = {name: _kind([row[name] for row in rows]) for name in rows[0]}
    head = "".join(_header(str(name), kinds[name], sortable=len(rows) > 1) for name in rows[0])
    body = "".join(f"<tr>{''.join(_cell(row, name, kinds[name]) for name in rows[0])}</tr>" for row in rows)
    return (
        f"<div class='scroll' role='region' tabindex='0' aria-label='{html.escape(title)}'>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _kind(values: Sequence[Any]) -> str:
    """How a column is set: numbers end at the same place, long texts have room."""
    if all(isinstance(value, int | float | Measured | None) and not isinstance(value, bool) for value in values):
        return "number"
    return "long" if max(len(_text(value)) for value in values) > _LONG else "text"


def _header(name: str, kind: str, *, sortable: bool) -> str:
    if not sortable:
        return f"<th scope='col' class='{kind}'>{html.escape(name)}</th>"
    return f"<th scope='col' class='{kind}' aria-sort='none'><button type='button'>{html.escape(name)}</button></th>"


def _cell(row: Row, name: str, kind: str) -> str:
    value = row[name]
    number = value.mean if isinstance(value, Measured) else value if isinstance(value, int | float) else math.nan
    key = "" if math.isnan(number) else f" data-value='{float(number)!r}'"
    if name == next(iter(row)):
        return f"<th scope='row' class='{kind}'{key}>{_shown(value)}</th>"
    return f"<td class='{kind}'{key}>{_shown(value)}</td>"


def _shown(value: Any) -> str:
    """As markup. The only tags are our own."""
    if isinstance(value, Measured):
        mark = "<sup>†</sup>" * value.dagger + "<sup>=</sup>" * (value.standing == "=")
        number = f"<strong>{value.number}</strong>" if value.standing == "best" else value.number
        shown = f"{mark}{number}" + (f" <small>{value.spread}</small>" if value.spread else "")
        return f"({shown})" if value.aside else shown
    return html.escape(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return decimal(value)
    return "" if value is None else str(value)


def _plain(value: Any, inner: bool = False) -> str:
    """A setting in one cell: what is nested is written out, numbers are exact."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{name}: {_plain(part, True)}" for name, part in value.items())
    elif isinstance(value, list | tuple):
        text = ", ".join(_plain(part, True) for part in value)
    else:
        return "none" if value is None else str(value)
    return f"({text})" if inner else text


def _versions() -> dict[str, str]:
    found = {"Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}"}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # optional
            continue
    return found
