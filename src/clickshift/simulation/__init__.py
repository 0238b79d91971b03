"""Simulated users, search engines and logs."""

from clickshift.simulation import users as users
