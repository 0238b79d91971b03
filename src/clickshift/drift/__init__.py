"""Drift between days of a log: changes of rankings, new documents and changed clicks, corrected for chance."""

from clickshift.drift._results import ChanceCorrectedChange as ChanceCorrectedChange
from clickshift.drift._results import Change as Change
from clickshift.drift._results import ClickChange as ClickChange
from clickshift.drift._results import Day as Day
from clickshift.drift._results import DriftResult as DriftResult
from clickshift.drift.compare import compare_days as compare_days

__all__ = ["ChanceCorrectedChange", "Change", "ClickChange", "Day", "DriftResult", "compare_days"]
