"""Words in sentences."""

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
