"""What all conformance checks share: the error of a broken rule, and the largest deviation that chance explains."""

from __future__ import annotations

MAX_STANDARD_ERRORS = 5.5
"""Largest accepted deviation of a frequency, in standard errors: one false alarm in thirty million comparisons."""


def require(condition: object, rule: str) -> None:
    """Raise an AssertionError that names the rule unless the condition holds."""
    if not bool(condition):
        raise AssertionError(rule)
