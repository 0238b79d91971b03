"""The claims of the policy-shift paper (Deffayet et al. 2022), evaluated on rows of its whole grid.

`benchmarks/claims.py` writes them to docs/claims.md; `reproduce` shows those on figures 1 and 2. A claim on robustness
is evaluated in two readings: by the paper's criterion, normalised perplexity (nPPL) on other policies' lists minus that
on the training policy's lists; and by the rise of perplexity above that of the user's own model (excess).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from clickshift.display.tables import Row
from clickshift.experiments.policy_shift._report_derived import MAX_REWARD, PolicyClicks, policy_clicks
from clickshift.experiments.policy_shift._report_robustness import LogName, Shift, policy_shifts, rows_of_kind
from clickshift.experiments.policy_shift.published import IND_PPL, NDCG_3, OOD_PPL, ORACLE, published_differences

MODELS = ("PBM", "UBM", "DBN", "NCM", "CACM-minus", "ARM")
NAIVE = ("dCTR", "drCTR", "TopPop", "TopPopObs", "RankTopObs")
OTHERS = ("CoCM", "CoCM-mismatch")
"""Users who are not DBN users."""
STRONG = ("random", "BM25")
"""Test policies of a strong shift away from a near-optimal logging policy (section 6.2)."""
HOLDS, FAILS, DEPENDS, NOT_TESTED = "holds", "fails", "depends on", "not tested"


class Finding(NamedTuple):
    """What the rows say on a claim."""

    verdict: str
    """"holds", "fails", "depends on" with what, or "not tested"."""
    evidence: str


class Claim(NamedTuple):
    """A claim of a paper."""

    section: str
    text: str
    finding: Finding


def number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number without the 0 before the point."""
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text


def either(condition: bool | np.bool_) -> str:
    """Return "holds" or "fails"."""
    return HOLDS if condition else FAILS


def by_part(parts: Mapping[str, bool | np.bool_], what: str) -> str:
    """Return "holds" or "fails" if all parts agree, otherwise what the claim depends on."""
    if len(set(parts.values())) == 1:
        return either(next(iter(parts.values())))
    return f"{DEPENDS} {what} (holds: {', '.join(name for name, true in parts.items() if true)})"


class GridRows:
    """Rows of the protocol, and what the claims compute from them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.all = rows
        self.grid = [row for row in rows if row["training"] != "PL-relevance"]

    @cached_property
    def shifts(self) -> list[Shift]:
        """Changes of policy, by model."""
        return policy_shifts(self.grid)

    @cached_property
    def clicks(self) -> dict[LogName, dict[str, PolicyClicks]]:
        """Clicks of derived policies, by log and model."""
        return {log: {one.model: one for one in models} for log, models in policy_clicks(self.grid).items()}

    def of(self, model: str, **where: tuple[str, ...]) -> list[Shift]:
        """Return the shifts of a model, of some users, training or test policies."""
        found = [shift for shift in self.shifts if shift.model == model]
        return [s for s in found if all(getattr(s.setting, key) in values for key, values in where.items())]

    def nppl(self, model: str, **where: tuple[str, ...]) -> float:
        """Return the mean of ood minus ind nPPL: the paper's criterion, lower is more robust."""
        return fmean(shift.difference for shift in self.of(model, **where))

    def excess(self, model: str, **where: tuple[str, ...]) -> float:
        """Return the mean rise of perplexity above the oracle's from ind to ood: lower is more robust."""
        return fmean(rise(shift) for shift in self.of(model, **where))

    def order(self, measure: Callable[..., float], **where: tuple[str, ...]) -> list[str]:
        """Return the models by a measure, the most robust first."""
        return sorted(MODELS, key=lambda model: measure(model, **where))

    def rank(self, model: str, kind: str, **where: tuple[str, ...]) -> float:
        """Return the mean rank of a model by ind or ood perplexity among the six, over shifts."""
        by_setting: dict[Any, dict[str, float]] = {}
        for name in MODELS:
            for shift in self.of(name, **where):
                by_setting.setdefault(shift.setting, {})[name] = getattr(shift, kind).perplexity.mean
        return fmean(1 + sum(value < of[model] for value in of.values()) for of in by_setting.values())

    def gain(self, model: str, log: LogName) -> float:
        """Return the gain of Max-Reward over Top-Down, in expected clicks per list."""
        return self.clicks[log][model].gain.mean

    def reward(self, model: str, log: LogName) -> float:
        """Return expected clicks of Max-Reward."""
        return fmean(self.clicks[log][model].expected[MAX_REWARD].values())


def rise(shift: Shift) -> float:
    """Return how much the perplexity above the oracle's rises from ind to ood."""
    assert shift.oracle is not None
    return (shift.ood.perplexity.mean - shift.oracle[1]) - (shift.ind.perplexity.mean - shift.oracle[0])


def two_readings(
    rows: GridRows,
    test: Callable[[list[str], dict[str, float]], bool],
    shown: tuple[str, ...],
    **where: tuple[str, ...],
) -> Finding:
    """Evaluate a claim on robustness by nPPL and by excess."""
    parts, texts = {}, []
    for name, measure in (("nPPL", rows.nppl), ("excess", rows.excess)):
        values = {model: measure(model, **where) for model in MODELS}
        parts[name] = test(rows.order(measure, **where), values)
        of_models = ", ".join(f"{model} {number(values[model], signed=True)}" for model in shown)
        texts.append(f"{name}: {of_models} (most robust first: {' < '.join(rows.order(measure, **where))})")
    return Finding(by_part(parts, "the criterion"), "; ".join(texts))


def section_4(rows: GridRows) -> list[Claim]:
    """Evaluate the claims of section 4."""
    ahead, logs, best_of_all = 0, 0, {}
    for log in dict.fromkeys((row["user"], row["training"]) for row in rows.grid):
        of_log = [r for r in rows_of_kind(rows.grid, "ranking") if (r["user"], r["training"]) == log]
        ndcg = {m: fmean(r["nDCG@10"] for r in of_log if r["model"] == m) for m in (*MODELS, *NAIVE)}
        naive, best = max(NAIVE, key=ndcg.__getitem__), max(MODELS, key=ndcg.__getitem__)
        ahead, logs = ahead + (ndcg[naive] > ndcg[best]), logs + 1
        best_of_all[log] = naive if ndcg[naive] > ndcg[best] else best
    lowest = [
        min(MODELS, key=lambda m: fmean(s.ind.perplexity.mean for s in rows.of(m, user=(user,), training=(log,))))
        for user, log in best_of_all
    ]
    naive_text = f"a naive baseline has the highest nDCG@10 on {ahead} of {logs} simulated logs"
    verdict = either(ahead == logs) if ahead in {0, logs} else f"{DEPENDS} the log"
    return [
        Claim("4.2", "Naive baselines beat all click models in nDCG (Yandex, CLARA)", Finding(verdict, naive_text)),
        Claim(
            "4.2",
            "NCM has the lowest perplexity on its own policy's lists (Yandex, CLARA)",
            Finding(
                either(lowest.count("NCM") == logs) if lowest.count("NCM") in {0, logs} else f"{DEPENDS} the log",
                f"lowest ind perplexity on {lowest.count('NCM')} of {logs} simulated logs; lowest elsewhere: "
                f"{', '.join(f'{m} {lowest.count(m)}' for m in MODELS if m != 'NCM' and lowest.count(m))}",
            ),
        ),
    ]


def section_6_1(rows: GridRows) -> list[Claim]:
    """Evaluate the claims of section 6.1, on tables 3 and 4."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for user in ("DBN", "CoCM"):
        table = tables.setdefault(user, {})
        for one in published_differences(rows.all, user):
            table.setdefault(one.model, {})[one.metric] = one.ours.mean
    compared = {user: {m: v for m, v in table.items() if m != ORACLE} for user, table in tables.items()}
    collapse, texts = {}, []
    for user, table in compared.items():
        climb = {model: v[OOD_PPL] - v[IND_PPL] for model, v in table.items()}
        ranked = sorted(table, key=lambda model: -table[model][NDCG_3])[:2]
        worst = sorted(climb, key=lambda model: -climb[model])[:2]
        collapse[f"{user} users"] = {"dCTR", "ARM NC"} == set(ranked) == set(worst)
        texts.append(
            f"{user} users: best nDCG@3 {' and '.join(ranked)}; largest rise {' and '.join(worst)} "
            f"(dCTR {number(climb['dCTR'], signed=True)}, ARM NC {number(climb['ARM NC'], signed=True)})"
        )
    predicted, counts = {}, []
    for user, table in compared.items():
        names = [model for model in table if model != "ARM NC"]
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        for metric, sign in ((IND_PPL, 1), (NDCG_3, -1)):
            same = sum(
                sign * (table[a][metric] - table[b][metric]) * (table[a][OOD_PPL] - table[b][OOD_PPL]) > 0
                for a, b in pairs
            )
            predicted[f"{metric}, {user} users"] = same < 0.9 * len(pairs)
            counts.append(f"{metric}, {user} users: {same} of {len(pairs)}")
    oracle = {user: table[ORACLE][OOD_PPL] - table[ORACLE][IND_PPL] for user, table in tables.items()}
    of_grid = [shift.oracle[1] - shift.oracle[0] for shift in rows.of("PBM") if shift.oracle]
    return [
        Claim(
            "6.1",
            "dCTR and ARM NC rank best, and their perplexity collapses under increasing relevance",
            Finding(by_part(collapse, "the user"), "; ".join(texts)),
        ),
        Claim(
            "6.1",
            "Neither ind perplexity nor nDCG predicts ood perplexity",
            Finding(
                by_part(predicted, "the metric"),
                f"pairs of models that the metric puts into the order of ood perplexity: {'; '.join(counts)}",
            ),
        ),
        Claim(
            "6.1",
            "The oracle's ood perplexity can be above or below its ind perplexity",
            Finding(
                either(min(of_grid) < 0 < max(of_grid)),
                f"in the grid from {number(min(of_grid), signed=True)} to {number(max(of_grid), signed=True)}; section "
                f"6.1: DBN users {number(oracle['DBN'], signed=True)} (published +.015), CoCM users "
                f"{number(oracle['CoCM'], signed=True)} (published -.006)",
            ),
        ),
    ]


def section_6_2(rows: GridRows) -> list[Claim]:
    """Evaluate the claims of section 6.2, on figure 1."""
    ind = {model: rows.rank(model, "ind") for model in MODELS}
    near_optimal = {"training": ("PL-oracle",)}
    strong = {"training": ("PL-oracle",), "testing": STRONG}
    dbn = rows.of("DBN", user=("DBN",))
    best = sum(
        rows.rank("DBN", "ood", user=("DBN",), training=(s.setting.training,), testing=(s.setting.testing,)) == 1
        for s in dbn
    )
    best_ind = sum(
        rows.rank("DBN", "ind", user=("DBN",), training=(t,)) == 1 for t in {s.setting.training for s in dbn}
    )
    cocm_ood = rows.rank("DBN", "ood", user=OTHERS, **near_optimal)
    safe, risky = ("PBM", "UBM", "CACM-minus"), ("ARM", "DBN", "NCM")

    def ahead(order: list[str], values: dict[str, float]) -> bool:
        return sum(values[a] < values[b] for a, b in product(safe, risky)) >= 7

    arm = two_readings(rows, lambda order, v: v["ARM"] < min(v["DBN"], v["NCM"]), ("ARM", "DBN", "NCM"), **near_optimal)
    pbm_ood, ncm_ood = rows.rank("PBM", "ood", **strong), rows.rank("NCM", "ood", user=("CoCM-mismatch",))
    cacm = rows.rank("CACM-minus", "ind"), rows.rank("CACM-minus", "ood")
    return [
        Claim(
            "6.2", "PBM has poor ind perplexity", Finding(either(ind["PBM"] >= 4), f"mean rank {ind['PBM']:.1f} of 6")
        ),
        Claim(
            "6.2",
            "PBM is far more robust than most under near-optimal logging and a strong shift (to BM25, random)",
            two_readings(rows, lambda order, v: order.index("PBM") < 2, ("PBM",), **strong),
        ),
        Claim(
            "6.2",
            "PBM is therefore competitive there on new lists",
            Finding(either(pbm_ood <= 3), f"mean rank {pbm_ood:.1f} of 6 by ood perplexity"),
        ),
        Claim("6.2", "UBM is quite robust overall", two_readings(rows, lambda o, v: o.index("UBM") < 3, ("UBM",))),
        Claim(
            "6.2",
            "UBM is robust especially under near-optimal logging and a strong shift",
            two_readings(rows, lambda o, v: o.index("UBM") < 3, ("UBM",), **strong),
        ),
        Claim(
            "6.2",
            "UBM is less robust than some after sub-optimal logging under mild mismatch (CoCM)",
            two_readings(
                rows,
                lambda o, v: o.index("UBM") >= 3,
                ("UBM",),
                user=("CoCM",),
                training=("PL-BM25", "PL-LambdaMART"),
            ),
        ),
        Claim(
            "6.2",
            "DBN is almost always the best model of DBN users, ind and ood",
            Finding(
                either(best_ind == 3 and best >= 0.75 * len(dbn)),
                f"lowest ind perplexity on {best_ind} of 3 logs, lowest ood perplexity in {best} of {len(dbn)} shifts",
            ),
        ),
        Claim(
            "6.2",
            "DBN is not robust where users are not DBN users",
            two_readings(rows, lambda o, v: o.index("DBN") >= 4, ("DBN",), user=OTHERS),
        ),
        Claim(
            "6.2",
            "DBN is constantly worse than others there after near-optimal logging",
            Finding(either(cocm_ood >= 5), f"mean rank {cocm_ood:.1f} of 6 by ood perplexity"),
        ),
        Claim(
            "6.2",
            "NCM is brittle after near-optimal logging",
            two_readings(rows, lambda o, v: o.index("NCM") >= 4, ("NCM",), **near_optimal),
        ),
        Claim(
            "6.2",
            "NCM is competitive under strong mismatch",
            Finding(either(ncm_ood <= 3), f"CoCM-mismatch users: mean rank {ncm_ood:.1f} of 6 by ood perplexity"),
        ),
        Claim("6.2", "ARM is more robust than DBN and NCM after near-optimal logging", arm),
        Claim(
            "6.2", "ARM has poor ind perplexity", Finding(either(ind["ARM"] >= 4), f"mean rank {ind['ARM']:.1f} of 6")
        ),
        Claim(
            "6.2",
            "CACM-minus keeps most of its very good ind performance",
            Finding(either(cacm[0] <= 2.5 and cacm[1] <= 3), f"mean rank {cacm[0]:.1f} ind, {cacm[1]:.1f} ood, of 6"),
        ),
        Claim(
            "6.2.1",
            "PBM, UBM and CACM-minus are more robust than ARM, DBN and NCM",
            two_readings(rows, ahead, (*safe, *risky)),
        ),
        Claim(
            "6.2.1",
            "... especially under near-optimal logging and a strong shift",
            two_readings(rows, ahead, (*safe, *risky), **strong),
        ),
    ]


def section_6_3(rows: GridRows) -> list[Claim]:
    """Evaluate the claims of section 6.3, on figure 2."""
    logs = list(rows.clicks)
    gain = {(model, log): rows.gain(model, log) for model in MODELS for log in logs}
    by_user = {user: fmean(v for (_, log), v in gain.items() if log.user == user) for user in OTHERS}
    lost = [f"{m} ({log.user}, {log.training})" for (m, log), v in gain.items() if v < -0.01]
    no_better = {m: sum(gain[m, log] < 0.001 for log in logs) for m in ("NCM", "CACM-minus")}
    gains = {m: sum(gain[m, log] > 0 for log in logs) for m in ("PBM", "UBM")}
    near = {
        user: {
            m: sum(
                max(rows.reward(o, log) for o in MODELS) - rows.reward(m, log) <= 0.015
                for log in logs
                if log.user == user
            )
            for m in ("PBM", "UBM")
        }
        for user in OTHERS
    }
    mean_gain = {m: fmean(gain[m, log] for log in logs) for m in MODELS}
    curse = {m: fmean(rows.clicks[log][m].curse(MAX_REWARD).mean for log in logs) for m in MODELS}
    cursed = sorted(curse, key=lambda m: -curse[m])
    return [
        Claim(
            "6.3",
            "Max-Reward can have more clicks than Top-Down, most under mismatch",
            Finding(
                either(by_user["CoCM-mismatch"] > max(by_user["CoCM"], 0)),
                f"mean gain: CoCM {number(by_user['CoCM'], signed=True)}, CoCM-mismatch "
                f"{number(by_user['CoCM-mismatch'], signed=True)} clicks per list",
            ),
        ),
        Claim(
            "6.3",
            "Some models lose by it",
            Finding(
                either(bool(lost)), f"losses above .01 clicks in {len(lost)} of {len(gain)} cases: {', '.join(lost)}"
            ),
        ),
        Claim(
            "6.3",
            "NCM and CACM-minus are no better or worse with Max-Reward in some settings",
            Finding(
                either(min(no_better.values()) > 0),
                ", ".join(f"{m}: no gain on {count} of {len(logs)} logs" for m, count in no_better.items()),
            ),
        ),
        Claim(
            "6.3",
            "PBM and UBM gain by Max-Reward throughout",
            Finding(
                either(min(gains.values()) == len(logs)),
                ", ".join(f"{m}: gains on {count} of {len(logs)} logs" for m, count in gains.items()),
            ),
        ),
        Claim(
            "6.3",
            "PBM and UBM lead to highly rewarding policies",
            Finding(
                by_part({f"{user} users": sum(of.values()) >= 4 for user, of in near.items()}, "the user"),
                "; ".join(
                    f"{user}: Max-Reward within .015 clicks of the best model's on "
                    f"{', '.join(f'{count} of 3 logs ({m})' for m, count in of.items())}"
                    for user, of in near.items()
                ),
            ),
        ),
        Claim(
            "6.3",
            "CACM-minus is hurt more than ARM by maximising clicks",
            Finding(
                either(mean_gain["CACM-minus"] < mean_gain["ARM"]),
                f"mean gain: CACM-minus {number(mean_gain['CACM-minus'], signed=True)}, ARM "
                f"{number(mean_gain['ARM'], signed=True)}",
            ),
        ),
        Claim(
            "6.3",
            "NCM and CACM-minus, the most expressive, overestimate clicks most (optimiser's curse)",
            Finding(
                by_part({m: m in cursed[:2] for m in ("NCM", "CACM-minus")}, "the model"),
                f"clicks predicted minus received: {', '.join(f'{m} {number(curse[m], 2)}' for m in cursed)}",
            ),
        ),
    ]


def section_8(rows: GridRows) -> list[Claim]:
    """Evaluate the claims of section 8."""
    trainings = dict.fromkeys(shift.setting.training for shift in rows.shifts)
    by_log = {t: fmean(rows.excess(m, training=(t,)) for m in MODELS) for t in trainings}
    users = ("DBN", *OTHERS)
    by_user = {u: fmean(rows.excess(m, user=(u,)) for m in MODELS) for u in users}
    parts = {
        "near-optimal logging": max(by_log, key=by_log.__getitem__) == "PL-oracle",
        "mismatch": max(by_user, key=by_user.__getitem__) == "CoCM-mismatch",
    }
    texts = [f"{name} {number(value, signed=True)}" for name, value in (*by_log.items(), *by_user.items())]
    return [
        Claim(
            "8.1",
            "Near-optimal logging and strong mismatch are the risky settings",
            Finding(by_part(parts, "the setting"), f"mean rise of excess: {', '.join(texts)}"),
        ),
        Claim(
            "8.1",
            "DBN and NCM are risky, PBM and UBM safer",
            two_readings(
                rows, lambda o, v: max(v["PBM"], v["UBM"]) < min(v["DBN"], v["NCM"]), ("PBM", "UBM", "DBN", "NCM")
            ),
        ),
    ]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Evaluate all claims of the paper."""
    shipped = GridRows(rows)
    return [claim for part in (section_4, section_6_1, section_6_2, section_6_3, section_8) for claim in part(shipped)]
