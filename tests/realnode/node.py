"""A real node: a kubelet with containerd and runc, a scheduler, kube-proxy and CoreDNS, beside a control plane.

The programs of Kubernetes and CoreDNS are built from pinned Go modules, and the others are Debian's packages. All
programs of the node run in namespaces of their own (`tests.realnode.isolation`).
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from string import Template
from typing import Final

import yaml

from sandbox import gobuild
from sandbox.binaries import Binaries, cache_directory
from sandbox.controlplane import APISERVER, MANAGER, ControlPlane
from sandbox.gobuild import BuildError
from sandbox.processes import Child
from sandbox.provide import provide
from sandbox.releases import KUBERNETES
from tests.cluster import Kubectl, running_plane, skip_or_fail
from tests.controlplane.waits import eventually
from tests.gomodules import find_or_build
from tests.packages import need
from tests.realnode import image
from tests.realnode.isolation import WAITED_S, Isolation, isolation, pid_in
from tools.generated import ROOT

NAME: Final = "real"
FILES: Final = Path(__file__).with_name("files")
KUBERNETES_PROGRAMS: Final = ("kubelet", "kube-scheduler", "kube-proxy")
PACKAGES: Final = {
    "containerd": "/usr/bin/containerd",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "/usr/sbin/iptables",
    "iproute2": "/usr/bin/ip",
}
CONTROLLERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller",
)
CGROUPS: Final = Path("/sys/fs/cgroup")
CGROUP: Final = "vmherd-node-"
LOADED_WITHIN_S: Final = 900
"""On a busy machine, a node needs minutes for an image of a gigabyte."""


class NodePlane(ControlPlane):
    """A control plane that a node can reach, with the controllers for Pods."""

    def _run(self, name: str, arguments: list[str]) -> None:
        more = {
            APISERVER: ["--bind-address=0.0.0.0", "--kubelet-preferred-address-types=InternalIP"],
            MANAGER: [f"--controllers={','.join(CONTROLLERS)}", "--node-monitor-grace-period=6s"],
        }
        super()._run(name, [*arguments, *more.get(name, ())])


class Programs:
    """The programs of a node. If one is missing and cannot be had, the test is skipped. In CI, it fails."""

    def __init__(self) -> None:
        if os.geteuid():
            skip_or_fail("a real node needs root: it starts containers")
        for package, path in PACKAGES.items():
            need(package, Path(path).exists)
        try:
            self.coredns = str(find_or_build(ROOT / "tools" / "coredns"))
            store = cache_directory() / "control-plane" / f"v{KUBERNETES}"
            self.kubelet, self.scheduler, self.proxy = (
                str(provide(store / name, partial(_build, name))) for name in KUBERNETES_PROGRAMS
            )
        except BuildError as error:
            skip_or_fail(str(error))


def _build(name: str, target: Path) -> None:
    gobuild.build_kubernetes(gobuild.find_go(), name, target, version=KUBERNETES)


class Node:
    ephemeral_storage = "false"
    """Whether Pods may ask for ephemeral storage, as a boolean of YAML."""

    def __init__(self, plane: ControlPlane, place: Isolation, programs: Programs, name: str = NAME) -> None:
        self.plane = plane
        self.kubectl = Kubectl(plane.kubeconfig)
        self.name = name
        self.place = place
        self._programs = programs
        self._directory = place.directory
        self._cgroup = f"{CGROUP}{os.getpid()}/{name}"
        self._kubelet: Child | None = None
        self._running: list[Child] = []

    def start(self) -> None:
        """Start the node, and the programs that a cluster needs only once."""
        self.join()
        place, programs = self.place, self._programs
        self.kubectl.apply(*yaml.safe_load_all((self._directory / "services.yaml").read_text()))
        scheduler = [programs.scheduler, f"--kubeconfig={self.plane.kubeconfig}", "--leader-elect=false"]
        self._running += [
            place.spawner.start("kube-scheduler", [*scheduler, "--secure-port=0"], self._directory / "scheduler.log"),
            place.start(programs.coredns, f"-conf={self._directory}/Corefile"),
        ]

    def join(self) -> None:
        """Start the node in a cluster that has its scheduler and its DNS."""
        self._write_files()
        containerd = self.place.start("/usr/bin/containerd", f"--config={self._directory}/containerd.toml")
        eventually(lambda: self.containers("version", check=False), what="containerd answers")
        self.load(image.pause())
        kubelet = self.start_kubelet()
        proxy = [f"--config={self._directory}/proxy.yaml", f"--hostname-override={self.name}"]
        self._running.append(self.place.start(self._programs.proxy, *proxy))
        eventually(lambda: self.ready, what=f"the node {self.name} is ready")
        programs = _freezer() / self._cgroup / "programs"
        programs.mkdir(exist_ok=True)
        for child in (containerd, kubelet):
            (programs / "cgroup.procs").write_text(str(pid_in(child)))

    def ended(self) -> list[str]:
        """The names of the programs that have ended, with the last lines of their logs."""
        return [f"{each.name}:\n{each.log_tail()}" for each in self._running if not each.running]

    @property
    def ready(self) -> bool:
        found = self.kubectl.json("get", "nodes", f"--field-selector=metadata.name={self.name}")["items"]
        conditions = [each for node in found for each in node["status"]["conditions"]]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def start_kubelet(self) -> Child:
        address = self.place.address
        self._kubelet = kubelet = self.place.start(
            self._programs.kubelet,
            f"--config={self._directory}/kubelet.yaml",
            f"--kubeconfig={self._directory}/kubeconfig",
            f"--root-dir={self._directory}/kubelet",
            f"--cert-dir={self._directory}/kubelet-certs",
            f"--hostname-override={self.name}",
            f"--node-ip={address}",
        )
        return kubelet

    def stop_kubelet(self) -> None:
        """End the kubelet. The containers keep running."""
        assert self._kubelet is not None
        os.kill(pid_in(self._kubelet), signal.SIGKILL)
        self._kubelet.stop()

    def load(self, what: image.Image) -> None:
        """Bring an image to the node. Its Pods need `imagePullPolicy: Never`."""
        archive = what.save(self._directory / "image.tar")
        self.load_archive(archive)
        archive.unlink()

    def load_archive(self, archive: Path) -> None:
        self.containers("image", "import", str(archive), within_s=LOADED_WITHIN_S)

    def containers(self, *arguments: str, check: bool = True, within_s: float = WAITED_S) -> str:
        """Run containerd's client."""
        return self.place.run("ctr", "--namespace=k8s.io", *arguments, check=check, within_s=within_s)

    def memory(self, container: str) -> tuple[int, int]:
        """The highest use of memory of a container so far, and its limit, in bytes."""
        first = (CGROUPS / "memory").exists()
        [folder] = (CGROUPS / ("memory" if first else "") / self._cgroup).rglob(container)
        names = ("max_usage_in_bytes", "limit_in_bytes") if first else ("peak", "max")
        peak, limit = (int((folder / f"memory.{name}").read_text()) for name in names)
        return peak, limit

    def _write_files(self) -> None:
        admin = yaml.safe_load(self.plane.kubeconfig.read_text())
        server, _, port = self.plane.url.replace("127.0.0.1", self.place.host).rpartition(":")
        admin["clusters"][0]["cluster"] |= {"server": f"{server}:{port}", "tls-server-name": "localhost"}
        (self._directory / "kubeconfig").write_text(yaml.safe_dump(admin))
        place, pause = self.place, image.PAUSE
        values = {"host": place.host, "address": place.address, "pods": place.pods, "port": port, "pause": pause}
        values |= {"directory": str(self._directory), "cgroup": self._cgroup, "dns": "10.0.0.10"}
        values |= {"ephemeral": self.ephemeral_storage}
        for file in FILES.iterdir():
            (self._directory / file.name).write_text(Template(file.read_text()).substitute(values))
        _remove_old_cgroups()
        for hierarchy in _hierarchies():
            (hierarchy / self._cgroup).mkdir(parents=True, exist_ok=True)


def _hierarchies() -> list[Path]:
    """The roots of the control groups: one in cgroup v2, and one for each controller in cgroup v1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [folder for folder in CGROUPS.iterdir() if folder.is_dir() and not folder.is_symlink()]


def _freezer() -> Path:
    """The hierarchy of control groups that can stop its processes."""
    return next(folder for folder in _hierarchies() if folder.name in (CGROUPS.name, "freezer"))


@contextmanager
def frozen(cgroup: str) -> Iterator[Callable[[], None]]:
    """A node hangs during the block: all its processes stand still. The function that the block gets ends this."""
    folder = _freezer() / cgroup
    state = folder / "freezer.state"
    first = state.exists()

    def write(text: str) -> None:
        (state if first else folder / "cgroup.freeze").write_text(text)

    thaw = partial(write, "THAWED" if first else "0")
    try:
        write("FROZEN" if first else "1")
        yield thaw
    finally:
        thaw()


def _remove_old_cgroups() -> None:
    """Remove the control groups of runs that have ended. The kernel removes everything else of a node."""
    for folder in (folder for hierarchy in _hierarchies() for folder in hierarchy.glob(f"{CGROUP}*")):
        if not Path("/proc", folder.name.removeprefix(CGROUP)).exists():
            _remove_cgroup(folder)


def remove_own_cgroups() -> bool:
    """Remove the control groups of this run's nodes. Return False if one still has processes."""
    try:
        for hierarchy in _hierarchies():
            _remove_cgroup(hierarchy / f"{CGROUP}{os.getpid()}")
    except OSError:
        return False
    return True


def _remove_cgroup(folder: Path) -> None:
    for path in sorted(folder.rglob("*/"), reverse=True):
        path.rmdir()
    if folder.exists():
        folder.rmdir()


@contextmanager
def running_node(binaries: Binaries, definitions: Path) -> Iterator[Node]:
    """A node and its control plane, which has only these definitions."""
    programs = Programs()
    with running_plane(binaries, kind=NodePlane, crd_directories=(definitions,)) as plane:
        directory = plane.directory / "node"
        directory.mkdir()
        try:
            with isolation(directory) as place:
                node = Node(plane, place, programs)
                node.start()
                yield node
                assert node.ended() == [], "programs of the node ended by themselves"
        finally:
            eventually(remove_own_cgroups, what="all processes of the node have ended")
