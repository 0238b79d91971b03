"""Every command does what it says, in words and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest_cli import Shell  # type: ignore[import-not-found]
from typer.testing import CliRunner

from clickshift.cli import app
from clickshift.learners import DEFAULT
from clickshift.models import MODELS
from clickshift.models.storage import load_model
from clickshift.readers.judgments import read_qrels
from clickshift.readers.tabular import read_log

COMMANDS = [
    "simulate", "fit", "evaluate", "compare", "examine", "relevance", "predict", "models",
    "log info", "log convert", "corpus info", "shift run",
]  # fmt: skip
HEAVY = ["numpy", "numba", "pyarrow", "lightgbm", "plotly", "rich", "scipy"]
