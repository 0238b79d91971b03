"""Readers of public data sets: Yandex logs, TREC Session Track, Open Bandit Dataset, and LETOR files."""

__all__ = ["filters", "letor", "open_bandit", "registry", "trec", "yandex"]  # noqa: F822 (modules)
