"""The project's manifests as data, and valid replica sets and pools with changed fields."""

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
DEFINITIONS: Final = sorted(
    [*(ROOT / "manifests" / "crds").glob("*.yaml"), *(ROOT / "sandbox" / "crds").glob("*.yaml")]
)
REPLICASETS: Final = ROOT / "manifests" / "crds" / "kubevirt.io_virtualmachineinstancereplicasets.yaml"
POOLS: Final = ROOT / "manifests" / "crds" / "pool.kubevirt.io_virtualmachinepools.yaml"

ABSENT: Final = object()
"""A value that removes the field."""

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

SOUND_POOL: Final[Mapping[str, Any]] = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "maxUnavailable": "50%",
        "selector": {"matchLabels": {"app": "web"}},
        "virtualMachineTemplate": {
            "metadata": {"labels": {"app": "web", "tier": "front"}},
            "spec": {
                "runStrategy": "Always",
                "dataVolumeTemplates": [{"metadata": {"name": "data"}, "spec": {"source": {"blank": {}}}}],
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "domain": {"devices": {"disks": [{"name": "root", "disk": {}}]}},
                        "volumes": [{"name": "root", "dataVolume": {"name": "data"}}],
                    },
                },
            },
        },
    },
}


def load(path: Path) -> dict[str, Any]:
    """The only document of a file, as a copy that a test may change."""
    return copy.deepcopy(_parsed(path))


@cache
def _parsed(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


class Subject(Struct, frozen=True):
    """A kind in the tests of both: its definition, its paths, and the words in its messages."""

    short: str
    kind: str
    definition: Path
    sound: Mapping[str, Any]
    template: str
    spec: str
    """The path of the spec of a VMI."""

    member: str
    word: str
    versions: tuple[str, ...]
    """The served versions. The first is the newest, and is stored."""

    def __call__(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A valid object with other values at these paths, as in `{"spec.replicas": 3, "spec.selector": ABSENT}`."""
        document = copy.deepcopy(dict(self.sound))
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

    @property
    def labels(self) -> str:
        return f"{self.template}.metadata.labels"

    @property
    def disks(self) -> str:
        return f"{self.spec}.domain.devices.disks"

    @property
    def full_name(self) -> str:
        """The name of the kind in the output of kubectl."""
        return f"{self.kind.lower()}.{self.sound['apiVersion'].partition('/')[0]}"


_VM = "spec.virtualMachineTemplate.spec"
SETS: Final = Subject(
    *("vmirs", SOUND["kind"], REPLICASETS, SOUND, "spec.template", "spec.template.spec", "VMI", "set"),
    ("v1", "v1alpha3", "v1alpha2"),
)
POOL: Final = Subject(
    *("vmpool", SOUND_POOL["kind"], POOLS, SOUND_POOL, _VM.removesuffix(".spec"), f"{_VM}.template.spec", "VM", "pool"),
    ("v1beta1", "v1alpha1"),
)


def wrong(path: str, value: Any, message: str) -> tuple[dict[str, Any], str]:
    """A value that makes an object invalid, and the message of the API server, which begins with the field."""
    return {path: value}, f"{path}: {message}"


def columns(line: str) -> str:
    """A line of a table, with one space between its columns."""
    return " ".join(line.split())


def status_patch(status: str, *, spec: str = "{}") -> tuple[str, ...]:
    """The arguments of `kubectl patch` for the status subresource. Some tests also send a `spec`, which the server must
    ignore.
    """
    return ("--subresource=status", "--type=merge", "-p", f'{{"status": {status}, "spec": {spec}}}')
