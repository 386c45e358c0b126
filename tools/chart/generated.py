"""The content of the generated files of the chart and of manifests/, which `python -m tools.chart` writes.

The files in manifests/ need the other generated files. So Helm renders a temporary copy of the chart.
"""

import base64
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from controller.kinds import KINDS
from tools.chart import kinds, policies, rules, schema
from tools.chart.schema import Default, Value, read_values
from tools.generated import ROOT
from tools.reference.markdown import code, table
from tools.release.project import Project, read_project

ICON_PREFIX = "data:image/svg+xml;base64,"
MARKER = "@VERSION@"


def with_icon(about: str, picture: bytes) -> str:
    """Return the text of `Chart.yaml` with this picture as its icon. Raises ValueError if the text has no icon."""
    return _replaced(about, r"^icon: .*$", f"icon: {ICON_PREFIX}{base64.b64encode(picture).decode()}", "icon")


def with_facts(about: str, known: Project) -> str:
    for field in ("version", "appVersion"):
        about = _replaced(about, rf"^{field}: .*$", f"{field}: {known.version}", field)
    about = _replaced(about, r"^home: .*$", f"home: {known.home}", "address of the project")
    about = _replaced(about, r"(?<=^sources:\n)  - .*$", f"  - {known.home}", "address of the source")
    return _replaced(about, r"^    url: .*$", f"    url: {known.home}", "address of a maintainer")


def dockerfile(text: str, known: Project) -> str:
    return _replaced(text, r"^ARG VERSION=.*$", f"ARG VERSION={known.version}", "ARG VERSION")


def _replaced(text: str, line: str, new: str, name: str) -> str:
    changed, count = re.subn(line, lambda _: new, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"there is no line with an {name}" if not count else f"there are {count} lines with an {name}")
    return changed


VALUES = "<!-- values -->\n"
LONGEST_DEFAULT = 60


def readme(prose: str, values: Iterable[Value]) -> str:
    before, marker, after = prose.partition(VALUES)
    if not marker:
        raise ValueError(f"tools/chart/README.md.in has no line {VALUES.strip()}")
    rows = [(code(value.name), _shown(value.default), value.text) for value in values]
    return before + table(("value", "default", "description"), rows) + after


def _shown(default: Default) -> str:
    shown = json.dumps(default)
    return code(shown) if len(shown) <= LONGEST_DEFAULT else "see `values.yaml`"


CHART = ROOT / "charts" / "vmherd"
SOURCES = Path(__file__).parent


def files(helm: Path) -> dict[Path, str]:
    chart = chart_files()
    return chart | base_files(helm, chart)


def chart_files() -> dict[Path, str]:
    """Return the generated files of the chart, and the Dockerfile. Helm is not needed for them."""
    definitions = sorted((ROOT / "manifests" / "crds").glob("*.yaml"))
    values = read_values((CHART / "values.yaml").read_text())
    known = read_project(ROOT)
    return {
        **{CHART / "files" / "crds" / path.name: path.read_text() for path in definitions},
        CHART / "templates" / "_rules.tpl": rules.template(),
        CHART / "templates" / "_kinds.tpl": kinds.template(),
        CHART / "templates" / "_annotations.tpl": policies.template(),
        CHART / "files" / "dashboards" / "fleet.json": fleet_dashboard((SOURCES / "fleet.json.in").read_text()),
        CHART / "files" / "defaults.json": json.dumps({each.name: each.default for each in values}, indent=2) + "\n",
        CHART / "values.schema.json": schema.document(values),
        CHART / "Chart.yaml": with_icon(
            with_facts((CHART / "Chart.yaml").read_text(), known), (ROOT / "charts" / "icon.svg").read_bytes()
        ),
        CHART / "README.md": readme((SOURCES / "README.md.in").read_text().replace(MARKER, known.version), values),
        ROOT / "Dockerfile": dockerfile((ROOT / "Dockerfile").read_text(), known),
    }


def base_files(helm: Path, chart: Mapping[Path, str]) -> dict[Path, str]:
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / CHART.name
        shutil.copytree(CHART, copy)
        for path, text in chart.items():
            if path.is_relative_to(CHART):
                (copy / path.relative_to(CHART)).write_text(text)
        placed = {
            **_placed(
                "controller", objects(helm, copy, "standalone", "crds.enabled=false,controllerPolicy.enabled=true")
            ),
            **_placed("alongside", objects(helm, copy, "alongside")),
            **_placed("takeover", objects(helm, copy, "takeover")),
        }
    placed = {name: found for name, found in placed.items() if not name.startswith("takeover/") or name == TAKEOVER}
    files = {name: HEADER + text_of(found) for name, found in placed.items()}
    files["alongside/namespace.yaml"] = (ROOT / NAMESPACE_FILE).read_text()
    return {ROOT / "manifests" / name: text for name, text in files.items()}


RELEASE, NAMESPACE = "vmherd", "vmherd-system"
NAMESPACE_FILE = "manifests/controller/namespace.yaml"
HEADER = "# Generated by `python -m tools.chart` from the chart in charts/vmherd. Edit the chart, not this file.\n"
HELM_LABELS = frozenset(["helm.sh/chart", "app.kubernetes.io/managed-by"])

FILES: Mapping[str, frozenset[str]] = {
    "crds.yaml": frozenset(["CustomResourceDefinition"]),
    "rbac.yaml": frozenset(["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    "annotationpolicies.yaml": frozenset(["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]),
    "deployment.yaml": frozenset(["Deployment", "Service", "PodDisruptionBudget"]),
}
"""The kinds of objects in each file of a folder."""

TAKEOVER = "takeover/role.yaml"
OPTIONAL: Mapping[str, str] = {"vmherd-creates": "controllerpolicy/policy.yaml", "vmherd-takeover": TAKEOVER}
"""The file of each object, by name, that only some overlays need."""

UNSET = "registry.invalid/vmherd:unset"


def image_settings(image: str) -> str:
    """Return the values of the chart for an image with a tag or a digest."""
    repository, sign, version = image.rpartition("@" if "@" in image else ":")
    return f"image.registry=,image.repository={repository},image.{'digest' if sign == '@' else 'tag'}={version}"


def objects(helm: Path, chart: Path, mode: str, settings: str = "", *, image: str = "") -> list[dict[str, Any]]:
    """Return the objects of the chart, without Helm's labels and hooks. `settings` are for the flag `--set`.

    Without an image, the image is empty, so the API server refuses the Deployment.
    """
    given = f"mode={mode},crds.keep=false,tests.enabled=false,{image_settings(image or UNSET)},{settings}"
    command = [str(helm), "template", RELEASE, str(chart), "--namespace", NAMESPACE, "--set", given.rstrip(",")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [without_helm_labels(each) for each in yaml.safe_load_all(done.stdout.replace(UNSET, "")) if each]


def _placed(folder: str, documents: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the objects of each file. Raises ValueError for a kind without a file."""
    placed: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        usual = [f"{folder}/{name}" for name, kinds in FILES.items() if document["kind"] in kinds]
        if not usual:
            raise ValueError(f"no file is defined for the kind {document['kind']}")
        placed.setdefault(OPTIONAL.get(document["metadata"]["name"], usual[0]), []).append(document)
    return placed


def without_helm_labels(value: Any) -> Any:
    match value:
        case dict():
            return {key: without_helm_labels(field) for key, field in value.items() if key not in HELM_LABELS}
        case list():
            return [without_helm_labels(item) for item in value]
        case _:
            return value


def text_of(documents: Iterable[Mapping[str, Any]]) -> str:
    return "---\n".join(yaml.safe_dump(document, sort_keys=False, width=120) for document in documents)


PREFIX, PREFIXES, NOUN = "@prefix@", "@prefixes@", "@noun@"


def fleet_dashboard(source: str) -> str:
    """Return the dashboard. `source` is the same dashboard with placeholders in its queries.

    In a query, `@prefix@` stands for the metric prefix of a kind. If the legend contains `@noun@`, the query becomes
    one query for each kind. Otherwise the query becomes the sum over all kinds. `@prefixes@` stands for all prefixes,
    as a regular expression.
    """
    board = json.loads(source)
    for panel in board["panels"]:
        if "targets" in panel:
            panel["targets"] = [each for target in panel["targets"] for each in _targets(target)]
    return json.dumps(board, indent=2) + "\n"


def _targets(target: dict[str, Any]) -> Iterator[dict[str, Any]]:
    expr = target["expr"].replace(PREFIXES, "|".join(kind.metric_prefix for kind in KINDS))
    legend = target["legendFormat"]
    if NOUN not in legend:
        exprs = [expr.replace(PREFIX, kind.metric_prefix) for kind in KINDS] if PREFIX in expr else [expr]
        yield target | {"expr": " + ".join(exprs)}
        return
    for number, kind in enumerate(KINDS):
        yield target | {
            "refId": chr(ord(target["refId"]) + number),
            "expr": expr.replace(PREFIX, kind.metric_prefix),
            "legendFormat": legend.replace(NOUN, kind.noun),
        }
