from __future__ import annotations

import numpy as np
import pytest

from clickshift.counts.cells import Cells
from clickshift.counts.connectivity import _WEAK_LINK, swap_graph
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary

WORDS = Vocabulary.of(np.repeat(np.arange(2), 4), np.arange(8))[0]


def graph(*lists: tuple[list[int], int]):
    width = max(len(pairs) for pairs, _ in lists)
    pair = np.array([pairs + [UNSEEN] * (width - len(pairs)) for pairs, _ in lists])
    rankings = Rankings(WORDS, pair[:, 0] // 4, pair)
    count = np.array([n for _, n in lists])
    return swap_graph(Cells.of(Sessions(rankings, np.zeros(pair.shape, bool), count)))


def test_swaps_are_counted_by_the_harmonic_mean() -> None:
    found = graph(([0, 1, 2], 300), ([1, 0, 2], 100))
    assert found.swaps[0, 1] == pytest.approx(2 * 300 * 100 / 400)
    assert found.swaps[0, 2] == 0
    assert found.groups() == [[1, 2], [3]]
    assert found.weakest_link == 0


def test_a_fixed_order_connects_nothing() -> None:
    found = graph(([0, 1, 2], 1000), ([4, 5, 6], 1000))
    assert found.n_components == 3
    text = found.warning()
    assert text is not None
    assert "(rank 1; rank 2; rank 3)" in text
    assert "not identified" in text


def test_a_chain_of_swaps_connects_all_and_its_weakest_link_counts() -> None:
    found = graph(([0, 1, 2], 1000), ([1, 0, 2], 1000), ([0, 2, 1], 20))
    assert found.groups() == [[1, 2, 3]]
    links = sorted([found.swaps[0, 1], found.swaps[0, 2], found.swaps[1, 2]])
    assert found.weakest_link == pytest.approx(links[1]), "the strongest paths avoid the weakest edge"
    assert found.weakest_link < _WEAK_LINK
    text = found.warning()
    assert text is not None
    assert f"{found.weakest_link:.1f} effective swaps" in text


def test_random_lists_are_well_connected(rng: np.random.Generator) -> None:
    found = graph(*[(list(4 * (i % 2) + rng.permutation(4)), 50) for i in range(60)])
    assert found.n_components == 1
    assert found.warning() is None


def test_lists_of_one_need_no_swaps() -> None:
    found = graph(([0], 10), ([4], 10))
    assert found.warning() is None
    assert found.weakest_link == float("inf")


def test_a_rank_that_is_rarely_shown_still_counts() -> None:
    found = graph(([0, 1], 500), ([1, 0], 500), ([2, 0, 1], 300))
    assert found.groups() == [[1, 2, 3]]
