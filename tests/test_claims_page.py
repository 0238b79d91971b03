"""docs/claims.md is what `benchmarks/claims.py` computes, and its verdicts follow the rows."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from clickshift.experiments.policy_shift._claims import GridRows, by_part, number, section_6_2
from tests.experiments.policy_shift.rows import SHIFT, shift_rows

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def program() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("claims")


def test_the_page_is_what_the_program_computes(program: Any) -> None:
    shown = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert shown == program.page(), "run python benchmarks/claims.py"


def verdicts(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {claim.text: claim.finding.verdict for claim in section_6_2(GridRows(rows))}


def test_verdicts_follow_the_rows(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up rows in which PBM is the most robust model and NCM the least, and the same rows with both exchanged."""
    claims = ("NCM is brittle after near-optimal logging", "PBM has poor ind perplexity", "UBM is quite robust overall")
    found = verdicts(shift_rows(seeds=2))
    assert [found[claim] for claim in claims] == ["holds", "holds", "holds"]
    for model, other in (("PBM", "NCM"), ("NCM", "PBM")):
        monkeypatch.setitem(SHIFT, model, {"PBM": 0.005, "NCM": 0.050}[other])
    monkeypatch.setitem(SHIFT, "UBM", 0.060)
    found = verdicts(shift_rows(seeds=2))
    assert [found[claim] for claim in claims] == ["fails", "holds", "fails"]


def test_a_claim_that_holds_in_one_reading_depends_on_it(program: Any) -> None:
    assert by_part({"nPPL": True, "excess": True}, "the criterion") == "holds"
    assert by_part({"nPPL": False, "excess": False}, "the criterion") == "fails"
    assert by_part({"nPPL": True, "excess": False}, "the criterion") == "depends on the criterion (holds: nPPL)"
    assert [number(value, signed=True) for value in (0.0123, -0.5, 1.25)] == ["+.012", "-.500", "+1.250"]
    with pytest.raises(ValueError, match="perhaps"):
        program._bold("perhaps")
