"""The paper's statements on figures 1 and 2 in reports: from made-up rows in which it is known what holds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clickshift.experiments.policy_shift._claims import MODELS
from clickshift.experiments.policy_shift._report import TITLE, PolicyShiftResult
from tests.experiments.policy_shift.rows import GAIN, shift_rows

ROWS = shift_rows(seeds=2)
FIGURE_2 = shift_rows(["CoCM", "CoCM-mismatch"], seeds=2)


def verdicts(rows: list[dict[str, Any]], figure: str) -> dict[str, str]:
    table = PolicyShiftResult(rows, shows=figure).document.tables["statements"]
    return {str(line["the paper says"]): str(line["verdict"]) for line in table}


def test_statements_on_figure_1_stand_beside_the_rows() -> None:
    result = PolicyShiftResult(ROWS, shows="figure1")
    assert result.document.title == "Figure 1 of the paper, and ours: robustness of predictions"
    assert [section.name for section in result.document.sections[:2]] == ["spiders", "statements"]
    found = verdicts(ROWS, "figure1")
    assert len(found) == 16
    assert found["NCM is brittle after near-optimal logging"] == "agrees"
    assert found["DBN is almost always the best model of DBN users, ind and ood"] == "differs"
    agreeing, differing = list(found.values()).count("agrees"), list(found.values()).count("differs")
    assert result.conclusion.startswith(f"{agreeing} of 16 statements of the paper on figure 1 agree with our rows")
    assert f"{differing} differ" in result.conclusion
    assert "Use " in result.conclusion, "the recommendation follows"
    assert result.document.verdict == "differs"


def test_figure_2_has_the_clicks_of_both_policies() -> None:
    result = PolicyShiftResult(FIGURE_2, shows="figure2")
    assert [section.name for section in result.document.sections[:3]] == ["policies", "clicks", "statements"]
    lines = {str(line["model"]): line for line in result.document.tables["clicks"]}
    assert tuple(lines) == MODELS
    for model, line in lines.items():
        for cell in list(line.values())[1:]:
            before, after = (float(number) for number in str(cell).split(" → "))
            assert after - before == pytest.approx(GAIN[model], abs=0.02)
    sentence = re.search(r"Max-Reward has more clicks than Top-Down in (\d+) of 36 cases", result.conclusion)
    assert sentence is not None
    assert 18 <= int(sentence[1]) <= 24, "three models gain on all six logs, and DBN by chance"
    assert verdicts(FIGURE_2, "figure2")["PBM and UBM gain by Max-Reward throughout"] == "agrees"


def test_an_incomplete_grid_has_no_statements() -> None:
    without_ncm = [row for row in ROWS if row["model"] != "NCM"]
    for rows, figure in ((without_ncm, "figure1"), (without_ncm, "figure2"), (ROWS, "")):
        result = PolicyShiftResult(rows, shows=figure)
        assert result.document.title == TITLE
        assert "statements of the paper" not in result.conclusion
        assert "statements" not in result.document.tables
