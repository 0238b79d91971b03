"""Attack the command line with generated input: see `python -m tests.fuzz --help` and `make fuzz`."""
