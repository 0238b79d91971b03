"""Presentation of results: tidy rows become tables, Plotly figures, CSV and LaTeX files, and one HTML page."""

__all__ = ["document", "export", "figures", "tables", "values"]  # noqa: F822 (modules)
