"""`python -m tests.examples.flock`: vmherd with one more kind.

A new kind normally has an entry in `KINDS`. This module adds the entry before other modules read `KINDS`.
"""

from __future__ import annotations

import sys

from controller import kinds
from tests.examples.flock.descriptor import FLOCKS

kinds.KINDS = (*kinds.KINDS, FLOCKS)

if __name__ == "__main__":
    from controller.cli import main

    sys.exit(main())
