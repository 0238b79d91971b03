"""How often 95 % intervals hold the planted parameter, for every model that EM fits.

    python benchmarks/interval_coverage.py [--repeats 300] [--sessions 4000] [--ranks 6]
    python benchmarks/interval_coverage.py --swaps 0.3 --ranks 10 --sessions 20000      # lists that hardly change

Lists of six documents in random order, six queries, parameters drawn anew in every repeat. With --swaps each query has
one list, in which two neighbours change places in this share of its sessions. The number in brackets is how many
intervals were looked at.
"""

from __future__ import annotations

import argparse
import json
import warnings

import numpy as np

import clickshift as cs
from clickshift import models
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftWarning
from clickshift.models.base import ClickModel, beta_interval, pair_table

NAMES = ("PBM", "UBM", "CM", "DCM", "CCM", "SDBN", "DBN")


def planted(name: str, vocabulary: Vocabulary, ranks: int, rng: np.random.Generator) -> ClickModel:
    """A model with parameters drawn at random."""
    a, s = (pair_table(rng.uniform(0.1, 0.8, vocabulary.n_pairs), unseen=0.1) for _ in range(2))
    by_last_click = [np.r_[0.8**r, 0.9 ** (r - np.arange(r))] for r in range(ranks)]
    return {
        "PBM": lambda: models.PBM(vocabulary, a, 0.8 ** np.arange(ranks)),
        "UBM": lambda: models.UBM(vocabulary, a, np.concatenate(by_last_click)),
        "CM": lambda: models.CM(vocabulary, a),
        "DCM": lambda: models.DCM(vocabulary, a, np.linspace(0.8, 0.4, ranks)),
        "CCM": lambda: models.CCM(vocabulary, a, np.array([0.9, 0.8, 0.4])),
        "SDBN": lambda: models.SDBN(vocabulary, a, s),
        "DBN": lambda: models.DBN(vocabulary, a, s, 0.85),
    }[name]()


def drawn(truth: ClickModel, ranks: int, sessions: int, swaps: float | None, seed: int) -> Sessions:
    """Lists in random order, or one list for each query, in which neighbours change places now and then."""
    vocabulary = truth.vocabulary
    if swaps is None:
        corpus = Corpus(vocabulary, np.zeros(vocabulary.n_pairs, np.float32))
        return cs.simulate(corpus, cs.Uniform(), truth, sessions, ranks=ranks, rng=seed)
    rng = np.random.default_rng(seed)
    query, pair = rng.integers(0, vocabulary.n_queries, sessions), np.tile(np.arange(ranks), (sessions, 1))
    row = np.flatnonzero(rng.random(sessions) < swaps)
    rank = rng.integers(0, ranks - 1, len(row))
    pair[row, rank], pair[row, rank + 1] = rank + 1, rank
    pair = (pair + ranks * query[:, None]).astype(np.int32)
    return truth.sample(Rankings(vocabulary, query.astype(np.int32), pair), rng=seed)


def coverage(
    name: str,
    *,
    repeats: int,
    sessions: int,
    ranks: int = 6,
    swaps: float | None = None,
    level: float = 0.95,
    queries: int = 6,
) -> dict[str, list[bool]]:
    """For every parameter whether each interval holds the truth."""
    vocabulary = Vocabulary.of(np.repeat(np.arange(queries), ranks), np.arange(queries * ranks))[0]
    hits: dict[str, list[bool]] = {}
    for repeat in range(repeats):
        truth = planted(name, vocabulary, ranks, np.random.default_rng(1000 + repeat))
        log = drawn(truth, ranks, sessions, swaps, repeat)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickshiftWarning)
            found = cs.fit(name, log)
        assert found.evidence is not None
        for parameter, error in found.evidence.logit_error.items():
            if parameter == "relevance":
                wanted, estimate = truth._relevance(), found._relevance()
            else:
                wanted, estimate = (np.atleast_1d(getattr(model, parameter)) for model in (truth, found))
            low, high = beta_interval(estimate, error, level)
            use = np.isfinite(error) & (error > 0)
            if len(error) == vocabulary.n_pairs + 1:
                use[-1] = False  # what stands for unseen pairs
            elif name == "DCM":
                use[-1] = False  # after the last rank there is nothing to go on to
            hits.setdefault(parameter, []).extend(((wanted >= low) & (wanted <= high))[use].tolist())
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--sessions", type=int, default=4000)
    parser.add_argument("--ranks", type=int, default=6)
    parser.add_argument("--swaps", type=float, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name in NAMES:
        asked = {"repeats": options.repeats, "sessions": options.sessions, "ranks": options.ranks}
        for parameter, hits in coverage(name, **asked, swaps=options.swaps).items():
            rows.append(
                {"model": name, "parameter": parameter, "coverage": float(np.mean(hits)), "intervals": len(hits)}
            )
            if not options.json:
                print(f"{name:5} {parameter:15} {rows[-1]['coverage']:.3f}  ({len(hits):,})", flush=True)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
