"""Explore a log: an interactive page of its health, its queries, why a model prefers a document, and what if."""

from clickshift.exploration.explore import Exploration as Exploration
from clickshift.exploration.explore import explore as explore

__all__ = ["Exploration", "explore"]
