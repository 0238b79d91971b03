"""Translation of library errors: the Python arguments that a message names become options of the command."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PHRASES = (
    # (text of the library, option that the translation needs, translation)
    (', or pass on_bad_line="skip"', "--skip-bad", ", or pass --skip-bad"),
    ('Pass the logging policy, or logging="frequencies"', "--logging", "Pass --logging frequencies"),
    ("use split_in_order", "--split", "pass --split order"),
    ("fit(log, corpus=corpus)", "--corpus", "pass --corpus FILE"),
    ("propensities(log)", "--propensities", "`clickshift propensities`"),
    ("bias='naive' or bias='estimated'", "--naive", "--naive"),
    ("bias='naive'", "--naive", "--naive"),
    ("bias='given' needs", "--naive", "the correction needs"),
    ("say bias='given'", "--naive", "remove --naive"),
    ("choose bias='given'", "--naive", "remove --naive"),
    ("which columns gives for", "--column", "which --column gives for"),
    ("columns must map", "--column", "--column must map"),
    ("pass it: model=...", "--model", "pass it: --model FOLDER."),
)
_WITHOUT_OPTION = (
    # (text of the library, option, text for commands that do not have the option)
    (r', or pass on_bad_line="skip"', "--skip-bad", ""),
    (r"pass columns=\{[^}]*\}", "--column", "rename them"),
)
_ENCODING = (
    # options of `clickshift log encode`, which other commands run with defaults
    (
        r"Pass spill=DuckdbLimits\([^)]*\) with more memory or another folder",
        "Run `clickshift log encode` with a larger --memory or another --spill folder",
    ),
    (r"pass output=\w+", "run `clickshift log encode` with --output FOLDER"),
)
# Arguments inside a call, e.g. Gradient('PBM', seed=1), and inside a path, e.g. seed=1/log.parquet, are left alone.
_ARGUMENT = re.compile(
    r"""(?<![\w/\\])(?<!\w\()(?<!, )([a-z_]+)=("[^"]*"|'[^']*'|\["\.\.\."\]|\.\.\.|\d+(?:\.\d+)?|nan|inf)(?![\w/\\])"""
)
_QUOTES = "[]'" + '"'
_NAME = re.compile(r"""`([a-z_]+)`|(?<![\w/\\.'"=-])([a-z]+(?:_[a-z]+)+)(?![\w/\\'"=(-]|\.\w)""")


def with_options(message: str, options: Mapping[str, str]) -> str:
    """Write an error message of the library in terms of a command.

    Parameters
    ----------
    message
        The message, which names arguments as Python would, e.g. ``cluster="session"``.
    options
        Options of the command by the names of its parameters, e.g. ``{"cluster": "--cluster"}``. Arguments that are not
        among them stay as they are.

    Examples
    --------
    >>> with_options('Add a user column, or pass cluster="session".', {"cluster": "--cluster"})
    'Add a user column, or pass --cluster session.'
    >>> with_options('Fix the line, or pass on_bad_line="skip".', {"skip_bad": "--skip-bad"})
    'Fix the line, or pass --skip-bad.'
    >>> with_options('Fix the line, or pass on_bad_line="skip".', {})
    'Fix the line.'
    >>> with_options('Pass columns={"docs": "results"} for it.', {"column": "--column"})
    'Pass --column docs=results for it.'
    >>> with_options('Pass click_types=["..."].', {"click_types": "--click-types"})
    'Pass --click-types ....'
    """
    available = set(options.values())
    for python, option, translation in _PHRASES:
        if option in available:
            message = message.replace(python, translation)
    for pattern, option, text in _WITHOUT_OPTION:
        if option not in available:
            message = re.sub(pattern, text, message)
    for pattern, text in _ENCODING:
        message = re.sub(pattern, text, message)
    message = re.sub(r"\bcolumns=\{([^}]*)\}", _column_options, message)
    message = _ARGUMENT.sub(lambda match: _assignment(match, options), message)
    return _NAME.sub(lambda match: options.get(match[1] or match[2], match[0]), message)


def _column_options(match: re.Match[str]) -> str:
    """Write a mapping of column names as --column options."""
    pairs = re.findall(r'"([^"]*)": "([^"]*)"', match[1])
    return " ".join(f"--column {ours}={'NAME' if theirs == '...' else theirs}" for ours, theirs in pairs)


def _assignment(match: re.Match[str], options: Mapping[str, str]) -> str:
    """Write name=value as an option with its value, if the command has it."""
    name, value = match.groups()
    return f"{options[name]} {value.strip(_QUOTES)}" if name in options else match[0]
