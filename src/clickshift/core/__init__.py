"""Building blocks that know nothing of clicks: threads, random numbers, files, saved arrays, unique rows,
specification texts, Newton's method."""
