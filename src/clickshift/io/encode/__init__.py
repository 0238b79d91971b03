"""Encoding of logs that do not fit into memory: raw ids become row numbers in memory-mapped files."""

__all__ = ["batches", "duckdb", "writer"]  # noqa: F822 (modules)
