"""Tables as files: Parquet, CSV and JSON lines, read into typed columns."""

__all__ = ["columns", "formats", "json_lines"]  # noqa: F822 (modules)
