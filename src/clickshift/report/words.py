"""Numbers -> sentences that a reader can act on."""

from __future__ import annotations

from collections.abc import Sequence

from clickshift.protocols.policy_shift import ORACLE
from clickshift.report.tables import Row


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
