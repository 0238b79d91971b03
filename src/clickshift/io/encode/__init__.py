"""Encoding of logs larger than memory."""
