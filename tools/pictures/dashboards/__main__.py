"""`python -m tools.pictures.dashboards` makes the pictures of the two dashboards in docs/images.

It needs no Grafana. It starts a sandbox, two vmherd processes and a real Prometheus, and plays a story of some minutes.
Then it sends the queries of each panel to Prometheus, and draws the answers with the layout of the dashboard. With
`--check`, it writes nothing, and prints the pictures that lack a panel of their dashboard.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from sandbox.binaries import BinariesUnavailable, find_binaries
from sandbox.controlplane import ControlPlaneError
from tests.cluster import running_plane
from tests.integration.controller_process import ControllerProcess, controller_process
from tests.integration.pool_namespace import simulator
from tests.integration.prometheus import Prometheus, prometheus, prometheus_program
from tests.monitoring.dashboards import dashboards
from tools.pictures.dashboards.answers import Window, answers, leader_changes
from tools.pictures.dashboards.page import lacking, page
from tools.pictures.dashboards.story import SECONDS, Story

IMAGES: Final = Path(__file__).resolve().parents[3] / "docs" / "images"
NOTE: Final = (
    "Drawn from the answers of a Prometheus, not by Grafana: each panel has its place and its query. "
    f"The data are those of a sandbox in {SECONDS / 60:g} minutes."
)
LEASE: Final = "--leader-election-namespace=default"


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if all pictures are complete, 1 if not, 2 for a wrong argument."""
    if arguments not in ([], ["--check"]):
        print(f"pictures: expected --check or no argument, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    boards = {IMAGES / f"dashboard-{Path(name).stem}.svg": board for name, board in dashboards().items()}
    if arguments:
        return check(boards)
    try:
        made = make(boards)
    except (BinariesUnavailable, ControlPlaneError) as error:
        print(f"pictures: {error}", file=sys.stderr)
        return 1
    for path, text in made.items():
        path.write_text(text)
        print(f"wrote docs/images/{path.name}")
    return 0


def check(boards: Mapping[Path, Mapping[str, Any]]) -> int:
    stale = {path.name: lacking(path.read_text() if path.is_file() else "", board) for path, board in boards.items()}
    for name, titles in stale.items():
        if titles:
            print(f"docs/images/{name} lacks {', '.join(titles)}: run `make pictures`", file=sys.stderr)
    return int(any(stale.values()))


def make(boards: Mapping[Path, Mapping[str, Any]]) -> dict[Path, str]:
    """Play the story, and return the pictures."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vmherd-pictures-")))
        plane = stack.enter_context(running_plane(find_binaries()))
        stack.enter_context(simulator(plane))
        leader = stack.enter_context(controller_process(plane.kubeconfig, directory, LEASE))
        standby = stack.enter_context(controller_process(plane.kubeconfig, directory, LEASE, wait=False))
        jobs = [job({"vmherd-0": leader, "vmherd-1": standby})]
        server = stack.enter_context(prometheus(prometheus_program(), directory, jobs))
        Story(plane, leader).play()
        server.wait_for_scrape()
        [end] = server.numbers("vector(time())")
        window = Window(end, SECONDS, {"__rate_interval": "15s", "job": "vmherd"})
        made = {path: drawn(server, board, window) for path, board in boards.items()}
    return made


def job(processes: Mapping[str, ControllerProcess]) -> dict[str, Any]:
    """The scrape job, with the labels of a cluster."""
    targets = [
        {
            "targets": [each.metrics_url.removeprefix("http://").removesuffix("/metrics")],
            "labels": {"namespace": "vmherd-system", "pod": name, "instance": name},
        }
        for name, each in processes.items()
    ]
    return {"job_name": "vmherd", "honor_labels": True, "static_configs": targets}


def drawn(server: Prometheus, board: Mapping[str, Any], window: Window) -> str:
    found = {panel["id"]: answers(server, panel, window) for panel in board["panels"] if panel["type"] != "row"}
    marks = leader_changes(server, board, window)
    return page(board, found, seconds=window.seconds, marks=marks, note=NOTE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
