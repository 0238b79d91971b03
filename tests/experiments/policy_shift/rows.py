"""Rows as the policy-shift protocol gives them, made up: a grid in which it is known who is robust."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

USERS = ("DBN", "CoCM", "CoCM-mismatch")
TRAINING = ("PL-oracle", "PL-BM25", "PL-LambdaMART")
TESTING = ("oracle", "random", "BM25", "LambdaMART")
IND = {"PBM": 0.050, "UBM": 0.040, "DBN": 0.030, "NCM": 0.020, "CACM-minus": 0.025, "ARM": 0.060}
"""Perplexity above the oracle's where a model was trained."""
SHIFT = {"PBM": 0.005, "UBM": 0.010, "DBN": 0.035, "NCM": 0.050, "CACM-minus": 0.012, "ARM": 0.030}
"""And beyond that, elsewhere: PBM falls least, NCM most."""
GAIN = {"PBM": 0.08, "UBM": 0.06, "DBN": 0.0, "NCM": -0.05, "CACM-minus": -0.03, "ARM": 0.02}
ORACLE, PEEKING = "user (oracle)", "ARM NC"
Rows = list[dict[str, Any]]


def shift_rows(
    users: Sequence[str] = USERS,
    training: Sequence[str] = TRAINING,
    *,
    seeds: int = 10,
    models: Sequence[str] = tuple(IND),
    candidate: str | None = None,
    noise: float = 0.001,
) -> Rows:
    rng = np.random.default_rng(1)
    roles = {name: "candidate" if name == candidate else "click model" for name in models}
    rows: Rows = []
    for u, user in enumerate(users):
        for trained in training:
            about = {"user": user, "training": trained}
            truth = 1.25 + 0.02 * u
            logs = {"ind": truth} | {name: truth + 0.01 * i for i, name in enumerate(TESTING, 1)}
            for testing, oracle in logs.items():
                shift = "ind" if testing == "ind" else "ood"
                log = about | {"kind": "clicks", "testing": testing, "shift": shift, "sessions": 10_000, "ctr": 0.9}
                rows.append(log | {"model": ORACLE, "role": "oracle", "seed": 0, "perplexity": oracle})
                rows.append(log | {"model": "dCTR", "role": "baseline", "seed": 0, "perplexity": oracle + 0.12})
                for seed in range(seeds):
                    for name in models:
                        found = oracle + IND[name] + (shift == "ood") * SHIFT[name] + noise * rng.normal()
                        rows.append(
                            log | {"model": name, "role": roles[name], "seed": seed, "perplexity": found, "auroc": 0.8}
                        )
                    peeked = oracle - 0.04 if shift == "ind" else oracle + 0.4
                    rows.append(log | {"model": PEEKING, "role": "peeking", "seed": seed, "perplexity": peeked})
            rows += _ranking(about, roles, seeds, rng)
            if user != "DBN":
                rows += _policies(about, roles, seeds, rng)
    return rows


def _ranking(about: dict[str, Any], roles: dict[str, str], seeds: int, rng: np.random.Generator) -> Rows:
    counts = {"judged_queries": 990, "never_shown": 1234, "equal_queries": 10}
    level = {"logging policy": 0.9, "dCTR": 0.85, PEEKING: 0.82} | {name: 0.85 - IND[name] for name in roles}
    role = roles | {"logging policy": "baseline", "dCTR": "baseline", PEEKING: "peeking"}
    return [
        about
        | {"kind": "ranking", "model": name, "role": role[name], "seed": seed}
        | {f"nDCG@{k}": value + 0.01 * k + 0.002 * rng.normal() for k in (1, 3, 5, 10)}
        | {"MRR": value + 0.05, "ARP": 4 - value, "head nDCG@10": value + 0.05, "tail nDCG@10": value - 0.05}
        | counts
        for name, value in level.items()
        for seed in range(1 if role[name] == "baseline" else seeds)
    ]


def _policies(about: dict[str, Any], roles: dict[str, str], seeds: int, rng: np.random.Generator) -> Rows:
    rows: Rows = []
    for name, role in roles.items():
        for seed in range(seeds):
            for policy, better in (("Top-Down", 0.0), ("Max-Reward", GAIN[name])):
                earned = 1.1 + better + 0.004 * rng.normal()
                promised = earned + (0.3 * SHIFT[name] / 0.05 if policy == "Max-Reward" else 0.02)
                rows.append(
                    about
                    | {"kind": "policy", "model": name, "role": role, "seed": seed, "policy": policy}
                    | {"expected_clicks": earned, "clicks": earned + 0.01, "predicted_clicks": promised}
                    | {"curse": promised - earned, "ctr": earned / 10}
                )
    for policy, earned in (("Top-Down", 1.15), ("Max-Reward", 1.3)):
        oracle = {"kind": "policy", "model": ORACLE, "role": "oracle", "seed": 0, "policy": policy}
        rows.append(about | oracle | {"expected_clicks": earned, "predicted_clicks": earned, "curse": 0.0})
    return rows
