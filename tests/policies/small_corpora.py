"""Corpora and lists that tests of policies share."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary


def small_corpus(*sizes: int, seed: int = 0, features: int = 4) -> Corpus:
    """Queries of these many candidates, grades 0 to 4, features of which the first follows the grade."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(len(sizes)), sizes)
    vocabulary, _, _ = Vocabulary.of(query + 100, np.concatenate([np.arange(size) for size in sizes]))
    label = rng.choice(5, len(query), p=[0.4, 0.25, 0.2, 0.1, 0.05])
    table = rng.normal(size=(len(query), features))
    table[:, 0] += label
    return Corpus(vocabulary, label.astype(np.float32), table.astype(np.float32))


def all_lists(vocabulary: Vocabulary, query: int, ranks: int) -> Rankings:
    """Every list of that many of the query's candidates."""
    begin, end = vocabulary.query_offsets[query : query + 2].tolist()
    lists = np.array(list(permutations(range(begin, end), min(ranks, end - begin))), np.int32)
    return Rankings(vocabulary, np.full(len(lists), query, np.int32), lists)
