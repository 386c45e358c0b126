"""The kustomize base: what the chart renders in standalone mode, without what is Helm's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

RELEASE, NAMESPACE = "vmherd", "vmherd-system"
HEADER = "# Made by `python -m charts` from the chart in charts/vmherd: change that, not this.\n"
SETTINGS = ("mode=standalone", "crds.enabled=false", "tests.enabled=false")
HELM_LABELS = frozenset(["helm.sh/chart", "app.kubernetes.io/managed-by"])

FILES: Mapping[str, frozenset[str]] = {
    "rbac.yaml": frozenset(["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    "deployment.yaml": frozenset(["Deployment", "Service", "PodDisruptionBudget"]),
}
"""Which kinds are in which file."""


def render(helm: Path, chart: Path) -> dict[str, str]:
    """The files by name."""
    flags = [part for setting in SETTINGS for part in ("--set", setting)]
    command = [str(helm), "template", RELEASE, str(chart), "--namespace", NAMESPACE, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    documents = [_without_helm_labels(document) for document in yaml.safe_load_all(done.stdout) if document]
    if unplaced := {document["kind"] for document in documents} - frozenset().union(*FILES.values()):
        raise ValueError(f"no file for {', '.join(sorted(unplaced))}")
    return {
        name: _text(document for document in documents if document["kind"] in kinds) for name, kinds in FILES.items()
    }


def _without_helm_labels(value: Any) -> Any:
    """A document without the labels by which Helm knows its own."""
    match value:
        case dict():
            return {key: _without_helm_labels(field) for key, field in value.items() if key not in HELM_LABELS}
        case list():
            return [_without_helm_labels(item) for item in value]
        case _:
            return value


def _text(documents: Iterable[Mapping[str, Any]]) -> str:
    return HEADER + "---\n".join(yaml.safe_dump(document, sort_keys=False, width=120) for document in documents)
