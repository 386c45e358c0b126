"""A namespace on two nodes with real KubeVirt: makes VMs, changes them, and asks their guests."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

from sandbox.kubectl import kubectl_path
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tests.realnode.node import frozen
from tools.realkubevirt.cluster import node_names

Fields = dict[str, Any]
OBJECTS: Final = yaml.safe_load(Path(__file__).with_name("stories.yaml").read_text())
FIRST, SECOND = node_names(2)
LONG_S: Final = 420.0


class Stage(Struct, frozen=True):
    kubectl: Kubectl
    folder: Path
    """The recordings are written there."""

    def get(self, kind: str, name: str) -> Fields:
        found = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "json").stdout
        return dict(json.loads(found)) if found else {}

    def vmis(self) -> dict[str, Fields]:
        return {each["metadata"]["name"]: each for each in self.kubectl.json("get", "vmi")["items"]}

    def configure(self, methods: list[str]) -> None:
        patch = json.dumps({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}})
        self.kubectl("patch", "kubevirt", "kubevirt", "--namespace=kubevirt", "--type=merge", f"--patch={patch}")

    def make_vm(self, domain: Fields) -> None:
        """Make a VM on the second node."""
        vm = deepcopy(OBJECTS["vm"])
        vm["spec"]["template"]["spec"]["domain"] |= domain
        with self.only(SECOND):
            self.kubectl.create(vm)
            self.wait_ready(1)

    def make_pool(self, annotations: dict[str, str], *, replicas: int = 2, **template: Any) -> None:
        """Make a pool whose VMs start on the second node."""
        pool = deepcopy(OBJECTS["pool"])
        pool["metadata"]["annotations"] = annotations
        pool["spec"]["replicas"] = replicas
        pool["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"] |= template
        with self.only(SECOND):
            self.kubectl.create(pool)
            self.wait_ready(replicas)

    @contextmanager
    def only(self, node: str) -> Iterator[None]:
        """The VMs of the block start on this node. A VM with a node selector could not leave it."""
        other = FIRST if node == SECOND else SECOND
        self.kubectl("cordon", other)
        time.sleep(3)  # the scheduler sees it
        try:
            yield
        finally:
            self.kubectl("uncordon", other)

    @contextmanager
    def frozen(self) -> Iterator[Callable[[], None]]:
        """Everything on the second node stands still. The block can end this with the function."""
        settings = yaml.safe_load((self.kubectl.kubeconfig.parent / SECOND / "kubelet.yaml").read_text())
        with frozen(settings["cgroupRoot"].strip("/")) as thaw:
            yield thaw

    @contextmanager
    def drain(self) -> Iterator[subprocess.Popen[str]]:
        """Drain the second node during the block."""
        options = ("--pod-selector=kubevirt.io=virt-launcher", "--delete-emptydir-data", f"--timeout={LONG_S:g}s")
        command = [kubectl_path(), f"--kubeconfig={self.kubectl.kubeconfig}", "drain", SECOND, *options]
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                yield process
        finally:
            self.kubectl("uncordon", SECOND)

    def change(self, kind: str, name: str, patch: Fields | list[Fields]) -> None:
        """Apply a merge patch, or the operations of a JSON patch."""
        form = "json" if isinstance(patch, list) else "merge"
        self.kubectl("patch", kind, name, f"--type={form}", f"--patch={json.dumps(patch)}")

    def plugin(self, *arguments: str) -> str:
        """What `kubectl vmherd` prints."""
        command = program(self.kubectl, "kubectl-vmherd", *arguments, f"--namespace={self.kubectl.namespace}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout or done.stderr

    def wait_ready(self, count: int) -> None:
        eventually(lambda: self.ready() == count, within_s=LONG_S, what=f"{count} guests are ready")

    def ready(self) -> int:
        return sum(condition(each, "Ready") == "True" for each in self.vmis().values())

    def guest(self, name: str) -> dict[str, int]:
        """What the guest says of itself: its uptime in seconds, its CPUs, its memory in kB, its starts with its last
        disk, and the sectors of this disk.
        """

        def ask() -> str:
            [interface] = self.vmis()[name]["status"]["interfaces"]
            # After a migration, the address is missing for a moment.
            with suppress(OSError, KeyError), socket.create_connection((interface["ipAddress"], 80), 5) as connection:
                return connection.recv(200).decode()
            return ""

        told = eventually(ask, within_s=60, what=f"the guest of {name} answers")
        says = {name: int(value) for name, value in re.findall(r"(\w+) (?:0-)?(\d+)", told)}
        return says | {"cpus": says["cpus"] + 1}


def program(kubectl: Kubectl, name: str, *arguments: str) -> list[str]:
    """The command that runs vmherd or its plugin on the cluster."""
    return [str(Path(sys.executable).with_name(name)), *arguments, f"--kubeconfig={kubectl.kubeconfig}"]


def condition(obj: Fields, name: str) -> str:
    return next((str(e["status"]) for e in obj.get("status", {}).get("conditions", ()) if e["type"] == name), "")


def node_of(vmi: Fields) -> str:
    return str(vmi["status"].get("nodeName", ""))


def is_moving(vmi: Fields) -> bool:
    state = vmi["status"].get("migrationState") or {}
    return bool(state) and not state.get("endTimestamp")
