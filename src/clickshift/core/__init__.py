"""Building blocks without domain knowledge: parallel loops, random numbers, files, saved arrays, temporary storage,
unique rows, specification texts, confidence intervals and Newton's method.

The modules are imported one by one, so that importing the package costs nothing.
"""

__all__ = [  # noqa: F822 (modules)
    "artifacts",
    "boosting",
    "files",
    "interrupts",
    "intervals",
    "newton",
    "parallel",
    "progress",
    "random_streams",
    "rng",
    "spec",
    "splitmix",
    "tempfiles",
    "text",
    "unique_rows",
    "versions",
]
