"""Building blocks without domain knowledge: parallel loops, random numbers, files, saved arrays, temporary storage,
unique rows, specification texts, confidence intervals and Newton's method.

The modules are imported one by one, so that importing the package costs nothing.
"""

__all__ = [  # noqa: F822 (modules)
    "artifacts",
    "files",
    "intervals",
    "newton",
    "parallel",
    "random_streams",
    "rng",
    "spec",
    "tempfiles",
    "unique_rows",
]
