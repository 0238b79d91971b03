"""How often the values of `ope optimise` hold what optimised policies truly earn, under users of two kinds.

    python benchmarks/optimise_coverage.py --logs 40

Policies are chosen by PBM on each half of a log (15 queries of the built-in corpus, lists of 4, Plackett-Luce on a
noisy oracle) and evaluated on the other half. The truth is exact: expected clicks by the users' own model. For each
kind of users, prints how often the answer over click models, the cross-fitted interval of PBM, and the lower bound
hold it.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import clickshift as cs
from clickshift.ope import GroupedLog, Reward
from clickshift.ope.cross_fitting import best_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=40)
    parser.add_argument("--sessions", type=int, default=5000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    corpus = cs.builtin_corpus(queries=15)
    for name, user in (("DBN", cs.users.DBN()), ("PBM", cs.users.PBM())):
        truth, held = user.on(corpus), np.zeros(3, int)
        for seed in range(options.logs):
            ranker = cs.PlackettLuce(cs.NoisyOracle(sd=0.3, scale="label", seed=seed), temperature=0.8)
            log = cs.simulate(corpus, ranker, user, options.sessions, ranks=4, rng=seed)
            found = cs.optimise_policy(log, estimator="PBM", replicates=50, seed=seed)
            gain, value = true_gain(log, truth, seed)
            assert found.answer is not None
            answer = found.answer.low <= gain <= found.answer.high
            held += [answer, found.cross_fitted.low <= value <= found.cross_fitted.high, found.lower <= value]
        print(f"{name} users, {options.logs} logs: answer {held[0]}, interval of PBM {held[1]}, lower bound {held[2]}")


def true_gain(log: cs.Sessions, truth: cs.ClickModel, seed: int) -> tuple[float, float]:
    """Expected clicks of each half's policy on the other half minus those of the log, and the former alone."""
    halves = log.split(0.5, rng=seed)  # as `optimise_policy` splits a log without times
    gains, values, sessions = [], [], []
    for one, other in (halves, halves[::-1]):
        policy = best_policy(GroupedLog.of(one, Reward()), "PBM", 10.0)
        earned = policy.weight * truth.expected_clicks(policy.lists)
        by_query = np.bincount(policy.lists.query, earned, policy.vocabulary.n_queries)
        ranked = np.isin(other.rankings.query, policy.lists.query)
        values.append(by_query[other.rankings.query[ranked]].mean())
        gains.append(values[-1] - truth.expected_clicks(other.rankings)[ranked].mean())
        sessions.append(ranked.sum())
    return float(np.average(gains, weights=sessions)), float(np.average(values, weights=sessions))


if __name__ == "__main__":
    main()
