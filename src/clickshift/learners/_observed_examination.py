"""Examination that was observed, beside that inferred from clicks alone.

Both are of the same log. Their errors are treated as independent, although viewed results make both larger: the
difference varies less than that, so that the test rejects less often than its level says.
"""

from __future__ import annotations

import numpy as np

from clickshift.counts.cells import Cells, CellViews
from clickshift.learners._position_models import ExaminationFit, observed_views

_FEW_VIEWS = 30.0
"""Results with a known view below which a situation is not compared."""


def has_usable_views(cells: Cells) -> bool:
    """Return whether views say anything about examination: whether some results are known not to have been viewed.

    A tracker that records views, but not their absence, leaves all others unknown.

    Parameters
    ----------
    cells
        Counts of a log.
    """
    return cells.views is not None and bool(cells.views.unviewed.any())


def identifies_all_ranks(cells: Cells) -> bool:
    """Return whether views are known at every rank, which identifies examination without swaps of documents.

    Parameters
    ----------
    cells
        Counts of a log.
    """
    if not has_usable_views(cells):
        return False
    assert isinstance(cells.views, CellViews)
    known = np.bincount(cells.rank(), sum(cells.views[:3]), cells.n_ranks)
    return bool((known >= _FEW_VIEWS)[cells.by_rank()[0] > 0].all())


def compare_with_clicks(cells: Cells, from_clicks: ExaminationFit) -> dict[str, np.ndarray]:
    """Compare the observed curve with the one inferred from clicks alone.

    Clicks identify ratios of examination only. Their curve is scaled to the observed examination of one situation: the
    one that is 1 by convention, or the one with most known views.

    Parameters
    ----------
    cells
        Counts of a log with views.
    from_clicks
        Fit on the same counts without views, with standard errors.

    Returns
    -------
    dict of numpy.ndarray
        By situation: `known`, results whose view is known; `observed` examination; `from_clicks`; and `z`, the
        difference of their logarithms in standard errors, NaN where there are too few views. And `contradicted`.
    """
    viewed, known = observed_views(cells)
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = np.where(known > 0, viewed / known, np.nan)
        variance = (1 - observed) / viewed
    assert from_clicks.errors is not None
    inferred, error = from_clicks.examination, from_clicks.errors.examination
    reference = int(np.argmax(error == 0))
    if known[reference] < _FEW_VIEWS:
        reference = int(np.argmax(known))
    scaled = inferred / inferred[reference] * observed[reference]
    total = ((1 - inferred) * error) ** 2 + variance  # of the logarithms, by the delta method
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (np.log(scaled) - np.log(observed)) / np.sqrt(total + total[reference])
    few = (known < _FEW_VIEWS) | (np.arange(len(z)) == reference)
    assert cells.views is not None
    return {
        "known": known,
        "observed": observed,
        "from_clicks": np.where(np.isnan(error), np.nan, scaled),
        "z": np.where(few, np.nan, z),
        "contradicted": np.array([cells.views.contradicted]),
    }
