"""Models display themselves: one line, a notebook's display, and facts."""

from __future__ import annotations

import re

import numpy as np
import pytest

from clickshift.data.sessions import Sessions
from clickshift.models import MODELS, PBM
from tests.models.test_storage import made


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_one_line_and_displays_itself(name: str, log: Sessions) -> None:
    model = made(name, log)
    text = repr(model)
    title = "UBM by device" if name == "Segmented" else name
    assert re.fullmatch(rf"<{title}: [^\n]{{1,140}}>", text)
    assert f"{model.vocabulary.n_pairs:,} pairs" in text
    assert text.strip("<>") in model.conclusion
    assert model.conclusion in model._repr_html_().replace("&#x27;", "'")
    assert model.to_dict()["model"] == title
    assert model.summary().to_arrow() is not None


@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_a_fitted_model_says_from_how_much_it_was_learned(log: Sessions) -> None:
    model = made("UBM", log)
    assert model.evidence is not None
    assert repr(model) == (
        f"<UBM: fitted by MaximumLikelihood on {log.total:,} sessions, {log.vocabulary.n_pairs:,} pairs, converged "
        f"after {model.evidence.iterations} iterations>"
    )
    assert "Examination is 1.00 at rank 1 and" in model.conclusion
    assert list(model.summary().figures) == ["examination", "relevance"]


def test_a_model_made_by_hand_was_not_fitted(log: Sessions) -> None:
    n_pairs = log.vocabulary.n_pairs
    model = PBM(log.vocabulary, np.full(n_pairs + 1, 0.5), np.array([1.0, 0.5]))
    assert repr(model) == f"<PBM: {n_pairs:,} pairs, not fitted on a log>"
    assert model.to_dict()["learner"] is None
