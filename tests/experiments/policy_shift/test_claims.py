"""Every number and statement of docs/policy-shift.md on results, computed from the rows that the package ships."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from clickshift.display.tables import read_rows
from clickshift.experiments.policy_shift._report_derived import MAX_REWARD, TOP_DOWN, policy_clicks
from clickshift.experiments.policy_shift._report_robustness import is_same_policy, policy_shifts, rows_by_setting
from clickshift.experiments.policy_shift._report_tables import ranking_tables, robustness_table
from clickshift.experiments.runner import REFERENCE_FILE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "policy-shift.md").read_text(encoding="utf-8")
ROWS = read_rows(Path(ROOT, "src/clickshift/experiments/reference_rows", REFERENCE_FILE))
GRID = [row for row in ROWS if row["training"] != "PL-relevance"]
USERS = ("DBN", "CoCM", "CoCM-mismatch")
TRAINING = ("PL-oracle", "PL-BM25", "PL-LambdaMART")
MODELS = ("PBM", "UBM", "DBN", "NCM", "CACM-minus", "ARM")
OTHERS = ("CoCM", "CoCM-mismatch")
SHIFTS = policy_shifts(GRID)
CLICKS = policy_clicks(GRID)


def tables_of_page() -> dict[str, dict[str, dict[str, str]]]:
    """Tables by the first cell of their head: cells by line and column."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.M):
        head, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines())
        tables[" ".join(head[:2])] = {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in lines}
    return tables


TABLES = tables_of_page()


def text(number: float, digits: int, *, signed: bool = False) -> str:
    """A number as the page writes it: without the 0 before the point."""
    return re.sub(r"(?<!\d)0\.", ".", f"{number:{'+' if signed else ''}.{digits}f}")


def mean_difference(model: str, **where: tuple[str, ...]) -> float:
    """Mean of ood minus ind nPPL of a model over the shifts of some users, training or test policies."""
    return fmean(
        shift.difference
        for shift in SHIFTS
        if shift.model == model and all(getattr(shift.setting, key) in values for key, values in where.items())
    )


def perplexity(rows: list[Any], model: str, user: str, training: str, testing: str) -> float:
    (group,) = (group for setting, group in rows_by_setting(rows).items() if setting == (user, training, testing))
    return fmean(row["perplexity"] for row in group if row["model"] == model)


def says(sentence: str) -> None:
    assert sentence in " ".join(PAGE.split()), "the page no longer has this sentence: change the test with it"


def test_the_table_of_robustness() -> None:
    shown = TABLES["model ood nPPL < ind nPPL (seeds agree)"]
    computed = {str(line["model"]): line for line in robustness_table(GRID)}
    assert list(shown) == sorted(MODELS, key=lambda model: computed[model]["mean difference"].mean)
    for model, cells in shown.items():
        line = computed[model]
        user, _, change = str(line["worst shift"]).partition(" users, ")
        mean = line["mean difference"]
        assert list(cells.values()) == [
            f"{line['more robust']} ({line['more robust (significant)']})",
            f"{line['less robust']} ({line['less robust (significant)']})",
            str(line["best on both"]),
            f"{text(mean.mean, 3, signed=True)} ± {text(mean.half, 3)}",
            f"{user}, {change}, {text(line['worst difference'].mean, 3, signed=True)}",
        ]


def test_the_table_of_clicks() -> None:
    shown = TABLES["model CoCM, PL-oracle"]
    by_model: dict[str, list[str]] = {}
    curses: dict[str, list[float]] = {}
    for models in CLICKS.values():
        for one in models:
            means = (fmean(one.expected[policy].values()) for policy in (TOP_DOWN, MAX_REWARD))
            by_model.setdefault(one.model, []).append(" → ".join(text(mean, 3) for mean in means))
            curses.setdefault(one.model, []).append(one.curse(MAX_REWARD).mean)
    assert tuple(shown) == MODELS
    for model, cells in shown.items():
        *clicks, curse = cells.values()
        for cell, computed in zip(clicks, by_model[model], strict=True):
            for one, other in zip(cell.split(" → "), computed.split(" → "), strict=True):
                assert float(one) == pytest.approx(float(other), abs=0.0011), "ties of the last digit"
        assert curse == text(fmean(curses[model]), 2)


@pytest.mark.parametrize("user", ["DBN", "CoCM"])
def test_tables_3_and_4(user: str) -> None:
    shown = TABLES[f"{user} users ind perplexity"]
    (ranking,) = (table for log, table in ranking_tables(ROWS).items() if log == (user, "PL-relevance"))
    ndcg = {line["model"]: line["nDCG@3"] for line in ranking}
    for name, cells in shown.items():
        model = "user (oracle)" if name == "oracle" else name
        ours = [re.match(r"\(?([\d.]+)", cell)[1] for cell in cells.values()]  # type: ignore[index]
        wanted = [perplexity(ROWS, model, user, "PL-relevance", test) for test in ("ind", "increasing")]
        assert [ours[0], ours[2]] == [f"{value:.4f}" for value in wanted]
        assert float(ours[1]) == pytest.approx(ndcg[model].mean, abs=0.0005)


def paper_and_ours(user: str) -> dict[str, tuple[float, float, float, float]]:
    """By model: our ind and ood perplexity, and the paper's."""
    found = {}
    for name, cells in TABLES[f"{user} users ind perplexity"].items():
        numbers = [re.findall(r"\d\.\d{4}", cells[column]) for column in ("ind perplexity", "ood perplexity")]
        (ind, paper_ind), (ood, paper_ood) = ((float(n[0]), float(n[-1])) for n in numbers)
        found[name] = (ind, ood, paper_ind, paper_ood)
    return found


def test_what_the_page_concludes_of_tables_3_and_4() -> None:
    says("With DBN users the paper's conclusion holds: the two models that rank best, dCTR and ARM NC, lose most")
    says("With CoCM users it holds for ARM NC only")
    rise = {
        user: {m: v[1] - v[0] for m, v in paper_and_ours(user).items() if m != "oracle"} for user in ("DBN", "CoCM")
    }
    assert set(sorted(rise["DBN"], key=rise["DBN"].__getitem__)[-2:]) == {"dCTR", "ARM NC"}
    assert max(rise["CoCM"], key=rise["CoCM"].__getitem__) == "ARM NC"
    for user in ("DBN", "CoCM"):
        ranked = {
            line["model"]: line["nDCG@3"].mean
            for log, table in ranking_tables(ROWS).items()
            if log == (user, "PL-relevance")
            for line in table
            if line["role"] != "oracle" and line["model"] != "logging policy"
        }
        assert set(sorted(ranked, key=ranked.__getitem__)[-2:]) == {"dCTR", "ARM NC"}
    says("but by .002, and it rises by .010 (in the paper by .046), less than that of UBM, CACM-minus, NCM and DBN")
    cocm = paper_and_ours("CoCM")
    level = sorted((v[1] for m, v in cocm.items() if m != "ARM NC"), reverse=True)
    assert level[0] == cocm["dCTR"][1]
    assert text(level[0] - level[1], 3) == ".002"
    assert text(rise["CoCM"]["dCTR"], 3) == ".010"
    assert text(cocm["dCTR"][3] - cocm["dCTR"][2], 3) == ".046"
    below = {m for m, value in rise["CoCM"].items() if value < rise["CoCM"]["dCTR"]}
    assert below == {"PBM"}
    says("by about .03 with DBN users and .02 with CoCM users")
    says("dCTR is nearer, too, by .024 and .016")
    for user, about, counted in (("DBN", ".03", ".024"), ("CoCM", ".02", ".016")):
        table = paper_and_ours(user)
        nearer = {m: (v[2] - table["oracle"][2]) - (v[0] - table["oracle"][0]) for m, v in table.items()}
        assert {text(nearer[m], 2) for m in ("DBN", "UBM", "NCM", "CACM-minus", "PBM")} == {about}
        assert text(nearer["dCTR"], 3) == counted
        assert rise[user]["ARM NC"] < table["ARM NC"][3] - table["ARM NC"][2], "ARM NC loses less"


def test_statements_on_robustness() -> None:
    says("PBM and UBM keep their positions among the models best, NCM and CACM-minus lose most where users are not DBN")
    everywhere = {model: mean_difference(model) for model in MODELS}
    others = {model: mean_difference(model, user=OTHERS) for model in MODELS}
    assert sorted(everywhere, key=everywhere.__getitem__)[:2] == ["PBM", "UBM"]
    assert sorted(others, key=others.__getitem__)[-2:] == ["CACM-minus", "NCM"]
    says("NCM loses most (mean difference +.148); its loss is largest after near-optimal logging (+.404, against -.081")
    by_log = [text(mean_difference("NCM", user=OTHERS, training=(log,)), 3, signed=True) for log in TRAINING]
    assert (text(others["NCM"], 3, signed=True), by_log) == ("+.148", ["+.404", "-.081", "+.120"])
    says("its mean difference for CoCM and CoCM-mismatch users is +.017, that of NCM +.148")
    assert [text(others[model], 3, signed=True) for model in ("DBN", "NCM")] == ["+.017", "+.148"]
    says("DBN is the best model of DBN users on every training policy (ind), and in 6 shifts on both logs.")
    for log in TRAINING:
        ind = {model: perplexity(GRID, model, "DBN", log, "ind") for model in MODELS}
        assert min(ind, key=ind.__getitem__) == "DBN"
    assert sum(s.stays_best for s in SHIFTS if s.model == "DBN" and s.setting.user == "DBN") == 6
    says("For CoCM users it falls behind on random lists.")
    random = [s for s in SHIFTS if s.model == "DBN" and s.setting.user == "CoCM" and s.setting.testing == "random"]
    assert [s.difference > 0 for s in random] == [True] * 3
    says("UBM is the best model on both logs in 17 of 27 shifts, among them all nine of CoCM-mismatch users.")
    best = [shift.setting.user for shift in SHIFTS if shift.model == "UBM" and shift.stays_best]
    assert (len(best), best.count("CoCM-mismatch")) == (17, 9)
    says("CACM-minus is not more robust than its peers: its mean difference is +.056, and that for CoCM users +.142.")
    cacm = (everywhere["CACM-minus"], mean_difference("CACM-minus", user=("CoCM",)))
    assert [text(value, 3, signed=True) for value in cacm] == ["+.056", "+.142"]


def test_statements_on_clicks() -> None:
    says("PBM gains from Max-Reward on all six logs, UBM on all but one (CoCM, PL-oracle, -.029).")
    gain = {(log.user, one.model, log.training): one.gain.mean for log, models in CLICKS.items() for one in models}
    logs = [(user, log) for user in OTHERS for log in TRAINING]
    losses = {model: [place for place in logs if gain[place[0], model, place[1]] <= 0] for model in MODELS}
    assert (losses["PBM"], losses["UBM"]) == ([], [("CoCM", "PL-oracle")])
    assert text(gain["CoCM", "UBM", "PL-oracle"], 3, signed=True) == "-.029"
    says("the policy of one of them receives most clicks, and that of the other at most .020 fewer.")
    fewer = []
    for log, models in CLICKS.items():
        clicks = {one.model: fmean(one.expected[MAX_REWARD].values()) for one in models}
        if log.user == "CoCM-mismatch":
            assert max(clicks.values()) in (clicks["PBM"], clicks["UBM"])
            fewer.append(abs(clicks["PBM"] - clicks["UBM"]))
    assert text(max(fewer), 3) == ".020"
    says("NCM, whose curse is the largest, loses under CoCM on all three.")
    assert {place for place in logs if place[0] == "CoCM"} <= set(losses["NCM"])
    curse = {m: fmean(o.curse(MAX_REWARD).mean for ms in CLICKS.values() for o in ms if o.model == m) for m in MODELS}
    assert max(curse, key=curse.__getitem__) == "NCM"
    says("ARM loses by Max-Reward on all six logs, CACM-minus on one.")
    assert (len(losses["ARM"]), len(losses["CACM-minus"])) == (6, 1)


def test_statements_on_dctr_and_the_oracle() -> None:
    says("(at most .011 worse)")
    says("PL-BM25 → oracle, DBN users, 1.339 against 1.302")
    says("It is ahead of PBM in 1 of 27 shifts.")
    behind = [
        perplexity(GRID, "dCTR", user, log, "ind") - perplexity(GRID, "PBM", user, log, "ind")
        for user in USERS
        for log in TRAINING
    ]
    assert text(max(behind), 3) == ".011"
    assert f"{perplexity(GRID, 'dCTR', 'DBN', 'PL-BM25', 'oracle'):.3f}" == "1.339"
    assert f"{perplexity(GRID, 'PBM', 'DBN', 'PL-BM25', 'oracle'):.3f}" == "1.302"
    settings = [s for s in rows_by_setting(GRID) if s.testing != "ind" and not is_same_policy(s)]
    ahead = sum(perplexity(GRID, "dCTR", *s) < perplexity(GRID, "PBM", *s) for s in settings)
    assert (ahead, len(settings)) == (1, 27)
    says("The oracle has a better log-likelihood than every model on every log.")
    for group in rows_by_setting(GRID).values():
        (oracle,) = (row["log_likelihood"] for row in group if row["role"] == "oracle")
        assert oracle > max(row["log_likelihood"] for row in group if row["role"] not in {"oracle", "peeking"})
