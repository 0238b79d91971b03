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
    assert "the table has purchase, revenue" in shell.error("conversions", path, "--signal", "cart")
    assert "--log" in shell.error("judgments", tmp_path / "model", "--value", "revenue", "-o", graded)


def test_conversions_without_a_click_and_unknown_values_are_counted(tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "log.csv"
    rows = ["1,q,1,a,1,1", "1,q,2,b,0,1", "2,q,1,b,0,0", "2,q,2,a,1,", "3,q,1,a,1,0"]
    path.write_text("\n".join(["session,query,rank,doc,click,cart", *rows]))
    for treatment, words in (("drop", "left out"), ("keep", "counted as clicked")):
        text = shell.text("conversions", path, "--signal", "cart", "--without-click", treatment)
        assert f"conversions without a click, {words}: 1 of cart; clicks of unknown value, left out: 1 of cart" in text
