"""Tables of the model-selection report."""

from __future__ import annotations

import math

from clickshift.experiments.model_selection._outcomes import METRIC_COLUMNS
from clickshift.experiments.model_selection._report import _model_table
from tests.experiments.model_selection.rows import rows_of_log


def test_a_model_that_lacks_a_test_log_has_an_empty_cell() -> None:
    """Rows of a damaged run may lack some: one of 20,000 attacks ended in a KeyError."""
    metrics = dict.fromkeys(METRIC_COLUMNS.values(), 1.0)
    rows = rows_of_log({"PBM": {**metrics, "ood.A": 1.2}, "UBM": {**metrics, "ood.A": 1.3, "ood.B": 1.4}})
    first, second = _model_table(rows)
    assert list(first) == list(second)
    assert (first["ood 1"].mean, second["ood 2"].mean) == (1.2, 1.4)
    assert math.isnan(first["ood 2"].mean)
