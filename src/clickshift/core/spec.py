"""Text <-> object: "PlackettLuce(Oracle, temperature=0.1)" is code, command-line argument, label and cache key.

The text is read with Python's own parser, but never evaluated: names are looked up in a registry, and everything else
must be a literal.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from clickshift.errors import SpecError

Registry = Mapping[str, str]
"""Name -> "module:attribute", imported when it is first used."""


def resolve(name: str, registry: Registry) -> Any:
    """The object behind a registered name."""
    if name not in registry:
        raise SpecError(f"{name!r} is not known. Choose one of: {', '.join(registry)}.")
    module, _, attribute = registry[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def parse(text: str, registry: Registry) -> Any:
    """Make the object that a text describes; a bare name is called without arguments.

    >>> from clickshift.simulation.users import USERS
    >>> parse("DBN(satisfaction=0.5)", USERS)
    DBN(attractiveness=0.95, satisfaction=0.5, continuation=0.9, floor=0.02)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise SpecError(
            f'{text!r} is not readable. Write a name with options, such as "DBN(satisfaction=0.5)".'
        ) from None
    return _build(tree, registry, text)


def _build(node: ast.expr, registry: Registry, text: str) -> Any:
    if isinstance(node, ast.Name):
        return _call(resolve(node.id, registry), node.id, [], {}, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = [_build(argument, registry, text) for argument in node.args]
        options = {k.arg: _build(k.value, registry, text) for k in node.keywords if k.arg is not None}
        if len(options) < len(node.keywords):
            raise SpecError(f"{text!r}: ** cannot be used here. Write each option as name=value.")
        return _call(resolve(node.func.id, registry), node.func.id, arguments, options, text)
    if isinstance(node, ast.Tuple):
        return tuple(_build(item, registry, text) for item in node.elts)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise SpecError(
            f"{text!r}: {ast.unparse(node)!r} is neither a registered name nor a literal. "
            f"Names are: {', '.join(registry)}."
        ) from None


def _call(maker: Any, name: str, arguments: list[Any], options: dict[str, Any], text: str) -> Any:
    try:
        return maker(*arguments, **options)
    except TypeError as error:
        known = [f.name for f in dataclasses.fields(maker)] if dataclasses.is_dataclass(maker) else []
        hint = f" Its options are: {', '.join(known)}." if known else ""
        raise SpecError(f"{text!r}: {name} cannot be made this way: {error}.{hint}") from None


def label(value: Any) -> str:
    """The shortest text that makes this object again: options that have their default are left out."""
    return _write(value, short=True)


def key(value: Any) -> str:
    """The full text, every field spelled out: a changed default changes the key, so old results are not reused."""
    return _write(value, short=False)


def _write(value: Any, *, short: bool) -> str:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        if isinstance(value, tuple):
            inner = ", ".join(_write(item, short=short) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return repr(value)
    parts = []
    required = True
    for field in dataclasses.fields(value):
        if not field.repr:
            continue
        here = getattr(value, field.name)
        has_default = field.default is not dataclasses.MISSING
        required = required and not has_default
        if short and has_default and here == field.default:
            continue
        written = _write(here, short=short)
        parts.append(written if short and required else f"{field.name}={written}")
    name = type(value).__name__
    return f"{name}({', '.join(parts)})" if parts or not short else name
