"""Reports: rows become tables, plots and one self-contained HTML page."""
