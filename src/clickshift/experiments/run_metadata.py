"""The settings of a run on disk: the protocol that a folder holds, so that a run can be continued and inspected."""

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

_REGISTRY = {
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
"""Classes that may occur in the text of a protocol."""
Protocol = PolicyShift | RealLogs | ModelSelection
"""Protocols whose runs can be opened again."""
_NUMERIC_LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "jax", "optax")
"""Libraries whose version may change the last digits of a result."""


def start_run(protocol: Protocol, path: Path, **sources: Any) -> tuple[RunFolder, dict[str, Any]]:
    """Write the settings of a run into its folder, which may be new or hold an earlier run.

    Parameters
    ----------
    protocol
        Protocol of the run.
    path
        Folder of the run.
    **sources
        Where the data are, by name; written to the settings.

    Returns
    -------
    RunFolder
        The folder, for `clickshift.experiments.runner.run_tasks`.
    dict
        The settings: sources, the text of the protocol, modules of candidates, and versions of libraries.
    """
    folder = RunFolder(path)
    modules = [contender.module for contender in protocol.contenders if contender.module]
    settings: dict[str, Any] = {**sources, "protocol": key(protocol), "modules": modules}
    settings |= {"clickshift": __version__, **_library_versions()}
    folder.write_settings(settings)
    return folder, settings


def open_run(path: Path) -> tuple[Protocol, RunFolder, dict[str, Any]]:
    """Open the folder of a run.

    Parameters
    ----------
    path
        Folder of the run.

    Returns
    -------
    PolicyShift or RealLogs or ModelSelection
        The protocol of the run.
    RunFolder
        The folder.
    dict
        The settings that `start_run` wrote.

    Raises
    ------
    FileError
        If the folder holds no run ("not-a-run"), its settings cannot be read ("damaged-file"), or its protocol is that
        of another version ("other-version").
    """
    folder = RunFolder(path)
    settings = folder.read_settings()
    for module in settings.get("modules", []):
        import_model(module)
    try:
        protocol: Protocol = parse(str(settings.get("protocol")), _REGISTRY)
    except SpecError as error:
        raise FileError(
            path, f"holds a run of another version of clickshift ({error}) Start the run again.", code="other-version"
        ) from None
    return protocol, folder, settings


def _library_versions() -> dict[str, str]:
    """Versions of Python and of the installed numeric libraries."""
    versions = {"python": platform.python_version()}
    for name in _NUMERIC_LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
