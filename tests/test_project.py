"""What a stranger needs to join: metadata, workflows and templates are valid, and the wheel is complete."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import clickshift

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
YAML = sorted([*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"])


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_files_are_yaml(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    if path.parent.name == "workflows":
        assert content["permissions"] == {"contents": "read"}, "rights are given to single jobs"
        for job in content["jobs"].values():
            assert job["runs-on"]
            for step in job["steps"]:
                assert ("uses" in step) != ("run" in step)
                assert "@" in step.get("uses", "@"), "an action has a version"
    if path.parent.name == "ISSUE_TEMPLATE" and "body" in content:
        assert all(field["type"] in {"input", "textarea", "dropdown"} for field in content["body"])


def test_targets_of_the_workflows_and_guides_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    texts = [path.read_text(encoding="utf-8") for path in [*YAML, ROOT / "CONTRIBUTING.md", ROOT / "README.md"]]
    named = {one for text in texts for line in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", text) for one in line.split()[:1]}
    assert {"test", "check", "docs", "wheel"} <= named & targets


def test_the_matrix_has_the_supported_versions() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]["tests"]
    assert matrix["strategy"]["matrix"]["python"] == PYTHONS
    assert len(matrix["strategy"]["matrix"]["os"]) == 3
    assert [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)] == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert PROJECT["authors"] == [{"name": "clickshift developers"}]
    assert not PROJECT.get("urls")


def test_files_that_the_guide_says_to_copy_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|docs)/[\w/.-]+)`", text)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
    checks = re.findall(r"clickshift\.testing\.(\w+)", text)
    assert {f"check_{kind}" for kind in ("click_model", "policy", "estimator", "propensity_method")} == set(checks)
    assert all(hasattr(clickshift.testing, name) for name in checks)


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == clickshift.__version__
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].split(" ")[0] == clickshift.__version__


def test_dependencies_are_pinned() -> None:
    pinned = {
        re.split(r"==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    }
    optional = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    asked = {re.split(r"[\[<>=! ]", one)[0].lower() for one in [*PROJECT["dependencies"], *optional]}
    assert asked - pinned == {"clickshift", "onnx"}


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        there = {name for name in files.namelist() if name.startswith("clickshift/")}
        metadata = next(files.read(name).decode() for name in files.namelist() if name.endswith("METADATA"))
    tracked = subprocess.run(
        ["git", "ls-files", "src/clickshift"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    expected = {name.removeprefix("src/") for name in tracked if (ROOT / name).exists()}
    assert expected - there == set()
    assert "clickshift/py.typed" in there
    assert "Classifier: Typing :: Typed" in metadata
    assert f"Version: {clickshift.__version__}\n" in metadata
