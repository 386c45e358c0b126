"""A cluster with a real node on which KubeVirt's own operator installs KubeVirt."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from sandbox.binaries import find_binaries
from sandbox.controlplane import APISERVER, MANAGER, ControlPlane
from tests.cluster import running_plane
from tests.controlplane.waits import eventually
from tests.packages import program_or_skip
from tests.realnode.image import Image, buildah
from tests.realnode.isolation import Isolation, isolation
from tests.realnode.node import NAME, Node, NodePlane, Programs

KUBEVIRT: Final = "localhost/virt-operator:1"
"""The image of all components but virt-handler. virt-operator refuses another name."""

HANDLER: Final = "localhost/virt-handler:1"
"""The same files. virt-handler runs as root."""

GUESTS: Final = ("guest", "guest-that-ends")
QEMU_USER: Final = "107"
SCRIPT: Final = Path(__file__).with_name("image.sh")


def build(source: Path, work: Path, version: str) -> None:
    """Build the images into buildah's storage. The first time takes half an hour on two cores."""
    program_or_skip("debootstrap", "debootstrap")
    work.mkdir(parents=True, exist_ok=True)
    (work / "version").write_text(version)
    # In a mount namespace of its own, a killed build leaves no mount behind.
    subprocess.run(["unshare", "--mount", str(SCRIPT), str(source.resolve()), str(work.resolve())], check=True)
    _commit(KUBEVIRT, work / "tree", user=QEMU_USER)
    _commit(HANDLER, KUBEVIRT, user="0")
    for name in GUESTS:
        for tag in (1, 2):  # two names of one disk, for updates
            _commit(f"localhost/{name}:{tag}", work / "guest" / name, user=QEMU_USER)


def images() -> list[Image]:
    names = (KUBEVIRT, HANDLER, *(f"localhost/{name}:{tag}" for name in GUESTS for tag in (1, 2)))
    return [Image(name, {}) for name in names]


def installation(work: Path, version: str) -> list[dict[str, Any]]:
    done = subprocess.run([str(work / "install"), version, HANDLER, KUBEVIRT], capture_output=True, check=True)
    return list(json.loads(done.stdout)["items"])


def _commit(name: str, content: Path | str, *, user: str) -> None:
    container = buildah("from", "scratch" if isinstance(content, Path) else content).strip()
    if isinstance(content, Path):
        buildah("copy", "--quiet", container, f"{content}/", "/")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    buildah("config", "--user", user, "--env", f"PATH={path}", container)
    buildah("commit", "--quiet", "--rm", container, name)


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
            for image in images():
                node.load(image)
            _install(node, work, version)
            yield node


def _install(node: Node, work: Path, version: str) -> None:
    node.kubectl.apply(*_documents("namespace.yaml"), *installation(work, version))
    # KubeVirt's components run on nodes of the control plane.
    node.kubectl("label", "node", NAME, "node-role.kubernetes.io/control-plane=")
    node.kubectl.apply(*_documents("kubevirt.yaml"))
    eventually(lambda: _available(node), within_s=INSTALLED_WITHIN_S, what="KubeVirt is available")


def _documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(Path(__file__).with_name(name).read_text()))


def _available(node: Node) -> bool:
    status = node.kubectl.json("get", "kubevirt", "kubevirt", "--namespace=kubevirt").get("status", {})
    return any(each["type"] == "Available" and each["status"] == "True" for each in status.get("conditions", ()))
