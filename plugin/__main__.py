"""Runs the command `kubectl vmherd` when Python is called as `python -m plugin`."""

import sys

from plugin.cli import main

if __name__ == "__main__":
    sys.exit(main())
