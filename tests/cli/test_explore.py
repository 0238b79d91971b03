"""clickshift explore: a page is written, or served until the command is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path

import pytest

import clickshift as cs
from clickshift.errors import ClickshiftWarning
from tests.cli.shell import Shell


def test_a_page_is_written_with_a_saved_model(shell: Shell, clicks: Path, fitted: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = shell.text("explore", clicks, "--model", fitted / "UBM", "--sample", 0, "--queries", 3, "-o", page)
    assert "UBM" in text
    content = page.read_text(encoding="utf-8")
    assert len(re.findall(r'"n_lists"', content)) == 3
    assert '"name":"UBM"' in content


def test_facts_are_printed_as_json(shell: Shell, clicks: Path) -> None:
    facts = shell.json("explore", clicks, "--sample", 500, "--queries", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)  # of small samples
        wanted = json.loads(json.dumps(cs.explore(clicks, sample=500, queries=2).to_dict()))
    for row in (*facts["comparison"], *wanted["comparison"]):
        assert row.pop("seconds") >= row.pop("fit_seconds")
    assert facts == wanted
    assert len(facts["rows"]) == 2
    assert {row["model"] for row in facts["comparison"]} > {"PBM", "UBM", "DBN"}
    assert facts["summary"]["sessions"] == 2000


def test_another_ending_is_refused_before_the_work(shell: Shell, tmp_path: Path) -> None:
    assert ".html" in shell.error("explore", tmp_path / "missing.parquet", "-o", tmp_path / "page.pdf")


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_the_page_is_served_until_ctrl_c(clicks: Path) -> None:
    code = "import sys; sys.argv[0] = 'clickshift'; from clickshift.cli import main; main()"
    arguments = ["explore", str(clicks), "--serve", "--port", "0", "--sample", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().split()[0]
    with urllib.request.urlopen(f"{address}api/queries?text=&limit=1", timeout=10) as answer:
        assert answer.status == 200
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "no longer served" in errors
