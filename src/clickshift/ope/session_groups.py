"""Groups of sessions: folds for held-out likelihoods, and the groups that a jackknife leaves out.

A row of a log may stand for many equal sessions: they are divided among the groups one by one. Sessions of one user (or
another cluster) stay together.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Sessions


def divide_sessions(
    count: Int[np.ndarray, " row"],
    n_groups: int,
    rng: np.random.Generator,
    cluster: Int[np.ndarray, " row"] | None = None,
) -> Int[np.ndarray, "row group"]:
    """Divide the sessions of a log at random among groups of about equal size.

    Parameters
    ----------
    count
        Number of sessions that each row stands for.
    n_groups
        Number of groups.
    rng
        Random generator.
    cluster
        Number of the cluster of each row, from 0; None if sessions are independent.

    Returns
    -------
    array
        Number of sessions of each row in each group.

    Examples
    --------
    >>> divide_sessions(np.array([1, 5]), 2, np.random.default_rng(0)).sum(axis=1).tolist()
    [1, 5]
    """
    if cluster is not None:
        group = rng.permutation(int(cluster.max()) + 1)[cluster] % n_groups
        return np.where(group[:, None] == np.arange(n_groups), count[:, None], 0)
    if (count == 1).all():
        group = rng.permutation(len(count)) % n_groups
        single: np.ndarray = (group[:, None] == np.arange(n_groups)).astype(np.int64)
        return single
    divided: np.ndarray = rng.multinomial(count, np.full(n_groups, 1 / n_groups))
    return divided


def with_counts(sessions: Sessions, count: Int[np.ndarray, " row"]) -> Sessions:
    """Return the rows that have sessions left, with these counts.

    Parameters
    ----------
    sessions
        The log.
    count
        New number of sessions of each row; rows with 0 are left out.
    """
    rows = np.flatnonzero(count > 0)
    kept = sessions[rows]
    return Sessions.checked(kept.rankings, kept.click, count[rows], kept.time, kept.user, kept.signals)


def sample_sessions(
    sessions: Sessions, size: int, rng: np.random.Generator, cluster: Int[np.ndarray, " row"] | None = None
) -> tuple[Sessions, Int[np.ndarray, " row"] | None]:
    """Draw sessions of a log at random, unless it has few distinct rows, which cost no more than a sample.

    Parameters
    ----------
    sessions
        The log.
    size
        Number of rows up to which all of the log is taken, and of sessions to draw otherwise.
    rng
        Random generator.
    cluster
        Number of the cluster of each row, from 0: clusters are then drawn as a whole.

    Returns
    -------
    tuple of Sessions and array
        The log or the sample, and the clusters of its rows, numbered from 0.
    """
    if len(sessions) <= size:
        return sessions, cluster
    if cluster is None:
        return with_counts(sessions, rng.multivariate_hypergeometric(sessions.count, size, method="marginals")), None
    order = rng.permutation(int(cluster.max()) + 1)
    rows = np.flatnonzero(order[cluster] < max(2.0, len(order) * size / sessions.total))
    return sessions[rows], np.unique(cluster[rows], return_inverse=True)[1]


def jackknife_error(values: Float[np.ndarray, "group quantity"], share: float = 1.0) -> Float[np.ndarray, " quantity"]:
    """Standard error from estimates that leave out one group of sessions each (delete-a-group jackknife).

    Parameters
    ----------
    values
        Estimates without each group.
    share
        Sessions of all groups together, as a share of those of the log whose standard error is needed.

    References
    ----------
    Kott, P. S. (2001). The delete-a-group jackknife. Journal of Official Statistics.

    Examples
    --------
    >>> means = np.array([[2.5], [2.0], [1.5]])  # of 1, 2 and 3 without each of them: (2 + 3) / 2 ...
    >>> round(float(jackknife_error(means)[0]), 4) == round(float(np.std([1, 2, 3], ddof=1) / 3**0.5), 4)
    True
    """
    n = len(values)
    error: np.ndarray = np.sqrt((n - 1) / n * ((values - values.mean(axis=0)) ** 2).sum(axis=0) * share)
    return error
