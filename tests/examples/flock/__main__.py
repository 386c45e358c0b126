"""`python -m tests.examples.flock`: vmherd with one more kind.

This module adds the new kind to `KINDS` before other modules read `KINDS`. A real kind is added in controller/kinds.py.
"""

import sys

from controller import kinds
from tests.examples.flock.descriptor import FLOCKS

kinds.KINDS = (*kinds.KINDS, FLOCKS)

if __name__ == "__main__":
    from controller.cli import main

    sys.exit(main())
