"""The experiments of the IPS paper from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import clickshift as cs
from clickshift.experiments import papers
from clickshift.experiments.click_vs_ips.data import PointwiseData
from clickshift.experiments.click_vs_ips.protocol import RANKERS_COMPARED, TRUE_BIAS_RANKERS, Pointwise
from clickshift.simulation.search_engine import Named
from tests.cli.shell import Shell, call

SMALL = PointwiseData(documents=200)
TINY = ", hidden=(8,), dropout=(0.0,), rounds=3)"


def tiny(models: Named) -> Named:
    """The same models with small networks, hardly trained."""
    return tuple((name, learner.replace(")", TINY)) for name, learner in models)


def figure_1_made_small() -> papers.TableOrFigure:
    protocol = Pointwise(SMALL, tiny(RANKERS_COMPARED), sessions=(100, 10_000), seeds=2)
    return papers.TableOrFigure(papers.IPS_PAPER, "small", lambda: protocol)


@pytest.mark.parametrize(
    ("name", "said"),
    [("ips-figure2", "0.1627"), ("ips-figure3", "0.1985"), ("ips-gradients", "PBM, 10 sessions")],
)
def test_figures_that_need_no_training(shell: Shell, tmp_path: Path, name: str, said: str) -> None:
    assert said in shell.text("reproduce", name, "-o", tmp_path)
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "rows.parquet").exists()


def test_the_rows_of_a_figure_as_json(shell: Shell, tmp_path: Path) -> None:
    found = shell.json("reproduce", "ips-figure3", "-o", tmp_path)
    least = [row["loss"] for row in found["rows"] if row["kind"] == "least" and row["model"] == "IPS"]
    assert least == pytest.approx([0.6931] * 10, abs=1e-4)


@pytest.fixture(scope="module")
def figure_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figure1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(papers.TABLES_AND_FIGURES, "ips-figure1", figure_1_made_small())
        assert call("reproduce", "ips-figure1", "-o", folder, "--workers", 1) == 0
    return folder


def test_figure_1_has_a_chart_and_tables(figure_1: Path) -> None:
    page = (figure_1 / "report.html").read_text()
    for words in (
        "After 10,000 sessions",
        "Order of models",
        "bootstrap",
        "PBM, estimated bias",
        "Published, and ours",
    ):
        assert words in page
    names = {file.name for file in (figure_1 / "exports").iterdir()}
    assert {"after-10-000-sessions.csv", "order-of-models.tex"} <= names
    assert {".svg", ".png"} <= {Path(name).suffix for name in names}


def test_a_second_run_reads_what_is_there(shell: Shell, figure_1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(papers.TABLES_AND_FIGURES, "ips-figure1", figure_1_made_small())
    monkeypatch.setattr("clickshift.experiments.runner.process_pool", lambda workers: pytest.fail("nothing is missing"))
    found = shell.json("reproduce", "ips-figure1", "-o", figure_1)
    assert len(found["rows"]) == 2 * 2 * (5 + 3)
    assert found.pop("output") == str(figure_1)
    assert found == cs.reproduce("ips-figure1", figure_1).to_dict() == cs.read_run(figure_1).to_dict()
    assert found.keys() == {"conclusion", "rows", "published", "failures"}


def test_figure_4_has_the_closed_form(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Pointwise(SMALL, tiny(TRUE_BIAS_RANKERS), sessions=(10_000,), collisions=(0.0, 0.8), seeds=2)
    monkeypatch.setitem(
        papers.TABLES_AND_FIGURES, "ips-figure4", papers.TableOrFigure(papers.IPS_PAPER, "small", lambda: small)
    )
    out = shell.text("reproduce", "ips-figure4", "-o", tmp_path, "--workers", 1)
    assert "unlimited clicks" in out
    assert "0.8000" in out


def test_slips(shell: Shell, tmp_path: Path) -> None:
    assert "nowhere" in shell.error("reproduce", "ips-table2", "--corpus", "nowhere", "-o", tmp_path)
    assert "one-hot set" in shell.error("reproduce", "ips-figure4", "--corpus", "builtin", "-o", tmp_path)
    assert "ips-tuning" in shell.error("reproduce", "ips-table2", "--tuned", tmp_path, "-o", tmp_path)
    assert "--tuned" in shell.error("reproduce", "ips-figure2", "--tuned", tmp_path, "-o", tmp_path)
