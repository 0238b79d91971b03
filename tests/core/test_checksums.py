"""XXH64: published values, and a second implementation that follows the specification byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.core.checksums import xxh64

P1, P2, P3, P4, P5 = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def rotate(x: int, bits: int) -> int:
    x %= 1 << 64
    return (x << bits | x >> (64 - bits)) % (1 << 64)


def reference(content: bytes) -> int:
    """XXH64 with the seed 0, in integers without limit."""

    def number(at: int, size: int) -> int:
        return int.from_bytes(content[at : at + size], "little")

    at, total = 0, P5
    if len(content) >= 32:
        lanes = [P1 + P2, P2, 0, -P1]
        while at + 32 <= len(content):
            lanes = [rotate(lane + number(at + 8 * k, 8) * P2, 31) * P1 for k, lane in enumerate(lanes)]
            at += 32
        total = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            total = (total % (1 << 64) ^ rotate(lane * P2, 31) * P1 % (1 << 64)) * P1 + P4
    total += len(content)
    for size in (8, 4, 1):
        while at + size <= len(content):
            word = number(at, size)
            mixed = {8: rotate(word * P2, 31) * P1, 4: word * P1, 1: word * P5}[size]
            bits, factor, added = {8: (27, P1, P4), 4: (23, P2, P3), 1: (11, P1, 0)}[size]
            total = rotate(total % (1 << 64) ^ mixed % (1 << 64), bits) * factor + added
            at += size
    total %= 1 << 64
    for shift, factor in ((33, P2), (29, P3)):
        total = (total ^ total >> shift) * factor % (1 << 64)
    return total ^ total >> 32


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("xxhash", 0x32DD38952C4BC720),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_published_values(text: str, published: int) -> None:
    assert int(xxh64(np.frombuffer(text.encode(), np.uint8))) == reference(text.encode()) == published


def test_every_length_gives_what_the_specification_says() -> None:
    content = np.random.default_rng(0).integers(0, 256, 150).astype(np.uint8)
    for size in range(len(content)):
        assert int(xxh64(content[:size])) == reference(content[:size].tobytes())
