"""A real node: a kubelet with containerd and runc, a scheduler, kube-proxy and CoreDNS, beside a control plane.

The programs of Kubernetes and CoreDNS are built from pinned Go modules, and the others are Debian's packages. All
programs of the node run in namespaces of their own (`tests.realnode.isolation`).
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

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
from tests.realnode.isolation import Isolation, isolation, pid_in
from tools.generated import ROOT

NAME: Final = "real"
DNS: Final = "10.0.0.10"
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
LOST_AFTER_S: Final = 6
"""After this time without a sign of life from the kubelet, the node is not ready. The default is 50 seconds."""


class NodePlane(ControlPlane):
    """A control plane that a node can reach, with the controllers for Pods."""

    def _run(self, name: str, arguments: list[str]) -> None:
        more = {
            APISERVER: ["--bind-address=0.0.0.0", "--kubelet-preferred-address-types=InternalIP"],
            MANAGER: [f"--controllers={','.join(CONTROLLERS)}", f"--node-monitor-grace-period={LOST_AFTER_S}s"],
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
    gobuild.build(gobuild.find_go(), name, target, version=KUBERNETES)


class Node:
    def __init__(self, plane: ControlPlane, place: Isolation, programs: Programs) -> None:
        self.plane = plane
        self.kubectl = Kubectl(plane.kubeconfig)
        self._place = place
        self._programs = programs
        self._directory = place.directory
        self._cgroup = f"{CGROUP}{os.getpid()}"
        self._kubelet: Child | None = None
        self._running: list[Child] = []

    def start(self) -> None:
        self._write_files()
        self._connect_services()
        self._place.start("/usr/bin/containerd", f"--config={self._directory}/containerd.toml")
        eventually(lambda: self.containers("version", check=False), what="containerd answers")
        self.load(image.pause())
        self.start_kubelet()
        place, programs = self._place, self._programs
        scheduler = [programs.scheduler, f"--kubeconfig={self.plane.kubeconfig}", "--leader-elect=false"]
        self._running = [
            place.spawner.start("kube-scheduler", [*scheduler, "--secure-port=0"], self._directory / "scheduler.log"),
            place.start(programs.proxy, f"--config={self._directory}/proxy.yaml", f"--hostname-override={NAME}"),
            place.start(programs.coredns, f"-conf={self._directory}/Corefile"),
        ]
        eventually(lambda: self.ready, what="the node is ready")

    def ended(self) -> list[str]:
        """The names of the programs that have ended, with the last lines of their logs."""
        return [f"{each.name}:\n{each.log_tail()}" for each in self._running if not each.running]

    @property
    def ready(self) -> bool:
        found = self.kubectl.json("get", "nodes")["items"]
        conditions = [each for node in found for each in node["status"]["conditions"]]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def start_kubelet(self) -> None:
        address = self._place.address
        self._kubelet = self._place.start(
            self._programs.kubelet,
            f"--config={self._directory}/kubelet.yaml",
            f"--kubeconfig={self._directory}/kubeconfig",
            f"--root-dir={self._directory}/kubelet",
            f"--cert-dir={self._directory}/kubelet-certs",
            f"--hostname-override={NAME}",
            f"--node-ip={address}",
        )

    def stop_kubelet(self) -> None:
        """End the kubelet. The containers keep running."""
        assert self._kubelet is not None
        os.kill(pid_in(self._kubelet), signal.SIGKILL)
        self._kubelet.stop()

    def load(self, what: image.Image) -> None:
        """Bring an image to the node. Its Pods need `imagePullPolicy: Never`."""
        archive = what.save(self._directory / "image.tar")
        self.containers("image", "import", str(archive))
        archive.unlink()

    def containers(self, *arguments: str, check: bool = True) -> str:
        """Run containerd's client."""
        return self._place.run("ctr", "--namespace=k8s.io", *arguments, check=check)

    def memory(self, container: str, what: str) -> int:
        """A number of the container's memory cgroup, such as `max_usage_in_bytes`."""
        [folder] = (CGROUPS / "memory" / self._cgroup).rglob(container)
        return int((folder / f"memory.{what}").read_text())

    def _connect_services(self) -> None:
        """Give addresses to the Services of the API server and of the cluster's DNS, which run outside of Pods."""
        port = int(self.plane.url.rpartition(":")[2])
        dns = {"name": "dns", "port": 53, "protocol": "UDP"}
        ports = [dns, {**dns, "name": "dns-tcp", "protocol": "TCP"}]
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "dns", "namespace": "kube-system"},
                "spec": {"clusterIP": DNS, "ports": ports},
            },
            _endpoints("kubernetes", "default", self._place.host, [{"name": "https", "port": port, "protocol": "TCP"}]),
            _endpoints("dns", "kube-system", self._place.address, ports),
        )

    def _write_files(self) -> None:
        admin = yaml.safe_load(self.plane.kubeconfig.read_text())
        admin["clusters"][0]["cluster"] |= {
            "server": self.plane.url.replace("127.0.0.1", self._place.host),
            "tls-server-name": "localhost",
        }
        kubeconfig = self._write("kubeconfig", admin)
        corefile = f".:53 {{\n errors\n kubernetes cluster.local {{\n kubeconfig {kubeconfig}\n }}\n}}\n"
        (self._directory / "Corefile").write_text(corefile)
        self._write("proxy.yaml", proxy_settings(kubeconfig, self._place.pods))
        self._write("kubelet.yaml", kubelet_settings(self._directory, self._cgroup))
        (self._directory / "cni").mkdir()
        (self._directory / "cni" / "pods.conflist").write_text(json.dumps(network(self._place.pods)))
        (self._directory / "containerd.toml").write_text(containerd_settings(self._directory))
        _remove_old_cgroups()
        for folder in CGROUPS.iterdir():
            if folder.is_dir() and not folder.is_symlink():
                (folder / self._cgroup).mkdir(exist_ok=True)

    def _write(self, name: str, document: dict[str, Any]) -> Path:
        path = self._directory / name
        path.write_text(yaml.safe_dump(document))
        return path


def _remove_old_cgroups() -> None:
    """Remove the control groups of runs that have ended. The kernel removes everything else of a node."""
    for folder in CGROUPS.glob(f"*/{CGROUP}*"):
        if not Path("/proc", folder.name.removeprefix(CGROUP)).exists():
            _remove_cgroup(folder)


def _remove_own_cgroups() -> bool:
    try:
        for folder in CGROUPS.glob(f"*/{CGROUP}{os.getpid()}"):
            _remove_cgroup(folder)
    except OSError:
        return False  # a process of the group is still ending
    return True


def _remove_cgroup(folder: Path) -> None:
    for path in sorted(folder.rglob("*/"), reverse=True):
        path.rmdir()
    folder.rmdir()


def kubelet_settings(directory: Path, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "podLogsDir": f"{directory}/pods",
        "volumePluginDir": f"{directory}/volume-plugins",
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": LOST_AFTER_S,
        # The state of the machine's disk is none of the node's business.
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
    }


def proxy_settings(kubeconfig: Path, pods: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": pods,
        "mode": "iptables",
        # These limits are settings of the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def containerd_settings(directory: Path) -> str:
    """Without the capability CAP_SYS_RESOURCE, containers cannot get a lower `oom_score_adj`."""
    return f"""
version = 2
root = "{directory}/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image.PAUSE}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{directory}/cni"
"""


def network(pods: str) -> dict[str, Any]:
    ipam = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _endpoints(service: str, namespace: str, address: str, ports: list[dict[str, Any]]) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}-node", "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": ports,
    }


@contextmanager
def running_node(binaries: Binaries, definitions: Path) -> Iterator[Node]:
    """A node and its control plane, which has only these definitions."""
    programs = Programs()
    with running_plane(binaries, kind=NodePlane, crd_directories=(definitions,)) as plane:
        directory = plane.directory / "node"
        directory.mkdir()
        with isolation(directory) as place:
            node = Node(plane, place, programs)
            node.start()
            yield node
            assert node.ended() == [], "programs of the node ended by themselves"
    eventually(_remove_own_cgroups, what="all processes of the node have ended")
