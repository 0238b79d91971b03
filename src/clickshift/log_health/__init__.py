"""Health of a click log: tests for the ways in which tracking lies, with rates, examples, and what to do."""

from clickshift.log_health._report import LogHealth
from clickshift.log_health.check_log import check_log
from clickshift.log_health.finding import Finding

__all__ = ["Finding", "LogHealth", "check_log"]
