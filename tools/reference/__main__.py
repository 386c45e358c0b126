"""`python -m tools.reference` writes the pages. With `--check`, it only prints the outdated pages."""

import sys
from pathlib import Path

from benchmarks import figures
from tools import generated
from tools.realkubevirt import live_page
from tools.reference import api, events, flags, metadata

FOLDER = generated.ROOT / "docs" / "reference"
WITH_FIGURES = [generated.ROOT / name for name in ("README.md", "docs/performance.md", "docs/scaling.md")]


def pages() -> dict[Path, str]:
    return {
        FOLDER / "api.md": api.page(sorted((generated.ROOT / "manifests" / "crds").glob("*.yaml"))),
        FOLDER / "annotations.md": metadata.page(),
        FOLDER / "events.md": events.page(generated.ROOT / "controller"),
        FOLDER / "flags.md": flags.page(),
        **{path: figures.quoted(path) for path in WITH_FIGURES},
        FOLDER.parent / "live-changes.md": live_page.page(),
    }


if __name__ == "__main__":
    sys.exit(generated.main(sys.argv[1:], pages, "make reference"))
