"""Instance types and preferences of simulated VMs."""

import json
from typing import Any

import pytest
from msgspec import Raw

from controller.kubevirt.resources import CONTROLLER_REVISIONS
from informers.meta import ObjectMeta
from sandbox.instance_types import Definition
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.sandbox.machines import Machines, vm_document

KIND = "VirtualMachineInstancetype"


def definition(name: str, **spec: Any) -> Definition:
    return Definition(ObjectMeta(name=name, uid=f"uid-{name}", generation=1), Raw(json.dumps(spec).encode()))


def size(memory: str) -> Definition:
    return definition("small", cpu={"guest": 4}, memory={"guest": memory})


def sized(*, preference: str = "", disks: Any = ()) -> Machines:
    document = vm_document()
    document["spec"]["instancetype"] = {"kind": KIND, "name": "small"}
    document["spec"] |= {"preference": {"name": preference}} if preference else {}
    document["spec"]["template"]["spec"]["domain"] = {"devices": {"disks": [*disks]}}
    return Machines(document)


def test_a_vm_waits_for_its_instance_type_and_keeps_what_it_has_seen_first() -> None:
    machines = sized().live(5)
    [failure] = [each for each in machines.status()["conditions"] if each["type"] == "Failure"]
    assert (machines.word, failure["reason"]) == ("Stopped", "FailedFindInstancetype")
    assert failure["message"] == 'virtualmachineinstancetypes.instancetype.kubevirt.io "small" not found'
    machines.definitions["instancetype"] = size("1Gi")
    for memory in ("2Gi", "4Gi"):
        domain = machines.live(5).get(VMIS)["spec"]["domain"]
        assert domain["memory"] == {"guest": "1Gi"}
        assert domain["cpu"] == {"cores": 1, "sockets": 4, "threads": 1}
        machines.definitions["instancetype"] = size(memory)
        machines.delete(VMIS, "vm")
    assert machines.get(CONTROLLER_REVISIONS, "vm-small-v1beta1-uid-small-1")["data"]["spec"]["memory"] == {
        "guest": "1Gi"
    }
    assert machines.word == "Running"
    assert not any(each["type"] == "Failure" for each in machines.status()["conditions"])
    machines.definitions["preference"] = definition("empty")
    machines.patch(VMS, "vm", {"spec": {"preference": {"name": "empty"}}})
    assert machines.live(5).word == "Running"
    machines.definitions["instancetype"] = definition("large", cpu={"guest": 1}, memory={"guest": "8Gi"})
    machines.patch(VMS, "vm", {"spec": {"instancetype": {"name": "large"}}})
    machines.live(5).delete(VMIS, "vm")
    assert machines.live(5).get(VMIS)["spec"]["domain"]["memory"] == {"guest": "8Gi"}
    assert machines.get(VMIS)["metadata"]["annotations"]["kubevirt.io/instancetype-name"] == "large"


@pytest.mark.parametrize(
    ("topology", "expected"),
    [("cores", (4, 1, 1)), ("preferThreads", (1, 1, 4)), ("any", (1, 4, 1)), ("sockets", (1, 4, 1))],
)
def test_a_preference_has_the_topology_and_the_bus_of_disks(topology: str, expected: tuple[int, int, int]) -> None:
    machines = sized(preference="linux", disks=[{"name": "a"}, {"name": "b", "disk": {"bus": "scsi"}}, {"cdrom": {}}])
    machines.definitions["instancetype"] = size("1Gi")
    machines.definitions["preference"] = definition(
        "linux", cpu={"preferredCPUTopology": topology}, devices={"preferredDiskBus": "virtio"}
    )
    vmi = machines.live(5).get(VMIS)
    assert tuple(vmi["spec"]["domain"]["cpu"][name] for name in ("cores", "sockets", "threads")) == expected
    buses = [(each.get("disk") or {}).get("bus") for each in vmi["spec"]["domain"]["devices"]["disks"]]
    assert buses == ["virtio", "scsi", None]
    assert vmi["metadata"]["annotations"]["kubevirt.io/cluster-preference-name"] == "linux"
