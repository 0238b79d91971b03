"""Options of reading events, checked once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clickshift.data._columns import ARM, TABLE_COLUMNS, VIEWED
from clickshift.errors import SpecError

CLICK_TYPES = ("click", "clicked", "item_click", "product_click", "result_click", "select_item", "list_click")
"""Types of events that are clicks, unless others are given."""
CONVERSION_TYPES = ("add_to_cart", "purchase", "buy", "order", "conversion", "transaction", "cart")
"""Types of events that are conversions, unless others are given."""
IMPRESSION_TYPES = ("impression", "impressions", "view", "viewed", "show", "shown", "exposure", "view_item_list")
"""Types of events that are impressions, in generic tables of events."""

_CHOICES: dict[str, tuple[Any, ...]] = {
    "impression": ("first", "last"),
    "gaps": ("keep", "truncate", "close", "drop"),
    "shown": ("impressions", "hits"),
    "rank_base": (None, 0, 1),
}
_NORMALISATIONS = ("lower", "strip")
_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_WINDOW = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*")
_MAX_PAGE_SIZE = 10_000


@dataclass(frozen=True)
class EventOptions:
    """Options of reading events; `read_events` describes them.

    Raises
    ------
    SpecError
        "bad-option" for an option that is not one of its choices.

    Examples
    --------
    >>> EventOptions(window="30min").window_seconds
    1800.0
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    click_types: Sequence[str] | None = None
    impression_types: Sequence[str] | None = None
    conversion_types: Sequence[str] | None = None
    window: str | float | None = None
    impression: str = "first"
    rank_base: int | None = None
    page_size: int | None = None
    gaps: str = "keep"
    shown: str = "impressions"
    application: Sequence[str] | None = None
    normalise: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices or isinstance(value, bool):
                known = " or ".join(
                    f'"{choice}"' if isinstance(choice, str) else str(choice)
                    for choice in choices
                    if choice is not None
                )
                raise _bad_option(name, value, f"must be {known}")
        if unknown := [name for name in self.normalise if name not in _NORMALISATIONS]:
            raise _bad_option("normalise", unknown[0], "must be lower, strip, or both")
        if self.page_size is not None and not 1 <= self.page_size <= _MAX_PAGE_SIZE:
            raise _bad_option("page_size", self.page_size, f"must be from 1 to {_MAX_PAGE_SIZE:,}")
        for name in ("click_types", "impression_types", "conversion_types", "application"):
            if (value := getattr(self, name)) is not None and (isinstance(value, str) or not value or "" in value):
                raise _bad_option(name, value, "must be one text or more, as a list")
        if both := sorted({*self.clicks} & {*self.conversions}):
            raise _bad_option("conversion_types", both[0], "must not be one of click_types, too")
        if both := sorted({*self.impressions} & {*self.clicks, *self.conversions}):
            raise _bad_option("impression_types", both[0], "must not be types of clicks or conversions, too")
        for name in self.conversions:
            if not name.isprintable() or [other.lower() for other in self.conversions].count(name.lower()) > 1:
                raise _bad_option("conversion_types", name, "must be different texts, also in lower case")
        self.window_seconds  # noqa: B018 - checks it

    @property
    def clicks(self) -> tuple[str, ...]:
        """Types of events that are clicks."""
        if self.click_types is not None:
            return tuple(self.click_types)
        return tuple(name for name in CLICK_TYPES if name not in (self.conversion_types or ()))

    @property
    def impressions(self) -> tuple[str, ...]:
        """Types of events that are impressions."""
        if self.impression_types is not None:
            return tuple(self.impression_types)
        return tuple(name for name in IMPRESSION_TYPES if name not in (self.click_types or ()))

    @property
    def conversions(self) -> tuple[str, ...]:
        """Types of events that are conversions."""
        if self.conversion_types is not None:
            return tuple(self.conversion_types)
        return tuple(name for name in CONVERSION_TYPES if name not in (self.click_types or ()))

    @property
    def window_seconds(self) -> float | None:
        """Window in seconds; None for none."""
        if self.window is None:
            return None
        match = _WINDOW.fullmatch(str(self.window).lower())
        unit = _UNITS.get(match[2] or "s") if match else None
        if match is None or unit is None or float(match[1]) <= 0:
            raise _bad_option("window", self.window, 'must be a time above 0, such as "30min", "1h" or 90 seconds')
        return float(match[1]) * unit


def signal_names(types: Sequence[str]) -> tuple[str, ...]:
    """Return the names of signals of types of events; one that another column of a log has gets an ending.

    Examples
    --------
    >>> signal_names(["purchase", "click"])
    ('purchase', 'click_event')
    """
    taken = {*TABLE_COLUMNS, ARM, VIEWED, "device"}
    return tuple(f"{name}_event" if name.lower() in taken else name for name in types)


def _bad_option(name: str, value: object, rule: str) -> SpecError:
    """Return the error of an option."""
    return SpecError(f"{name} {rule}: got {value!r}.", code="bad-option", option=name, value=value)
