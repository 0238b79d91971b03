"""Fingerprint of a log: a digest of its content, the same however the log was opened."""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.data.vocabulary import Vocabulary

__all__ = ["counts_fingerprint", "log_fingerprint"]


def log_fingerprint(log: Log) -> str:
    """Return the fingerprint of a log: a digest of the ids, impressions and clicks of its pairs.

    It does not depend on file names, the order of sessions, or pairs of the vocabulary that the log does not show.

    Parameters
    ----------
    log
        Sessions or an encoded log.

    Returns
    -------
    str
        32 hexadecimal digits.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=3), cs.Uniform(), cs.users.PBM(), 50, rng=1)
    >>> log_fingerprint(log) == log_fingerprint(log.merged()), log_fingerprint(log) == log_fingerprint(log[:-1])
    (True, False)
    """
    return counts_fingerprint(log.vocabulary, *Cells.of(log).by_pair())


def counts_fingerprint(
    vocabulary: Vocabulary, impressions: Float[np.ndarray, " pair"], clicks: Float[np.ndarray, " pair"]
) -> str:
    """Return the fingerprint of the log with these counts.

    Parameters
    ----------
    vocabulary
        Vocabulary of the log.
    impressions, clicks
        Impressions and clicks of each pair.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    shown = np.flatnonzero(impressions)
    if len(shown) < vocabulary.n_pairs:
        vocabulary = vocabulary.with_pairs(shown)
    digest = hashlib.blake2b(vocabulary.fingerprint.encode(), digest_size=16)
    for counts in (impressions, clicks):  # rounded: counts of decayed days are sums of fractions
        digest.update(np.round(counts[shown], 6).tobytes())
    return digest.hexdigest()
