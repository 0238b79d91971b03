"""Readers of public data sets."""
