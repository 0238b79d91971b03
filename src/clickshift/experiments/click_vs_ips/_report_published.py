"""Published numbers beside ours in the results of the IPS paper's experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from clickshift.display.document import Section
from clickshift.display.tables import Row, Rows
from clickshift.experiments.click_vs_ips.data import IPS_TRUE, PBM_TRUE, values_by_seed
from clickshift.experiments.click_vs_ips.published import ONE_HOT_SET, published_curve, published_table, set_of_rows

_TEXT_ONE_HOT = """The published rows of Naive and of estimated bias were in all likelihood computed differently: with
every document in two queries of each split (the set one-hot-twice), from the last round instead of the best one, and
with an examination that stayed near its random initial values (docs/decisions/0010)."""
_TEXT_PUBLISHED = """Published: means over ten runs, with the printed standard deviation (sd) and mark after 100 million
sessions; other sizes, collisions and eta are read from figures, to about .0005. A number agrees if the 95 % intervals
of both means leave no difference."""
_TEXT_DIGITISED = """Published: means over ten runs, read from the figure to about .0005; those of eta with their 95 %
intervals. A number agrees if the 95 % intervals of both means leave no difference."""
_ONLY_TABLE_2 = ("sd", "mark", "our mark")
"""Columns of the published numbers that only table 2 has."""
_TEXT_REVERSED = """The order is reversed because every document is in one query here, as the paper describes, so that
it is seen at one rank only. With every document in two queries (the set one-hot-twice), in all likelihood the published
data, the second rank gains the click model .049 and IPS .015, and the order is the published one (.809 and .796;
docs/decisions/0010)."""
_REVERSED_AT = 10_000
"""Number of sessions at which the order of PBM and IPS on the one-hot set is not the published one."""


def published_section(
    rows: Sequence[Row], varied: Sequence[str], marks: Mapping[str, Mapping[str, str]], *, page_only: int
) -> Section:
    """Return the published numbers beside ours, with what is known of their differences.

    Parameters
    ----------
    rows
        Rows of the experiment.
    varied
        Axes with several values: sessions, collisions, eta.
    marks
        Our marks by metric and model, for rows of 100 million sessions.
    page_only
        Number of lines above which the terminal does not show the table.
    """
    trained = [row for row in rows if row["kind"] == "trained"]
    table = published_table(trained, varied, marks)
    text = _TEXT_PUBLISHED if set(varied) <= {"sessions"} else _TEXT_DIGITISED
    if set_of_rows(rows) == ONE_HOT_SET and set(varied) <= {"sessions"}:
        text = f"{text}\n\n{_TEXT_ONE_HOT}\n\n{_reversal(trained)}"
    empty = {name for name in _ONLY_TABLE_2 if not any(line[name] for line in table)}
    shown = [{name: value for name, value in line.items() if name not in empty} for line in table]
    return Section("Published, and ours", text.strip(), shown, name="published", page_only=len(table) > page_only)


def _reversal(rows: Sequence[Row]) -> str:
    """Say whether IPS is ahead of the click model at 10,000 sessions, as it is not in the paper, and why; else ""."""
    ours = []
    for model in (PBM_TRUE, IPS_TRUE):
        values = [*values_by_seed(rows, "nDCG@10", model=model, sessions=_REVERSED_AT).values()]
        if not values:
            return ""
        ours.append(float(np.mean(values)))
    published = [published_curve(ONE_HOT_SET, "sessions", model)[_REVERSED_AT] for model in (PBM_TRUE, IPS_TRUE)]
    text = (
        f"At {_REVERSED_AT:,} sessions the published order is PBM {published[0]:.3f}, IPS {published[1]:.3f}; ours is "
        f"PBM {ours[0]:.3f}, IPS {ours[1]:.3f}."
    )
    if ours[1] <= ours[0]:
        return text
    return f"{text} {_TEXT_REVERSED}"


def agreement(published: Sequence[Row]) -> str:
    """Say how many published numbers agree with ours, and why the others differ; empty without any."""
    if not published:
        return ""
    others = Counter(str(line["verdict"]) for line in published if line["verdict"] != "agrees")
    text = f"{len(published) - others.total()} of {len(published)} published numbers agree with ours within chance"
    reasons = [
        (number, reason.removeprefix("differs ") if reason != "differs" else "for a reason that is not known")
        for reason, number in others.most_common()
    ]
    if not reasons:
        return f"{text}."
    if len(reasons) == 1:
        return f"{text}.\n\n{reasons[0][0]} {'differs' if reasons[0][0] == 1 else 'differ'} {reasons[0][1]}."
    listed = "; ".join(f"{number} {reason}" for number, reason in reasons)
    return f"{text}.\n\n{others.total()} differ: {listed}."


def published_lines(sections: Sequence[Section]) -> Rows:
    """Return the table of published numbers and ours; empty without one."""
    return [dict(line) for section in sections if section.name == "published" for line in section.table]
