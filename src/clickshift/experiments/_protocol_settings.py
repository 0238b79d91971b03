"""The settings of a run as a reader wants them: the fields of the protocol one by one, instead of its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from clickshift.core.text import join_words
from clickshift.display.tables import Row
from clickshift.simulation.search_engine import BUILTIN, IND

_PARTS = {"world", "data"}
"""Fields of a protocol whose own fields are shown under their own names."""
_NO_NAME = (None, "", IND)
_HIDDEN = {"content", "name", "role"}
"""Fields that only tell files and tasks apart."""


def shown_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the text of the protocol in the settings of a run by its fields.

    Parameters
    ----------
    settings
        What `start_run` wrote; settings without a protocol stay as they are.

    Returns
    -------
    dict
        Values by name, in the order of the protocol; then the other settings that have a value.

    Examples
    --------
    >>> shown_settings({"protocol": "PolicyShift(users=(('DBN', 'DBN(floor=0.1)'),), seeds=3)", "python": "3.11"})
    {'users': 'DBN: DBN(floor=0.1)', 'seeds': '3', 'python': '3.11'}
    """
    text = settings.get("protocol")
    others = {name: value for name, value in settings.items() if name != "protocol" and value not in (None, [], {})}
    fields = protocol_fields(text) if isinstance(text, str) else {}
    return {name: value for name, value in fields.items() if name not in others} | others


def protocol_fields(text: str) -> dict[str, str]:
    """Return the fields of the text of a protocol, as texts by name; nested ones follow their field.

    Parameters
    ----------
    text
        What `core.spec.key` returns. It is parsed as an expression and never evaluated.

    Returns
    -------
    dict
        Empty if the text is not that of a dataclass.
    """
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return dict(_fields(node)) if isinstance(node, ast.Call) else {}


def simulated_data_line(rows: Sequence[Row], settings: Mapping[str, Any]) -> str:
    """Return what simulated logs were, in one line: their size, users, rankers and seeds.

    Parameters
    ----------
    rows
        Rows with `user`, `training`, `testing` and `seed`.
    settings
        Settings of the run, as `start_run` wrote them.

    Returns
    -------
    str
        A sentence; empty if the rows name no ranker of a test log.
    """
    named = [
        [str(name) for name in dict.fromkeys(row.get(column) for row in rows) if name not in _NO_NAME]
        for column in ("user", "training", "testing")
    ]
    if not all(named):
        return ""
    users, training, testing = map(join_words, named)
    fields, seeds = protocol_fields(str(settings.get("protocol", ""))), len({row.get("seed", 0) for row in rows})
    size = f"{fields['sessions']} simulated sessions of {fields['queries']} queries" if "queries" in fields else ""
    corpus = "built-in corpus" if settings.get("corpus", BUILTIN) == BUILTIN else settings["corpus"]
    return (
        f"{size or 'Simulated sessions'} per log ({corpus}), {users} users, {seeds} {'seed' if seeds == 1 else 'seeds'}"
        f"; trained on lists of {training}, tested on those of {testing}."
    )


def few_seeds_note(seeds: int, name: str = "seed") -> str:
    """Say what one or two seeds cannot tell; empty for more.

    Parameters
    ----------
    seeds
        Number of seeds.
    name
        What they are called.

    Returns
    -------
    str
        A sentence.

    Examples
    --------
    >>> few_seeds_note(2, "run"), few_seeds_note(3)
    ('With two runs, intervals of means over them are very wide.', '')
    """
    notes = {
        1: f"With one {name}, which differences between models are chance is not known.",
        2: f"With two {name}s, intervals of means over them are very wide.",
    }
    return notes.get(seeds, "")


def _fields(call: ast.Call, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a call as name and text."""
    for keyword in call.keywords:
        name, value = str(keyword.arg).replace("_", " "), keyword.value
        if keyword.arg in _HIDDEN:
            continue
        if isinstance(value, ast.Call):
            yield from _fields(value, "" if keyword.arg in _PARTS else f"{name}: ")
        elif keyword.arg == "contenders":
            yield from _models(value)
        elif text := _text(value):
            yield f"{prefix}{name}", text


def _models(contenders: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the compared models by role, each with its learner."""
    by_role: dict[str, list[str]] = {}
    for one in getattr(contenders, "elts", []):
        about = {keyword.arg: _text(keyword.value) for keyword in getattr(one, "keywords", [])}
        by_role.setdefault(about.get("role", "model"), []).append(
            _named(about.get("name", ""), about.get("learner", ""))
        )
    for role, names in by_role.items():
        yield f"{role}s" if len(names) > 1 else role, ", ".join(names)


def _text(node: ast.expr) -> str:
    """Return a value as text; empty for None and for an empty tuple."""
    if isinstance(node, ast.Constant):
        value = node.value
        if value is None or isinstance(value, bool):
            return {None: "", True: "yes", False: "no"}[value]
        return f"{value:,}" if isinstance(value, int) else str(value)
    if isinstance(node, ast.Tuple):
        return ", ".join(_named(*map(_text, e.elts)) if _is_pair(e) else _text(e) for e in node.elts)
    return ast.unparse(node)


def _is_pair(node: ast.expr) -> TypeGuard[ast.Tuple]:
    """Return whether a member of a tuple is a name with its text."""
    return (
        isinstance(node, ast.Tuple)
        and len(node.elts) == 2
        and all(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in node.elts)
    )


def _named(name: str, text: str) -> str:
    """Return a name with its text, where the text says more than the name."""
    return name if text in {"", name} else f"{name}: {text}"
