"""Checks of errors and warnings by their codes and facts, which are stable, and not by their wording."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from clickshift.errors import ClickshiftError, ClickshiftWarning


@contextmanager
def raises_code(
    code: str, kind: type[ClickshiftError] = ClickshiftError, **facts: Any
) -> Iterator[pytest.ExceptionInfo[ClickshiftError]]:
    """Expect an error with this code, of this class, whose facts (or attributes, e.g. `line`) have these values."""
    with pytest.raises(kind) as caught:
        yield caught
    _check(caught.value, code, facts)


@contextmanager
def warns_code(code: str, **facts: Any) -> Iterator[None]:
    """Expect exactly one clickshift warning, with this code and these facts; other warnings remain errors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", ClickshiftWarning)
        yield
    ours = [warning.message for warning in caught if isinstance(warning.message, ClickshiftWarning)]
    assert len(ours) == 1, f"expected one warning {code!r}: got {[str(warning) for warning in ours]}"
    _check(ours[0], code, facts)


def warns_of_conflicting_labels(
    query: str, document: str, labels: tuple[float, float], *, total: int, left_out: int = 1
) -> AbstractContextManager[None]:
    """Expect the warning that pairs with two labels are left out, of which one is named."""
    return warns_code(
        "skipped-input",
        bad_lines=0,
        left_out={"conflicting-labels": left_out},
        total=total,
        query=query,
        document=document,
        labels=labels,
    )


def _check(raised: ClickshiftError | ClickshiftWarning, code: str, facts: dict[str, Any]) -> None:
    assert raised.code == code, f"expected {code!r}: got {raised.code!r}, {raised}"
    for name, value in facts.items():
        actual = raised.facts[name] if name in raised.facts else getattr(raised, name)
        assert actual == value, f"{name} must be {value!r}: got {actual!r}, {raised}"
