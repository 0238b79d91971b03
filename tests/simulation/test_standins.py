"""Simulated clicks on files in published formats, which stand in for the real samples."""

from __future__ import annotations

from pathlib import Path

from clickshift.io.datasets.letor import read_corpus
from clickshift.simulation.fixed_ranking import _attractiveness
from clickshift.simulation.users import PBM


def test_labels_from_0_to_2_have_three_attractivenesses(standins: Path) -> None:
    """Each by its own label, on the scale of the file: 2 is the best grade, not 4."""
    corpus = read_corpus(standins / "mq2008" / "S5.txt.gz", cache=False)
    found = _attractiveness(corpus, PBM()).round(6)
    assert {label: set(found[corpus.label == label].tolist()) for label in (0, 1, 2)} == {0: {0.1}, 1: {0.4}, 2: {1.0}}
