"""Conformance checks for methods that estimate position bias, on simulated logs whose examination is known."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftWarning
from clickshift.models.base import pair_table
from clickshift.models.pbm import PBM
from clickshift.policies.basic import Feature
from clickshift.propensity.estimate import propensities
from clickshift.propensity.result import Propensities
from clickshift.simulation.simulate import simulate
from clickshift.testing._rules import require

PropensityMethod = Callable[[Sessions, Corpus], "Propensities | Float[np.ndarray, ' rank']"]
"""A method: examination by rank of a log, whose documents have features in the corpus."""

_EXAMINATION = (1.0, 0.6, 0.45, 0.2)
"""Examination of the simulated users by rank."""
_N_DOCS = 6
_ATTRACTIVENESS = (0.06, 0.6)
"""Attractiveness of the worst and the best grade."""
_SAME = 1e-6
"""Largest accepted difference between curves of logs that are equal but for the order of their sessions."""


def check_propensity_method(
    method: PropensityMethod | str,
    *,
    queries: int = 60,
    sessions: int = 24_000,
    seeds: Sequence[int] = (0, 1),
    tolerance: float = 0.08,
) -> None:
    """Check that a propensity method recovers a known examination curve from simulated logs.

    Three rankers order the documents of each query by noisy views of their grade, and users of a position-based model
    with examination 1, .6, .45, .2 click. For every seed, the curve has one finite number above 0 per rank, is 1 at the
    first rank and within `tolerance` of the truth at the others; where the method gives intervals, they contain its
    estimate. The curve is as close if all documents are half as attractive, because examination is relative. The same
    log gives the same curve again, and so does the log in another order.

    Parameters
    ----------
    method
        Function of a log and its corpus that returns `Propensities` or an array by rank; or a method that
        `clickshift.propensities` knows by name.
    queries
        Number of queries; each has 6 documents.
    sessions
        Number of sessions of a log.
    seeds
        Random seeds, one log each.
    tolerance
        Largest accepted error of examination.

    Raises
    ------
    AssertionError
        If a rule is broken; the message names the first one.

    Examples
    --------
    >>> check_propensity_method("harvesting", seeds=[0])
    >>> check_propensity_method(lambda log, corpus: log.ctr_by_rank() / log.ctr_by_rank()[0], seeds=[0])
    Traceback (most recent call last):
    AssertionError: examination must be recovered: at rank 3 it is 0.450, got 0.281 (seed 0)
    """
    estimate = _named(method) if isinstance(method, str) else method
    for seed in seeds:
        for attractive, note in ((1.0, ""), (0.5, ", all documents half as attractive")):
            corpus, log = _simulated(queries, sessions, seed, attractive)
            curve = _checked(_run(estimate, log, corpus))
            worst = int(np.abs(curve - _EXAMINATION).argmax())
            require(
                abs(curve[worst] - _EXAMINATION[worst]) <= tolerance,
                f"examination must be recovered: at rank {worst + 1} it is {_EXAMINATION[worst]:.3f}, "
                f"got {curve[worst]:.3f} (seed {seed}{note})",
            )
        again = _checked(_run(estimate, log, corpus))
        require(np.allclose(again, curve, atol=_SAME, rtol=0), f"the same log must give the same curve (seed {seed})")
        order = np.random.default_rng(seed).permutation(len(log))
        shuffled = _checked(_run(estimate, log[order], corpus))
        require(
            np.allclose(shuffled, curve, atol=_SAME, rtol=0),
            f"the order of sessions must not matter: differs by {np.abs(shuffled - curve).max():.2g} (seed {seed})",
        )


def _named(method: str) -> PropensityMethod:
    """Make a function of a method's name."""

    def estimate(log: Sessions, corpus: Corpus) -> Propensities:
        by_features = method in {"regression-em", "dual-learning"}
        return propensities(log, method, corpus=corpus if by_features else None, replicates=0)

    return estimate


def _simulated(queries: int, sessions: int, seed: int, attractive: float) -> tuple[Corpus, Sessions]:
    """Simulate the log of three rankers, each of which orders by one noisy view of the grade."""
    rng = np.random.default_rng(seed)
    docs = np.arange(queries * _N_DOCS)
    vocabulary, _, _ = Vocabulary.of(docs // _N_DOCS, docs)
    grade = rng.integers(0, 5, len(docs)).astype(np.float32)
    views = np.stack([grade + rng.normal(size=len(docs)) * sd for sd in (0, 1.0, 1.5, 2.0)], axis=1)
    corpus = Corpus(vocabulary, grade, views.astype(np.float32))
    low, high = _ATTRACTIVENESS
    attractiveness = attractive * (low + (high - low) * corpus.gain)
    users = PBM(vocabulary, pair_table(attractiveness, unseen=low), np.array(_EXAMINATION))
    logs = [
        simulate(corpus, Feature(view), users, sessions // 3, ranks=len(_EXAMINATION), rng=rng) for view in (2, 3, 4)
    ]
    return corpus, Sessions.concat(logs)


def _run(method: PropensityMethod, log: Sessions, corpus: Corpus) -> Propensities | Float[np.ndarray, " rank"]:
    """Apply a method; its warnings are for its users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        return method(log, corpus)


def _checked(found: Propensities | Float[np.ndarray, " rank"]) -> Float[np.ndarray, " rank"]:
    """Check the form of a curve, and return it."""
    curve = np.asarray(found.estimate if isinstance(found, Propensities) else found, np.float64)
    expected = (len(_EXAMINATION),)
    require(curve.shape == expected, f"a curve must have one number per rank, {expected}: got shape {curve.shape}")
    require(np.isfinite(curve).all() and (curve > 0).all(), f"examination must be finite and above 0: got {curve}")
    require(abs(curve[0] - 1) < 1e-9, f"examination must be 1 at the first rank: got {curve[0]:.6g}")
    if isinstance(found, Propensities):
        inside = ~((found.low > curve) | (curve > found.high))  # NaN where there is no interval
        require(inside.all(), f"intervals must contain the estimate: not so at rank {int((~inside).argmax()) + 1}")
    return curve
