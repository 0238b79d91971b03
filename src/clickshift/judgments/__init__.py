"""Graded relevance judgments from fitted click models, and their export."""

from clickshift.judgments.export import JUDGMENT_FORMATS as JUDGMENT_FORMATS
from clickshift.judgments.export import judgments_format as judgments_format
from clickshift.judgments.export import write_judgments as write_judgments
from clickshift.judgments.grading import DEFAULT_GRADES as DEFAULT_GRADES
from clickshift.judgments.grading import Grading as Grading
from clickshift.judgments.grading import grade_documents as grade_documents
from clickshift.judgments.grading import parse_grades as parse_grades

__all__ = [
    "DEFAULT_GRADES",
    "JUDGMENT_FORMATS",
    "Grading",
    "grade_documents",
    "judgments_format",
    "parse_grades",
    "write_judgments",
]
