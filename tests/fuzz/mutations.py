"""Ways to damage bytes, JSON values, tables and arrays."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOKENS = [
    *("nan", "NaN", "inf", "-inf", "-1", "0", "1", "2", "1.5", "1e400", "9223372036854775807", "9223372036854775808"),
    *("99999999999999999999999999", "-0", "", " ", "\t", "null", "true", "[]", "[[]]", "{}", '"', "'", ",", ";", ":"),
    *("\x00", "\ufeff", "\u202e", "é", "🙂", "=1+1", "@x", "<script>alert(1)</script>", "../../x", "day=2024-13-45"),
    *("1,1", "[1, 1]", "[0, 2]", '["a", "b"]', "[1.5]", "qid:", "qid:x", "1:nan", "\r", "\n", "\n\n", "\\", "%s", "$("),
    "[" * 5000,
    "9" * 400,
    "x" * 70000,
]


def text(data: bytes, rng: random.Random) -> bytes:
    """Damage text in one to three places."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice((_flip, _cut, _repeat, _insert, _insert, _field, _field, _truncate, _lines))(data, rng)
    return data


def file(path: Path, rng: random.Random) -> None:
    """Damage a file in place, by its kind."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        changed = text(gzip.decompress(data), rng)
        data = gzip.compress(changed) if rng.random() < 0.8 else _flip(gzip.compress(changed), rng)
    elif path.suffix == ".parquet" and rng.random() < 0.7:
        _table(path, rng)
        return
    elif path.suffix == ".json" and rng.random() < 0.8:
        data = json.dumps(value(json.loads(data), rng)).encode()
    elif path.suffix in {".parquet", ".safetensors", ".bin"}:
        data = rng.choice((_flip, _flip, _cut, _truncate, _repeat))(data, rng)
    else:
        data = text(data, rng)
    path.write_bytes(data)


def value(old: Any, rng: random.Random) -> Any:
    """Damage one place of a JSON value."""
    if isinstance(old, dict) and old and rng.random() < 0.9:
        key = rng.choice(sorted(old))
        if rng.random() < 0.15:
            return {name: item for name, item in old.items() if name != key}
        return {**old, key: value(old[key], rng)}
    if isinstance(old, list) and old and rng.random() < 0.9:
        k = rng.randrange(len(old))
        return [*old[:k], value(old[k], rng), *old[k + 1 :]]
    odd: list[Any] = [
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63,
        1e308,
        0.5,
        "",
        "x",
        "../x",
        "os:system",
        [],
        {},
        [[]],
        [None],
    ]
    if isinstance(old, int) and not isinstance(old, bool):
        odd += [old + 1, old - 1, -old, float(old)]
    if isinstance(old, str):
        odd += [old + "x", old[:-1], old.upper()]
    return rng.choice(odd)


def array(old: np.ndarray, rng: random.Random) -> np.ndarray:
    """Damage one number of an array, or its shape or type."""
    new = old.copy()
    if rng.random() < 0.25 or not new.size:
        return rng.choice(
            (
                lambda a: a[: len(a) // 2] if a.ndim else a,
                lambda a: np.concatenate([a, a[:1]]) if a.ndim and len(a) else a,
                lambda a: a[..., None],
                lambda a: a.astype(np.float32 if a.dtype.kind in "iub" else np.int16),
                lambda a: a[:0] if a.ndim else a,
            )
        )(new)
    place = rng.randrange(new.size)
    if new.dtype.kind == "f":
        odd: tuple[Any, ...] = (np.nan, np.inf, -np.inf, -1.0, 5.0, 1e300, -1e-9)
    elif new.dtype.kind == "b":
        odd = (not new.flat[place],)
    else:
        low, high = np.iinfo(new.dtype).min, np.iinfo(new.dtype).max
        odd = (low, high, high // 2, -1 if low < 0 else high - 1, int(new.max()) + 1 if new.max() < high else low)
    with np.errstate(all="ignore"):
        new.flat[place] = np.asarray(rng.choice(odd)).astype(new.dtype)
    return new


def _table(path: Path, rng: random.Random) -> None:
    """Damage a Parquet file as a table: a value, a column, a type, or the order of rows."""
    table = pq.read_table(path, partitioning=None)
    name = rng.choice(table.column_names)
    k = table.column_names.index(name)
    column = table.column(name)
    change = rng.randrange(5)
    if change == 0 and table.num_columns > 1:
        table = table.drop_columns([name])
    elif change == 1:
        table = table.append_column(rng.choice((name, "extra", "position", "time")), column)
    elif change == 2:
        table = table.set_column(k, name, pa.array([rng.choice((None, 1.5, -1.0, 2.0))] * table.num_rows))
    elif change == 3:
        rows = column.to_pylist()
        place = rng.randrange(len(rows))
        odd = [None, *rows[:3], -1, 2**40, 0.5, float("nan"), "x", "", [], [None], [1, 1], [2], ["x"]]
        rows[place] = rng.choice(odd)
        try:
            table = table.set_column(k, name, pa.array(rows))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            table = table.set_column(k, name, pa.array([str(row) for row in rows]))
    else:
        order = list(range(table.num_rows))
        rng.shuffle(order)
        table = table.take(order)
    pq.write_table(table, path)


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 40))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.choice((1, 2, 8, 100)) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = start + rng.choice((1, 8, 60, 400))
    return data[:end] + data[start:end] + data[end:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.choice(TOKENS).encode() + data[start:]


def _field(data: bytes, rng: random.Random) -> bytes:
    """Replace one word between separators."""
    places = [match.span() for match in re.finditer(rb"[^\s,;:\[\]{}\"]+", data[:200_000])]
    if not places:
        return _insert(data, rng)
    start, end = rng.choice(places)
    return data[:start] + rng.choice(TOKENS).encode() + data[end:]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _lines(data: bytes, rng: random.Random) -> bytes:
    """Exchange, remove or repeat whole lines."""
    lines = data.splitlines(keepends=True)
    if len(lines) < 3:
        return data[::-1]
    k, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(3)
    if change == 0:
        lines[k], lines[other] = lines[other], lines[k]
    elif change == 1:
        del lines[k]
    else:
        lines.insert(k, lines[other])
    return b"".join(lines)
