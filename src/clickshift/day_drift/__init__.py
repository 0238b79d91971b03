"""Drift between days of a log: changes of rankings, new documents and changed clicks, corrected for chance."""

from clickshift.day_drift._report import DriftResult as DriftResult
from clickshift.day_drift._results import ChanceCorrectedChange as ChanceCorrectedChange
from clickshift.day_drift._results import Change as Change
from clickshift.day_drift._results import ClickChange as ClickChange
from clickshift.day_drift._results import Day as Day
from clickshift.day_drift.compare import compare_days as compare_days
from clickshift.day_drift.compare import drift as drift

__all__ = ["ChanceCorrectedChange", "Change", "ClickChange", "Day", "DriftResult", "compare_days", "drift"]
