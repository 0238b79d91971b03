"""Explore a log: an interactive page of its health, its queries, why a model prefers a document, and what if."""

from clickshift.explore.explore import Exploration as Exploration
from clickshift.explore.explore import explore as explore

__all__ = ["Exploration", "explore"]
