"""The list of generated files, and their content.

    charts/vmherd/files/crds/            from manifests/crds/, byte for byte
    charts/vmherd/templates/_rules.tpl   from controller/preflight/permissions.py
    charts/vmherd/templates/_kinds.tpl   from controller/kinds.py
    charts/vmherd/templates/_annotations.tpl  from controller/replicas/catalogue.py
    charts/vmherd/files/dashboards/fleet.json  from tools/chart/fleet.json.in and controller/kinds.py
    charts/vmherd/values.schema.json     from charts/vmherd/values.yaml
    charts/vmherd/README.md              from charts/vmherd/values.yaml and tools/chart/README.md.in
    charts/vmherd/Chart.yaml             its icon, from charts/icon.svg; version and address, from pyproject.toml
    Dockerfile                           its version, from pyproject.toml
    manifests/controller/                from the chart, as Helm renders it

This module writes none of these files; `python -m tools.chart` writes them. The files in manifests/controller/ need the
other generated files. So Helm renders a temporary copy of the chart, in which the generated files are up to date.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.chart import about, base, dashboards, kinds, policies, readme, rules, schema
from tools.chart.values import read_values

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "vmherd"
SOURCES = Path(__file__).parent


def files(helm: Path) -> dict[Path, str]:
    """Return the up-to-date content of each generated file."""
    chart = chart_files()
    return chart | base_files(helm, chart)


def chart_files() -> dict[Path, str]:
    """Return the generated files of the chart, and the Dockerfile. Helm is not needed for them."""
    definitions = sorted((ROOT / "manifests" / "crds").glob("*.yaml"))
    values = read_values((CHART / "values.yaml").read_text())
    known = about.facts((ROOT / "pyproject.toml").read_text())
    return {
        **{CHART / "files" / "crds" / path.name: path.read_text() for path in definitions},
        CHART / "templates" / "_rules.tpl": rules.template(),
        CHART / "templates" / "_kinds.tpl": kinds.template(),
        CHART / "templates" / "_annotations.tpl": policies.template(),
        CHART / "files" / "dashboards" / "fleet.json": dashboards.fleet((SOURCES / "fleet.json.in").read_text()),
        CHART / "values.schema.json": schema.document(values),
        CHART / "Chart.yaml": about.with_icon(
            about.with_facts((CHART / "Chart.yaml").read_text(), known), (ROOT / "charts" / "icon.svg").read_bytes()
        ),
        CHART / "README.md": readme.text(
            (SOURCES / "README.md.in").read_text().replace(about.MARKER, known.version), values
        ),
        ROOT / "Dockerfile": about.dockerfile((ROOT / "Dockerfile").read_text(), known),
    }


def base_files(helm: Path, chart: Mapping[Path, str]) -> dict[Path, str]:
    """Return the generated files of the kustomize base, for users without Helm."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / CHART.name
        shutil.copytree(CHART, copy)
        for path, text in chart.items():
            if path.is_relative_to(CHART):
                (copy / path.relative_to(CHART)).write_text(text)
        rendered = base.render(helm, copy)
    return {ROOT / "manifests" / "controller" / name: text for name, text in rendered.items()}
