"""A value that is null renders as its default."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.charts.test_rendering import VALUES
from tests.helm import Helm
from tools.chart.generated import CHART

ON = {"enabled": True}
BASE: dict[str, Any] = {
    "mode": "takeover",
    "image": {"registry": "registry.example.com"},
    "settings": {"disruptionBudgets": True},
    "hooks": {"takeover": ON, "cleanup": ON},
    "networkPolicy": ON,
    "metrics": {
        "secure": {"enabled": True, "certManager": ON},
        **dict.fromkeys(("serviceMonitor", "prometheusRule", "dashboards"), ON),
    },
}
"""Values with which every template renders objects."""


def paths(values: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        yield (name,)
        yield from ((name, *rest) for rest in (paths(value) if isinstance(value, Mapping) else ()))


def nulled(values: dict[str, Any], depth: int) -> dict[str, Any]:
    """The values with null for every other value and section at this depth."""
    made = {**values}
    for path in {tuple(name.split(".")[:depth]) for name in VALUES if name.count(".") >= depth - 1} - {*paths(values)}:
        section = made
        for name in path[:-1]:
            section[name] = section = {**(section.get(name) or {})}
        section[path[-1]] = None
    return made


@pytest.mark.parametrize("major", [3, 4], indirect=True)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_value_and_section_that_is_null_renders_as_its_default(helm: Helm, depth: int) -> None:
    given = nulled(BASE, depth)
    assert given != BASE
    assert helm.render(given) == helm.render(BASE)


@pytest.mark.parametrize("path", [*(CHART / "templates").rglob("*.yaml"), CHART / "templates" / "NOTES.txt"], ids=str)
def test_a_template_begins_with_the_defaults(path: Path) -> None:
    """Helm promises no order of the templates."""
    assert '{{- include "vmherd.defaults" . }}' in path.read_text().splitlines()[:2]
