"""Every table and figure of the papers by name: what it shows, how it is made here, and whether it can be yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clickshift.errors import SpecError
from clickshift.experiments.click_vs_ips.checks import PointwiseChecks
from clickshift.experiments.click_vs_ips.data import PointwiseData, pointwise_data
from clickshift.experiments.click_vs_ips.losses import GradientByRank, LossByRank, SharedFeatures
from clickshift.experiments.click_vs_ips.protocol import TRUE_BIAS_RANKERS, Pointwise
from clickshift.experiments.click_vs_ips.tuning import Tuning, tuned
from clickshift.experiments.model_selection.protocol import ModelSelection
from clickshift.experiments.model_selection.protocol import quick as quick_selection
from clickshift.experiments.models import CLICK_MODELS, PEEKING, TRUTH, Contender
from clickshift.experiments.policy_shift.derived_policies import DerivedPolicies
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.simulation.search_engine import BUILTIN, World

SHIFT_PAPER = "policy shift (Deffayet et al. 2022)"
CMIP_PAPER = "CMIP (Deffayet et al. 2023)"
IPS_PAPER = "click models and IPS (Hager et al. 2022)"
OPE_PAPER = "offline evaluation (Li et al. 2018)"


def quick() -> PolicyShift:
    """Minutes: two users, one training policy, 200 queries, three seeds."""
    full = PolicyShift()
    return replace(
        full,
        users=(full.users[0], full.users[2]),
        training=full.training[:1],
        world=World(queries=200, sessions=20_000, test_sessions=5_000),
        seeds=3,
        derived=DerivedPolicies(sessions=20_000),
    )


SCALES: dict[str, Callable[[], PolicyShift]] = {"quick": quick, "paper": PolicyShift}
SELECTION_SCALES: dict[str, Callable[[], ModelSelection]] = {"quick": quick_selection, "paper": ModelSelection}
"""All of a paper's grid, or enough of it to see what it shows."""

_COUNTED = Contender("dCTR", "dCTR", "baseline")
_COLUMNS = (("increasing", "Reversed(Oracle)"),)


def section_6_1() -> PolicyShift:
    """Tables 3 and 4: ten documents per query, near-optimal training lists, test lists in increasing relevance.

    Satisfaction .5, temperature .5 and the ladder of grades: docs/decisions/0004.
    """
    return PolicyShift(
        users=(("DBN", "DBN(satisfaction=0.5)"), ("CoCM", "CoCM")),
        training=(("PL-relevance", "PlackettLuce(Oracle, temperature=0.5, scores='log')"),),
        contenders=(TRUTH, _COUNTED, *CLICK_MODELS[:5], PEEKING),
        world=World(testing=_COLUMNS, documents=10),
        derived=None,
    )


def _users(protocol: PolicyShift, *names: str) -> PolicyShift:
    return replace(protocol, users=tuple(user for user in protocol.users if user[0] in names))


def figure_2() -> PolicyShift:
    return _users(PolicyShift(contenders=(TRUTH, *CLICK_MODELS)), "CoCM", "CoCM-mismatch")


_MANY = 10**8
AnalyticProtocol = SharedFeatures | LossByRank | GradientByRank
"""What needs no training."""
TrainedProtocol = Pointwise | Tuning | PointwiseChecks


def ips_figure_4() -> Pointwise:
    return Pointwise(models=TRUE_BIAS_RANKERS, sessions=(_MANY,), collisions=tuple(k / 10 for k in range(10)))


def ips_figure_5() -> Pointwise:
    """The paper has Istella-S; give its folder."""
    return Pointwise(pointwise_data(BUILTIN), TRUE_BIAS_RANKERS, sessions=(_MANY,), eta=(0.0, 0.5, 1.0, 1.5, 2.0))


def changed(
    protocol: TrainedProtocol,
    *,
    corpus: str | None = None,
    queries: int | None = None,
    sessions: int | None = None,
    seeds: int | None = None,
    tuning: Sequence[Mapping[str, Any]] | None = None,
) -> TrainedProtocol:
    """On another set, or smaller: what is not given stays. Of several sizes, `sessions` is the largest. Rows of a
    `tuning` choose how rankers are trained."""
    data: PointwiseData = protocol.data if corpus is None else pointwise_data(corpus)
    data = replace(data, queries=queries or data.queries)
    seeds = seeds or protocol.seeds
    if not isinstance(protocol, Pointwise):
        if tuning is not None:
            raise SpecError("only figures 1, 4 and 5 and table 2 can be made with tuned rankers: this is none of them.")
        return replace(protocol, data=data, seeds=seeds, sessions=sessions or protocol.sessions)
    sizes = protocol.sessions
    if sessions is not None:
        sizes = (*(size for size in sizes if size < sessions), sessions) if len(sizes) > 1 else (sessions,)
    models = protocol.models if tuning is None else tuned(protocol.models, tuning, data=data.name)
    return replace(protocol, data=data, models=models, seeds=seeds, sessions=sizes)


@dataclass(frozen=True)
class Exhibit:
    """A table or figure: `make` gives its protocol; where it needs a log, `command` says how; else it is open."""

    paper: str
    shows: str
    make: Callable[[], PolicyShift | ModelSelection | TrainedProtocol | AnalyticProtocol] | None = None
    command: str = ""

    @property
    def state(self) -> str:
        return "ready" if self.make else "needs your log" if self.command else "open"


_LOGS = "clickshift shift logs --train LOG --judgments QRELS"

EXHIBITS = {
    "table1": Exhibit(SHIFT_PAPER, "CLARA: perplexity and nDCG of all models", command=_LOGS),
    "table2": Exhibit(SHIFT_PAPER, "Yandex: perplexity and nDCG of all models", command=_LOGS),
    "table3": Exhibit(SHIFT_PAPER, "ind and ood perplexity, DBN users", lambda: _users(section_6_1(), "DBN")),
    "table4": Exhibit(SHIFT_PAPER, "ind and ood perplexity, CoCM users", lambda: _users(section_6_1(), "CoCM")),
    "table5": Exhibit(SHIFT_PAPER, "table 1 with intervals", command=_LOGS),
    "table6": Exhibit(SHIFT_PAPER, "table 2 with intervals", command=_LOGS),
    "table7": Exhibit(SHIFT_PAPER, "CLARA: AUROC and Recall", command=_LOGS),
    "table8": Exhibit(SHIFT_PAPER, "Yandex: AUROC and Recall", command=_LOGS),
    "figure1": Exhibit(SHIFT_PAPER, "spider charts of normalised perplexity", PolicyShift),
    "figure2": Exhibit(SHIFT_PAPER, "clicks of Top-Down and Max-Reward policies", figure_2),
    "cmip-table1": Exhibit(CMIP_PAPER, "which metrics predict ood perplexity", ModelSelection),
    "cmip-table2": Exhibit(CMIP_PAPER, "regret of choosing a click model", ModelSelection),
    "ips-figure1": Exhibit(IPS_PAPER, "nDCG of click models and IPS rankers by sessions", Pointwise),
    "ips-figure2": Exhibit(IPS_PAPER, "losses of two documents that share features", SharedFeatures),
    "ips-figure3": Exhibit(IPS_PAPER, "losses of a document by its rank", LossByRank),
    "ips-figure4": Exhibit(IPS_PAPER, "nDCG when features collide", ips_figure_4),
    "ips-figure5": Exhibit(IPS_PAPER, "nDCG by the strength of the position bias", ips_figure_5),
    "ips-table2": Exhibit(IPS_PAPER, "rankers after 100 million sessions", lambda: Pointwise(sessions=(_MANY,))),
    "ips-gradients": Exhibit(IPS_PAPER, "gradients by rank (section 4.2)", GradientByRank),
    "ips-tuning": Exhibit(
        IPS_PAPER, "choice of optimisers and rates (appendix C.2)", lambda: Tuning(pointwise_data(BUILTIN))
    ),
    "ips-checks": Exhibit(IPS_PAPER, "counts teach what sessions teach; both naive rankers are one", PointwiseChecks),
    "ope-figures": Exhibit(OPE_PAPER, "error of off-policy estimators", command="clickshift ope backtest LOG"),
}


def exhibit(name: str) -> Exhibit:
    if name not in EXHIBITS:
        raise SpecError(f"{name!r} is no table or figure. Choose one of: {', '.join(EXHIBITS)}.")
    return EXHIBITS[name]
