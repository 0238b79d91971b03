"""Simulated users, search engines and logs."""
