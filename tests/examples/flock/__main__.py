"""`python -m tests.examples.flock`: vmherd with one kind more.

It stands for an entry in `KINDS`, so it comes before any other module of the controller reads them.
"""

from __future__ import annotations

import sys

from controller import kinds
from tests.examples.flock.descriptor import FLOCKS

kinds.KINDS = (*kinds.KINDS, FLOCKS)

if __name__ == "__main__":
    from controller.cli import main

    sys.exit(main())
