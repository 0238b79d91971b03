"""Tables as files: Parquet, CSV and JSON lines, read into typed columns."""

__all__ = ["columns", "formats", "layouts"]  # noqa: F822 (modules)
