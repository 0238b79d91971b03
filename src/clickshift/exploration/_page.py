"""The interactive page of an exploration: one file that opens without a network, or the page that a server sends.

Text from logs reaches the page in two ways only: escaped by the template, or as JSON in which `<` is escaped and from
which the scripts make text nodes. The content security policy names the digests of the scripts and the style sheet.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickshift._version import __version__
from clickshift.core.files import write_atomically
from clickshift.display.result import plain
from clickshift.display.values import decimal
from clickshift.display.verdicts import badge
from clickshift.exploration._conclusion import verdict_of
from clickshift.exploration._parameters import shared_parameters
from clickshift.models import model_name
from clickshift.models.observed_views import views_sentence

if TYPE_CHECKING:
    from clickshift.display.tables import Row
    from clickshift.exploration.explore import Exploration

__all__ = ["MAX_BYTES", "explore_page", "write_explore_page"]

MAX_BYTES = 5_000_000
"""Size of a written page; less frequent queries are left out beyond it."""
_SCRIPTS = ("models.js", "charts.js", "explain.js", "what_if.js", "explore.js")
_MEAN_EXAMINATION = "the mean probability, over the log, that a result was examined given the clicks above it"
_STATES = {
    "usable": "Relevance can be estimated",
    "weak": "Relevance is estimated weakly",
    "not identified": "Relevance is not identified",
}
_DATA = "\ue000data\ue001"
"""Place of the data in the page."""
_EXACT = {"parameters", "offline"}
"""Keys whose numbers are written in full, because predictions are computed from them."""
_OBSERVED = ("observed_examination", "observed_low", "observed_high")
"""Columns of the observed examination, in rows by rank of a log with views."""


def write_explore_page(path: str | Path, exploration: Exploration) -> None:
    """Write the page, which appears complete or not at all.

    Parameters
    ----------
    path
        The file.
    exploration
        The result to show.
    """
    page = explore_page(exploration, served=False)
    with write_atomically(path) as temporary:
        Path(temporary).write_bytes(page)


def explore_page(exploration: Exploration, *, served: bool) -> bytes:
    """Return the page.

    Parameters
    ----------
    exploration
        The result to show.
    served
        Whether a server answers the page's questions; otherwise the page holds the most frequent queries.

    Returns
    -------
    bytes
        HTML in UTF-8.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    data, state = _data(exploration, served), verdict_of(exploration.summary)
    folders = [PackageLoader("clickshift.exploration", "assets"), PackageLoader("clickshift.display")]
    environment = Environment(loader=ChoiceLoader(folders), autoescape=True, undefined=StrictUndefined)
    template = environment.get_template("explore.html")
    text = template.render(
        policy=content_security_policy(served=served),
        style=Markup(_style()),
        scripts=[Markup(_asset(name)) for name in _SCRIPTS],
        verdict=badge(state)._replace(text=_STATES[state]),
        name=exploration.name,
        conclusion=exploration.conclusion,
        data_line=exploration.data,
        model=model_name(exploration.model),
        has_examination=exploration.by_rank()[0]["examination"] is not None,
        has_observed=bool(exploration.curves.observed),
        json=_DATA,
        **_tables(exploration),
    )
    before, _, after = (part.encode("utf-8", "replace") for part in text.rpartition(_DATA))
    if served:
        return before + _json(data) + after
    return before + _with_queries(data, exploration, MAX_BYTES - len(before) - len(after)) + after


def content_security_policy(*, served: bool) -> str:
    """Return the content security policy of the page.

    Parameters
    ----------
    served
        Whether the page may ask the server that sent it.

    Returns
    -------
    str
        The policy: scripts and styles by their digests, and nothing from elsewhere.
    """
    scripts = " ".join(f"'{_digest(_asset(name))}'" for name in _SCRIPTS)
    connect = "'self'" if served else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src '{_digest(_style())}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@cache
def _asset(name: str) -> str:
    """Return the text of an asset."""
    return (files("clickshift.exploration") / "assets" / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    """Return the style sheet of all pages, and what this page adds."""
    return (files("clickshift.display") / "page.css").read_text(encoding="utf-8") + _asset("explore.css")


def _digest(text: str) -> str:
    """Return the digest of a script or style, as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(exploration: Exploration, served: bool) -> dict[str, Any]:
    """Return what the scripts need, without queries."""
    model, name = exploration.model, model_name(exploration.model)
    rows = [] if exploration.comparison is None else exploration.comparison.rows()
    factored = hasattr(model, "satisfaction") or not hasattr(model, "attractiveness")
    return {
        "served": served,
        "n_queries": len(exploration.explored.index.by_frequency),
        "model": {
            "label": name,
            "relevance": "relevance" if factored else "attractiveness",
            "offline": None if served else shared_parameters(model),
        },
        "by_rank": exploration.by_rank(),
        "groups": exploration.summary.swap_graph.component.tolist(),
        **({"segments": [one.facts() for one in exploration.curves.segments]} if exploration.curves.segments else {}),
        "comparison": [
            {
                "model": row["model"],
                "value": row["conditional_perplexity"],
                "error": row["conditional_perplexity_error"],
            }
            for row in rows
            if row["conditional_perplexity"] is not None
        ],
    }


def _with_queries(data: dict[str, Any], exploration: Exploration, limit: int) -> bytes:
    """Return the data with as many of the most frequent queries as fit."""
    start = _json(data)[:-1] + b',"queries":['
    room = limit - len(start) - 2
    texts: list[bytes] = []
    for facts in exploration.frequent_queries():
        text = _json(facts)
        room -= len(text) + 1
        if room < 0 and texts:
            break
        texts.append(text)
    return start + b",".join(texts) + b"]}"


def _json(value: Any) -> bytes:
    """Return a value as JSON that cannot end its script element."""
    text = json.dumps(_short(plain(value)), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace")


def _short(value: Any, exact: bool = False) -> Any:
    """Round numbers that are only shown to seven digits."""
    if type(value) is float:
        return value if exact else float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _short(part, exact or key in _EXACT) for key, part in value.items()}
    return [_short(part, exact) for part in value] if isinstance(value, list) else value


def _tables(exploration: Exploration) -> dict[str, Any]:
    """Return the tables and texts that the page shows without scripts."""
    summary, name = exploration.summary, model_name(exploration.model)
    compared = [] if exploration.comparison is None else exploration.comparison.rows()
    sizes = {
        "sessions": f"{summary.sessions:,}",
        "queries": f"{summary.queries:,}",
        "documents": f"{summary.documents:,}",
        "query–document pairs": f"{summary.pairs:,}",
        "mean length of a list": f"{summary.mean_list_length:.2f}",
        "clicks per session": f"{summary.clicks_per_session:.3f}",
        "sessions without a click": f"{summary.sessions_without_click:.1%}",
        "different lists": f"{summary.distinct_lists:,}",
        "pairs seen at several ranks": f"{summary.pairs_seen_at_several_ranks:.1%}",
        "weakest link between ranks": f"{summary.swap_graph.weakest_link:,.0f} effective swaps",
        "time": "–" if summary.time is None else " to ".join(summary.time),
        "users": "–" if summary.users is None else f"{summary.users:,}",
        **({} if summary.columns is None else summary.columns.sizes(summary.sessions)),
    }
    text = summary.identifiability
    how = "its parameter" if name == "PBM" else f"{_MEAN_EXAMINATION}; it has no interval"
    own = any(row["model"] == name for row in compared)
    used = f"The square is {name}, which this page uses." if own else f"This page uses {name}, which is not among them."
    best = next((row["model"] for row in compared if row["conditional_perplexity"] is not None), name)
    if best != name:
        used += f" To use another: clickshift fit {best} LOG -o model, then clickshift explore LOG --model model."
    has_examination = exploration.by_rank()[0]["examination"] is not None
    return {
        "models": [_model_row(row) for row in compared],
        "models_text": "Conditional perplexity of held-out sessions with 95 % intervals: lower is better, 1 is best. "
        + used,
        "identifiability": f"{text[0].upper()}{text[1:].removesuffix('.')}.",
        "sizes": [{"": key, " ": value} for key, value in sizes.items()],
        "by_rank": [_rank_row(row) for row in exploration.by_rank()],
        "examination_text": f"Examination of {name} is {how}." if has_examination else f"{name} has no examination.",
        "views": views_sentence(exploration.model) if exploration.curves.observed else "",
        "segments": [
            {"name": one.name, "sentence": one.sentence, "rows": [_label_row(row) for row in one.rows()]}
            for one in exploration.curves.segments
        ],
        "settings": [
            {"": key, " ": str(value)} for key, value in {**exploration.settings, "clickshift": __version__}.items()
        ],
    }


def _model_row(row: Row) -> dict[str, str]:
    """Return a row of the table of models."""
    value = row["conditional_perplexity"]
    if value is None:
        return {"model": row["model"], "perplexity": "failed", "± 95 %": "", "marginal perplexity": str(row["error"])}
    return {
        "model": row["model"],
        "perplexity": decimal(value),
        "± 95 %": decimal(1.96 * row["conditional_perplexity_error"]),
        "marginal perplexity": decimal(row["marginal_perplexity"]),
    }


def _rank_row(row: Row) -> dict[str, str]:
    """Return a row of the table of ranks."""
    return {
        "rank": str(row["rank"]),
        "impressions": f"{row['impressions']:,.0f}",
        "clicks": f"{row['clicks']:,.0f}",
        "click-through rate": _estimate(row, "ctr", "low", "high"),
        "examination": _estimate(row, "examination", "examination_low", "examination_high"),
        **({"observed": _estimate(row, *_OBSERVED)} if _OBSERVED[0] in row else {}),
    }


def _label_row(row: Row) -> dict[str, str]:
    """Return a row of the table of a segment."""
    names = {"segment": "label", "rank": "rank", "impressions": "impressions", "clicks": "clicks"}
    shown = {text: f"{row[name]:,}" if name != "segment" else row[name] for name, text in names.items()}
    return shown | {"click-through rate": _estimate(row, "ctr", "low", "high")}


def _estimate(row: Row, value: str, low: str, high: str) -> str:
    """Return an estimate with its interval."""
    if row[value] is None:
        return "–"
    return decimal(row[value]) + (f" [{decimal(row[low])}, {decimal(row[high])}]" if row[low] is not None else "")
