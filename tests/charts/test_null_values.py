"""A value that is null renders as its default."""

import json
from typing import Any

import pytest

from tests.charts.test_rendering import VALUES
from tests.helm import Helm
from tools.chart.generated import CHART

ON = {"enabled": True}
MONITORING = dict.fromkeys(("serviceMonitor", "prometheusRule", "dashboards"), ON)
BASE: dict[str, Any] = {
    "mode": "takeover",
    "image": {"registry": "registry.example.com"},
    "settings": {"migrations": True},
    "hooks": {"takeover": ON, "cleanup": ON},
    "networkPolicy": ON,
    "metrics": {"secure": {"enabled": True, "certManager": ON}, **MONITORING},
}
"""Values with which every template renders objects."""


@pytest.mark.parametrize("major", [3, 4], indirect=True)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_value_and_section_that_is_null_renders_as_its_default(helm: Helm, depth: int) -> None:
    given = json.loads(json.dumps(BASE))  # shares no section
    for path in {tuple(name.split(".")[:depth]) for name in VALUES if name.count(".") >= depth - 1}:
        section = given
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section.setdefault(path[-1], None)
    assert given != BASE
    assert helm.render(given) == helm.render(BASE)


def test_each_template_begins_with_the_defaults() -> None:
    """Helm promises no order of the templates."""
    for path in (*(CHART / "templates").rglob("*.yaml"), CHART / "templates" / "NOTES.txt"):
        assert '{{- include "vmherd.defaults" . }}' in path.read_text().splitlines()[:2], path
