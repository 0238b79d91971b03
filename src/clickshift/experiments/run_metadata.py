"""Runs on disk: a folder knows which protocol it is to hold, so that it can be looked at later."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from clickshift._version import __version__
from clickshift.core.spec import key, parse
from clickshift.errors import FileError, SpecError
from clickshift.experiments.model_selection.protocol import ModelSelection
from clickshift.experiments.models import import_model
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.experiments.real_logs import RealLogs
from clickshift.experiments.runner import RunFolder

_PARTS = {
    "PolicyShift": "clickshift.experiments.policy_shift.protocol:PolicyShift",
    "Contender": "clickshift.experiments.models:Contender",
    "World": "clickshift.simulation.search_engine:World",
    "DerivedPolicies": "clickshift.experiments.policy_shift.derived_policies:DerivedPolicies",
    "RealLogs": "clickshift.experiments.real_logs:RealLogs",
    "ModelSelection": "clickshift.experiments.model_selection.protocol:ModelSelection",
    "SelectionWorld": "clickshift.simulation.selection_search_engine:SelectionWorld",
    "Preparation": "clickshift.experiments.real_logs:Preparation",
    "LogFile": "clickshift.experiments.log_files:LogFile",
    "JudgmentFile": "clickshift.experiments.log_files:JudgmentFile",
}
Protocol = PolicyShift | RealLogs | ModelSelection
_MATTER = ("numpy", "scipy", "numba", "lightgbm", "jax", "optax")
"""Libraries whose version may change a number's last digits."""


def start_run(protocol: Protocol, path: Path, **sources: Any) -> tuple[RunFolder, dict[str, Any]]:
    """The folder of a run, new or begun; it notes what it is to hold now, and where its data are."""
    folder = RunFolder(path)
    modules = [contender.module for contender in protocol.contenders if contender.module]
    settings: dict[str, Any] = {**sources, "protocol": key(protocol), "modules": modules}
    settings |= {"clickshift": __version__, **_versions()}
    folder.write_settings(settings)
    return folder, settings


def open_run(path: Path) -> tuple[Protocol, RunFolder, dict[str, Any]]:
    folder = RunFolder(path)
    settings = folder.read_settings()
    for module in settings.get("modules", []):
        import_model(module)
    try:
        protocol: Protocol = parse(str(settings.get("protocol")), _PARTS)
    except SpecError as error:
        raise FileError(path, f"holds a run of another version ({error}) Start it again with `run`.") from None
    return protocol, folder, settings


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _MATTER:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
