"""Numbers of a table: how they are formatted, and means over seeds with their interval and comparison marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clickshift.core.intervals import mean_interval

Standing = Literal["best", "=", ""]
"""Comparison with the other values of a column: the best, not significantly worse than the best, or neither."""


def decimal(value: float) -> str:
    """Format a number with four decimals, or as a power of ten if all of them would be 0; a dash for NaN.

    Examples
    --------
    >>> decimal(0.25), decimal(2.7e-8), decimal(0.0), decimal(math.nan)
    ('0.2500', '3e-08', '0.0000', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.0e}" if 0 < abs(value) < 5e-5 else f"{value:.4f}"


def decimals(half: float) -> int:
    """Return the number of decimals that a half-width allows: those of its first two digits.

    Parameters
    ----------
    half
        Half the width of an interval, above zero.

    Returns
    -------
    int
        Zero or more.

    Examples
    --------
    >>> decimals(0.014), decimals(0.2), decimals(35.0)
    (3, 2, 0)
    """
    return max(0, 1 - math.floor(math.log10(half)))


def with_interval(value: float, low: float, high: float, *, signed: bool = False) -> str:
    """Format a value and its interval with the digits that the interval allows.

    Parameters
    ----------
    value
        The value; NaN is a dash.
    low, high
        Ends of the interval; NaN if there is none, and the value then has four decimals.
    signed
        Whether positive numbers have a plus sign.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> with_interval(0.51234, 0.4987, 0.5261), with_interval(0.5, 0.4, 0.6, signed=True)
    ('0.512 [0.499, 0.526]', '+0.50 [+0.40, +0.60]')
    >>> with_interval(0.5, math.nan, math.nan), with_interval(math.nan, 0.0, 1.0)
    ('0.5000', '–')
    """
    if math.isnan(value):
        return "–"
    sign, half = "+" if signed else "", (high - low) / 2
    if math.isnan(half):
        return f"{value:{sign},.4f}"
    digits = decimals(half) if half > 0 and math.isfinite(half) else 4
    digits = digits if digits <= 6 else 4  # what is nothing in effect
    return f"{value:{sign},.{digits}f} [{low:{sign},.{digits}f}, {high:{sign},.{digits}f}]"


def percents(value: float, low: float, high: float, *, signed: bool = True) -> tuple[str, str, str]:
    """Format a share and its interval in percent, with the digits that the interval allows.

    Parameters
    ----------
    value
        The share.
    low, high
        Ends of its interval.
    signed
        Whether positive numbers have a plus sign.

    Returns
    -------
    tuple of str
        The share and the ends.

    Examples
    --------
    >>> percents(1.436, 1.196, 1.727), percents(0.0245, 0.0210, 0.0281)
    (('+144%', '+120%', '+173%'), ('+2.5%', '+2.1%', '+2.8%'))
    """
    half = 100 * (high - low) / 2
    digits = 1 if not (half > 0 and math.isfinite(half)) else 0 if half >= 3 else max(decimals(half) - 1, 1)
    one, two, three = (f"{100 * share:{'+' if signed else ''},.{min(digits, 4)}f}%" for share in (value, low, high))
    return one, two, three


@dataclass(frozen=True)
class Measured:
    """A mean with its interval and comparison marks, as one cell of a table.

    As text, the best value has a star; an HTML page and LaTeX show it in bold.

    Parameters
    ----------
    mean
        The mean; NaN is shown as a dash.
    half
        Half the width of the 95 % confidence interval; NaN if there is only one seed.
    standing
        Comparison with the other values of the column.
    dagger
        Whether the value is not significantly worse than that of a peeking model.
    aside
        Whether the value is shown in brackets, because it is not compared.
    digits
        Number of decimals.
    signed
        Whether positive numbers have a plus sign.

    Examples
    --------
    >>> str(Measured(1.23456, 0.0006, standing="="))
    '=1.2346 ± .0006'
    >>> str(Measured(1.2, aside=True)), str(Measured(0.31, 0.02, digits=2, signed=True, standing="best"))
    ('(1.2000)', '*+0.31 ± .02')
    """

    mean: float
    half: float = math.nan
    standing: Standing = ""
    dagger: bool = False
    aside: bool = False
    digits: int = 4
    signed: bool = False

    @property
    def number(self) -> str:
        """The formatted mean."""
        if math.isnan(self.mean):
            return "–"
        return f"{self.mean:+.{self.digits}f}" if self.signed else f"{self.mean:.{self.digits}f}"

    @property
    def spread(self) -> str:
        """The formatted half-width of the interval, such as "± .0006"; empty if it is not known."""
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
    """Return the mean of the values of several seeds, with its 95 % Student-t interval.

    Parameters
    ----------
    values
        One value per seed; without any, the mean is NaN.
    standing, dagger, aside, digits, signed
        As in `Measured`.

    Returns
    -------
    Measured
        The cell of a table.

    Examples
    --------
    >>> str(measured([1.0, 2.0, 3.0], digits=1))
    '2.0 ± 2.5'
    """
    if not values:
        return Measured(math.nan)
    mean, _, high = mean_interval(values)
    return Measured(mean, high - mean, standing, dagger, aside, digits, signed)
