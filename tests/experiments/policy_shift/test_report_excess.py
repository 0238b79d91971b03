"""Perplexity above the user's own model: which model is named, and what the heat map and the table show."""

from __future__ import annotations

import pytest

from clickshift.experiments.policy_shift._report import PolicyShiftResult
from clickshift.experiments.policy_shift._report_excess import (
    excess_figure,
    excess_perplexity,
    excess_table,
    recommendation,
)
from tests.experiments.policy_shift.rows import IND, PEEKING, SHIFT, TRAINING, USERS, shift_rows

ROWS = shift_rows(USERS[:2], TRAINING[:2], seeds=3, noise=0.0)


def test_the_excess_is_what_the_rows_were_made_with() -> None:
    """CACM-minus loses .037, UBM .05 and so on; the baseline loses .12. Models that peek are left out."""
    excess = excess_perplexity(ROWS)
    made = {name: IND[name] + SHIFT[name] for name in IND} | {"dCTR": 0.12}
    assert [one.model for one in excess] == sorted(made, key=lambda name: made[name])
    assert PEEKING not in [one.model for one in excess]
    for one in excess:
        assert one.mean.mean == pytest.approx(made[one.model])
        assert one.ind == pytest.approx(IND.get(one.model, 0.12))
        assert len(one.shifts) == 2 * 2 * 3, "PL-oracle on oracle and PL-BM25 on BM25 are no shifts"
        assert list(one.shifts.values()) == pytest.approx([made[one.model]] * 12)


def test_the_conclusion_names_the_model_and_its_loss() -> None:
    said = PolicyShiftResult(ROWS).conclusion
    assert said.startswith("Use CACM-minus: ")
    assert "0.0370 ± .0000 above" in said
    assert said.endswith("\n\nUnder the ranker of its training log, that is 0.0250. UBM is next (0.0500 ± .0000).")
    better = [
        row | {"perplexity": row["perplexity"] - 0.1} if row["model"] == "dCTR" else row
        for row in ROWS[:]
        if row["kind"] == "clicks"
    ]
    said = recommendation(excess_perplexity(better))
    assert said.startswith(
        "Use the baseline dCTR: on another ranker's lists it predicts clicks best, with a perplexity "
    )
    assert "0.0200 above" in said
    assert said.endswith("CACM-minus is the best click model (0.0370 ± .0000).")


def test_a_difference_within_chance_is_said_to_be_one() -> None:
    noisy = shift_rows(USERS[:1], TRAINING[:1], seeds=3, noise=0.02)
    assert "UBM is next" in recommendation(excess_perplexity(noisy))
    assert "which is no difference beyond chance." in recommendation(excess_perplexity(noisy))
    assert "chance" not in recommendation(excess_perplexity(ROWS))


def test_the_page_begins_with_the_heat_map() -> None:
    document = PolicyShiftResult(ROWS).document
    assert document.headline.name == "excess"
    assert document.verdict == "usable"
    assert "DBN and CoCM users, 3 seeds; trained on lists of PL-oracle and PL-BM25" in document.data
    assert "which differences between models are chance is not known" not in document.conclusion
    one = PolicyShiftResult([row for row in ROWS if row["seed"] == 0])
    assert one.conclusion.endswith("which differences between models are chance is not known.")
    assert document.data.endswith("tested on those of oracle, random, BM25 and LambdaMART.")


def test_a_figure_of_the_paper_comes_first_where_it_was_asked_for() -> None:
    for name, section in (("figure1", "spiders"), ("figure2", "policies")):
        document = PolicyShiftResult(ROWS, shows=name).document
        assert (document.headline, document.sections[0].name) == (None, section)


def test_the_interval_is_over_seeds() -> None:
    rows = [row | {"perplexity": row["perplexity"] + 0.01 * row["seed"]} for row in ROWS if row["kind"] == "clicks"]
    found = {one.model: one for one in excess_perplexity(rows)}
    assert found["UBM"].mean.mean == pytest.approx(0.06)
    assert found["UBM"].mean.half == pytest.approx(4.302653 * 0.01 / 3**0.5, rel=1e-5), "Student's t, two degrees"


def test_a_model_without_some_shift_is_not_compared() -> None:
    rows = [row for row in ROWS if not (row["model"] == "CACM-minus" and row.get("testing") == "random")]
    assert recommendation(excess_perplexity(rows)).startswith("Use UBM: ")


def test_without_an_oracle_there_is_no_excess() -> None:
    rows = [row for row in ROWS if row["role"] != "oracle"]
    assert excess_perplexity(rows) == []
    assert recommendation([]) == ""
    document = PolicyShiftResult(rows).document
    assert document.headline.name == "robustness"
    assert document.verdict == ""
    assert PolicyShiftResult(rows).conclusion.startswith("More robust than peers: PBM, UBM and CACM-minus.")


def test_the_heat_map_has_a_number_in_every_cell() -> None:
    excess = excess_perplexity(ROWS)
    figure = excess_figure(excess)
    assert [len(panel.z) for panel in figure.data] == [1, 3, 3, 3, 3]
    for panel in figure.data:
        for values, texts in zip(panel.z, panel.text, strict=True):
            assert [float(text) for text in texts] == pytest.approx(list(values), abs=5e-4)
    assert list(figure.data[0].z[0]) == [one.mean.mean for one in excess]
    assert figure.data[1].z[0][0] == excess[0].shifts[next(iter(excess[0].shifts))]
    assert next(iter(PolicyShiftResult(ROWS).figures)) == "excess"


def test_the_table_marks_the_best_click_model() -> None:
    table = excess_table(excess_perplexity(ROWS), PolicyShiftResult(ROWS).verdicts)
    assert [line["model"] for line in table if line["new ranker"].standing == "best"] == ["CACM-minus"]
    assert {line["model"]: line["verdict"] for line in table}["dCTR"] == "baseline"
