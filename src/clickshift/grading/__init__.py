"""Graded relevance judgments from fitted click models, and their export."""

from clickshift.grading.export import JUDGMENT_FORMATS as JUDGMENT_FORMATS
from clickshift.grading.export import judgments_format as judgments_format
from clickshift.grading.export import write_judgments as write_judgments
from clickshift.grading.grades import DEFAULT_GRADES as DEFAULT_GRADES
from clickshift.grading.grades import Grading as Grading
from clickshift.grading.grades import grade_documents as grade_documents
from clickshift.grading.grades import parse_grades as parse_grades

__all__ = [
    "DEFAULT_GRADES",
    "JUDGMENT_FORMATS",
    "Grading",
    "grade_documents",
    "judgments_format",
    "parse_grades",
    "write_judgments",
]
