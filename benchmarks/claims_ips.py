"""The claims of the IPS paper (Hager et al. 2022), evaluated on the results of figure 1 and on closed forms.

`benchmarks/claims.py` writes them to docs/claims.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.experiments.click_vs_ips._one_hot import document_columns, ips_limit, pbm_limit
from clickshift.experiments.click_vs_ips.data import (
    IPS_TRUE,
    NAIVE,
    PBM_ESTIMATED,
    PBM_TRUE,
    PointwiseData,
)
from clickshift.experiments.click_vs_ips.losses import GradientByRank, LossByRank, SharedFeatures, click_loss, ips_loss
from clickshift.experiments.click_vs_ips.protocol import ranking_metrics
from clickshift.experiments.click_vs_ips.published import published_curve
from clickshift.experiments.policy_shift._claims import NOT_TESTED, Claim, Finding, by_part, either, number
from clickshift.simulation.users import PBM

SMALL = PointwiseData(documents=2000)
"""One-hot set of the closed forms: a fifth of the paper's, so that they take a second."""


def results(name: str) -> Any:
    """Return the results of a benchmark."""
    return json.loads((Path(__file__).resolve().parent / "results" / f"{name}.json").read_text(encoding="utf-8"))


def ips_claims() -> list[Claim]:
    """Evaluate the claims of the IPS paper."""
    once, twice = (results(name)["nDCG@10"] for name in ("pointwise", "pointwise_twice"))
    sets = {"one-hot": once, "one-hot-twice": twice}
    most, early = "100,000,000", ("1,000", "10,000", "100,000")
    rank = [row for row in LossByRank().rows() if row["kind"] == "least"]
    by_model = {m: [row for row in rank if row["model"] == m] for m in ("PBM", "IPS")}
    shared = {row["model"]: row for row in SharedFeatures().rows() if row["kind"] == "least" and row["document"] == 0}
    grid, y, one = np.linspace(0.01, 0.99, 99), np.full(99, 0.3), np.ones(99)
    distance = float(np.abs(click_loss(y, one, grid) - ips_loss(y, one, grid)).max())
    gradient = GradientByRank(SMALL, sessions_per_query=(None,)).rows()
    size = {m: [row["gradient"] for row in gradient if row["model"] == m] for m in ("PBM", "IPS")}
    collisions = {p: _limits(p, 1.0) for p in (0.0, 0.3, 0.6, 0.9)}
    biases = {eta: _limits(0.5, eta) for eta in (0.0, 1.0, 2.0)}
    better = {name: of[PBM_TRUE][most] - of[NAIVE][most] for name, of in sets.items()}
    estimated = {name: of[PBM_ESTIMATED][most] - of[NAIVE][most] for name, of in sets.items()}
    level = {name: of[PBM_ESTIMATED][most] - of[PBM_TRUE][most] for name, of in sets.items()}
    behind = {name: [of[IPS_TRUE][n] - of[PBM_TRUE][n] for n in early] for name, of in sets.items()}
    published = [
        published_curve("one-hot", "sessions", IPS_TRUE)[n] - published_curve("one-hot", "sessions", PBM_TRUE)[n]
        for n in (1_000, 10_000, 100_000)
    ]

    def by_set(values: dict[str, float]) -> str:
        return ", ".join(f"{name} {number(value, signed=True)}" for name, value in values.items())

    def series(values: list[float]) -> str:
        return ", ".join(number(value, signed=True) for value in values)

    return [
        Claim(
            "2, A",
            "With the true bias, the click loss has its minimum at the true relevance, as the IPS loss",
            Finding(
                either(all(abs(row["relevance"] - 0.5) < 1e-6 for row in rank)),
                f"relevance .5 at ranks 1 to 10: minima from {min(r['relevance'] for r in rank):.4f} to "
                f"{max(r['relevance'] for r in rank):.4f}",
            ),
        ),
        Claim(
            "2",
            "Without a correction, click model and IPS ranker are the same",
            Finding(either(distance < 1e-9), f"largest difference of the losses at examination 1: {distance:.1g}"),
        ),
        Claim(
            "2, B",
            "The click loss is smaller at lower ranks, the IPS loss is not",
            Finding(
                either(
                    by_model["PBM"][-1]["loss"] < 0.5 * by_model["PBM"][0]["loss"]
                    and by_model["IPS"][-1]["loss"] > 0.99 * by_model["IPS"][0]["loss"]
                ),
                f"minimum at rank 1 and 10: click loss {number(by_model['PBM'][0]['loss'])} and "
                f"{number(by_model['PBM'][-1]['loss'])}, IPS {number(by_model['IPS'][0]['loss'])} and "
                f"{number(by_model['IPS'][-1]['loss'])}",
            ),
        ),
        Claim(
            "4.2",
            "Items at lower positions have smaller gradients in the click model",
            Finding(
                either(size["PBM"][-1] < 0.2 * size["PBM"][0] and size["IPS"][-1] > 0.5 * size["IPS"][0]),
                f"mean gradient at rank 25 relative to rank 1: click model {number(size['PBM'][-1] / size['PBM'][0])}, "
                f"IPS {number(size['IPS'][-1] / size['IPS'][0])}",
            ),
        ),
        Claim(
            "4.1",
            "The click model with the true bias is better than Naive on every data set",
            Finding(either(min(better.values()) > 0.01), f"nDCG@10 after 100 million sessions: {by_set(better)}"),
        ),
        Claim(
            "4.1, table 2",
            "Estimating the bias is better than Naive on two of three sets, and worse on the synthetic set",
            Finding(
                either(max(estimated.values()) < 0),
                f"synthetic set, nDCG@10: {by_set(estimated)} (published -.016, in all likelihood with an examination "
                "that hardly left its random start, decision 10); the other sets are not tested",
            ),
        ),
        Claim(
            "4.1",
            "The true bias gains nothing significant over an estimated one on the learning-to-rank sets",
            Finding(NOT_TESTED, f"needs the three sets; on the synthetic set: {by_set(level)} (published -.167)"),
        ),
        Claim(
            "4.1, figure 1",
            "IPS is below the click model for the first 100,000 sessions",
            Finding(
                by_part({name: values[1] < 0 for name, values in behind.items()}, "the data set"),
                "nDCG@10 of IPS minus PBM at 1,000, 10,000 and 100,000 sessions: "
                f"{'; '.join(f'{name} {series(values)}' for name, values in behind.items())}; "
                f"published {series(published)}",
            ),
        ),
        Claim(
            "4.1",
            "IPS ends above the click model on two of three sets (Istella-S, Yahoo)",
            Finding(NOT_TESTED, "needs the sets; with shared features, see the claims of appendices F and G"),
        ),
        Claim(
            "4.2",
            "Where documents share no features, both recover the true relevance",
            Finding(
                either(all(min(of[PBM_TRUE][most], of[IPS_TRUE][most]) > 0.995 for of in sets.values())),
                "nDCG@10 after 100 million sessions: "
                + ", ".join(
                    f"{name} {of[PBM_TRUE][most]:.3f} and {of[IPS_TRUE][most]:.3f}" for name, of in sets.items()
                ),
            ),
        ),
        Claim(
            "4.2, figure 2",
            "For two documents with the same features, the click model is biased to the one examined more, IPS is not",
            Finding(
                either(shared["PBM"]["relevance"] < 0.2 and abs(shared["IPS"]["relevance"] - 0.5) < 1e-6),
                f"relevance .1 (always examined) and .9 (examined one time in ten): click model "
                f"{number(shared['PBM']['relevance'], 4)}, IPS {number(shared['IPS']['relevance'], 4)}",
            ),
        ),
        Claim(
            "F, figure 4",
            "The click model deteriorates faster than IPS when features collide",
            Finding(
                either(all(pbm < ips for p, (pbm, ips) in collisions.items() if p)),
                "nDCG@10 with unlimited clicks, click model and IPS: "
                + ", ".join(f"{p:.0%} {number(pbm)} and {number(ips)}" for p, (pbm, ips) in collisions.items()),
            ),
        ),
        Claim(
            "G, figure 5",
            "With growing, known position bias the click model deteriorates, IPS does not",
            Finding(
                either(biases[0.0][0] - biases[2.0][0] > 0.01 > abs(biases[0.0][1] - biases[2.0][1])),
                "one-hot set with 50 % collisions, unlimited clicks, nDCG@10, click model and IPS: "
                + ", ".join(f"eta {eta:g} {number(pbm)} and {number(ips)}" for eta, (pbm, ips) in biases.items()),
            ),
        ),
    ]


def _limits(collisions: float, eta: float) -> tuple[float, float]:
    """Return nDCG@10 of the click model and of IPS with unlimited clicks on the one-hot set; mean over three seeds."""
    found = []
    for seed in range(3):
        engine, user = SMALL.engine(seed, collisions=collisions), PBM(eta)
        column, clicks = document_columns(engine.parts.train), engine.train.click_prob(user)
        examination, test = engine.train.examination(user), document_columns(engine.parts.test)
        found.append(
            [
                ranking_metrics(limit(clicks, examination, column)[test], engine, seed)["nDCG@10"]
                for limit in (pbm_limit, ips_limit)
            ]
        )
    pbm, ips = np.mean(found, axis=0)
    return float(pbm), float(ips)
