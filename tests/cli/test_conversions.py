"""clickshift conversions, and judgments by expected value."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import clickshift as cs
from clickshift.display.result import plain
from tests.cli.shell import Shell
from tests.grading.test_conversions import shop_log


def test_conversions_and_judgments_by_value(tmp_path: Path, shell: Shell) -> None:
    log, path = shop_log(800, 1), tmp_path / "log.parquet"
    cs.write_log(log, path)
    cs.fit("PBM", log).summary().write(tmp_path / "model")
    shown = shell.json("conversions", path, "--signal", "purchase", "--signal", "revenue")
    assert shown == plain(cs.conversions(log, ["purchase", "revenue"]).to_dict())
    graded = tmp_path / "graded.csv"
    shell.text("judgments", tmp_path / "model", "--log", path, "--value", "revenue", "-o", graded)
    assert "value_per_click" in pd.read_csv(graded)
    shell.text("conversions", path, "--signal", "purchase", "-o", tmp_path / "page.html")
    assert "most clicked documents" in (tmp_path / "page.html").read_text()
    assert "has query, docs" in shell.error("conversions", path, "--signal", "cart")
    assert "--log" in shell.error("judgments", tmp_path / "model", "--value", "revenue", "-o", graded)
