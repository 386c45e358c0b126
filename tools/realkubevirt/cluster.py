"""A cluster with a real node on which KubeVirt's own operator installs KubeVirt."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from sandbox.binaries import find_binaries
from sandbox.controlplane import APISERVER, MANAGER, ControlPlane
from tests.cluster import running_plane
from tests.controlplane.waits import eventually
from tests.realnode.isolation import Isolation, isolation
from tests.realnode.node import NAME, Node, NodePlane, Programs
from tools.realkubevirt import build

INSTALLED_WITHIN_S: Final = 600


class Plane(NodePlane):
    """The API server runs outside of the node, and calls KubeVirt's webhooks in Pods by the addresses of the Pods."""

    def _run(self, name: str, arguments: list[str]) -> None:
        more = {
            APISERVER: [
                "--enable-aggregator-routing=true",
                "--allow-privileged=true",
                "--kubelet-preferred-address-types=InternalIP",
            ],
            MANAGER: ["--controllers=daemonset-controller"],
        }
        super()._run(name, [*arguments, *more.get(name, ())])


class KubeVirtNode(Node):
    """A node whose kubelet keeps its files where virt-handler looks for them."""

    ephemeral_storage = "true"  # the Pods of VMs ask for it

    def __init__(self, plane: ControlPlane, place: Isolation, programs: Programs) -> None:
        super().__init__(plane, place, programs)
        kubelet = Path("/var/lib/kubelet")
        place.run("mkdir", "-p", str(kubelet))
        place.run("ln", "-s", str(kubelet), f"{place.directory}/kubelet")
        # virt-handler mounts disks into Pods that run already.
        place.run("mount", "--make-rshared", "/")


@contextmanager
def running_kubevirt(work: Path, version: str) -> Iterator[Node]:
    """A node with KubeVirt, which is ready for VMs. At the end of the block nothing of it is left."""
    programs = Programs()
    with running_plane(find_binaries(), kind=Plane, crd_directories=()) as plane:
        directory = plane.directory / "node"
        directory.mkdir()
        with isolation(directory) as place:
            node = KubeVirtNode(plane, place, programs)
            node.start()
            for image in build.images():
                node.load(image)
            _install(node, work, version)
            yield node


def _install(node: Node, work: Path, version: str) -> None:
    node.kubectl.apply(*_documents("namespace.yaml"), *build.installation(work, version))
    # KubeVirt's components run on nodes of the control plane.
    node.kubectl("label", "node", NAME, "node-role.kubernetes.io/control-plane=")
    node.kubectl.apply(*_documents("kubevirt.yaml"))
    eventually(lambda: _available(node), within_s=INSTALLED_WITHIN_S, what="KubeVirt is available")


def _documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(Path(__file__).with_name(name).read_text()))


def _available(node: Node) -> bool:
    status = node.kubectl.json("get", "kubevirt", "kubevirt", "--namespace=kubevirt").get("status", {})
    return any(each["type"] == "Available" and each["status"] == "True" for each in status.get("conditions", ()))
