"""Which conclusions of the policy-shift protocol depend on the reading of CoCM?

    python benchmarks/cocm_readings.py                    # 200 queries, 20,000 sessions, one training policy
    python benchmarks/cocm_readings.py --scale paper      # 1,000 queries, 100,000 sessions, two training policies

The protocol with classical models by counting and maximum likelihood, for the three readings of CoCM and of
CoCM-mismatch (docs/decisions/0004). Prints, by reading: the exact clicks per list of Top-Down and Max-Reward, ood minus
ind nPPL of each model, and how often dCTR is ahead of PBM where the ranker changes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import replace
from statistics import fmean

from clickshift.errors import ClickshiftWarning
from clickshift.experiments.models import BASELINES, TRUTH, Contender
from clickshift.experiments.policy_shift._report_derived import MAX_REWARD, TOP_DOWN, policy_clicks  # noqa: PLC2701  numbers as in the report
from clickshift.experiments.policy_shift._report_robustness import is_same_policy, policy_shifts, rows_by_setting  # noqa: PLC2701
from clickshift.experiments.policy_shift.protocol import SCALES, PolicyShift
from clickshift.simulation.users import READINGS

MODELS = ("PBM", "UBM", "DBN", "CCM")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=list(SCALES), default="quick")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ClickshiftWarning)
    settings = PolicyShift(**SCALES[options.scale])
    few = tuple(policy for policy in settings.world.testing if policy[0] != "LambdaMART")  # it takes most of the time
    contenders = (TRUTH, *(Contender(name, name) for name in MODELS), *(b for b in BASELINES if b.name == "dCTR"))
    print(
        "| user | reading | " + " | ".join(f"{m}: ood - ind nPPL" for m in MODELS) + " | dCTR ahead of PBM | ", end=""
    )
    print(" | ".join(f"{m}: Top-Down → Max-Reward" for m in MODELS[:3]) + " |\n|" + "---|" * (3 + len(MODELS) + 3))
    for user in ("CoCM", "CoCM_mismatch"):
        for reading in READINGS:
            print(f"{user}, {reading}", file=sys.stderr, flush=True)
            protocol = replace(
                settings,
                world=replace(settings.world, testing=few),
                training=tuple(policy for policy in settings.training if "LambdaMART" not in policy[0]),
                users=((reading, f"{user}(reading={reading!r})"),),
                contenders=contenders,
                derived_users=(reading,),
            )
            rows = [row for task in protocol.tasks() for row in task.rows()]
            print(f"| {user} | {reading} | {' | '.join(facts(rows))} |", flush=True)


def facts(rows: list[dict]) -> list[str]:
    """The cells of one line of the table."""
    shifts = policy_shifts(rows)
    cells = [f"{fmean(s.difference for s in shifts if s.model == model):+.3f}" for model in MODELS]
    pairs = []
    for setting, group in rows_by_setting(rows).items():
        if not is_same_policy(setting):
            value = {row["model"]: row["perplexity"] for row in group}
            pairs.append(value["dCTR"] < value["PBM"])
    cells.append(f"{sum(pairs)} of {len(pairs)}")
    clicks: dict[str, list[tuple[float, float]]] = {}
    for models in policy_clicks(rows).values():
        for one in models:
            means = tuple(fmean(one.expected[policy].values()) for policy in (TOP_DOWN, MAX_REWARD))
            clicks.setdefault(one.model, []).append(means)  # type: ignore[arg-type]
    for model in MODELS[:3]:
        down, most = (fmean(values) for values in zip(*clicks[model], strict=True))
        cells.append(f"{down:.3f} → {most:.3f}")
    return cells


if __name__ == "__main__":
    main()
