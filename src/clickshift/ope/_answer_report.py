"""What people read of an answer: its sentences, the parts of its interval, and the click-model families."""

from __future__ import annotations

from typing import Any

from clickshift.display.values import decimals, percents, with_interval
from clickshift.ope.answer import Answer

_PARTS = {
    "sampling": "sessions are a sample",
    "model": "examination, continuation and attractiveness are estimated",
    "lost mass": "documents that were never logged, or hardly ever examined",
    "choice of model": "which click model is right",
}


def answer_sentences(answer: Answer, name: str, reward: str, other: str = "") -> tuple[str, str]:
    """Say what a target earns more than today, or than another target, and how sure that is.

    Parameters
    ----------
    answer
        The answer.
    name
        Name of the target.
    reward
        Name of the reward.
    other
        Name of the other target; empty for the log.

    Returns
    -------
    tuple of str
        The answer in one sentence, and the evidence for it.
    """
    today = other or "today's ranker"
    if answer.verdict == "not identified":
        against = (
            f" more or less than {other}"
            if other
            else f"; today's ranker earns {answer.today:.4f} {reward} per session"
        )
        return f"This log cannot tell what {name} would earn{against}.", _capital(answer.reasons)
    difference = answer.difference, answer.difference_low, answer.difference_high
    gain = gain_text(answer.today, *difference, level=answer.level, reward=reward)
    if answer.difference_low > 0:
        claim = f"{name} would earn more than {today}"
    elif answer.difference_high < 0:
        claim = f"{name} would earn less than {today}"
    else:
        claim = f"This log does not show whether {name} would earn more or less than {today}"
    evidence = (
        f"Difference: {with_interval(*difference, signed=True)} {reward} per session. Verdict: {answer.verdict}. "
        f"{_capital(answer.reasons)}"
    )
    return f"{claim}: {gain}.", evidence


def gain_text(today: float, difference: float, low: float, high: float, *, level: float, reward: str) -> str:
    """Describe a gain and its interval, in percent where today's reward is not zero.

    Parameters
    ----------
    today
        Reward per session today.
    difference, low, high
        Gain, with its interval.
    level
        Confidence level.
    reward
        Name of the reward.

    Examples
    --------
    >>> gain_text(0.5, 0.1, 0.08, 0.12, level=0.95, reward="clicks")
    '0.600 instead of 0.500 clicks per session, +20% (95% interval +16% to +24%)'
    """
    half = (high - low) / 2
    digits = min(decimals(half), 6) if half > 0 else 4
    values = f"{today + difference:.{digits}f} instead of {today:.{digits}f} {reward} per session"
    if today > 0:
        gain, lowest, highest = percents(difference / today, low / today, high / today)
    else:
        gain, lowest, highest = (f"{x:+.{digits}f}" for x in (difference, low, high))
    return f"{values}, {gain} ({level:.0%} interval {lowest} to {highest})"


def difference_verdict(verdict: str, low: float, high: float) -> str:
    """Return the verdict that a page shows: which ranker earns more, and whether that is to be trusted.

    Parameters
    ----------
    verdict
        "usable", "weak" or "not identified".
    low, high
        Interval of the difference.
    """
    if verdict == "not identified":
        return "cannot tell"
    if low <= 0 <= high:
        return "no clear difference"
    found = "earns more" if low > 0 else "earns less"
    return found if verdict == "usable" else f"{found}, weak evidence"


def _capital(reasons: tuple[str, ...]) -> str:
    """Join sentences, each with a capital letter and one full stop."""
    return " ".join(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in reasons)


def parts_table(answer: Answer) -> list[dict[str, Any]]:
    """Table of the parts of the interval; they add up to half of its width."""
    rows = [{"part": _PARTS[name], "half-width": value} for name, value in answer.parts.items()]
    return [*rows, {"part": "together", "half-width": sum(answer.parts.values())}] if rows else []


def families_table(answer: Answer) -> list[dict[str, Any]]:
    """Table of the click-model families of an answer."""
    return [
        {
            "click model": family.name,
            "not rejected": "yes" if family.kept else "no",
            "difference": with_interval(family.difference, family.low, family.high, signed=True),
            "held-out deficit": f"{family.deficit:.4f} (z = {family.z:.1f})",
            "p of residuals": f"{family.p_value:.2g}",
            "lost": f"{family.lost:.1%}",
        }
        for family in answer.families
    ]
