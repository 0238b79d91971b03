"""The policy-shift paper's section 6.1 on the MSLR sample: which settings give its oracle's perplexity?

    python benchmarks/section_6_1.py PATH_TO_MSLR_FILES [--seeds 20]

Prints the oracle's ind and ood perplexity for the readings that paper and code leave open, with the spread over draws
of documents and query frequencies, beside the published values.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import clickshift as cs
from clickshift.data.corpus import Corpus
from clickshift.simulation.simulate import QueryDistribution, UniformQueries

PUBLISHED = {"DBN": (1.2856, 1.3002), "CoCM": (1.2670, 1.2611)}


def oracle_perplexity(
    corpus: Corpus,
    user: cs.users.User,
    *,
    temperature: float,
    scores: str,
    law: QueryDistribution,
    sessions: int,
    seed: int,
) -> tuple[float, float]:
    """Ind: lists drawn by Plackett-Luce on true relevance; ood: the same ten documents in increasing order of it."""
    ten = corpus.ladder(10, rng=np.random.default_rng(seed))
    model = user.on(ten)
    training = cs.PlackettLuce(cs.Oracle(), temperature=temperature, scores=scores)  # type: ignore[arg-type]
    ind = cs.simulate(ten, training, model, sessions, queries=law, rng=seed)
    ood = cs.simulate(ten, cs.Reversed(cs.Oracle()), model, sessions // 2, queries=law, rng=seed + 1_000_000)
    return cs.perplexity(model, ind).average, cs.perplexity(model, ood).average


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=100_000)
    options = parser.parse_args()
    corpus = cs.read_corpus(options.files)
    corpus = corpus.with_queries(corpus.usable_queries())
    print(f"{corpus}; mean and standard deviation over {options.seeds} draws\n")
    print(f"{'user':26}{'scores':>7}{'T':>5}  {'queries':10}{'ind':>17}{'ood':>17}   published")
    cases = [
        (f"DBN(satisfaction={s})", cs.users.DBN(satisfaction=s), scores, t)
        for s in (0.5, 0.9)
        for scores, t in (("log", 0.5), ("log", 0.1), ("raw", 0.5))
    ]
    cases += [("CoCM", cs.users.CoCM(), scores, 0.5) for scores in ("log", "raw")]
    for name, user, scores, temperature in cases:
        for law_name in ("uniform", "power law"):
            values = np.array(
                [
                    oracle_perplexity(
                        corpus,
                        user,
                        temperature=temperature,
                        scores=scores,
                        law=UniformQueries() if law_name == "uniform" else cs.PowerLaw(seed=seed),
                        sessions=options.sessions,
                        seed=seed,
                    )
                    for seed in range(options.seeds)
                ]
            )
            (ind, ood), (ind_sd, ood_sd) = values.mean(axis=0), values.std(axis=0, ddof=1)
            wanted = PUBLISHED[name.split("(")[0]]
            line = (
                f"{name:26}{scores:>7}{temperature:>5}  {law_name:10}{ind:9.4f} ({ind_sd:.4f}){ood:9.4f} ({ood_sd:.4f})"
            )
            print(f"{line}   {wanted[0]} / {wanted[1]}")


if __name__ == "__main__":
    main()
