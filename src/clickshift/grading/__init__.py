"""Graded relevance judgments from fitted click models, and their export."""

from clickshift.grading.export import JUDGMENT_FORMATS as JUDGMENT_FORMATS
from clickshift.grading.export import judgments_format as judgments_format
from clickshift.grading.export import write_judgments as write_judgments
from clickshift.grading.graded_judgments import DEFAULT_GRADES as DEFAULT_GRADES
from clickshift.grading.graded_judgments import GradedJudgments as GradedJudgments
from clickshift.grading.graded_judgments import judgments as judgments
from clickshift.grading.graded_judgments import parse_grades as parse_grades
from clickshift.grading.quantiles import quantile_grades as quantile_grades

__all__ = [
    "DEFAULT_GRADES",
    "JUDGMENT_FORMATS",
    "GradedJudgments",
    "judgments",
    "judgments_format",
    "parse_grades",
    "quantile_grades",
    "write_judgments",
]
