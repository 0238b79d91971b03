"""Drift between days of a log: changes of rankings, new documents and changed clicks, corrected for chance."""

from clickshift.day_drift._report import DriftResult as DriftResult
from clickshift.day_drift._results import ChanceCorrectedChange as ChanceCorrectedChange
from clickshift.day_drift._results import Change as Change
from clickshift.day_drift._results import ClickChange as ClickChange
from clickshift.day_drift._results import Day as Day
from clickshift.day_drift.compare import compare_days as compare_days
from clickshift.day_drift.compare import drift as drift
from clickshift.day_drift.document_drift import DocumentDrift as DocumentDrift
from clickshift.day_drift.document_drift import document_drift as document_drift

__all__ = [
    "ChanceCorrectedChange",
    "Change",
    "ClickChange",
    "Day",
    "DocumentDrift",
    "DriftResult",
    "compare_days",
    "document_drift",
    "drift",
]
