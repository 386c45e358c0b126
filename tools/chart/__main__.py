"""`python -m tools.chart` writes the generated files. With `--check` it only prints the outdated files."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tools.chart.generated import ROOT, files
from tools.chart.helm import HelmMissing, find_helm


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if all files are up to date, 1 if not, 2 for a wrong argument."""
    if arguments not in ([], ["--check"]):
        print(f"charts: expected --check or no argument, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        made = files(find_helm(3))
    except HelmMissing as error:
        print(f"charts: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    if arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run `python -m tools.chart`", file=sys.stderr)
        return int(bool(stale))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
