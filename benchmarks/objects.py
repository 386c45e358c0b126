"""The objects of the benchmarks, from `objects.yaml`: the set and the pool of a burst, and what a loop creates."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

OBJECTS: Final[dict[str, dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("objects.yaml").read_text())
BURST: Final = "burst"


def scaled(name: str, replicas: int) -> dict[str, Any]:
    document = deepcopy(OBJECTS[name])
    document["spec"]["replicas"] = replicas
    return document


def vmi_body(name: str) -> bytes:
    """Return a VMI as the controller creates it, but without an owner: the garbage collector would delete the VMI."""
    template = OBJECTS["burst set"]["spec"]["template"]
    return _body("VirtualMachineInstance", name, template, {"vmherd.dev/template-hash": "0123456789"})


def vm_body(name: str) -> bytes:
    template = OBJECTS["burst pool"]["spec"]["virtualMachineTemplate"]
    return _body("VirtualMachine", name, template, {"kubevirt.io/vm-pool-revision-name": f"{BURST}-1"})


def _body(kind: str, name: str, template: dict[str, Any], labels: dict[str, str]) -> bytes:
    metadata = {"name": name, "labels": template["metadata"]["labels"] | labels}
    document = {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": template["spec"]}
    return msgspec.json.encode(document)
