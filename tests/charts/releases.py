"""Installs releases of the chart in a cluster and uninstalls them."""

import json
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl, running_plane
from tests.controlplane.waits import eventually
from tests.helm import Helm
from tools.chart.generated import CHART

RESTRICTED = {f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn")}
OURS = ("kubevirt.io", "pool.kubevirt.io", "vmherd.dev", "pool.vmherd.dev")
KUBEVIRTS = "kubevirts.kubevirt.io"
NO_WAIT = {3: (), 4: ("--wait=hookOnly",)}
"""For each major version of Helm, the arguments with which `helm install` does not wait for Pods. No Pod runs in these
clusters.
"""


def bare_plane(
    binaries: Binaries, definitions: Path, *, admission_plugins: Iterable[str] = ()
) -> AbstractContextManager[ControlPlane]:
    """Run a control plane with only these definitions."""
    return running_plane(binaries, crd_directories=(definitions,), admission_plugins=admission_plugins)


class Site(Struct, frozen=True):
    """A namespace with Helm and kubectl. Their user is the admin of the cluster."""

    plane: ControlPlane
    helm: Helm
    kubectl: Kubectl
    namespace: str

    @classmethod
    def opened(cls, plane: ControlPlane, major: int, home: Path) -> "Site":
        """Create a namespace with the Pod security level "restricted"."""
        namespace = f"release-{uuid.uuid4().hex[:8]}"
        kubectl = Kubectl(plane.kubeconfig, namespace)
        metadata = {"name": namespace, "labels": RESTRICTED}
        kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        helm = Helm(major, home / "helm", kubeconfig=plane.kubeconfig, namespace=namespace)
        return cls(plane, helm, kubectl, namespace)

    def close(self) -> None:
        """Delete everything that could disturb the next release, including the definitions."""
        self.helm("uninstall", "vmherd", "--ignore-not-found", "--no-hooks")
        names = self.definitions()
        # After a failed test, no controller may be running that removes the finalizers.
        for kind in (*names, "virtualmachines.kubevirt.io"):
            for found in self.kubectl("get", kind, "-o", "name").stdout.split():
                self.kubectl("patch", found, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        if names:
            self.kubectl("delete", "crd", *names)
        self.kubectl("delete", "crd", KUBEVIRTS, "--ignore-not-found")
        # The next release looks for these kinds. The API server lists a deleted kind a little longer.
        eventually(lambda: not {*names, KUBEVIRTS} & self.served(), what="the kinds are gone")
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def install(self, **values: Any) -> str:
        """Install the release; return Helm's output."""
        return self._deploy("install", values)

    def upgrade(self, chart: Path = CHART, **values: Any) -> str:
        return self._deploy("upgrade", values, chart)

    def refusal(self, **values: Any) -> str:
        done = self.helm("install", "vmherd", str(CHART), values=values, check=False)
        assert done.returncode, "it was installed"
        return done.stderr

    def dry_run(self, objects: list[dict[str, Any]]) -> tuple[int, str]:
        """Apply the objects as a dry run. Return the number of accepted objects, and the warnings and errors."""
        apply = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
        said = self.kubectl(*apply, stdin=yaml.safe_dump_all(objects), check=False)
        return len(said.stdout.splitlines()), said.stderr

    def definitions(self) -> list[str]:
        every = self.kubectl.json("get", "crd")["items"]
        return [crd["metadata"]["name"] for crd in every if crd["spec"]["group"] in OURS and _is_ours(crd)]

    def served(self) -> set[str]:
        """The names of all kinds that the API server lists."""
        return set(self.kubectl("api-resources", "-o", "name", check=False).stdout.split())

    def objects(self) -> list[dict[str, Any]]:
        manifest = self.helm("get", "manifest", "vmherd").stdout
        return list(json.loads(self.kubectl("get", "-f", "-", "-o", "json", stdin=manifest).stdout)["items"])

    def deployment(self) -> dict[str, Any]:
        return dict(self.kubectl.json("get", "deployment", "vmherd"))

    def kubeconfig_of(self, account: str, directory: Path) -> Path:
        """A kubeconfig with a token of this service account."""
        token = self.kubectl("create", "token", account).stdout.strip()
        return self.plane.write_kubeconfig(directory / f"{account}.kubeconfig", account, token=token)

    def _deploy(self, verb: str, values: Mapping[str, Any], chart: Path = CHART) -> str:
        return self.helm(verb, "vmherd", str(chart), *NO_WAIT[self.helm.major], values=values).stdout


def _is_ours(crd: Mapping[str, Any]) -> bool:
    return crd["spec"]["names"]["kind"] in ("VirtualMachineInstanceReplicaSet", "VirtualMachinePool")
