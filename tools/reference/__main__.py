"""`python -m tools.reference` writes the pages. With `--check` it writes nothing and prints the outdated pages.

docs/reference/api.md          from the CRDs in manifests/crds/ and tools/reference/api.md.in
docs/reference/annotations.md  from controller/replicas/catalogue.py and tools/reference/annotations.md.in
docs/reference/events.md       from the reasons in controller/ and tools/reference/events.md.in
docs/reference/flags.md        from the commands of the program and tools/reference/flags.md.in
README.md, docs/performance.md, docs/scaling.md  the figures of benchmarks/figures.json in them
docs/live-changes.md           from tests/recordings/live-changes.json and tests/realkubevirt/live-changes.md.in
"""

import sys
from pathlib import Path

from benchmarks import figures
from tests.realkubevirt import live_page
from tools import generated
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
