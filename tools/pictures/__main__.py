"""`python -m tools.pictures` makes the pictures of the README: the demo's screen, and `tree` and `why` of the plugin.

They show a real run of the demo's control plane, so the command needs the programs of the sandbox. Names, ages and
addresses that differ from run to run are replaced. With `--check`, the command writes nothing and prints the outdated
pictures.
"""

import sys
from pathlib import Path

from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlaneError
from sandbox.demo.cluster import DemoFailed
from tools import generated
from tools.pictures.run import WIDTH, Shots, svg, take, width_of

IMAGES = generated.ROOT / "docs" / "images"


def pictures(shots: Shots) -> dict[Path, str]:
    return {
        IMAGES / "demo.svg": svg(shots.demo, title="vmherd demo", name="demo", width=WIDTH),
        IMAGES / "tree.svg": svg(shots.tree, title="kubectl vmherd tree", name="tree", width=width_of(shots.tree)),
        IMAGES / "why.svg": svg(shots.why, title="kubectl vmherd why", name="why", width=width_of(shots.why)),
    }


if __name__ == "__main__":
    failures = (BinariesUnavailable, ControlPlaneError, DemoFailed)
    sys.exit(generated.main(sys.argv[1:], lambda: pictures(take()), "make pictures", failures))
