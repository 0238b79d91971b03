"""What the policy-shift paper says of its figures 1 and 2, beside what the rows say."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from clickshift.core.text import join_words
from clickshift.display.document import Section
from clickshift.display.tables import Row, Rows
from clickshift.experiments.policy_shift._claims import (
    FAILS,
    HOLDS,
    MODELS,
    OTHERS,
    Claim,
    GridRows,
    section_6_2,
    section_6_3,
)
from clickshift.experiments.policy_shift._report_derived import MAX_REWARD, TOP_DOWN

_SHIFTS, _LOGS = 27, 6
"""Changes of policy in figure 1, and logs in figure 2."""
_HOW_1 = """The figure has no printed numbers; these are the paper's statements on it. nPPL: mean of ood minus ind
nPPL, the paper's criterion; excess: rise of perplexity above the user's own model. Below 0 is more robust."""
_HOW_2 = (
    "The figure has no printed numbers; these are the paper's statements on it. Clicks are expected clicks per list."
)
_WHY = """Where they differ: the queries are those of the built-in corpus, not of MSLR-WEB10K, unless --corpus is given;
users and training are read as docs/decisions/0001 says, and --as-published has those of the authors' code."""


def figure_claims(rows: Sequence[Row], figure: str) -> list[Claim]:
    """Evaluate the paper's statements on a figure; none where the rows lack a part of it.

    Parameters
    ----------
    rows
        Rows of the protocol.
    figure
        "figure1" or "figure2"; anything else has no statements.
    """
    grid = GridRows(rows)
    if figure == "figure1":
        whole = all(len(grid.of(model)) == _SHIFTS for model in MODELS) and all(shift.oracle for shift in grid.shifts)
        return section_6_2(grid) if whole else []
    if figure == "figure2":
        return section_6_3(grid) if _has_clicks(grid) else []
    return []


def _has_clicks(grid: GridRows) -> bool:
    """Return whether all models have clicks of both policies on all logs of figure 2."""
    return (
        {log.user for log in grid.clicks} == set(OTHERS)
        and len(grid.clicks) == _LOGS
        and all(
            model in models and {TOP_DOWN, MAX_REWARD} <= models[model].expected.keys()
            for models in grid.clicks.values()
            for model in MODELS
        )
    )


def claims_conclusion(claims: Sequence[Claim], figure: str) -> str:
    """Say how many of the paper's statements on a figure the rows confirm; empty without statements."""
    if not claims:
        return ""
    verdicts = [claim.finding.verdict for claim in claims]
    agreeing, differing = verdicts.count(HOLDS), verdicts.count(FAILS)
    depending = len(claims) - agreeing - differing
    others = [f"{differing} {'differs' if differing == 1 else 'differ'}"] if differing else []
    others += [f"{depending} {'depends' if depending == 1 else 'depend'} on the reading"] if depending else []
    rest = f"; {join_words(others)}" if others else ""
    return f"{agreeing} of {len(claims)} statements of the paper on {_name(figure)} agree with our rows{rest}."


def claims_verdict(claims: Sequence[Claim]) -> str:
    """Return "agrees" if all statements hold, else "differs"; empty without statements."""
    return "" if not claims else "agrees" if all(claim.finding.verdict == HOLDS for claim in claims) else "differs"


def claims_title(figure: str) -> str:
    """Return the title of a page on a figure."""
    shown = {"figure1": "robustness of predictions", "figure2": "clicks of derived policies"}
    return f"{_name(figure).capitalize()} of the paper, and ours: {shown[figure]}"


def claims_sections(rows: Sequence[Row], claims: Sequence[Claim], figure: str) -> list[Section]:
    """Make the section of the paper's statements, and for figure 2 that of clicks by model and log; none without."""
    if not claims:
        return []
    words = {HOLDS: "agrees", FAILS: "differs"}
    table: Rows = [
        {
            "section": claim.section,
            "the paper says": claim.text,
            "verdict": words.get(claim.finding.verdict, claim.finding.verdict.replace("(holds:", "(agrees:")),
            "our rows": claim.finding.evidence,
        }
        for claim in claims
    ]
    how = _HOW_1 if figure == "figure1" else _HOW_2
    caption = " ".join(f"{how} {_WHY}".split())
    sections = [Section(f"What the paper says of {_name(figure)}", table=table, caption=caption, name="statements")]
    if figure == "figure2":
        note = "Top-Down → Max-Reward, means over seeds."
        clicks = Section("Expected clicks per list", table=_clicks_table(GridRows(rows)), caption=note, name="clicks")
        sections.insert(0, clicks)
    return sections


def _clicks_table(grid: GridRows) -> Rows:
    """Tabulate clicks of Top-Down and Max-Reward: a line per model, a column per log."""
    table: Rows = []
    for model in MODELS:
        line: dict[str, Any] = {"model": model}
        for log, models in grid.clicks.items():
            means = (fmean(models[model].expected[policy].values()) for policy in (TOP_DOWN, MAX_REWARD))
            line[f"{log.user}, {log.training}"] = " → ".join(f"{mean:.3f}".removeprefix("0") for mean in means)
        table.append(line)
    return table


def clicks_sentence(rows: Sequence[Row]) -> str:
    """Say in how many cases Max-Reward has more clicks than Top-Down, and the mean gain by user; empty without."""
    grid = GridRows(rows)
    if not _has_clicks(grid):
        return ""
    gains = {(log, model): grid.gain(model, log) for log in grid.clicks for model in MODELS}
    by_user = (
        f"{fmean(gain for (log, _), gain in gains.items() if log.user == user):+.3f} with {user} users"
        for user in OTHERS
    )
    more = sum(gain > 0 for gain in gains.values())
    return (
        f"Max-Reward has more clicks than Top-Down in {more} of {len(gains)} cases (models and logs); mean gain per "
        f"list: {join_words(list(by_user))}."
    )


def _name(figure: str) -> str:
    """Return "figure 1" for "figure1"."""
    return figure.replace("figure", "figure ")
