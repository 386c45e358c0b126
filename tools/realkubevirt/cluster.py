"""A cluster with a real node on which KubeVirt's own operator installs KubeVirt."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import yaml

from sandbox.binaries import find_binaries
from sandbox.controlplane import APISERVER, MANAGER, ControlPlane
from tests.cluster import running_plane
from tests.controlplane.waits import eventually
from tests.packages import program_or_skip
from tests.realnode.image import buildah
from tests.realnode.isolation import Isolation, connect, isolation
from tests.realnode.node import NAME, Node, NodePlane, Programs, remove_own_cgroups
from tools.realkubevirt import disks

Fields = dict[str, Any]
KUBEVIRT: Final = "localhost/virt-operator:1"
"""The image of all components but virt-handler. virt-operator refuses another name."""

HANDLER: Final = "localhost/virt-handler:1"
"""The same files. virt-handler runs as root."""

GUESTS: Final = ("guest", "guest-that-ends")
QEMU_USER: Final = "107"
SCRIPT: Final = Path(__file__).with_name("image.sh")


def build(source: Path, work: Path, version: str, cdi: Path | None) -> None:
    """Build the images into an archive. The first time takes half an hour on two cores."""
    program_or_skip("debootstrap", "debootstrap")
    work.mkdir(parents=True, exist_ok=True)
    (work / "version").write_text(version)
    _run_script(SCRIPT, source, work)
    if cdi is not None:
        _run_script(disks.SCRIPT, cdi, work)
    pack(work, with_disks=cdi is not None)


def pack(work: Path, *, with_disks: bool) -> None:
    """Write the archive with all images. The components of KubeVirt and CDI are one image with several settings."""
    _commit(KUBEVIRT, work / "tree", user=QEMU_USER)
    base = KUBEVIRT
    settings: dict[str, Fields] = {HANDLER: {"User": "0"}}
    if with_disks:
        base, settings = disks.IMAGE, settings | disks.SETTINGS | {KUBEVIRT: {}}
        _commit(base, work / "cdi", user=QEMU_USER, parent=KUBEVIRT)
    guests = [f"localhost/{name}:{tag}" for name in GUESTS for tag in (1, 2)]  # two names of one disk, for updates
    for guest in guests:
        _commit(guest, work / "guest" / guest.partition("/")[2].partition(":")[0], user=QEMU_USER)
    layout = work / "images"
    shutil.rmtree(layout, ignore_errors=True)
    for name in (base, *guests):
        buildah("push", "--quiet", name, f"oci:{layout}:{name}", within_s=PUSHED_WITHIN_S)
    add_names(layout, base, settings)
    subprocess.run(["tar", "-C", str(layout), "-cf", str(work / ARCHIVE), "."], check=True)
    shutil.rmtree(layout)


def _run_script(script: Path, source: Path, work: Path) -> None:
    """In a mount namespace of its own, a killed build leaves no mount behind."""
    subprocess.run(["unshare", "--mount", str(script), str(source.resolve()), str(work.resolve())], check=True)


def installation(work: Path, version: str) -> list[dict[str, Any]]:
    done = subprocess.run([str(work / "install"), version, HANDLER, KUBEVIRT], capture_output=True, check=True)
    return list(json.loads(done.stdout)["items"])


def _commit(name: str, content: Path, *, user: str, parent: str = "scratch") -> None:
    container = buildah("from", parent).strip()
    buildah("copy", "--quiet", container, f"{content}/", "/")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    buildah("config", "--user", user, "--env", f"PATH={path}", container)
    buildah("commit", "--quiet", "--rm", container, name)


def add_names(layout: Path, base: str, settings: dict[str, Fields]) -> None:
    """In a folder of images, give an image more names, with these settings for each name."""
    index = json.loads((layout / "index.json").read_text())
    [first] = (each for each in index["manifests"] if each["annotations"][NAME_OF_IMAGE] == base)
    manifest = _read_blob(layout, first)
    config = _read_blob(layout, manifest["config"])
    for name, more in settings.items():
        changed = {**config, "config": config["config"] | more}
        own = manifest | {"config": manifest["config"] | _write_blob(layout, changed)}
        entry = first | _write_blob(layout, own) | {"annotations": {NAME_OF_IMAGE: name}}
        index["manifests"].append(entry)
    (layout / "index.json").write_text(json.dumps(index))


def _read_blob(layout: Path, of: Fields) -> Fields:
    return dict(json.loads((layout / "blobs" / of["digest"].replace(":", "/")).read_text()))


def _write_blob(layout: Path, document: Fields) -> Fields:
    content = json.dumps(document).encode()
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


INSTALLED_WITHIN_S: Final = 600
PUSHED_WITHIN_S: Final = 900
ARCHIVE: Final = "images.tar"
NAME_OF_IMAGE: Final = "org.opencontainers.image.ref.name"
CPU_MODEL: Final = "Nehalem"
CONTROLLERS: Final = (
    *("daemonset-controller", "taint-eviction-controller", "pod-garbage-collector-controller"),
    *("persistentvolume-binder-controller", "persistentvolume-protection-controller"),
    "persistentvolumeclaim-protection-controller",
)
"""virt-handler is a DaemonSet. The next two evict the Pods of a node that does not answer, and remove its dead Pods."""


class Plane(NodePlane):
    """The API server runs outside of the node, and calls KubeVirt's webhooks in Pods by the addresses of the Pods."""

    def _run(self, name: str, arguments: list[str]) -> None:
        more = {
            APISERVER: [
                "--enable-aggregator-routing=true",
                "--allow-privileged=true",
                "--kubelet-preferred-address-types=InternalIP",
            ],
            MANAGER: [f"--controllers={','.join(CONTROLLERS)}"],
        }
        super()._run(name, [*arguments, *more.get(name, ())])


class KubeVirtNode(Node):
    """A node whose kubelet keeps its files where virt-handler looks for them."""

    ephemeral_storage = "true"  # the Pods of VMs ask for it

    def __init__(self, plane: ControlPlane, place: Isolation, programs: Programs, name: str) -> None:
        super().__init__(plane, place, programs, name)
        kubelet = Path("/var/lib/kubelet")
        place.run("mkdir", "-p", str(kubelet))
        place.run("ln", "-s", str(kubelet), f"{place.directory}/kubelet")
        # virt-handler mounts disks into Pods that run already.
        place.run("mount", "--make-rshared", "/")

    def load_archive(self, archive: Path) -> None:
        super().load_archive(archive)
        # A migration names the image of a disk by the digest of its settings. Only a registry knows this name.
        found = [line.split()[::2][:2] for line in self.containers("image", "list").splitlines()[1:]]
        digests = {digest: name for name, digest in found if name.startswith("sha256:")}
        for name, digest in found:
            if name.startswith("localhost/guest") and "@" not in name:
                named = f"{name.rpartition(':')[0]}@{digests[digest]}"
                self.containers("image", "tag", "--force", name, named)

    def label(self) -> None:
        """Let VMs with this CPU model migrate here. Without KVM, virt-handler finds no model that migrates."""
        self.kubectl("annotate", "node", self.name, "node-labeller.kubevirt.io/skip-node=true")
        self.kubectl("label", "node", self.name, f"cpu-model.node.kubevirt.io/{CPU_MODEL}=true")

    @property
    def takes_vms(self) -> bool:
        labels = self.kubectl.json("get", "node", self.name)["metadata"]["labels"]
        return bool(labels.get("kubevirt.io/schedulable") == "true")


@contextmanager
def running_kubevirt(
    work: Path, version: str, count: int = 1, *, with_disks: bool = False
) -> Iterator[list[KubeVirtNode]]:
    """Nodes with KubeVirt, which is ready for VMs. At the end of the block nothing of it is left.

    Its components run on the first node, and VMs on all. `with_disks` adds CDI, and volumes on the first node.
    """
    programs = Programs()
    with running_plane(find_binaries(), kind=Plane, crd_directories=()) as plane:
        try:
            with ExitStack() as stack:
                nodes = []
                for number, name in enumerate(node_names(count)):
                    directory = plane.directory / name
                    directory.mkdir()
                    place = stack.enter_context(isolation(directory, number))
                    nodes.append(KubeVirtNode(plane, place, programs, name))
                _start(nodes, work / ARCHIVE)
                if with_disks:
                    disks.install(nodes[0], work)
                _install(nodes, work, version)
                if with_disks:
                    eventually(lambda: disks.ready(nodes[0]), within_s=INSTALLED_WITHIN_S, what="CDI is deployed")
                yield nodes
        finally:
            eventually(remove_own_cgroups, what="all processes of the nodes have ended")


def node_names(count: int) -> list[str]:
    return [NAME, *(f"{NAME}-{number}" for number in range(2, count + 1))]


def _start(nodes: list[KubeVirtNode], archive: Path) -> None:
    for one, other in combinations(nodes, 2):
        connect(one.place, other.place)
    first, *others = nodes
    first.start()
    for node in others:
        node.join()
    for node in nodes:
        print(f"{node.name} gets the images", flush=True)
        node.load_archive(archive)


def _install(nodes: list[KubeVirtNode], work: Path, version: str) -> None:
    print("virt-operator installs KubeVirt", flush=True)
    node = nodes[0]
    node.kubectl.apply(*_documents("namespace.yaml"), *installation(work, version))
    # KubeVirt's components run on nodes of the control plane.
    node.kubectl("label", "node", node.name, "node-role.kubernetes.io/control-plane=")
    node.kubectl.apply(*_documents("kubevirt.yaml"))
    eventually(lambda: _available(node), within_s=INSTALLED_WITHIN_S, what="KubeVirt is available")
    eventually(lambda: all(each.takes_vms for each in nodes), within_s=INSTALLED_WITHIN_S, what="all nodes take VMs")
    for each in nodes:
        each.label()


def _documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(Path(__file__).with_name(name).read_text()))


def _available(node: Node) -> bool:
    status = node.kubectl.json("get", "kubevirt", "kubevirt", "--namespace=kubevirt").get("status", {})
    return any(each["type"] == "Available" and each["status"] == "True" for each in status.get("conditions", ()))
