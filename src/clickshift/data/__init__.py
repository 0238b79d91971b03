"""Containers: vocabularies, rankings, sessions, encoded logs and corpora; the built-in corpus.

The modules are imported one by one, so that importing the package costs nothing.
"""

__all__ = ["builtin_corpus", "corpus", "encoded_log", "sessions", "vocabulary"]  # noqa: F822 (modules)
