"""Logs as tables: Parquet, CSV, JSON lines."""
