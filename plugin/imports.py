"""Keeps slow imports out of commands that do not need them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_rich() -> Iterator[None]:
    """Hide the package rich during the first import of structlog.

    structlog imports rich for the tracebacks of its log lines. The plugin writes no log lines, and this import takes a
    fifth of the time of a short command.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # so `import rich` raises ImportError
    try:
        yield
    finally:
        del sys.modules["rich"]
