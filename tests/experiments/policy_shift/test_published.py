"""Numbers that the policy-shift paper printed: what is stored, and ours beside tables 3 and 4."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from clickshift.display.tables import read_rows
from clickshift.display.values import Measured
from clickshift.errors import SpecError
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from clickshift.experiments.policy_shift.published import (
    NDCG_3,
    OOD_PPL,
    ORACLE,
    order_sentence,
    published_differences,
    published_slips,
    published_table,
)
from clickshift.experiments.runner import REFERENCE_FILE
from tests.codes import raises_code
from tests.golden import golden

ROWS = read_rows(Path(__file__).parents[3] / "src/clickshift/experiments/reference_rows" / REFERENCE_FILE)


@pytest.mark.parametrize(("short", "long"), [("table1", "table5"), ("table2", "table6")])
def test_tables_with_and_without_intervals_agree_but_for_the_marked_slips(short: str, long: str) -> None:
    """The paper printed most means twice: a typing error of ours would show, as the paper's do."""
    first, second = published_table(short), published_table(long)
    differ = {
        (model, column)
        for model, cells in first.items()
        for column, cell in cells.items()
        if (cell is None) != (second[model][column] is None)
        or (cell is not None and cell.mean != second[model][column].mean)  # type: ignore[union-attr]
    }
    for name in (short, long):
        assert differ == {(slip.model, slip.column) for slip in published_slips(name)}


def test_marks_and_intervals_are_read() -> None:
    assert published_table("table3")["CACM-minus"][OOD_PPL] == Measured(1.3414, 0.0010, "=")
    assert published_table("table4")["ARM NC"]["ind PPL"] == Measured(1.1891, 0.0003, aside=True)
    arm = published_table("table1")["ARM"]["nDCG@1"]
    assert arm is not None
    assert (arm.dagger, arm.mean, math.isnan(arm.half)) == (True, 0.6861, True)
    assert published_table("table7")["TopPop"]["AUROC"] is None
    with raises_code("unknown-name", SpecError, name="table9"):
        published_table("table9")


@pytest.mark.parametrize(("table", "user"), [("table3", "DBN"), ("table4", "CoCM")])
def test_the_oracle_is_that_of_the_golden_file(table: str, user: str) -> None:
    oracle = published_table(table)[ORACLE]
    assert [oracle[column].mean for column in ("ind PPL", OOD_PPL)] == golden("section_6_1")[user]["published"]  # type: ignore[union-attr]


def test_differences_are_split_into_that_of_the_oracle_and_the_rest() -> None:
    differences = {(one.model, one.metric): one for one in published_differences(ROWS, "DBN")}
    assert len(differences) == 24
    ubm, oracle = differences["UBM", OOD_PPL], differences[ORACLE, OOD_PPL]
    of_oracle = oracle.ours.mean - 1.3002
    beyond = ubm.ours.mean - 1.3413 - of_oracle
    assert ubm.verdict == (f"differs because of the corpus (oracle {of_oracle:+.4f}); beyond the oracle {beyond:+.4f}")
    assert differences[ORACLE, NDCG_3].agrees
    assert "training" not in differences["dCTR", NDCG_3].verdict, "it only counts"
    assert published_differences([row for row in ROWS if row["training"] != "PL-relevance"], "DBN") == []


def test_what_is_within_the_intervals_agrees() -> None:
    one = published_differences(ROWS, "DBN")[0]
    rows = [
        {"user": "DBN", "training": "PL-relevance", "kind": "clicks", "role": "oracle", "model": ORACLE, "seed": 0,
         "shift": shift, "testing": shift, "perplexity": value}
        for shift, value in (("ind", 1.28563), ("ood", 1.3009))
    ]  # fmt: skip
    verdicts = [one.verdict for one in published_differences(rows, "DBN")]
    assert verdicts == ["agrees", "differs because of the corpus (oracle +0.0007)"]
    assert "CoCM" in published_differences(ROWS, "CoCM")[0].verdict, one


def test_pairs_that_the_paper_separates_are_counted() -> None:
    differences = published_differences(ROWS, "DBN")
    same = [replace_ours(one, one.published.mean) for one in differences]
    assert order_sentence(same).endswith("for 20 of 20 pairs of models."), "UBM and CACM-minus are level"
    other = [replace_ours(one, 3.0 if one.model == "DBN" else one.published.mean) for one in differences]
    assert "holds for 14 of 20" in order_sentence(other)
    assert "DBN < UBM" in order_sentence(other)


def replace_ours(one: object, mean: float) -> object:
    return one._replace(ours=replace(one.ours, mean=mean))  # type: ignore[attr-defined]


def test_the_report_opens_with_the_published_table() -> None:
    tables = PolicyShiftResult([row for row in ROWS if row["training"] == "PL-relevance"]).document.tables
    assert list(tables)[:4] == ["table3", "table3 differences", "table3 slips", "table4"]
    assert list(tables["table3"][0]) == [
        "model", "ind PPL", "ind PPL published", "nDCG@3", "nDCG@3 published", "ood PPL", "ood PPL published",
    ]  # fmt: skip
