"""Builds the templates of VMIs and VMs that the cases use. The VMs need little memory and no network."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conformance.case import Document

HOLD: Final = "conformance.vmherd.dev/hold"
"""The finalizer of the suite. It keeps a deleted object until the case removes the finalizer."""

POOL_FINALIZER: Final = "pool.kubevirt.io/finalizer"

FAILING: Final = {
    "kubevirt.io/func-test-virt-launcher-fail-fast": "",
    "sim.vmherd.dev/behavior": "fail",
    "sim.vmherd.dev/time-scale": "0.05",
}
"""Annotations that make a VMI fail to start, the first for KubeVirt, the others for vmherd's simulator."""

NEVER_READY: Final = {"sim.vmherd.dev/behavior": "never-ready"}
FINISHING: Final = {"sim.vmherd.dev/behavior": "finish"}
UNKNOWN: Final = {"sim.vmherd.dev/behavior": "unknown"}
LOST: Final = {"sim.vmherd.dev/behavior": "lost"}
FAILING_DISK: Final = {"sim.vmherd.dev/behavior": "fail"}


def vmi_spec(image: str, volumes: Sequence[Document] = ()) -> Document:
    """Return the spec of a VMI that boots a container disk. `volumes` are attached as further disks."""
    every = [{"name": "containerdisk", "containerDisk": {"image": image}}, *volumes]
    disks = [{"name": volume["name"], "disk": {"bus": "virtio"}} for volume in every]
    return {
        "terminationGracePeriodSeconds": 0,
        "domain": {"devices": {"disks": disks}, "resources": {"requests": {"memory": "128Mi"}}},
        "volumes": every,
    }


def vmi_template(
    image: str,
    labels: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    volumes: Sequence[Document] = (),
) -> Document:
    metadata: Document = {"labels": dict(labels)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, "spec": vmi_spec(image, volumes)}


def vm_template(
    image: str,
    labels: Mapping[str, str],
    *,
    running: bool = False,
    annotations: Mapping[str, str] | None = None,
    volumes: Sequence[Document] = (),
    disks: Sequence[str] = (),
) -> Document:
    """Return a `virtualMachineTemplate`. Each name in `disks` gives a dataVolumeTemplate and a volume."""
    attached = [{"name": name, "dataVolume": {"name": name}} for name in disks]
    spec: Document = {
        "runStrategy": "Always" if running else "Halted",
        "template": vmi_template(image, labels, annotations=annotations, volumes=[*attached, *volumes]),
    }
    if disks:
        spec["dataVolumeTemplates"] = [data_volume_template(name) for name in disks]
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def data_volume_template(name: str, size: str = "64Mi") -> Document:
    claim: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": {"storage": claim, "source": {"blank": {}}}}
