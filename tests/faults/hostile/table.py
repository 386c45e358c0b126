"""Rows that once stopped the controller for the whole cluster: each is one object of one namespace."""

from typing import Any

from tests.faults.hostile.attacks import HUGE, LABELS, MANY, Attacker, has, limited, nested, row, says, vm_spec
from tests.faults.hostile.cluster import POOL, SET, VM, vm_template

LISTS = ("gpus", "hostDevices", "filesystems", "interfaces")


def annotated_vm(annotations: dict[str, str]) -> dict[str, Any]:
    template = vm_template()
    template["metadata"]["annotations"] = annotations
    return template


def annotated_vmi(annotations: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"labels": LABELS, "annotations": annotations}, "spec": {"domain": {}}}


@row("a template annotation with a key of 16,000 letters", limited("example.com/app", "pool", "set"), unchecked=True)
def long_key(attacker: Attacker) -> None:
    annotations = {"a" * 16_000: ""}
    attacker.pool(virtualMachineTemplate=annotated_vm(annotations))
    attacker.set(template=annotated_vmi(annotations))


@row("the largest number of replicas, with a partition", says("ReplicasLimited", "--max-replicas", "pool", "set"))
def largest_number(attacker: Attacker) -> None:
    attacker.pool(1, meta={"annotations": {"vmherd.dev/partition": "1"}})
    attacker.set(1)
    attacker.wait(VM, 1)
    for kind, name in ((POOL, "pool"), (SET, "set")):
        attacker.scale(kind, name, HUGE)


@row("a template with 190 levels, and one leaf changes", limited("64 levels", "pool"))
def deep_template(attacker: Attacker) -> None:
    bulk = list(range(9_000))
    for leaf in range(3):
        template = vm_spec(deep=nested(190, {"bulk": bulk, "leaf": leaf}))
        if leaf == 0:
            attacker.pool(virtualMachineTemplate=template)
            attacker.wait(VM, within_s=1)
        else:
            attacker.template(template)


@row(
    "1,000 networks, interfaces, host devices and filesystems, whose order changes",
    limited("at most", "pool"),
    unchecked=True,
)
def many_devices(attacker: Attacker) -> None:
    names = [{"name": format(number, "x")} for number in range(1_000)]

    def template(step: int) -> dict[str, Any]:
        return vm_spec(domain={"devices": {each: names[::step] for each in LISTS}}, networks=names[::step])

    attacker.pool(virtualMachineTemplate=template(1))
    attacker.wait(VM, within_s=1)
    attacker.template(template(-1))


@row("6,500 quantities, and a new template again and again", limited("quantities", "pool"))
def many_quantities(attacker: Attacker) -> None:
    for round_ in range(6):
        requests = {format(number, "x"): f"1.{(number + round_) % 9}Gi" for number in range(6_500)}
        template = vm_spec(domain={"resources": {"requests": requests}})
        if round_ == 0:
            attacker.pool(virtualMachineTemplate=template, meta={"annotations": {"vmherd.dev/partition": "100000"}})
            attacker.wait(VM, within_s=1)
        else:
            attacker.template(template)


LOST = {
    "phase": "Running",
    "nodeName": "node",
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "PodTerminating", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ],
}
SUBSTITUTES = {"vmherd.dev/substitute-lost-after-seconds": "60"}


@row("a grace period of 290 billion years on each VM", has(POOL, "pool", MANY))
def long_grace_of_vms(attacker: Attacker) -> None:
    attacker.pool(meta={"annotations": SUBSTITUTES})
    vms = attacker.wait(VM)
    grace = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 2**63 - 1}}}}
    attacker.at_once([lambda name=name: attacker.change(VM, name, grace) for name in vms])
    attacker.machines(vms, lambda _: LOST)
