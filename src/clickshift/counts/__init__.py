"""Sufficient statistics of logs, and how any log is opened and counted."""
