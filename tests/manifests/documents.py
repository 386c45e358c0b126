"""The project's manifests as data, and replica sets with something changed in them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
DEFINITIONS: Final = sorted(
    [*(ROOT / "manifests" / "crds").glob("*.yaml"), *(ROOT / "sandbox" / "crds").glob("*.yaml")]
)
REPLICASETS: Final = ROOT / "manifests" / "crds" / "kubevirt.io_virtualmachineinstancereplicasets.yaml"

ABSENT: Final = object()
"""Given as the value of a field, takes the field away."""

SOUND: Final[Mapping[str, Any]] = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web", "tier": "front"}},
            "spec": {
                "domain": {"devices": {"disks": [{"name": "root", "disk": {}}]}},
                "volumes": [{"name": "root", "containerDisk": {"image": "cirros"}}],
            },
        },
    },
}


def load(path: Path) -> dict[str, Any]:
    """The one document of a file."""
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def replicaset(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A sound set with other values at these paths: `{"spec.replicas": 3, "spec.selector": ABSENT}`."""
    document = copy.deepcopy(dict(SOUND))
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is ABSENT:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return document
