"""Reads the dashboards for the tests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).resolve().parents[2] / "charts/vmherd/files/dashboards"


class Query(NamedTuple):
    dashboard: str
    panel: str
    expr: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}"


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in sorted(DIRECTORY.glob("*.json"))}


def queries() -> Iterator[Query]:
    """The queries of all panels and annotations."""
    for name, board in dashboards().items():
        for annotation in board["annotations"]["list"]:
            yield Query(name, annotation["name"], annotation["expr"])
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield Query(name, panel["title"], target["expr"])
