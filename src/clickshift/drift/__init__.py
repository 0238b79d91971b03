"""Changes between days of a log."""
