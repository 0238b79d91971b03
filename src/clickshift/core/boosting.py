"""Settings of LightGBM that every use of it shares: silent, and the same trees on every run."""

from __future__ import annotations

from typing import Any

from clickshift.core.parallel import n_threads
from clickshift.errors import SpecError

__all__ = ["check_trees", "lightgbm_settings"]


def check_trees(owner: str, *, trees: int, leaves: int, rate: float) -> None:
    """Check the options that all boosted trees have.

    Parameters
    ----------
    owner
        Name of the class whose options they are, for the message.
    trees
        Number of trees.
    leaves
        Number of leaves per tree.
    rate
        Learning rate.

    Raises
    ------
    SpecError
        "bad-option" if one is out of range.
    """
    if trees < 1 or leaves < 2 or not rate > 0:
        raise SpecError(
            f"{owner} needs trees of 1 or more, leaves of 2 or more, and rate above 0: "
            f"got trees={trees}, leaves={leaves}, rate={rate}.",
            code="bad-option",
            trees=trees,
            leaves=leaves,
            rate=rate,
        )


def lightgbm_settings(
    objective: str, *, leaves: int, rate: float, threads: int | None = None, **others: Any
) -> dict[str, Any]:
    """Return the parameters of LightGBM for reproducible trees.

    Parameters
    ----------
    objective
        Name of the objective.
    leaves
        Number of leaves per tree.
    rate
        Learning rate.
    threads
        Number of threads; by default, as many as clickshift uses.
    **others
        Further parameters by LightGBM's names; a `seed` may be any integer.

    Returns
    -------
    dict
        Parameters for `lightgbm.train`.

    Examples
    --------
    >>> lightgbm_settings("binary", leaves=4, rate=0.1, threads=1, seed=2**31)["seed"]
    0
    """
    if "seed" in others:
        others["seed"] %= 2**31
    return {
        "objective": objective,
        "num_leaves": leaves,
        "learning_rate": rate,
        "num_threads": n_threads() if threads is None else threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        **others,
    }
