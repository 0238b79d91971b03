"""Numbers -> sentences that a reader can act on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from clickshift.metrics.clicks import CLIP
from clickshift.protocols.policy_shift import ORACLE
from clickshift.report.tables import Row

_BASELINES = ("gCTR", "rCTR", "dCTR", "drCTR")


def shift_verdict(rows: Sequence[Row]) -> str:
    """How far each model is from the oracle where it was trained, and how far it falls behind elsewhere."""
    value = {(row["model"], row["shift"], row["testing"]): row["perplexity"] for row in rows}
    sentences = []
    for model in dict.fromkeys(row["model"] for row in rows):
        if model == ORACLE:
            continue
        gap = {
            log: value[model, *log] - value[ORACLE, *log] for m, *log_ in value if m == model for log in [tuple(log_)]
        }
        ind = next(excess for log, excess in gap.items() if log[0] == "ind")
        worst = max((log for log in gap if log[0] == "ood"), key=gap.__getitem__)
        factor = gap[worst] / ind if ind > 0 else float("inf")
        holds = "holds" if factor < 1.5 else "gets worse" if factor < 3 else "breaks"
        sentences.append(
            f"{model} {holds} when the ranker changes: {ind:.4f} above the oracle on the policy it was trained on, "
            f"{gap[worst]:.4f} on {worst[1]} lists ({factor:.1f} times as much)."
        )
    return " ".join(sentences)


def comparison_verdict(rows: Sequence[Row]) -> str:
    """Which model predicts best, what that gains over the best baseline, and what failed."""
    value = {row["model"]: row["conditional_perplexity"] for row in rows if row["conditional_perplexity"] is not None}
    sentences = []
    if value:
        best = min(value, key=value.__getitem__)
        level = [name for name in value if round(value[name], 3) == round(value[best], 3) and name != best]
        beside = f", level with {' and '.join(level)}" if level else ""
        sentences.append(f"{best} predicts these clicks best: conditional perplexity {value[best]:.4f}{beside}.")
        baseline = min((name for name in value if name in _BASELINES), key=value.__getitem__, default=None)
        if baseline is not None and baseline != best and value[baseline] > 1:
            gain = (value[baseline] - value[best]) / (value[baseline] - 1)
            sentences.append(
                f"That is {gain:.1%} nearer to certainty than {baseline}, the best baseline ({value[baseline]:.4f})."
            )
    failed = [row["model"] for row in rows if row["error"]]
    if failed:
        sentences.append(f"Not compared: {', '.join(failed)}.")
    impossible = [row["model"] for row in rows if row["log_likelihood"] == -math.inf]
    if impossible:
        sentences.append(
            f"{', '.join(impossible)} gave probability 0 to clicks that happened: the clip at {CLIP:g} decides "
            "what that costs."
        )
    return " ".join(sentences)
