"""Verdicts: the mood of each word that reports use, which decides its colour and its icon."""

from __future__ import annotations

from typing import Literal, NamedTuple

Mood = Literal["good", "caution", "bad", "neutral"]
"""What a verdict means for who reads it: act on it, be careful, do not, or only take note."""

_WORDS: dict[Mood, tuple[str, ...]] = {
    "good": (
        "usable", "ship", "earns more", "robust", "more robust than peers", "the best throughout", "same", "pass", "ok",
        "agrees", "no dependence detected", "hardly depends on the logging policy",
        "depends least of the audited models", "trustworthy", "identified", "not changed",
        "better than today's", "better than the other", "significant",
    ),
    "caution": (
        "weak", "weak overlap", "test", "unclear", "mixed", "some", "a little", "caution", "cannot tell",
        "no clear difference", "better than today's, not clearly than the other",
        "better than the other, not clearly than today's", "earns more, weak evidence", "earns less, weak evidence",
        "no bias detected, but uneven noise", "cannot be tested", "nothing to compare with", "not significant",
        "weakly identified", "not converged",
    ),
    "bad": (
        "not identified", "keep", "earns less", "changed", "severe", "fail", "less robust than peers",
        "the worst throughout", "overcorrects", "worse than today's", "worse than the other",
        "no better than the baseline", "favours what the logging policy favoured", "differs",
    ),
    "neutral": ("baseline", "no", "not compared", "not tested elsewhere"),
}  # fmt: skip
_BEGINNINGS: tuple[tuple[str, Mood], ...] = (
    ("no change", "good"),
    ("cannot be told apart", "neutral"),
    ("depends more", "bad"),
    ("not compared", "neutral"),
    ("fail", "bad"),
    ("pass", "good"),
    ("not robust", "bad"),
    ("robust", "good"),
)
_LABELS = {
    "keep": "Keep the current ranker",
    "test": "Test live first",
    "usable": "Usable answer",
    "weak": "Weak evidence",
}


class Badge(NamedTuple):
    """A verdict as it is shown.

    Parameters
    ----------
    mood
        Decides colour and icon.
    text
        The verdict in words: colour is never the only carrier.
    """

    mood: Mood
    text: str


def badge(verdict: str, *, spelled_out: bool = False) -> Badge:
    """Return how a verdict is shown; a word that is not known is neutral.

    Parameters
    ----------
    verdict
        The verdict, such as "usable".
    spelled_out
        Whether a word that says little by itself is shown with more words, as at the top of a page.

    Returns
    -------
    Badge
        Its mood and its text.

    Examples
    --------
    >>> badge("usable"), badge("usable", spelled_out=True), badge("of its own kind").mood
    (Badge(mood='good', text='Usable'), Badge(mood='good', text='Usable answer'), 'neutral')
    """
    word = " ".join(verdict.lower().split())
    moods = (mood for mood, words in _WORDS.items() if word in words)
    begun = (mood for beginning, mood in _BEGINNINGS if word.startswith(beginning))
    text = verdict[:1].upper() + verdict[1:]
    return Badge(next(moods, next(begun, "neutral")), _LABELS.get(word, text) if spelled_out else text)
