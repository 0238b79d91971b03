"""Texts for people: words in sentences, and characters that a terminal can show."""

from __future__ import annotations

from collections.abc import Sequence


def join_words(words: Sequence[str], conjunction: str = "and") -> str:
    """Join words with commas and a conjunction before the last one.

    Parameters
    ----------
    words
        At least one word.
    conjunction
        Word between the last two.

    Examples
    --------
    >>> join_words(["PBM"]), join_words(["PBM", "UBM", "DBN"]), join_words(["a", "b"], "or")
    ('PBM', 'PBM, UBM and DBN', 'a or b')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def printable(text: str) -> str:
    """Escape control characters, which would move the cursor or change a terminal's colours, and line breaks.

    Parameters
    ----------
    text
        Any text.

    Returns
    -------
    str
        The text on one line.

    Examples
    --------
    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
