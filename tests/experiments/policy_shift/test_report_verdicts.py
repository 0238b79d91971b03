"""What the report says in words, against what the numbers were made to say."""

from __future__ import annotations

from typing import Any

import pytest

from clickshift.display.cells import texts
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from clickshift.experiments.policy_shift._report_robustness import IMPOSSIBLE
from clickshift.experiments.policy_shift._report_tables import perplexity_tables
from clickshift.experiments.policy_shift._report_verdicts import (
    difference_figure,
    shift_summary,
    shift_verdicts,
    verdict_table,
    without_impossible_models,
)
from tests.experiments.policy_shift.rows import IND, SHIFT, shift_rows


def verdict(rows: list[dict[str, Any]], model: str) -> dict[str, str]:
    return next(found for found in shift_verdicts(rows) if found["model"] == model)


def test_every_click_model_has_one_and_nobody_else() -> None:
    found = shift_verdicts(shift_rows(seeds=3))
    assert {one["model"]: one["verdict"] for one in found} == {
        "PBM": "more robust than peers",
        "UBM": "more robust than peers",
        "DBN": "less robust than peers",
        "NCM": "less robust than peers",
        "CACM-minus": "more robust than peers",
        "ARM": "the worst throughout",
    }
    assert shift_summary(found).startswith("More robust than peers: PBM, UBM and CACM-minus.")
    assert shift_verdicts(shift_rows(["DBN"], ["PL-oracle"], seeds=2, candidate="ARM"))[0]["model"] == "ARM"


def test_the_words_have_the_numbers() -> None:
    found = {one["model"]: one["text"] for one in shift_verdicts(shift_rows(seeds=2, noise=0.0))}
    text = found["NCM"]
    assert "ood nPPL is below ind nPPL in 0 of 27 shifts" in text
    assert f"{IND['NCM'] + SHIFT['NCM']:.4f} above its perplexity" in text
    assert f"against {IND['NCM']:.4f} on lists of the policy it was trained on" in text
    assert "more clicks than Top-Down on 0 of 6 logs" in text
    assert "a sign of poor robustness" in text
    assert "predicted 0.3000 more clicks per list than Max-Reward gets (the optimiser's curse)" in text
    good = found["PBM"]
    assert "27 of 27 shifts" in good
    assert "more clicks than Top-Down on 6 of 6 logs" in good
    assert "poor robustness" not in good
    assert good.splitlines()[-1].startswith("What would change this verdict: ")


@pytest.mark.parametrize(("share", "words"), [(0.01, "near the oracle"), (0.1, "some way from"), (0.5, "far from")])
def test_the_distance_from_the_oracle_is_judged_by_what_the_oracle_leaves_open(share: float, words: str) -> None:
    rows = [
        {"model": name, "role": role, "shift": log, "testing": log, "perplexity": 1.3 + excess}
        for log in ("ind", "ood")
        for name, role, excess in (("O", "oracle", 0.0), ("A", "click model", 0.3 * share), ("B", "click model", 1.0))
    ]
    assert words in verdict(rows, "A")["text"]


def test_a_user_who_says_otherwise_is_named() -> None:
    rows = shift_rows(["DBN", "CoCM"], seeds=2, noise=0.0)
    for row in rows:
        if row["kind"] == "clicks" and row["model"] == "PBM" and row["user"] == "DBN" and row["shift"] == "ood":
            row["perplexity"] += 0.035
    found = verdict(rows, "PBM")
    assert found["verdict"] == "mixed"
    change = found["text"].splitlines()[-1]
    assert "DBN users alone (less robust than peers)" in change or "DBN users alone (the worst" in change
    assert "CoCM users alone (more robust than peers)" in change


def test_shifts_within_noise_are_named() -> None:
    change = verdict(shift_rows(["DBN"], seeds=10, noise=0.012), "UBM")["text"].splitlines()[-1]
    assert "within noise (DBN users, PL-oracle → " in change
    assert "within noise" not in verdict(shift_rows(["DBN"], ["PL-oracle"]), "UBM")["text"]


def test_nobody_is_more_robust_within_chance() -> None:
    """The mean difference of nPPL of UBM is -.2 or so, and its interval over three seeds twice as wide."""
    rows = shift_rows(["DBN"], ["PL-oracle"], seeds=3, noise=0.02)
    found = verdict(rows, "UBM")
    assert found["verdict"] == "no change beyond chance"
    assert found["text"].splitlines()[-1].startswith("What would change this verdict: more seeds")
    (line,) = (line for line in verdict_table(rows, [found]))
    assert abs(line["change of nPPL"].mean) < line["change of nPPL"].half
    assert line["why"] == "Better standing on the new ranker's lists in 3 of 3 changes of ranker."
    figure = difference_figure(rows)
    at = list(figure.data[0].y).index("UBM")
    assert figure.data[0].x[at] == line["change of nPPL"].mean
    assert figure.data[0].error_x.array[at] == pytest.approx(line["change of nPPL"].half)


def test_one_seed_says_that_noise_is_unknown() -> None:
    assert "more seeds" in verdict(shift_rows(["DBN"], ["PL-oracle"], seeds=1), "PBM")["text"]


def test_the_best_on_both_logs_is_not_blamed() -> None:
    rows = shift_rows(["DBN"], ["PL-oracle"], models=["CACM-minus", "ARM"])
    found = verdict(rows, "CACM-minus")
    assert found["verdict"] == "the best throughout"
    assert "the best on both logs in 3" in found["text"]


def test_what_cannot_be_compared_is_not() -> None:
    alone = verdict(shift_rows(["DBN"], models=["PBM"], seeds=2), "PBM")
    assert alone["verdict"] == "not compared"
    assert "other click models on the same logs" in alone["text"]
    at_home = [row for row in shift_rows(["DBN"], seeds=2) if row.get("shift") == "ind"]
    assert verdict(at_home, "PBM")["verdict"] == "not tested elsewhere"
    assert shift_verdicts([]) == []


def test_a_model_that_predicts_better_than_is_possible_is_shown_and_not_compared() -> None:
    rows = shift_rows(["DBN"], ["PL-oracle"], seeds=2, candidate="NCM")
    about = {"user": "DBN", "training": "PL-oracle", "model": "NCM", "role": "candidate", "kind": "check", "seed": 0}
    clean = PolicyShiftResult([*rows, about | {"peeks": False, "above_oracle": 3.0}], {})
    assert "Warning" not in clean.conclusion
    for reason in ({"peeks": True, "above_oracle": -5.0}, {"peeks": False, "above_oracle": 9.0}):
        found = PolicyShiftResult([*rows, about | reason], {})
        assert found.conclusion.startswith("Warning: NCM")
        assert "Use NCM" not in found.conclusion
        assert found.verdicts[0]["model"] == "NCM"
        assert found.verdicts[0]["verdict"] == IMPOSSIBLE
        others = [one for one in found.verdicts if one["model"] != "NCM"]
        without = [row for row in rows if row["model"] != "NCM"]
        assert others == shift_verdicts(without), "it does not change how the others are normalised"
        shown = texts(found.document.headline.table)[-1]
        assert {name for name, text in shown.items() if text} == {"model", "verdict"}, "without numbers"
        assert (shown["model"], shown["verdict"]) == ("NCM", IMPOSSIBLE)
        assert found.document.verdict == "weak"
        perplexity = next(iter(perplexity_tables(without_impossible_models(found.task_rows)).values()))
        assert {line["model"]: line["ind"].aside for line in perplexity}["NCM"]
