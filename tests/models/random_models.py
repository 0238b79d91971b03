"""Models with random parameters, and lists to ask them about."""

from __future__ import annotations

import numpy as np

from clickshift.core.spec import resolve
from clickshift.data.vocabulary import Vocabulary
from clickshift.models import MODELS
from clickshift.models.base import ClickModel, Evidence


def random_neural(name: str, vocabulary: Vocabulary, *, ranks: int = 5, state: int = 6, seed: int = 5) -> ClickModel:
    """A model that is usually found by gradient, with parameters at random: quicker than learning them."""
    cls, rng = resolve(name, MODELS), np.random.default_rng(seed)
    by_pair = {
        output: rng.normal(size=(vocabulary.n_pairs + 1, *([] if width == 1 else [width]))).astype(np.float32)
        for output, width in cls.outputs(state).items()
    }
    start = cls.start(ranks, state, rng)
    shared = {key: (value + rng.normal(size=value.shape)).astype(np.float32) for key, value in start.items()}
    seen = np.append(np.ones(vocabulary.n_pairs), 0.0)
    model: ClickModel = cls.from_parameters(
        vocabulary, by_pair, shared, Evidence(f"Gradient({name!r})", seen, seen / 2)
    )
    return model
