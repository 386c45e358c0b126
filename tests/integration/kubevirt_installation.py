"""A KubeVirt installation in the API server: its definition, its object, and virt-controller's Deployment.

The test acts as virt-operator: it applies the KubeVirt object's patches to the Deployment.
"""

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from controller.kinds import KINDS, Kind
from sandbox.admin import Admin, Rejected
from sandbox.commands import under_own_group, with_status
from sandbox.controlplane import DEFINITIONS, ControlPlane, name_of, wait_until_served
from tests.cluster import Kubectl
from tests.controlplane.documents import document, open_definition, pool_document, vm_template
from tests.controlplane.forked import ForkedProgram
from tests.controlplane.objects import MERGE
from tests.controlplane.waits import eventually

NAMESPACE = "kubevirt"
ARGS = ["--launcher-image", "launcher:v1", "--port", "8443", "-v", "2"]
RESTING = ["--rs-controller-threads=0", "--pool-controller-threads=0"]
OTHER = {"resourceType": "DaemonSet", "resourceName": "virt-handler", "patch": '{"metadata":{}}', "type": "merge"}
KUBEVIRT = f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/kubevirts/kubevirt"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/virt-controller"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/virt-api-validator"
DEFINITION = open_definition("KubeVirt", "kubevirts.kubevirt.io", "v1", short_names=("kv", "kvs"))


def is_served(plane: ControlPlane, path: str) -> bool:
    try:
        Admin(plane.kubeconfig).get(path)
    except Rejected:
        return False
    return True


class KubeVirtInstallation:
    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubectl = Kubectl(plane.kubeconfig, NAMESPACE)
        self._admin = Admin(plane.kubeconfig)

    def install(self, *args: str, patches: tuple[dict[str, str], ...] = ()) -> None:
        """Install KubeVirt. virt-controller has its usual arguments, followed by the given arguments."""
        self.define()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self._apply(f"/api/v1/namespaces/{NAMESPACE}", namespace)
        self._apply(KUBEVIRT, _kubevirt(patches))
        self.start(*args)

    def uninstall(self) -> None:
        """Delete the KubeVirt object, but not the definition: the creation of a new one takes two seconds."""
        with contextlib.suppress(Rejected):  # a test may have removed it
            self._admin.send("DELETE", KUBEVIRT)

    def define(self) -> None:
        self._apply(f"{DEFINITIONS}/kubevirts.kubevirt.io", DEFINITION)
        eventually(lambda: is_served(self.plane, KUBEVIRT.rpartition("/")[0]), what="kubevirts are served")

    def start(self, *args: str) -> None:
        """Give virt-controller these arguments, and write a finished rollout to its status. No Pod runs here."""
        made = self._apply(DEPLOYMENT, _deployment([*ARGS, *args]))
        status = {"observedGeneration": made["metadata"]["generation"], "replicas": 2, "updatedReplicas": 2}
        self._admin.send("PATCH", f"{DEPLOYMENT}/status", json.dumps({"status": status}).encode(), MERGE)

    def operate(self) -> None:
        """Apply the KubeVirt object's patches to the Deployment, as virt-operator does."""
        mine = [patch for patch in self.patches() if patch["resourceName"] == "virt-controller"]
        args = [step["value"] for patch in mine for step in json.loads(patch["patch"])]
        self.start(*args)

    def patches(self) -> list[dict[str, str]]:
        return list((self._admin.get(KUBEVIRT)["spec"].get("customizeComponents") or {}).get("patches") or ())

    def args(self) -> list[str]:
        return list(self._admin.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["args"])

    def _apply(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """Apply a document with server-side apply, and return the stored object."""
        body = json.dumps(document).encode()  # JSON is YAML
        query = "?fieldManager=virt-operator&force=true"
        return dict(json.loads(self._admin.send("PATCH", path + query, body, "application/apply-patch+yaml")))


def under_own_groups(plane: ControlPlane) -> None:
    """Copy the definitions of both kinds into the groups of the project, for the mode `alongside`."""
    admin = Admin(plane.kubeconfig)
    copies = [under_own_group(admin.get(_definition_of(kind)), kind.own_group, ()) for kind in KINDS]
    for copy in copies:
        admin.apply(f"{DEFINITIONS}/{name_of(copy)}", copy)
    wait_until_served(admin, copies)


def _definition_of(kind: Kind[Any]) -> str:
    return f"{DEFINITIONS}/{kind.plural}.{kind.group}"


def with_kubevirts_status(plane: ControlPlane) -> None:
    """Remove the status fields that KubeVirt's definitions of the two kinds do not have."""
    admin = Admin(plane.kubeconfig)
    for kind in KINDS:
        assert kind.known_status is not None
        changed = with_status(admin.get(_definition_of(kind)), kind.known_status)
        admin.send("PUT", _definition_of(kind), json.dumps(changed).encode(), "application/json")
    body = json.dumps(pool_document(name="probe", template=vm_template(runStrategy="Halted"))).encode()
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


def _kubevirt(patches: tuple[dict[str, str], ...]) -> dict[str, Any]:
    spec: dict[str, Any] = {"customizeComponents": {"patches": list(patches)}} if patches else {"configuration": {}}
    return document("kubevirt.io/v1", "KubeVirt", "kubevirt", spec, namespace=NAMESPACE)


def _deployment(args: list[str]) -> dict[str, Any]:
    labels = {"kubevirt.io": "virt-controller"}
    container = {"name": "virt-controller", "image": "virt-controller:v1", "command": ["virt-controller"], "args": args}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return document("apps/v1", "Deployment", "virt-controller", spec, namespace=NAMESPACE)
