"""Numbers that results are compared with, each with its source and tolerance: one TOML file a topic."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def golden(name: str) -> dict[str, Any]:
    """Read the file of that name."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
