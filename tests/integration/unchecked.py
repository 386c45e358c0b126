"""A controller for a kind whose CRD has no validation, so that the API server stores invalid objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.integration.controller_process import PATIENT_LEASE, ControllerProcess, controller_process

GROUP = "unchecked.vmherd.dev"


@contextmanager
def unchecked_controller(
    plane: ControlPlane, directory: Path, definition: Path, flag: str, *, has_finalizers: bool = False
) -> Iterator[ControllerProcess]:
    """Define a kind in GROUP without validation, and run a controller for GROUP while the block runs.

    `flag` is the controller's flag for the group of this kind. If `has_finalizers` is true, all objects are deleted
    while the controller still runs and can remove their finalizers.
    """
    document = yaml.safe_load(definition.read_text())
    spec = document["spec"]
    name = f"{spec['names']['plural']}.{GROUP}"
    document["metadata"]["name"] = name
    spec["group"] = GROUP
    spec["names"] |= {"shortNames": [f"u{spec['names']['shortNames'][0]}"], "categories": []}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for version in spec["versions"]:
        properties = {"spec": anything, "status": anything}
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    kubectl = Kubectl(plane.kubeconfig)
    kubectl.apply(document)
    kubectl("wait", "--for=condition=Established", "crd", name)
    flags = (flag, GROUP, "--leader-election-id", "unchecked", *PATIENT_LEASE)
    with controller_process(plane, directory, *flags) as program:
        yield program
        if has_finalizers:
            kubectl("delete", name, "--all", "--all-namespaces")
    kubectl("delete", "crd", name, "--wait=false")
