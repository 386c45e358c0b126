"""A KubeVirt installation in the API server: its definition, its object, and virt-controller's Deployment.

The test acts as virt-operator: it applies the KubeVirt object's patches to the Deployment.
"""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.kinds import KINDS, Kind
from sandbox.admin import Admin, Rejected
from sandbox.binaries import Binaries
from sandbox.commands import under_own_group, with_status
from sandbox.controlplane import DEFINITIONS, ControlPlane, name_of, wait_until_served
from tests.cluster import Kubectl, running_plane
from tests.controlplane.documents import open_definition
from tests.controlplane.forked import ForkedProgram
from tests.controlplane.objects import MERGE
from tests.controlplane.waits import eventually
from tests.integration.launcher_plane import is_served

NAMESPACE = "kubevirt"
ARGS = ["--launcher-image", "launcher:v1", "--port", "8443", "-v", "2"]
RESTING = ["--rs-controller-threads=0", "--pool-controller-threads=0"]
OTHER = {"resourceType": "DaemonSet", "resourceName": "virt-handler", "patch": '{"metadata":{}}', "type": "merge"}
KUBEVIRT = f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/kubevirts/kubevirt"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/virt-controller"
DEFINITION = open_definition("KubeVirt", "kubevirts.kubevirt.io", "v1", short_names=("kv", "kvs"))


class KubeVirtInstallation:
    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubectl = Kubectl(plane.kubeconfig, NAMESPACE)
        self._admin = Admin(plane.kubeconfig)

    def install(self, *args: str, patches: tuple[dict[str, str], ...] = ()) -> None:
        """Install KubeVirt. virt-controller has its usual arguments, followed by the given arguments."""
        self.define()
        self._apply(f"/api/v1/namespaces/{NAMESPACE}", _namespace())
        self._apply(KUBEVIRT, _kubevirt(patches))
        self.start(*args)

    def uninstall(self) -> None:
        """Delete the KubeVirt object.

        Keep the definition, because the creation of a new definition takes two seconds.
        """
        with contextlib.suppress(Rejected):  # a test may have removed it
            self._admin.send("DELETE", KUBEVIRT)

    def define(self) -> None:
        self._apply(f"{DEFINITIONS}/kubevirts.kubevirt.io", DEFINITION)
        eventually(lambda: is_served(self.plane, KUBEVIRT.rpartition("/")[0]), what="kubevirts are served")

    def start(self, *args: str) -> None:
        """Give virt-controller these arguments, and write a finished rollout to its status. No Pod runs here."""
        made = self._apply(DEPLOYMENT, _deployment([*ARGS, *args]))
        status = {"observedGeneration": made["metadata"]["generation"], "replicas": 2, "updatedReplicas": 2}
        self._set_status(status)

    def operate(self) -> None:
        """Apply the KubeVirt object's patches to the Deployment, as virt-operator does."""
        mine = [patch for patch in self.patches() if patch["resourceName"] == "virt-controller"]
        args = [step["value"] for patch in mine for step in json.loads(patch["patch"])]
        self.start(*args)

    def patches(self) -> list[dict[str, str]]:
        spec = self._admin.get(KUBEVIRT)["spec"]
        found: list[dict[str, str]] = (spec.get("customizeComponents") or {}).get("patches") or []
        return found

    def args(self) -> list[str]:
        spec = self._admin.get(DEPLOYMENT)["spec"]
        found: list[str] = spec["template"]["spec"]["containers"][0]["args"]
        return found

    def _set_status(self, status: dict[str, int]) -> None:
        self._admin.send("PATCH", f"{DEPLOYMENT}/status", json.dumps({"status": status}).encode(), MERGE)

    def _apply(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """Apply a document with server-side apply, and return the stored object."""
        body = json.dumps(document).encode()  # JSON is YAML
        query = "?fieldManager=virt-operator&force=true"
        answer = self._admin.send("PATCH", path + query, body, "application/apply-patch+yaml")
        made: dict[str, Any] = json.loads(answer)
        return made


@pytest.fixture(scope="session")
def kubevirt_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A cluster for KubeVirt. It serves the two kinds under KubeVirt's groups, with KubeVirt's status fields, and under
    the project's groups.
    """
    with running_plane(control_plane_binaries) as plane:
        under_own_groups(plane)
        with_kubevirts_status(plane)
        yield plane


def under_own_groups(plane: ControlPlane) -> None:
    """Copy the definitions of both kinds into the groups of the project.

    The mode `alongside` needs these definitions.
    """
    admin = Admin(plane.kubeconfig)
    copies = [under_own_group(admin.get(_definition_of(kind)), kind.own_group, ()) for kind in KINDS]
    for copy in copies:
        admin.apply(f"{DEFINITIONS}/{name_of(copy)}", copy)
    wait_until_served(admin, copies)


def _definition_of(kind: Kind[Any]) -> str:
    return f"{DEFINITIONS}/{kind.plural}.{kind.group}"


PROBE = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "metadata": {"generateName": "probe-"},
    "spec": {
        "selector": {"matchLabels": {"app": "probe"}},
        "virtualMachineTemplate": {
            "metadata": {"labels": {"app": "probe"}},
            "spec": {
                "runStrategy": "Halted",
                "template": {
                    "metadata": {"labels": {"app": "probe"}},
                    "spec": {"domain": {"devices": {}, "resources": {"requests": {"memory": "64M"}}}},
                },
            },
        },
    },
}
"""A pool that KubeVirt's webhooks accept."""


def with_kubevirts_status(plane: ControlPlane) -> None:
    """Remove the status fields that KubeVirt's definitions of the two kinds do not have."""
    admin = Admin(plane.kubeconfig)
    for kind in KINDS:
        assert kind.known_status is not None
        changed = with_status(admin.get(_definition_of(kind)), kind.known_status)
        admin.send("PUT", _definition_of(kind), json.dumps(changed).encode(), "application/json")
    body = json.dumps(PROBE).encode()
    path = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools?dryRun=All"

    def is_pruned() -> bool:
        try:
            return "status" not in json.loads(admin.send("POST", path, body, "application/json"))
        except Rejected:
            return False  # while the server changes to the new schema, it says that it shuts down

    eventually(is_pruned, what="the schema of the status is in force")


def vmherd(kubeconfig: Path, command: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a command of vmherd that ends by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VMHERD_")}
    with tempfile.TemporaryDirectory() as directory:
        output, errors = Path(directory, "output"), Path(directory, "errors")
        arguments = [command, "--kubeconfig", str(kubeconfig), *flags]
        program = ForkedProgram("controller", arguments, output, errors=errors, environment=environment)
        try:
            code = program.wait(60)
        finally:
            program.kill()
        return subprocess.CompletedProcess(arguments, code, output.read_text(), errors.read_text())


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def _kubevirt(patches: tuple[dict[str, str], ...]) -> dict[str, Any]:
    spec: dict[str, Any] = {"customizeComponents": {"patches": list(patches)}} if patches else {"configuration": {}}
    metadata = {"name": "kubevirt", "namespace": NAMESPACE}
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "spec": spec}


def _deployment(args: list[str]) -> dict[str, Any]:
    labels = {"kubevirt.io": "virt-controller"}
    container = {"name": "virt-controller", "image": "virt-controller:v1", "command": ["virt-controller"], "args": args}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "virt-controller", "namespace": NAMESPACE},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }
