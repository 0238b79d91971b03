"""Documents as HTML: what the templates show of a document, prepared so that they hold no logic."""

from __future__ import annotations

import ast
import base64
import dataclasses
import gzip
import hashlib
import html
import json
import math
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any

from clickshift.core.versions import library_versions
from clickshift.display.cells import texts
from clickshift.display.export import csv_text
from clickshift.display.tables import Row
from clickshift.display.values import Measured
from clickshift.display.verdicts import badge

if TYPE_CHECKING:
    from clickshift.display.document import Document, Section

_OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*")
_LONG = 28  # characters; a longer text may be broken into lines
_TALL = 25  # rows; a longer table scrolls within its box
_HEIGHT = 420  # pixels of a figure without a height of its own
_LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "jax", "plotly")
_VERDICTS = ("verdict", "decision", "status")
"""Columns whose values are shown as badges."""
_fragments = count(1)
_chart_library_sent = False


def page(document: Document) -> str:
    """Return a document as a complete HTML page."""
    shown = _document(document, "section")
    table = _table(_settings({**document.settings, **_versions()}), "Settings")
    number = len(shown["sections"]) + 1
    shown["sections"].append(_prepared(f"section-{number}", "Settings", table=table, folded=True))
    library = _chart_library() if document.figures else None
    # Only these two scripts run, whatever the page contains, and the browser loads nothing from outside.
    hashes = [_script_hash(), *([_library_hash()] if library else [])]
    policy = f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data: blob:"
    return _render("page.html", document=shown, policy=policy, library=library)


def fragment(document: Document) -> str:
    """Return a document for a notebook; the first one with a chart in a process brings the chart library along."""
    global _chart_library_sent
    library = _chart_library() if document.figures and not _chart_library_sent else None
    _chart_library_sent = _chart_library_sent or library is not None
    return _render("fragment.html", document=_document(document, f"notebook-{next(_fragments)}"), library=library)


def _render(template: str, **values: Any) -> str:
    """Fill in a template."""
    return str(
        _environment().get_template(template).render(style=_markup(_asset("page.css")), script=_script(), **values)
    )


@cache
def _environment() -> Any:
    """Return Jinja's environment, which escapes everything that is not marked as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("clickshift.display"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def _with_whole_options(text: str) -> Any:
    """Escape a text, and keep options of commands, such as --merge-regions, on one line."""
    from markupsafe import escape

    return _markup(_OPTION.sub(r'<span class="option">\g<0></span>', str(escape(text))))


def _markup(text: str) -> Any:
    """Mark text that is HTML, CSS or JavaScript of our own."""
    from markupsafe import Markup

    return Markup(text)


def _asset(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("clickshift.display") / name).read_text(encoding="utf-8")


@cache
def _script() -> Any:
    """Return the scripts of a page, whose names stay apart from those of a notebook."""
    return _markup(f"(() => {{\n{_asset('charts.js')}\n{_asset('page.js')}\n}})();")


@cache
def _library_code() -> str:
    """Return the code of the chart library."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@cache
def _chart_library() -> Any:
    """Return the chart library, compressed."""
    return _markup(base64.b64encode(gzip.compress(_library_code().encode(), 5, mtime=0)).decode())


@cache
def _library_hash() -> str:
    """Return what a content security policy calls the chart library."""
    return _hash(_library_code())


@cache
def _script_hash() -> str:
    """Return what a content security policy calls the scripts of a page."""
    return _hash(_script())


def _hash(script: str) -> str:
    """Return what a content security policy calls a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json(value: str) -> Any:
    """Mark JSON text that no text of its own can end."""
    for character in "<>&":
        value = value.replace(character, f"\\u{ord(character):04x}")
    return _markup(value)


def _document(document: Document, prefix: str) -> dict[str, Any]:
    """Prepare a document; `prefix` begins the ids of its sections."""
    lead, *more = _paragraphs(document.conclusion) or [""]
    sections = [section for section in document.sections if not section.file_only]
    headline = document.headline
    return {
        "title": document.title,
        "badge": badge(document.verdict, spelled_out=True) if document.verdict else None,
        "lead": lead,
        "more": [_with_whole_options(text) for text in more],
        "data": " ".join(document.data.split()),
        "headline": None if headline is None or headline.file_only else _section(headline, f"{prefix}-0"),
        "sections": [_section(section, f"{prefix}-{number}") for number, section in enumerate(sections, 1)],
    }


def _section(section: Section, name: str) -> dict[str, Any]:
    """Prepare a section; `name` is its id."""
    parts = [_section(part, f"{name}-{number}") for number, part in enumerate(section.parts, 1)]
    layout = ""
    if parts and all(_is_figure(part) for part in section.parts):
        layout = "grid"
        for part in parts:
            part["chart"]["title"] = part["chart"]["title"] or part["title"]
    elif parts and all(_is_text(part) for part in section.parts):
        layout = "cards"
    return _prepared(
        name,
        section.title,
        paragraphs=[_with_whole_options(text) for text in _paragraphs(section.explanation) + _paragraphs(section.text)],
        table=_table(section.table, section.title) if section.table else None,
        chart=_chart(section.drawn, section.title, section.name) if section.figure is not None else None,
        caption=" ".join(section.caption.split()),
        parts=parts,
        layout=layout,
        folded=section.folded,
    )


def _prepared(name: str, title: str, **content: Any) -> dict[str, Any]:
    """Return a section as the templates take it; `name` is its id."""
    nothing: dict[str, Any] = {
        "paragraphs": [],
        "table": None,
        "chart": None,
        "caption": "",
        "parts": [],
        "layout": "",
        "folded": False,
    }
    return {"id": name, "title": title, **nothing, **content}


def _is_figure(section: Section) -> bool:
    """Return whether a section holds nothing but a figure."""
    return section.figure is not None and not (section.text or section.explanation or section.table or section.parts)


def _is_text(section: Section) -> bool:
    """Return whether a section holds nothing but text."""
    return bool(section.text) and not (section.table or section.parts) and section.figure is None


def _paragraphs(text: str) -> list[str]:
    """Split a text at empty lines."""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _chart(figure: Any, label: str, name: str) -> dict[str, Any]:
    """Prepare a Plotly figure: the page has templates of its own, and shows the title and the legend as HTML."""
    spec = json.loads(figure.to_json())
    layout = spec.get("layout", {})
    layout.pop("template", None)
    title = layout.get("title", {})
    title = title if isinstance(title, str) else title.get("text", "")
    width, height = layout.get("width"), layout.get("height")
    shaped = isinstance(width, int | float) and isinstance(height, int | float)
    size = f"aspect-ratio: {width:g} / {height:g}" if shaped else f"height: {height or _HEIGHT:g}px"
    return {
        "name": re.sub(r"[^A-Za-z0-9]+", "-", name or label).strip("-").lower() or "chart",
        "label": label,
        "title": _without_tags(title),
        "size": size,
        "spec": _json(json.dumps({"data": spec.get("data", []), "layout": layout}, ensure_ascii=False)),
    }


def _without_tags(text: str) -> str:
    """Return the text of one of Plotly's titles, which are a little HTML."""
    return html.unescape(re.sub(r"<[^<>]*>", " ", text)).strip()


def _table(rows: Sequence[Row], label: str) -> dict[str, Any]:
    """Prepare a table."""
    names = list(rows[0])
    shown = texts(rows)
    kinds = {name: _column_kind([row[name] for row in rows], [row[name] for row in shown]) for name in names}
    return {
        "label": label,
        "headed": any(str(name).strip() for name in names),
        "sortable": len(rows) > 1,
        "tall": len(rows) > _TALL,
        "columns": [{"name": str(name), "kind": kinds[name]} for name in names],
        "rows": [
            [_cell(row[name], line[name], str(name), kinds[name]) for name in names]
            for row, line in zip(rows, shown, strict=True)
        ],
        "csv": _json(json.dumps(csv_text(rows), ensure_ascii=False)),
        "count": f"{len(rows):,} row{'s' if len(rows) > 1 else ''}",
    }


def _cell(value: Any, shown: str | Measured, name: str, kind: str) -> dict[str, Any]:
    """Prepare a cell: its text, and the number to sort by."""
    number = value.mean if isinstance(value, Measured) else value if isinstance(value, int | float) else math.nan
    return {
        "kind": kind,
        "key": "" if math.isnan(number) else repr(float(number)).replace("inf", "Infinity"),
        "measured": shown if isinstance(shown, Measured) else None,
        "text": shown,
        "badge": badge(value) if name in _VERDICTS and isinstance(value, str) and value else None,
    }


def _column_kind(values: Sequence[Any], shown: Sequence[str | Measured]) -> str:
    """Return the CSS class of a column: numbers are right-aligned, long texts may wrap."""
    if all(isinstance(value, int | float | Measured | None) and not isinstance(value, bool) for value in values):
        return "number"
    return "long" if max(len(str(text)) for text in shown) > _LONG else "text"


def _settings(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tabulate settings: what is nested is spread over rows, so that no cell is a page long; numbers are exact."""
    return [{"setting": name, "value": value} for name, value in _spread(settings.items())]


def _spread(settings: Iterable[tuple[Any, Any]], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield settings with their names, those of inner settings after the name of the outer one."""
    for name, value in settings:
        path = f"{above} › {name}" if above else str(name)
        inner = _inner(value)
        if inner:
            yield from _spread(inner, path)
        else:
            yield path, _plain_setting(value)


def _inner(value: Any) -> list[tuple[Any, Any]]:
    """Return the inner settings of a value, if it has any that deserve rows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr]
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple) and len(str(value)) > 3 * _LONG:
        return list(enumerate(value, 1))
    if isinstance(value, str) and len(value) > 3 * _LONG and re.match(r"[A-Za-z_][\w.]*\(", value):
        return _arguments(value)
    return []


def _arguments(text: str) -> list[tuple[Any, Any]]:
    """Return the arguments of a call that is written as text, without running anything."""
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    if not isinstance(call, ast.Call):
        return []
    named = [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
    return [(name, _argument(value)) for name, value in [*enumerate(call.args, 1), *named]]


def _argument(value: ast.expr) -> Any:
    """Return an argument as a value if it is a literal, else as text."""
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return ast.unparse(value)


def _plain_setting(value: Any) -> str:
    """Format a setting that has no inner ones."""
    if isinstance(value, list | tuple):
        return ", ".join(_plain_setting(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain_setting(item)}" for name, item in value.items())
    return "none" if value is None else str(value)


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that are installed."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return {"Python": python, **library_versions(_LIBRARIES)}
