"""R13: the replica set of every guide, old or new, works without a change."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

EXAMPLES = sorted((Path(__file__).parents[2] / "manifests" / "examples").glob("replicaset-*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_r13_an_example_brings_up_modern_vmis(sets: SetNamespace, path: Path) -> None:
    wanted = yaml.safe_load(path.read_text())
    name, replicas = wanted["metadata"]["name"], wanted["spec"]["replicas"]
    sets.kubectl("create", "-f", str(path))
    eventually(lambda: len(sets.alive()) == replicas, what="the VMIs of the example")
    sets.play_all()
    eventually(lambda: sets.status(name).get("readyReplicas") == replicas, what="all are ready")
    for vmi in sets.alive().values():
        assert flaws_of(vmi["spec"]) == []
        assert vmi["metadata"]["labels"].items() >= wanted["spec"]["template"]["metadata"]["labels"].items()


def test_the_examples_are_found() -> None:
    assert len(EXAMPLES) >= 6


def flaws_of(spec: dict[str, Any]) -> list[str]:
    """Return the fields of a VMI spec that current KubeVirt versions refuse."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    disks = spec["domain"]["devices"]["disks"]
    flaws = [f"{name} is a registryDisk" for name, volume in volumes.items() if "registryDisk" in volume]
    flaws += [f"disk {disk['name']} names no volume" for disk in disks if disk["name"] not in volumes]
    flaws += [f"disk {disk['name']} has a volumeName" for disk in disks if "volumeName" in disk]
    flaws += [f"disk {disk['name']} has no target" for disk in disks if disk.get("disk", {}) is None]
    return flaws
