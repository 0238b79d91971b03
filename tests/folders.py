"""The files of saved models, rankers, counts and encoded logs, whose names contain a digest of their content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from clickshift.core.files import content_key


def arrays_file(folder: Path) -> Path:
    """The only file of arrays in a folder."""
    (path,) = folder.glob("*.safetensors")
    return path


def data_file(folder: Path, stem: str) -> Path:
    """The only data file of an encoded log with this stem, e.g. "pair"."""
    (path,) = folder.glob(f"{stem}-*.bin")
    return path


def craft(folder: Path, header_name: str, arrays: dict[str, np.ndarray], **facts: Any) -> None:
    """Change arrays and header entries of a folder, with the right digests, as somebody would who means harm."""
    path, header = arrays_file(folder), json.loads((folder / header_name).read_text())
    save_file({**load_file(path), **arrays}, path)
    (folder / header_name).write_text(json.dumps(header | facts | {"arrays": content_key([path])}))
