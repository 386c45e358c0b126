"""Asks Prometheus the queries of a panel, as Grafana does."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from tests.integration.prometheus import Prometheus
from tests.monitoring.queries import filled_in

INSTANT: Final = ("stat", "table", "bargauge")
"""The types of panels that show only the newest value."""

STEPS: Final = 120
"""The number of points of a line."""


class Series(Struct, frozen=True):
    """The points of a series: times in seconds before the end, which are negative, and values."""

    name: str
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.points[-1][1]


class Window(Struct, frozen=True):
    """The time range of a dashboard, and the values of its variables."""

    end: float
    seconds: float
    variables: Mapping[str, str]

    @property
    def step_s(self) -> float:
        return self.seconds / STEPS


def answers(server: Prometheus, panel: Mapping[str, Any], window: Window) -> list[list[Series]]:
    """Return the series of each query of the panel. Series without a number are left out."""
    found = []
    for target in panel.get("targets", ()):
        query = filled_in(target["expr"], **window.variables)
        if target.get("instant") or panel["type"] in INSTANT:
            results = [{**each, "values": [each["value"]]} for each in server.ask(query)]
        else:
            results = server.history(query, seconds=window.seconds, step_s=window.step_s, end=window.end)
        series = [_series(each, target["legendFormat"], window) for each in results]
        found.append([each for each in series if each.points])
    return found


def leader_changes(server: Prometheus, board: Mapping[str, Any], window: Window) -> list[tuple[float, str]]:
    """Return the times and the texts of the marks of the dashboard's annotation."""
    marks = []
    for annotation in board["annotations"]["list"]:
        query = filled_in(annotation["expr"], **window.variables)
        for each in server.history(query, seconds=window.seconds, step_s=3, end=window.end):
            title = _filled(annotation["titleFormat"], each["metric"])
            times = [float(at) - window.end for at, _ in each["values"]]
            starts = [at for before, at in zip([-math.inf, *times], times, strict=False) if at - before > 6]
            marks += [(at, title) for at in starts]
    return sorted(marks)


def _series(result: Mapping[str, Any], legend: str, window: Window) -> Series:
    labels = result["metric"]
    name = ", ".join(labels.values()) if legend == "__auto" else _filled(legend, labels)
    points = ((float(at) - window.end, float(value)) for at, value in result["values"])
    return Series(name, labels, tuple(point for point in points if math.isfinite(point[1])))


def _filled(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), legend)
