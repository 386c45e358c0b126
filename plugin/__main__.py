"""Runs the command `kubectl vmherd` when Python is called as `python -m plugin`."""

import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command that the arguments name, and return the exit code. A Ctrl-C during the imports ends it too."""
    try:
        from plugin.cli import main as run  # noqa: PLC0415  so that a Ctrl-C during this import prints no traceback

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
