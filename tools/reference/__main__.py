"""`python -m tools.reference` writes the pages. With `--check` it writes nothing and prints the outdated pages."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tools.reference.pages import ROOT, pages


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if all pages are up to date, 1 if not, 2 for a wrong argument."""
    if arguments not in ([], ["--check"]):
        print(f"reference: expected --check or no argument, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    stale = {path: text for path, text in pages().items() if not path.is_file() or path.read_text() != text}
    if arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run `make reference`", file=sys.stderr)
        return int(bool(stale))
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
