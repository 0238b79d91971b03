"""The simulator of the calibration study tells the truth, and shares no code with the package."""

from __future__ import annotations

import ast
import sys
from typing import Any

import numpy as np
import pytest

from tests.scripts import ROOT, script

PATH = ROOT / "benchmarks" / "shops.py"
shops: Any = script("benchmarks/shops.py")


def test_the_simulator_imports_numpy_and_the_standard_library_only() -> None:
    imported = set()
    for node in ast.walk(ast.parse(PATH.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"__import__", "eval", "exec"}
    assert imported <= set(sys.stdlib_module_names) | {"numpy"}
    assert "importlib" not in imported


@pytest.mark.parametrize("family", [*shops.USERS, "unknown"])
def test_click_patterns_have_probability_one_in_all(family: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        users = shops.make_users(family, 5, rng)
        prob = users.probabilities(rng.random((7, 5)), rng.random((7, 5)))
        assert prob.min() >= 0
        np.testing.assert_allclose(prob.sum(axis=1), 1)


def one_session(users: Any, a: Any, s: Any, rng: np.random.Generator) -> list[int]:
    """Let one user browse a list, result by result: the second writing of every family."""
    n, p = len(a), users.parameters
    clicks = [0] * n
    if users.family.startswith("PBM"):
        return [int(rng.random() < p["examination"][k] * a[k]) for k in range(n)]
    if users.family == "UBM":
        last = -1
        for k in range(n):
            examined = (k + 1) ** -p["start"] if last < 0 else (k - last) ** -p["decay"]
            clicks[k] = int(rng.random() < examined and rng.random() < a[k])
            last = k if clicks[k] else last
        return clicks
    if users.family == "mixture" and rng.random() >= p["share of DBN"]:
        curve = {"PBM 1/k": 1.0, "PBM k^-.3": 0.3}[p["PBM"]]
        return [int(rng.random() < (k + 1) ** -curve * a[k]) for k in range(n)]
    for k in range(n)[:: -1 if p.get("kind") == "bottom-up" else 1]:
        clicks[k] = int(rng.random() < a[k])
        if users.family == "CCM":
            good = rng.random() < a[k]
            going_on = (p["after a good click"] if good else p["after a poor click"]) if clicks[k] else p["after skip"]
        else:
            if clicks[k] and rng.random() < s[k]:
                break
            going_on = p["continuation"]
        if rng.random() >= going_on:
            break
    return clicks


@pytest.mark.parametrize("family", ["PBM k^-.3", "UBM", "DBN", "CCM", "mixture", "unknown"])
def test_simulated_sessions_have_the_enumerated_frequencies(family: str) -> None:
    rng = np.random.default_rng(1)  # with it, unknown users browse bottom-up
    users = shops.make_users(family, 4, rng)
    a, s, n = rng.uniform(0.2, 0.8, 4), rng.uniform(0.2, 0.8, 4), 10_000
    prob = users.probabilities(a[None], s[None])[0]
    number = [int("".join(map(str, one_session(users, a, s, rng))), 2) for _ in range(n)]
    observed = np.bincount(number, minlength=16)
    assert np.abs((observed - n * prob) / np.sqrt(n * prob * (1 - prob) + 1e-9)).max() < 4.5


def test_users_beside_an_attractive_result_look_away() -> None:
    seeds = (
        s for s in range(20) if shops.make_users("unknown", 4, np.random.default_rng(s)).parameters["kind"][0] == "n"
    )
    users = shops.make_users("unknown", 4, np.random.default_rng(next(seeds)))
    low, high = np.array([[0.1, 0.5, 0.5, 0.5]]), np.array([[0.9, 0.5, 0.5, 0.5]])
    click = [users.probabilities(a, a)[0] @ shops.patterns(4) for a in (low, high)]
    assert click[1][1] < click[0][1]
    assert click[1][2] == pytest.approx(click[0][2])


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_large_log_earns_what_the_enumeration_says(seed: int) -> None:
    shop = shops.make_shop(seed, sessions=1_000_000, days="alike days")
    reward, n = shop.clicks.sum(axis=1), shop.count.sum()
    mean = shop.count @ reward / n
    error = np.sqrt((shop.count @ reward**2 / n - mean**2) / n)
    assert n == 1_000_000
    assert abs(mean - shop.log_value) < 4 * error


def test_the_value_of_the_target_is_a_loop_over_its_lists() -> None:
    """A user who sees everything clicks as often as results are attractive: the value of any list is their sum."""
    shop = shops.make_shop(
        7, users="PBM flat", sessions=1_000_000, ranker="nearly random", days="no days", target="far"
    )
    value = 0.0
    share = {q: shop.count[shop.query == q].sum() / shop.count.sum() for q in np.unique(shop.query)}
    for query, docs, weight in zip(shop.target_query, shop.target_docs, shop.target_weight, strict=True):
        for doc in docs:
            at = shop.docs == doc
            value += (
                share[query]
                * weight
                * (shop.count @ (at & (shop.clicks == 1)).sum(axis=1))
                / (shop.count @ at.sum(axis=1))
            )
    assert value == pytest.approx(shop.target_value, abs=0.02)


def test_close_losses_lose_less_than_two_percent() -> None:
    made = [shops.make_shop(seed, close_loss=True, sessions=500) for seed in range(10)]
    assert all(-0.02 < shop.relative_gain < 0 for shop in made)
    assert {shop.strata["gain"] for shop in made} == {"loses 0-2 %"}


def test_targets_weigh_one_per_query_and_show_no_document_twice() -> None:
    for seed in range(6):
        shop = shops.make_shop(seed, sessions=500)
        np.testing.assert_allclose(np.bincount(shop.target_query, shop.target_weight), 1)
        for lists in (shop.docs, shop.target_docs):
            assert all(len(set(row)) == len(row) for row in lists.tolist())


def test_unseen_targets_show_documents_that_the_ranker_cannot_show() -> None:
    shop = shops.make_shop(1, target="unseen", sessions=1_000_000, close_loss=False)
    assert shop.strata["never shown"] > 0
    assert set(shop.target_docs.ravel()) - set(shop.docs.ravel())


def test_drift_changes_the_gain_of_the_next_day_and_alike_days_do_not() -> None:
    alike, drift = (shops.make_shop(4, days=days, sessions=500) for days in ("alike days", "drift"))
    assert alike.day.max() >= 6
    assert drift.day is not None
    assert drift.next_day_gain != pytest.approx(drift.gain, abs=1e-4)


def test_the_same_seed_makes_the_same_shop() -> None:
    one, two = shops.make_shop(11), shops.make_shop(11)
    assert one.strata == two.strata
    assert (one.clicks == two.clicks).all()
    assert (one.count == two.count).all()
