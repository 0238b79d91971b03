"""The tables of the policy-shift report, against sums done by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from clickshift.display.values import Measured, measured
from clickshift.experiments.policy_shift._report_robustness import (
    LogName,
    Setting,
    normalised_perplexities,
    policy_shifts,
)
from clickshift.experiments.policy_shift._report_tables import (
    nppl_table,
    perplexity_tables,
    policy_tables,
    ranking_notes,
    ranking_tables,
    robustness_table,
)
from tests.experiments.policy_shift.rows import IND, ORACLE, PEEKING, SHIFT, TRAINING, Rows, shift_rows

LOG = LogName("CoCM", "PL-BM25")


@pytest.fixture(scope="module")
def rows() -> Rows:
    """The whole grid."""
    return shift_rows(seeds=5)


@pytest.fixture(scope="module")
def one() -> Rows:
    """The log that tables are looked up for, alone."""
    return shift_rows([LOG.user], [LOG.training])


def by_model(table: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {line["model"]: line for line in table}


def mean(rows: list[dict[str, Any]], metric: str = "perplexity", **where: str) -> float:
    return float(np.mean([row[metric] for row in rows if all(row.get(key) == value for key, value in where.items())]))


def test_a_number_is_the_mean_over_seeds_with_its_interval() -> None:
    values = [1.2, 1.3, 1.25, 1.27]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    found = measured(values)
    assert found.mean == pytest.approx((low + high) / 2)
    assert found.half == pytest.approx((high - low) / 2)
    assert math.isnan(measured([1.2]).half)
    assert str(measured([])) == "–"
    assert str(Measured(1.5, 1.25, "best", dagger=True, aside=True, digits=2)) == "(†*1.50 ± 1.25)"


def test_perplexity_marks_the_best_and_what_is_level_with_it(one: Rows) -> None:
    table = perplexity_tables(one)[LOG]
    assert list(table[0]) == ["model", "role", "ind", "ood: oracle", "ood: random", "ood: BM25", "ood: LambdaMART"]
    assert [line["model"] for line in table] == [*IND, "dCTR", PEEKING, ORACLE]
    lines = by_model(table)
    assert {name: lines[name]["ind"].standing for name in lines} == dict.fromkeys(lines, "") | {"NCM": "best"}
    assert lines["CACM-minus"]["ood: random"].standing == "best"
    assert lines[PEEKING]["ind"].aside, "the lowest number of all, in brackets and not compared"
    assert str(lines[PEEKING]["ind"]).startswith("(1.2100")
    assert str(lines[ORACLE]["ind"]) == "1.2500"
    assert lines["PBM"]["ind"].mean == pytest.approx(
        mean(one, user="CoCM", training="PL-BM25", model="PBM", testing="ind")
    )
    noisy = by_model(perplexity_tables(shift_rows([LOG.user], [LOG.training], noise=0.02))[LOG])
    level = {name for name, line in noisy.items() if line["ind"].standing == "="}
    assert level <= set(IND)
    assert {"DBN", "CACM-minus"} & level


def test_other_metrics_have_the_same_table(one: Rows) -> None:
    rows = [row | {"auroc": 0.9 if row.get("model") == "UBM" else 0.8} for row in one if "perplexity" in row]
    lines = by_model(perplexity_tables(rows, "auroc")[LOG])
    assert lines["UBM"]["ind"].standing == "best", "of AUROC, more is better"
    assert perplexity_tables(rows, "marginal_perplexity") == {}


def test_normalised_perplexity_is_equation_16(rows: Rows) -> None:
    means = {name: mean(rows, user="DBN", training="PL-oracle", testing="random", model=name) for name in IND}
    lowest, highest = min(means.values()), max(means.values())
    table = nppl_table(rows)
    line = next(
        line for line in table if (line["users"], line["training"], line["testing"]) == ("DBN", "PL-oracle", "random")
    )
    for name, value in means.items():
        assert line[name].mean == pytest.approx(0.2 + math.log(1 + (value - lowest) / (highest - lowest)))
    assert [line[name].standing for name in IND] == ["best", "best", "", "", "best", ""]
    assert len(table) == 3 * 3 * (1 + 3), "ind, and three policies that are not the training policy's own"


def test_robustness_counts_shifts(rows: Rows) -> None:
    table = by_model(robustness_table(rows))
    assert list(table) == list(IND)
    pbm, ncm, arm = table["PBM"], table["NCM"], table["ARM"]
    assert (pbm["shifts"], pbm["more robust"], pbm["more robust (significant)"], pbm["less robust"]) == (27, 27, 27, 0)
    assert (ncm["more robust"], ncm["less robust"], ncm["less robust (significant)"]) == (0, 27, 27)
    assert arm["more robust"] == arm["less robust"] == 0, "the worst on all logs stays the worst"
    exact = by_model(robustness_table(shift_rows(["DBN"], TRAINING[:2], seeds=2, noise=0.0)))

    def place(name: str, ood: bool) -> float:
        level = {model: IND[model] + ood * SHIFT[model] for model in IND}
        lowest, highest = min(level.values()), max(level.values())
        return math.log(1 + (level[name] - lowest) / (highest - lowest))

    for name in IND:
        assert exact[name]["mean difference"].mean == pytest.approx(place(name, True) - place(name, False))
        assert exact[name]["mean difference"].half == pytest.approx(0, abs=1e-9)


def test_the_interval_of_the_mean_difference_is_over_seeds() -> None:
    rows = shift_rows(["DBN"], ["PL-oracle"], seeds=4, noise=0.004)
    found = [shift for shift in policy_shifts(rows) if shift.model == "PBM"]
    by_each = [np.mean([shift.ood.seeds[s] - shift.ind.seeds[s] for shift in found]) for s in range(4)]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(by_each), scale=stats.sem(by_each))
    assert by_model(robustness_table(rows))["PBM"]["mean difference"].half == pytest.approx((high - low) / 2)


def test_one_seed_leaves_noise_unknown() -> None:
    line = by_model(robustness_table(shift_rows(["DBN"], seeds=1)))["PBM"]
    assert line["more robust"] == 9
    assert line["more robust (significant)"] is None
    assert "±" not in str(line["mean difference"])


def test_a_model_alone_has_no_place() -> None:
    rows = shift_rows(["DBN"], models=["PBM"], seeds=2)
    assert robustness_table(rows) == []
    assert math.isnan(normalised_perplexities(rows)[Setting("DBN", "PL-oracle", "ind")]["PBM"].value)


def test_ranking_has_daggers_beside_the_model_that_peeks(one: Rows) -> None:
    table = ranking_tables(one)[LOG]
    lines = by_model(table)
    assert "judged_queries" not in table[0]
    assert lines["dCTR"]["nDCG@10"].standing == "best", "the logging policy is better, but not compared"
    assert lines["logging policy"]["nDCG@10"].mean > lines["dCTR"]["nDCG@10"].mean
    assert lines["dCTR"]["ARP"].standing == "best", "of average ranks, less is better"
    daggers = {name for name, line in lines.items() if line["nDCG@10"].dagger}
    assert {"NCM", "CACM-minus"} <= daggers
    assert not daggers & {"PBM", "ARM", "dCTR", PEEKING}
    assert "990 judged queries" in ranking_notes(one)[LOG]


def test_derived_policies_gain_and_promise(rows: Rows) -> None:
    lines = by_model(policy_tables(rows)[LOG])
    ours = [
        row for row in rows if row["kind"] == "policy" and row["model"] == "NCM" and row["training"] == LOG.training
    ]
    where = {"user": LOG.user, "training": LOG.training, "model": "NCM"}
    earned = {name: mean(ours, "expected_clicks", policy=name, **where) for name in ("Top-Down", "Max-Reward")}
    ncm = lines["NCM"]
    assert ncm["Top-Down"].mean == pytest.approx(earned["Top-Down"])
    assert ncm["gain of Max-Reward"].mean == pytest.approx(earned["Max-Reward"] - earned["Top-Down"])
    assert ncm["curse of Max-Reward"].mean == pytest.approx(mean(ours, "curse", policy="Max-Reward", **where))
    assert lines["PBM"]["Max-Reward"].standing == "best", "the oracle is not compared"
    assert list(policy_tables(rows)) == [log for log in perplexity_tables(rows) if log.user != "DBN"]


def test_rows_may_say_less() -> None:
    rows = [{"model": name, "shift": s, "testing": t, "perplexity": p} for name, s, t, p in (
        ("A", "ind", "ind", 1.2), ("B", "ind", "ind", 1.3), ("A", "ood", "x", 1.4), ("B", "ood", "x", 1.3)
    )]  # fmt: skip
    assert str(next(iter(perplexity_tables(rows)))) == "One log"
    assert [line["more robust"] for line in robustness_table(rows)] == [0, 1]
    assert ranking_tables(rows) == policy_tables(rows) == {}
    assert robustness_table([]) == nppl_table([]) == []


def test_costs_are_no_ranking_metrics() -> None:
    cost = {"task_seconds": 28.4, "task_cpu_seconds": 14.2, "task_megabytes": 612.5, "fit_seconds": 1.0}
    rows = [row | cost for row in shift_rows(["DBN"], ["PL-oracle"], seeds=2)]
    (table,) = ranking_tables(rows).values()
    assert not set(table[0]) & set(cost)
    assert str(table) == str(*ranking_tables(shift_rows(["DBN"], ["PL-oracle"], seeds=2)).values())
