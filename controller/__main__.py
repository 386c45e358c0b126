"""Runs the command `vmherd` when Python is called as `python -m controller`."""

import sys

from controller.cli import main

if __name__ == "__main__":
    sys.exit(main())
