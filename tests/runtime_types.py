"""Check the types and shapes of arguments and results while tests run, at a cost that the suite can afford.

jaxtyping's import hook (`--jaxtyping-packages` in pyproject.toml) decorates every function of the package with
`jaxtyping.jaxtyped`, which compiles two functions for each function that it decorates. Here that name is replaced:

- a function is decorated when it is first called;
- beartype checks arguments and result in one call, with shapes compared in a context of that call (jaxtyping checks the
  arguments twice, and first binds them to the function's signature, for dimensions that depend on values: the package
  has none); a function without array annotations has no shapes to compare, and needs no context;
- a function that is defined inside another one is checked the first time that it is defined, not at every call of the
  outer function;
- shapes are compared in the first `CALLS` calls from each place of the code in each test (`start_test`): a loop of
  Newton steps calls the same functions with the same shapes thousands of times;
- types are checked in the first `MOST` calls of a function in each test.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import is_dataclass
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import jaxtyping
from jaxtyping._storage import pop_shape_memo, push_shape_memo

CALLS = 2
"""Number of calls from each place of the code, in each test, in which shapes are compared."""

MOST = 200
"""Number of calls of a function, in each test, that are checked at all."""

_with_shapes = jaxtyping.jaxtyped
_checked: set[CodeType] = set()
_resolved: dict[tuple[int, str], Any] = {}
_test = 0
_lock = threading.Lock()


def start_test() -> None:
    """Compare the shapes of all functions again."""
    global _test
    _test += 1


def _hint(annotation: Any, namespace: dict[str, Any]) -> Any:
    """Resolve an annotation; one that cannot be resolved at run time is not checked, as in jaxtyping."""
    if not isinstance(annotation, str):
        return annotation
    key = id(namespace), annotation
    if key not in _resolved:
        try:
            annotated = SimpleNamespace(__annotations__={"value": annotation})
            _resolved[key] = get_type_hints(annotated, namespace, include_extras=True)["value"]
        except Exception:
            _resolved[key] = Any
    return _resolved[key]


def _names_array(hint: Any) -> bool:
    return (inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)) or any(
        map(_names_array, get_args(hint))
    )


def _decorate(fn: FunctionType, typechecker: Callable[[Any], Any]) -> tuple[Callable[..., Any], bool]:
    """Decorate a function with as little as its annotations need; whether its shapes are compared."""
    with _lock:
        written = fn.__annotations__
        hints = {name: _hint(annotation, fn.__globals__) for name, annotation in written.items()}
        has_shapes = any(map(_names_array, hints.values()))
        if has_shapes and inspect.isgeneratorfunction(fn):  # beartype would wait for the first value
            return _with_shapes(fn, typechecker=typechecker), True
        fn.__annotations__ = hints
        try:
            return typechecker(fn), has_shapes
        finally:
            fn.__annotations__ = written


def _checked_when_called(plain: FunctionType, typechecker: Callable[[Any], Any]) -> Callable[..., Any]:
    """Check a function when it is called; decorating it costs a millisecond, and many are not called in a run."""
    places: dict[tuple[int, int], int] = {}
    seen, calls, has_shapes = -1, 0, False
    decorated: Callable[..., Any] | None = None

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen, calls, decorated, has_shapes
        __tracebackhide__ = True
        if seen != _test:
            seen, calls = _test, 0
            places.clear()
        calls += 1
        if calls > MOST:
            return plain(*args, **kwargs)
        if decorated is None:  # nothing to check leaves the function as it is: beartype returns the same one
            decorated, has_shapes = _decorate(plain, typechecker)
        if not has_shapes:
            return decorated(*args, **kwargs)
        caller = sys._getframe(1)
        place = id(caller.f_code), caller.f_lasti
        places[place] = places.get(place, 0) + 1
        if places[place] > CALLS:
            return plain(*args, **kwargs)
        push_shape_memo({})
        try:
            return decorated(*args, **kwargs)
        finally:
            pop_shape_memo()

    return call


def checked(fn: Any, *, typechecker: Callable[[Any], Any]) -> Any:
    """Check the calls of a function, or of the constructor of a dataclass."""
    if isinstance(fn, FunctionType):
        code = fn.__code__
        if code in _checked or not fn.__annotations__:
            return fn
        if "<locals>" in fn.__qualname__:
            _checked.add(code)
        return _checked_when_called(fn, typechecker)
    if inspect.isclass(fn) and is_dataclass(fn):
        init = vars(fn).get("__init__")
        if isinstance(init, FunctionType) and not hasattr(init, "__wrapped__"):
            fn.__init__ = checked(init, typechecker=typechecker)
        return fn
    return _with_shapes(fn, typechecker=typechecker)


def jaxtyped(fn: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """Stand in for `jaxtyping.jaxtyped` in the code that its import hook writes."""
    return checked(fn, typechecker=typechecker) if fn is not None else lambda fn: checked(fn, typechecker=typechecker)


jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]
