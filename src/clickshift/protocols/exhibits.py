"""Every table and figure of the papers by name: what it shows, how it is made here, and whether it can be yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from clickshift.errors import SpecError
from clickshift.protocols.contenders import CLICK_MODELS, PEEKING, TRUTH, Contender
from clickshift.protocols.derived_policies import DerivedPolicies
from clickshift.protocols.model_selection import ModelSelection
from clickshift.protocols.model_selection import quick as quick_selection
from clickshift.protocols.policy_shift import PolicyShift
from clickshift.protocols.world import World

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


@dataclass(frozen=True)
class Exhibit:
    """A table or figure: `make` gives its protocol; where it needs a log, `command` says how; else it is open."""

    paper: str
    shows: str
    make: Callable[[], PolicyShift | ModelSelection] | None = None
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
    "ips-figures": Exhibit(IPS_PAPER, "nDCG of click models and IPS rankers"),
    "ope-figures": Exhibit(OPE_PAPER, "error of off-policy estimators", command="clickshift ope backtest LOG"),
}


def exhibit(name: str) -> Exhibit:
    if name not in EXHIBITS:
        raise SpecError(f"{name!r} is no table or figure. Choose one of: {', '.join(EXHIBITS)}.")
    return EXHIBITS[name]
