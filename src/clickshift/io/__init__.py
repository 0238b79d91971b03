"""Readers and writers: logs, judgments, rankings, target policies and public data sets, from files to containers.

Start with :func:`clickshift.io.read_log.read_log` and :func:`clickshift.io.read_log.write_log` for click logs,
:func:`clickshift.io.datasets.letor.read_corpus` for learning-to-rank data, and
:func:`clickshift.io.qrels.read_qrels` for relevance judgments. Importing the package imports none of its modules.
"""

# ruff: noqa: F822 (the names are modules)
__all__ = [
    "datasets",
    "encode",
    "frames",
    "pair_values",
    "qrels",
    "rankings",
    "read_log",
    "read_report",
    "table_writer",
    "tables",
    "target_files",
]
