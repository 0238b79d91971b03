"""The command line as a module: ``python -m clickshift``."""

from clickshift.cli import main

if __name__ == "__main__":
    main()
