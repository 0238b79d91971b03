"""One self-contained HTML page: it opens without a network, and shows text from logs as text."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clickshift.errors import FileError
from clickshift.files import write_atomically
from clickshift.report.tables import Row

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #d9dee4; text-align: left; }
.number { text-align: right; }
.note { color: #52606d; }
"""


@dataclass(frozen=True)
class Section:
    """A heading with any of: words, a table (rows with equal keys), a Plotly figure."""

    title: str
    text: str = ""
    table: Sequence[Row] = ()
    figure: Any = None


def check_page(path: str | Path) -> None:
    """Whether a page can have this name: ask before the work that it is to show."""
    path = Path(path)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise FileError(path, "the ending of a page must be .html. Choose such a name.")
    if path.is_dir():
        raise FileError(path, "is a folder, where a page is to be written. Name a file in it.")


def write_report(path: str | Path, *, title: str, sections: Sequence[Section], settings: Mapping[str, Any]) -> None:
    """Write the page, whole or not at all."""
    from plotly.offline import get_plotlyjs

    body = [f"<h1>{html.escape(title)}</h1>"]
    for number, section in enumerate(sections):
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        if section.text:
            body.append(f"<p>{html.escape(section.text)}</p>")
        if section.table:
            body.append(_table(section.table))
        if section.figure is not None:
            settings_ = {"responsive": True, "displaylogo": False}
            part = section.figure.to_html(
                full_html=False, include_plotlyjs=False, div_id=f"figure-{number}", config=settings_
            )
            body.append(f"<div class='scroll'>{part}</div>")
    facts = [{"setting": name, "value": value} for name, value in settings.items()]
    body.append(f"<h2>Settings</h2>{_table(facts)}")
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body>{''.join(body)}</body></html>"
    )
    with write_atomically(path) as temporary:
        Path(temporary).write_text(page, encoding="utf-8")


def _table(rows: Sequence[Row]) -> str:
    kinds = {
        name: " class='number'" if all(isinstance(row[name], int | float | None) for row in rows) else ""
        for name in rows[0]
    }
    head = "".join(f"<th{kind}>{html.escape(str(name))}</th>" for name, kind in kinds.items())
    body = ""
    for row in rows:
        cells = "".join(f"<td{kind}>{html.escape(_text(row[name]))}</td>" for name, kind in kinds.items())
        body += f"<tr>{cells}</tr>"
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:.4f}"
    return "" if value is None else str(value)
