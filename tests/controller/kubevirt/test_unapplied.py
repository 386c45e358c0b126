"""P13: what a running VMI does not have of its VM's template yet, as the server shows both objects."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt.live_updates import unapplied
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.rules import JUDGE
from controller.runtime.actions import Done, Rejected
from tests.controller.runtime.executor_setup import ExecutorSetup, document, patch

Json = dict[str, Any]


def objects(template: Json, spec: Json, status: Json | None = None) -> tuple[bytes, bytes]:
    vm = {"spec": {"template": {"spec": template}}}
    return json.dumps(vm).encode(), json.dumps({"spec": spec, "status": status or {}}).encode()


def sockets(number: int) -> Json:
    return {"domain": {"cpu": {"sockets": number}}}


def guest(size: str) -> Json:
    return {"domain": {"memory": {"guest": size}}}


def volume(name: str, **fields: Json) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": name, **fields}}


NIC = {"networks": [{"name": "a"}], "domain": {"devices": {"interfaces": [{"name": "a", "state": "absent"}]}}}
TOLERATION = {"key": "gpu"}
SOCKETS, MEMORY = "domain.cpu.sockets", "domain.memory.guest"
CASES: dict[str, tuple[tuple[bytes, bytes], str]] = {
    "sockets": (objects(sockets(2), sockets(2), {"currentCPUTopology": {"sockets": 2}}), ""),
    "sockets in the VM only": (objects(sockets(2), sockets(1)), SOCKETS),
    "sockets not in the guest": (objects(sockets(2), sockets(2), {"currentCPUTopology": {"sockets": 1}}), SOCKETS),
    "memory in another spelling": (objects(guest("1Gi"), guest("1024Mi"), {"memory": {"guestRequested": "1Gi"}}), ""),
    "memory not in the guest": (objects(guest("2Gi"), guest("2Gi"), {"memory": {"guestRequested": "1Gi"}}), MEMORY),
    "a node selector, and more": (objects({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "b", "c": "d"}}), ""),
    "no node selector": (objects({"nodeSelector": {"a": "b"}}, {}), "nodeSelector"),
    "tolerations": (objects({"tolerations": [TOLERATION]}, {"tolerations": [TOLERATION, {"key": "x"}]}), ""),
    "no tolerations": (objects({"tolerations": [TOLERATION]}, {"tolerations": []}), "tolerations"),
    "what the template does not say": (objects({}, sockets(4)), ""),
    "sockets of an instance type": (objects({}, sockets(4), {"currentCPUTopology": {"sockets": 2}}), SOCKETS),
    "a volume, and more": (objects({"volumes": [volume("a")]}, {"volumes": [volume("b"), volume("a", x="y")]}), ""),
    "no volume": (objects({"volumes": [volume("a")]}, {"volumes": [volume("b")]}), "volumes"),
    "another claim": (objects({"volumes": [volume("a", x="y")]}, {"volumes": [volume("a", x="z")]}), "volumes"),
    "no disk": (objects({"domain": {"devices": {"disks": [{"name": "a"}]}}}, {}), "domain.devices.disks"),
    "an interface that is gone": (objects(NIC, {}), ""),
    "an interface that stays": (objects(NIC | {"networks": [{"name": "b", "pod": {}}]}, {}), "networks"),
}


@pytest.mark.parametrize(("pair", "missing"), CASES.values(), ids=CASES)
def test_p13_the_vmi_has_each_live_field_of_the_template(pair: tuple[bytes, bytes], missing: str) -> None:
    found = unapplied(*pair)
    assert (missing in found) if missing else found == ""


@pytest.mark.looptime
@pytest.mark.parametrize(("number", "outcome"), [(2, Done), (1, Rejected)])
async def test_p13_a_judged_patch_is_sent_only_if_the_vmi_has_the_template(number: int, outcome: type) -> None:
    setup = ExecutorSetup()
    setup.executor = setup.new_executor(JUDGE)
    setup.server.put(VMS, {**document("vm"), "spec": {"template": {"spec": sockets(2)}}})
    setup.server.put(VMIS, {**document("vm"), "spec": sockets(number)})
    result = await setup.outcome_of(replace(patch(labels={"revision": "2"}), judged=True))
    assert type(result) is outcome
    labels = setup.server.documents(VMIS)["vm"]["metadata"].get("labels", {})
    assert (labels.get("revision") == "2") is (outcome is Done)
