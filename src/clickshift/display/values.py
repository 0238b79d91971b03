"""One number of a table: how it is written; of a mean over seeds, how sure it is and how it stands beside others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clickshift.core.intervals import mean_interval

Standing = Literal["best", "=", ""]
"""The best of its column, not significantly worse than that, or neither."""


def decimal(value: float) -> str:
    """Four decimals, or a power of ten where all of them would be 0, as of small p-values; a dash for NaN.

    >>> decimal(0.25), decimal(2.7e-8), decimal(0.0), decimal(math.nan)
    ('0.2500', '3e-08', '0.0000', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.0e}" if 0 < abs(value) < 5e-5 else f"{value:.4f}"


@dataclass(frozen=True)
class Measured:
    """What a page shows in bold for the best, text shows with a star.

    >>> str(Measured(1.23456, 0.0006, standing="="))
    '=1.2346 ± .0006'
    >>> str(Measured(1.2, aside=True)), str(Measured(0.31, 0.02, digits=2, signed=True, standing="best"))
    ('(1.2000)', '*+0.31 ± .02')
    """

    mean: float
    half: float = math.nan
    """Half the width of the 95 % interval; NaN from one seed."""
    standing: Standing = ""
    dagger: bool = False
    """Not significantly worse than a model that peeks."""
    aside: bool = False
    """In brackets: shown, but not compared."""
    digits: int = 4
    signed: bool = False

    @property
    def number(self) -> str:
        if math.isnan(self.mean):
            return "–"
        return f"{self.mean:+.{self.digits}f}" if self.signed else f"{self.mean:.{self.digits}f}"

    @property
    def spread(self) -> str:
        """Such as "± .0006"; nothing where it is not known."""
        if math.isnan(self.half):
            return ""
        text = f"{self.half:.{self.digits}f}"
        return f"± {text[1:] if text.startswith('0.') else text}"

    def __str__(self) -> str:
        mark = {"best": "*", "=": "=", "": ""}[self.standing]
        text = f"{'†' * self.dagger}{mark}{self.number} {self.spread}".rstrip()
        return f"({text})" if self.aside else text


def measured(
    values: Sequence[float],
    *,
    standing: Standing = "",
    dagger: bool = False,
    aside: bool = False,
    digits: int = 4,
    signed: bool = False,
) -> Measured:
    """The mean of what the seeds gave, with its Student-t interval.

    >>> str(measured([1.0, 2.0, 3.0], digits=1))
    '2.0 ± 2.5'
    """
    if not values:
        return Measured(math.nan)
    mean, _, high = mean_interval(values)
    return Measured(mean, high - mean, standing, dagger, aside, digits, signed)
