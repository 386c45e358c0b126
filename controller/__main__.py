"""Entry point of `python -m controller`, which is the same as the command `vmherd`."""

import sys

from controller.cli import main

if __name__ == "__main__":
    sys.exit(main())
