"""Specification texts: "PlackettLuce(Oracle, temperature=0.1)" as code, command-line argument, label and cache key.

A text is read with Python's own parser but never evaluated: names are looked up in a registry, and everything else must
be a literal.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from clickshift.errors import ClickshiftError, SpecError

Registry = Mapping[str, str]
"""Mapping of names to "module:attribute", which is imported when first used."""
ADDED_LATER = {"added_later": True}
"""Metadata of a dataclass field that older texts lack: `key` leaves out its default, so that their digests stay."""


def resolve(name: str, registry: Registry) -> Any:
    """Return the object of a registered name.

    Parameters
    ----------
    name
        Registered name.
    registry
        Mapping of names to "module:attribute".

    Raises
    ------
    SpecError
        If the name is not registered ("unknown-name").
    """
    if name not in registry:
        raise SpecError(
            f"{name!r} is not known. Choose one of: {', '.join(registry)}.",
            code="unknown-name",
            value=name,
            known=list(registry),
        )
    module, _, attribute = registry[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def parse(text: str, registry: Registry) -> Any:
    """Build the object that a text describes; a bare name is called without arguments.

    Parameters
    ----------
    text
        Specification text.
    registry
        Mapping of names to "module:attribute".

    Raises
    ------
    SpecError
        If the text cannot be parsed ("unreadable-spec"), has an unknown name ("unknown-name") or an expression that is
        not a literal ("not-a-literal"), or has options that the object does not take ("bad-option").

    Examples
    --------
    >>> from clickshift.simulation.users import USERS
    >>> parse("DBN(satisfaction=0.5)", USERS)
    DBN(attractiveness=0.95, satisfaction=0.5, continuation=0.9, floor=0.02)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise SpecError(
            f'{text!r} cannot be parsed. Write a name with options, such as "DBN(satisfaction=0.5)".',
            code="unreadable-spec",
            value=text,
        ) from None
    value = _build(tree, registry, text)
    if not isinstance(tree, ast.Name | ast.Call):
        raise SpecError(
            f"{text!r} is not the name of an object. Choose one of: {', '.join(registry)}.",
            code="unreadable-spec",
            value=text,
        )
    return value


def _build(node: ast.expr, registry: Registry, text: str) -> Any:
    """Build the object of a syntax node; `text` is the whole text, for error messages."""
    if isinstance(node, ast.Name):
        return _call(resolve(node.id, registry), node.id, [], {}, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = [_build(argument, registry, text) for argument in node.args]
        options = {k.arg: _build(k.value, registry, text) for k in node.keywords if k.arg is not None}
        if len(options) < len(node.keywords):
            raise SpecError(
                f"{text!r}: ** cannot be used here. Write each option as name=value.", code="bad-option", value=text
            )
        return _call(resolve(node.func.id, registry), node.func.id, arguments, options, text)
    if isinstance(node, ast.Tuple):
        return tuple(_build(item, registry, text) for item in node.elts)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        part = _source(node, text)
        raise SpecError(
            f"{text!r}: {part!r} is neither a registered name nor a literal. Names are: {', '.join(registry)}.",
            code="not-a-literal",
            value=part,
            known=list(registry),
        ) from None


def _source(node: ast.expr, text: str) -> str:
    """Return the text of a syntax node; the whole text if the node is too deep for Python to write."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return text


def _call(factory: Any, name: str, arguments: list[Any], options: dict[str, Any], text: str) -> Any:
    """Call a class or function with the options of a text; list the known options if it does not take them."""
    try:
        value = factory(*arguments, **options)
        if dataclasses.is_dataclass(value):
            check_options(value)
        return value
    except ClickshiftError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        known = [f.name for f in dataclasses.fields(factory)] if dataclasses.is_dataclass(factory) else []
        hint = f" Its options are: {', '.join(known)}." if known else ""
        raise SpecError(
            f"{text!r}: {name} does not accept these options: {error}.{hint}",
            code="bad-option",
            value=text,
            known=known,
        ) from None


def check_options(value: Any) -> None:
    """Check that the fields of a dataclass have the types that they are declared with, and that no number is NaN.

    A list in a field that is declared as a tuple becomes a tuple.

    Parameters
    ----------
    value
        A dataclass; fields of other types than numbers, texts and tuples of them are not checked.

    Raises
    ------
    SpecError
        "bad-option" for a value of another type.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Options:
    ...     starts: int = 1
    >>> check_options(Options(1.5))
    Traceback (most recent call last):
        ...
    clickshift.errors.SpecError: starts of Options must be of type int: got 1.5.
    """
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        declared = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
        kinds = [kind.strip() for kind in declared.split("|")]
        if isinstance(found, list) and any(kind.startswith("tuple[") for kind in kinds):
            found = tuple(found)
            object.__setattr__(value, field.name, found)
        if not any(_is_of(found, kind) for kind in kinds):
            raise SpecError(
                f"{field.name} of {type(value).__name__} must be of type {declared}: got {found!r}.",
                code="bad-option",
                option=field.name,
                value=found,
            )


_TYPES: dict[str, type | tuple[type, ...]] = {"int": Integral, "float": Real, "str": str, "bool": bool}


def _is_of(value: Any, kind: str) -> bool:
    """Return whether a value is of a type by its name; True for types that are not checked."""
    if kind == "None":
        return value is None
    if match := re.fullmatch(r"tuple\[(\w+)(?:, (?:\1|\.\.\.))*\]", kind):
        length = None if kind.endswith("...]") else kind.count(match[1])
        return isinstance(value, tuple) and length in {None, len(value)} and all(_is_of(v, match[1]) for v in value)
    if kind.startswith("list["):
        return False  # a list became a tuple, which is another of the kinds
    if kind not in _TYPES:
        return True
    if isinstance(value, bool) and kind != "bool":
        return False
    return isinstance(value, _TYPES[kind]) and (kind != "float" or value == value)  # NaN differs from itself


def label(value: Any) -> str:
    """Return the shortest text from which `parse` builds the object: options with their default are left out.

    Parameters
    ----------
    value
        A dataclass, a tuple or a literal.

    Examples
    --------
    >>> from clickshift.simulation.users import DBN
    >>> label(DBN(satisfaction=0.5))
    'DBN(satisfaction=0.5)'
    """
    return _format(value, short=True)


def key(value: Any) -> str:
    """Return the full text with every field: a changed default changes the key, so old results are not reused.

    The default of a field with the metadata `ADDED_LATER` is left out.

    Parameters
    ----------
    value
        A dataclass, a tuple or a literal.

    Examples
    --------
    >>> from clickshift.simulation.users import DBN
    >>> key(DBN(satisfaction=0.5))
    'DBN(attractiveness=0.95, satisfaction=0.5, continuation=0.9, floor=0.02)'
    """
    return _format(value, short=False)


def _format(value: Any, *, short: bool) -> str:
    """Return the text of a value; `short` leaves out default values and the names of required fields."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        if isinstance(value, tuple):
            inner = ", ".join(_format(item, short=short) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return repr(value)
    parts = []
    required = True
    for field in dataclasses.fields(value):
        if not field.repr:
            continue
        field_value = getattr(value, field.name)
        has_default = field.default is not dataclasses.MISSING
        required = required and not has_default
        if (short or "added_later" in field.metadata) and has_default and field_value == field.default:
            continue
        text = _format(field_value, short=short)
        parts.append(text if short and required else f"{field.name}={text}")
    name = type(value).__name__
    return f"{name}({', '.join(parts)})" if parts or not short else name
