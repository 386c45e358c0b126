"""Disks for VMs: CDI, installed by its own operator, and a CSI driver whose volumes are folders of the first node. Its
snapshots are archives.
"""

import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.waits import eventually
from tests.realnode.node import Node

SCRIPT: Final = Path(__file__).with_suffix(".sh")
OBJECTS: Final = Path(__file__).with_suffix(".yaml")
IMAGE: Final = "localhost/cdi:1"
USER: Final = "1001"
COMMANDS: Final = {
    "operator": ["/usr/bin/cdi-operator"],
    "controller": ["/usr/bin/cdi-controller"],
    "apiserver": ["/usr/bin/cdi-apiserver"],
    "uploadproxy": ["/usr/bin/cdi-uploadproxy"],
    "importer": ["/usr/bin/cdi-importer"],
    "uploadserver": ["/usr/bin/cdi-uploadserver"],
    "cloner": ["/usr/bin/cloner_startup.sh"],
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    f"localhost/cdi-{name}:1": {"User": USER, "Entrypoint": command} for name, command in COMMANDS.items()
}
SOCKET: Final = "/run/csi.sock"


def install(node: Node, work: Path) -> None:
    """Start the driver and CDI's operator."""
    node.kubectl.apply(*(yaml.safe_load(each.read_text()) for each in sorted((work / "csi").glob("*.yaml"))))
    _start_driver(node, work / "csi")
    print("cdi-operator installs CDI", flush=True)
    node.kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cdi"}})
    images = [f"-{name}-image=localhost/cdi-{name}:1" for name in COMMANDS]
    images.append("-ovirt-populator-image=localhost/cdi-importer:1")  # the operator needs a name, and nothing runs it
    flags = ["-resource-type=operator", "-namespace=cdi", "-pull-policy=Never", "-deploy-cluster-resources=true"]
    command = [str(work / "manifest-generator"), *flags, *images, "-operator-version=v1.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    node.kubectl.apply(*filter(None, yaml.safe_load_all(done.stdout)))
    node.kubectl.apply(*yaml.safe_load_all(OBJECTS.read_text()))


def ready(node: Node) -> bool:
    status: dict[str, Any] = node.kubectl.json("get", "cdi", "cdi").get("status", {})
    return status.get("phase") == "Deployed"


def _start_driver(node: Node, programs: Path) -> None:
    """Start the driver and its sidecars. They need no Pods."""
    place = node.place
    kubeconfig, address = f"--kubeconfig={place.directory}/kubeconfig", f"--csi-address={SOCKET}"
    volumes = place.directory / "volumes"
    driver = [f"--endpoint=unix://{SOCKET}", f"--nodeid={node.name}", f"--statedir={volumes}"]
    place.start(str(programs / "hostpathplugin"), *driver)
    registry = f"--plugin-registration-path={place.directory}/kubelet/plugins_registry"
    registrar = [address, f"--kubelet-registration-path={SOCKET}", registry]
    place.start(str(programs / "csi-node-driver-registrar"), *registrar)
    place.start(str(programs / "csi-provisioner"), address, kubeconfig, "--feature-gates=Topology=true")
    for sidecar in ("csi-resizer", "csi-snapshotter"):
        place.start(str(programs / sidecar), address, kubeconfig)
    place.start(str(programs / "snapshot-controller"), kubeconfig)
    eventually(lambda: node.kubectl.json("get", "csinode", node.name)["spec"]["drivers"], what="the driver of volumes")
