"""Graded relevance judgments from fitted models, and their export."""
