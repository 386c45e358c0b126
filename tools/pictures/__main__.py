"""`python -m tools.pictures` makes the pictures of the README: the demo's screen, and `tree` and `why` of the plugin.

They show a real run of the demo's control plane, so the command needs the programs of the sandbox. Names, ages and
addresses that differ from run to run are replaced. With `--check`, the command writes nothing and prints the outdated
pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlaneError
from sandbox.demo.cluster import DemoFailed
from tools.pictures.run import WIDTH, Shots, take
from tools.pictures.terminal import svg, width_of

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"


def pictures(shots: Shots) -> dict[str, str]:
    """Return the content of each picture by its file name."""
    return {
        "demo.svg": svg(shots.demo, title="vmherd demo", name="demo", width=WIDTH),
        "tree.svg": svg(shots.tree, title="kubectl vmherd tree", name="tree", width=width_of(shots.tree)),
        "why.svg": svg(shots.why, title="kubectl vmherd why", name="why", width=width_of(shots.why)),
    }


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if all pictures are up to date, 1 if not, 2 for a wrong argument."""
    if arguments not in ([], ["--check"]):
        print(f"pictures: expected --check or no argument, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        made = pictures(take())
    except (BinariesUnavailable, ControlPlaneError, DemoFailed) as error:
        print(f"pictures: {error}", file=sys.stderr)
        return 1
    stale = [
        name for name, text in made.items() if not (IMAGES / name).is_file() or (IMAGES / name).read_text() != text
    ]
    if arguments:
        for name in stale:
            print(f"docs/images/{name} is out of date: run `make pictures`", file=sys.stderr)
        return int(bool(stale))
    IMAGES.mkdir(exist_ok=True)
    for name in stale:
        (IMAGES / name).write_text(made[name])
        print(f"wrote docs/images/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
