"""SignalValue: what a click is worth, as a weighted sum of the signals that follow it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.data._columns import VIEWED
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError

_CLICK = frozenset({"click", "clicks"})
"""Names of the click itself in a sum."""
_TERM = re.compile(r"(?:(?P<weight>[^*]*)\*)?(?P<name>[^*]*)")


@final
@dataclass(frozen=True)
class SignalValue:
    """Value of a clicked result: a weight for the click itself, plus a weighted sum of signals.

    Parameters
    ----------
    text
        The sum as text, e.g. "click + 3*cart + 10*purchase".
    click
        Weight of the click itself.
    weights
        Name and weight of each signal.

    Examples
    --------
    >>> SignalValue.parse("click + 3*cart").weights
    (('cart', 3.0),)
    """

    text: str
    click: float
    weights: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, text: str) -> SignalValue:
        """Parse the name of a signal, or a sum of weighted names.

        Parameters
        ----------
        text
            E.g. "purchase", or "click + 3*cart + 10*purchase".

        Returns
        -------
        SignalValue
            The sum.

        Raises
        ------
        SpecError
            If the text is no such sum, or names no signal ("bad-value").
        """
        weights: dict[str, float] = {}
        for term in text.split("+"):
            match = _TERM.fullmatch(term.strip())
            name = "" if match is None else match["name"].strip()
            weight = _weight(None if match is None else match["weight"])
            if not name or weight is None or name in weights or _weight(name) is not None:
                raise SpecError(
                    "a value must be a signal, or a sum of different signals with weights above 0, such as "
                    f"click + 3*cart + 10*purchase: got {text!r}.",
                    code="bad-value",
                    value=text,
                )
            weights["click" if name in _CLICK else name] = weight
        signals = tuple((name, weight) for name, weight in weights.items() if name != "click")
        if not signals:
            raise SpecError(
                f"a value must name a signal of the log besides the click: got {text!r}.", code="bad-value", value=text
            )
        return cls(text.strip(), weights.get("click", 0.0), signals)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the signals."""
        return tuple(name for name, _ in self.weights)

    def check(self, known: Collection[str]) -> None:
        """Check that a log has the signals.

        Parameters
        ----------
        known
            Names of the signals of the log.

        Raises
        ------
        SpecError
            "unknown-signal" if it has not.
        """
        conversions = sorted(name for name in known if name != VIEWED)
        for name in self.names:
            if name not in conversions:
                listed = ", ".join(conversions) or "none"
                raise SpecError(
                    f"a signal must be one of the log's: got {name!r}; this log has {listed}. Name the column of a "
                    'signal when the log is read, e.g. columns={"signal:cart": "cart"}.',
                    code="unknown-signal",
                    value=name,
                    known=conversions,
                )

    def of(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        """Return the value of each result without that of its click, NaN where a signal is unknown.

        Parameters
        ----------
        sessions
            Sessions that have the signals.
        """
        total = np.zeros(sessions.click.shape)
        for name, weight in self.weights:
            total += weight * sessions.signals[name]
        return total

    def __str__(self) -> str:
        return self.text


def signal_columns(values: Sequence[SignalValue]) -> list[str]:
    """Return the names of the signals of several values, each once.

    Parameters
    ----------
    values
        The values.
    """
    return list(dict.fromkeys(name for value in values for name in value.names))


def _weight(text: str | None) -> float | None:
    """Return the weight of a term, 1 where none is given; None if it is not a number above 0."""
    if text is None:
        return 1.0
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if math.isfinite(weight) and weight > 0 else None
