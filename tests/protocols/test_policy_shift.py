"""The policy-shift protocol: what the paper found holds at small scale, and cells are what their settings say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.errors import SpecError
from clickshift.protocols.choosing import chosen, on_corpus
from clickshift.protocols.contenders import LOGGING, ORACLE, PEEKING, TRUTH, Contender, candidate
from clickshift.protocols.derived_policies import DerivedPolicies
from clickshift.protocols.exhibits import EXHIBITS, Analytic, exhibit, section_6_1
from clickshift.protocols.judging import IND
from clickshift.protocols.model_selection import SelectionCell
from clickshift.protocols.pointwise import PointwiseCell
from clickshift.protocols.pointwise_checks import ChecksCell
from clickshift.protocols.pointwise_tuning import TuningCell
from clickshift.protocols.policy_shift import Cell, PolicyShift, rows_of
from clickshift.protocols.reference import copy_reference
from clickshift.protocols.running import open_run, start_run
from clickshift.protocols.world import World
from clickshift.runs import RunFolder, digest, run_tasks

Rows = list[dict[str, Any]]
BY_EM = tuple(Contender(name, name) for name in ("PBM", "UBM", "DBN"))
COUNTED = Contender("dCTR", "dCTR", "baseline")
PEEKS = replace(PEEKING, learner="Gradient('ARM_NC', embedding=16)")


def run(protocol: PolicyShift) -> Rows:
    return [row for cell in protocol.cells() for row in cell.rows()]


def value(rows: Rows, model: str, metric: str, **where: Any) -> float:
    """The mean over seeds of a metric."""
    found = [
        r[metric] for r in rows if r["model"] == model and metric in r and all(r.get(k) == v for k, v in where.items())
    ]
    assert found, (model, metric, where)
    return float(np.mean(found))


@pytest.fixture(scope="module", params=["builtin", "mslr_sample"])
def strong_shift(request: pytest.FixtureRequest) -> Rows:
    """Section 6.1: near-optimal training lists, test lists in increasing relevance."""
    corpus = "builtin"
    if request.param != corpus:
        corpus = str(request.getfixturevalue("shared_data") / request.param)
    protocol = replace(section_6_1(), contenders=(TRUTH, COUNTED, *BY_EM, PEEKS), seeds=2)
    world = replace(protocol.world, queries=100, sessions=40_000, test_sessions=10_000)
    return run(replace(protocol, world=on_corpus(world, corpus)))


@pytest.fixture(scope="module")
def shifted() -> Rows:
    """One training policy, three users, test lists of three policies; derived policies on the third user."""
    policies = (("oracle", "Oracle"), ("random", "Uniform"), ("BM25", "BM25"))
    protocol = PolicyShift(
        training=PolicyShift().training[:1],
        contenders=(TRUTH, COUNTED, *BY_EM, Contender("TopPop", "TopPop", "baseline")),
        world=World(testing=policies, queries=100, sessions=40_000),
        derived=DerivedPolicies(sessions=20_000),
    )
    return run(protocol)


@pytest.mark.parametrize("user", ["DBN", "CoCM"])
def test_high_ndcg_and_collapse_go_together(strong_shift: Rows, user: str) -> None:
    """Tables 3 and 4: dCTR and ARM NC rank best, and predict worse than all where the ranker changes.

    The perplexity of ARM NC is not comparable: it is held against its own on the training policy's lists.
    """
    models, naive = ("PBM", "UBM", "DBN"), ("dCTR", "ARM NC")
    ind, ood = (
        {name: value(strong_shift, name, "perplexity", user=user, shift=shift) for name in (*models, *naive)}
        for shift in ("ind", "ood")
    )
    ndcg = {name: value(strong_shift, name, "nDCG@3", user=user) for name in ood}
    assert ood["dCTR"] > max(ood[name] for name in models)
    rise = {name: ood[name] - ind[name] for name in ood}
    assert rise["ARM NC"] > max(rise[name] for name in models) + 0.05
    for name in naive:
        assert ndcg[name] > max(ndcg[other] for other in models)


def test_nothing_predicts_better_than_the_user(strong_shift: Rows, shifted: Rows) -> None:
    for rows in (strong_shift, shifted):
        for row in rows:
            if row["kind"] == "clicks" and row["role"] != "peeking":
                least = value(rows, ORACLE, "log_likelihood", user=row["user"], testing=row["testing"])
                assert row["log_likelihood"] <= least + 1e-3, row


def test_dbn_is_best_for_dbn_users_and_brittle_for_others(shifted: Rows) -> None:
    def gap(user: str, testing: str, model: str) -> float:
        return value(shifted, model, "perplexity", user=user, testing=testing) - value(
            shifted, ORACLE, "perplexity", user=user, testing=testing
        )

    for testing in (IND, "oracle", "random", "BM25"):
        assert gap("DBN", testing, "DBN") < min(gap("DBN", testing, other) for other in ("PBM", "UBM"))
    assert gap("CoCM-mismatch", "random", "DBN") > gap("CoCM-mismatch", "random", "PBM")


def test_pbm_gains_from_max_reward_where_users_do_not_go_top_down(shifted: Rows) -> None:
    clicks = {
        policy: value(shifted, "PBM", "expected_clicks", user="CoCM-mismatch", policy=policy)
        for policy in ("Top-Down", "Max-Reward")
    }
    assert clicks["Max-Reward"] > clicks["Top-Down"] + 0.02


def test_rows_say_what_was_judged(shifted: Rows) -> None:
    assert {row["testing"] for row in shifted if row["kind"] == "clicks"} == {IND, "oracle", "random", "BM25"}
    assert not [row for row in shifted if row["kind"] == "clicks" and row["model"] == "TopPop"], "it predicts no clicks"
    logging = [row for row in shifted if row["model"] == LOGGING]
    assert len(logging) == 3
    assert all(0 < row["nDCG@10"] <= 1 and row["never_shown"] > 0 for row in logging)
    assert all(0 <= row["head nDCG@10"] <= 1 for row in shifted if row["kind"] == "ranking")
    assert {row["user"] for row in shifted if row["kind"] == "policy"} == {"CoCM", "CoCM-mismatch"}
    assert value(shifted, ORACLE, "nDCG@10") == pytest.approx(1)


def test_test_lists_show_only_what_training_showed() -> None:
    logs = World(queries=50, sessions=2000, test_sessions=1000).logs("DBN", PolicyShift().training[0][1])
    shown = set(np.unique(logs.train.rankings.pair[logs.train.rankings.shown]).tolist())
    for name, log in logs.test.items():
        if name != IND:
            pairs = log.in_vocabulary(logs.train.vocabulary).rankings.pair[log.rankings.shown]
            assert set(pairs.tolist()) <= shown
    assert logs.train.total, logs.held_out.total == (1600, 200)


def test_a_log_of_several_policies() -> None:
    """A mitigation of the paper: equal shares of the sessions."""
    world = World(queries=50, sessions=3000, test_sessions=500)
    oracle, random = "PlackettLuce(Oracle, temperature=0.1, scores='log')", "Uniform"
    mixed = world.logs("DBN", f"{oracle} + {random}")
    alone = world.logs("DBN", oracle)
    assert mixed.train.total == alone.train.total == 2400
    assert len(mixed.seen.label) > len(alone.seen.label)


def test_cells_are_the_grid() -> None:
    protocol = PolicyShift()
    cells = protocol.cells()
    assert len(cells) == 9 * len(protocol.contenders)
    assert len({digest(cell) for cell in cells}) == len(cells)
    derived = {(cell.user[0], cell.contender.role) for cell in cells if cell.derived is not None}
    assert derived == {("CoCM", "click model"), ("CoCM-mismatch", "click model")}


def test_a_cell_gives_the_same_rows_in_any_process() -> None:
    cell = _small().cells()[1]
    from clickshift.runs import processes

    with processes(1) as pool:
        elsewhere = pool.submit(rows_of, cell).result()
    assert _without_time(cell.rows()) == _without_time(elsewhere)


def test_a_run_goes_on_and_is_read_again(tmp_path: Path) -> None:
    protocol = _small()
    folder, settings = start_run(protocol, tmp_path, corpus="builtin")
    with ThreadPoolExecutor(1) as pool:
        run_tasks(protocol.cells(), rows_of, folder, pool)
    again, same, noted = open_run(tmp_path)
    assert (again, noted) == (protocol, settings)
    assert all(same.has(cell) for cell in again.cells())
    assert len(same.rows(again.cells())) == len(run(protocol))


def _small() -> PolicyShift:
    return PolicyShift(
        users=(("DBN", "DBN"),),
        training=PolicyShift().training[:1],
        contenders=(TRUTH, Contender("PBM", "Gradient('PBM', embedding=4, rounds=2)")),
        world=World(testing=(("random", "Uniform"),), queries=30, sessions=1000, test_sessions=200),
        seeds=2,
    )


def _without_time(rows: Rows) -> Rows:
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def test_reference_rows_are_those_of_this_very_protocol(tmp_path: Path) -> None:
    """If this fails, a setting or VERSION has changed: make the rows again (benchmarks/policy_shift.py)."""
    cells = PolicyShift().cells()
    folder = RunFolder(tmp_path)
    assert copy_reference(cells, folder) == len(cells)
    rows = folder.rows(cells)
    seeds = {row["seed"] for row in rows if row["model"] == "NCM"}
    assert seeds == set(range(10))
    for cell in cells:
        if cell.contender == TRUTH and cell.training[0] == "PL-oracle":
            fresh = [row for row in cell.rows() if row["kind"] == "clicks" and row["testing"] == "BM25"]
            kept = [row for row in folder.rows([cell]) if row["kind"] == "clicks" and row["testing"] == "BM25"]
            assert fresh[0]["perplexity"] == pytest.approx(kept[0]["perplexity"], abs=1e-6)
            return


def test_the_paper_findings_hold_in_the_reference_rows(tmp_path: Path) -> None:
    cells = PolicyShift().cells()
    copy_reference(cells, RunFolder(tmp_path))
    rows = RunFolder(tmp_path).rows(cells)
    clicks = [row for row in rows if row["kind"] == "clicks"]
    models = ("PBM", "UBM", "DBN", "NCM", "CACM-minus", "ARM")
    for training in ("PL-oracle", "PL-BM25", "PL-LambdaMART"):
        ind = {name: value(clicks, name, "perplexity", user="DBN", training=training, testing=IND) for name in models}
        assert min(ind, key=ind.__getitem__) == "DBN"
    for user in ("DBN", "CoCM", "CoCM-mismatch"):
        for name in models:
            assert value(clicks, name, "perplexity", user=user) > value(clicks, ORACLE, "perplexity", user=user)


def test_tables_3_and_4_hold_in_the_reference_rows(tmp_path: Path) -> None:
    """What ranks best predicts worst where the ranker changes; ARM NC is held against itself."""
    cells = section_6_1().cells()
    assert copy_reference(cells, RunFolder(tmp_path)) == len(cells)
    rows = RunFolder(tmp_path).rows(cells)
    models, naive = ("PBM", "UBM", "DBN", "NCM", "CACM-minus"), ("dCTR", "ARM NC")
    for user in ("DBN", "CoCM"):
        ndcg = {name: value(rows, name, "nDCG@3", user=user) for name in (*models, *naive)}
        ind, ood = (
            {name: value(rows, name, "perplexity", user=user, shift=shift) for name in ndcg} for shift in ("ind", "ood")
        )
        assert min(ndcg[name] for name in naive) > max(ndcg[name] for name in models)
        assert ood["dCTR"] > max(ood[name] for name in models)
        assert ood["ARM NC"] - ind["ARM NC"] > max(ood[name] - ind[name] for name in models) + 0.05


def test_choosing() -> None:
    protocol = chosen("quick", users=["CoCM"], training=["PL-BM25"], models=["PBM", "EM('UBM')"], seeds=2, sessions=500)
    assert protocol.users == (("CoCM", "CoCM"),)
    assert protocol.training[0][1].startswith("PlackettLuce(BM25")
    assert [c.learner for c in protocol.contenders if c.role == "click model"] == ["Gradient('PBM')", "EM('UBM')"]
    assert (protocol.seeds, protocol.world.sessions) == (2, 500)
    assert chosen("quick", derived=False).derived is None
    for wrong in (dict(scale="huge"), dict(scale="quick", users=["Nobody"]), dict(scale="quick", models=["XYZ"])):
        with pytest.raises(SpecError):
            chosen(**wrong)  # type: ignore[arg-type]


def test_a_candidate_is_known_by_the_file_it_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_shift_model.py").write_text(
        "from clickshift.models.arm import ARM\nclass MyModel(ARM):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = candidate("own_shift_model:MyModel")
    assert (mine.name, mine.role, mine.learner) == ("MyModel", "candidate", "Gradient('MyModel')")
    assert len(mine.content) > 8
    for wrong, said in (
        ("own_shift_model:Other", "cannot be imported"),
        ("math:pi", "must be a subclass"),
        ("no.where:X", "cannot be"),
    ):
        with pytest.raises(SpecError, match=said):
            candidate(wrong)


CELLS = (Cell, SelectionCell, PointwiseCell, ChecksCell, TuningCell)


def test_every_exhibit_that_is_ready_can_be_made() -> None:
    ready = [name for name, one in EXHIBITS.items() if one.state == "ready"]
    assert set(ready) >= {"table3", "table4", "figure1", "figure2", "ips-figure1"}
    for name in ready:
        make = exhibit(name).make
        assert make is not None
        protocol = make()
        if isinstance(protocol, Analytic):
            assert protocol.rows()
            continue
        cells = list(protocol.cells())
        assert cells
        assert all(isinstance(cell, CELLS) for cell in cells)
    with pytest.raises(SpecError, match="is no table or figure"):
        exhibit("table99")


def test_the_user_of_a_world_is_the_one_that_clicks() -> None:
    logs = World(queries=50, sessions=20_000, test_sessions=100).logs("DBN", PolicyShift().training[0][1])
    assert isinstance(logs.user, cs.models.DBN)
    expected = logs.user.click_prob(logs.train.rankings).mean(axis=0)
    np.testing.assert_allclose(logs.train.ctr_by_rank(), expected, atol=0.02)
