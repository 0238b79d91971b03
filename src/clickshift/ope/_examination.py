"""Examination by rank for the position-based estimator: a given curve, a file, or that of a PBM fitted on the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import at_rank
from clickshift.models.pbm import PBM
from clickshift.propensity.files import parse_examination, read_propensities

_Curve = Callable[[int], Float[np.ndarray, " rank"]]


def read_examination(given: str | Path | Sequence[float] | np.ndarray) -> _Curve:
    """Read examination from a file, from a text, or from numbers.

    Parameters
    ----------
    given
        A file that `clickshift propensities` wrote, a text such as "1/rank" or "1,0.6,0.4", or numbers.

    Returns
    -------
    Callable
        Function of the number of ranks that returns the curve.

    Raises
    ------
    SpecError
        If it is no curve, or has too few ranks ("bad-examination").
    FileError
        If the file cannot be read.
    """
    if isinstance(given, Path) or (isinstance(given, str) and Path(given).suffix.lower() in _FILES):
        numbers = np.asarray(read_propensities(given).examination, np.float64)
    elif isinstance(given, str):
        parse_examination(given, 1)  # a text that is no curve is an error before the log is read
        return lambda ranks: _checked(parse_examination(given, ranks), ranks)
    else:
        numbers = np.asarray(given, np.float64)
    return lambda ranks: _checked(numbers, ranks)


_FILES = (".json", ".csv", ".parquet", ".jsonl")


def _checked(curve: Float[np.ndarray, " known_rank"], ranks: int) -> Float[np.ndarray, " rank"]:
    """Check that a curve has a number above 0 for each rank."""
    if curve.ndim != 1 or len(curve) < ranks or not (np.isfinite(curve) & (curve > 0))[:ranks].all():
        raise SpecError(
            f"examination must be a number above 0 for each of the log's {ranks} ranks: got "
            f"{', '.join(f'{e:g}' for e in np.ravel(curve)[:8])}.",
            code="bad-examination",
            value=curve.tolist(),
            n_ranks=ranks,
        )
    return curve[:ranks]


def fitted_examination(sessions: Sessions) -> Float[np.ndarray, " rank"]:
    """Examination of a PBM that is fitted on the clicks of a log, like the click models of an answer: without views.

    Parameters
    ----------
    sessions
        The log.
    """
    model = MaximumLikelihood("PBM").fit_from(Cells.of(sessions), errors=False)
    assert isinstance(model, PBM)
    return at_rank(model.examination, sessions.n_ranks)
