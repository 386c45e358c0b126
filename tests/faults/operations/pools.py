"""Operations on pools, and their values."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from controller.kubevirt import annotations as ours
from tests.controlplane.documents import reference_to
from tests.faults.operations.changes import ChangeChild, ChangeOwner, Operation, change_this
from tests.faults.operations.sets import BROKEN_KEY
from tests.faults.operations.world import BEHAVIOR, LABELS, NAME, World
from tests.faults.resources import POOLS, VMIS


def edit_vm(which: int, part: str, value: str) -> ChangeChild:
    """Change the spec of a VM, as a user does."""
    changes: Mapping[str, dict[str, Any]] = {
        "strategy": {"spec": {"runStrategy": value}},
        "firmware": {"spec": {"template": {"spec": {"domain": {"firmware": {"uuid": value}}}}}},
        "label": {"metadata": {"labels": {"test.vmherd.dev/edited": value}}},
        "vmi-label": {"spec": {"template": {"metadata": {"labels": {"test.vmherd.dev/edited": value}}}}},
    }
    return ChangeChild(which, changes[part])


def lose_revision(which: int, value: str | None) -> ChangeChild:
    """Change or remove the revision label of a VM. The VM then refers to no revision."""
    return ChangeChild(which, {"metadata": {"labels": {ours.REVISION_NAME: value}}})


class DeleteAny(Operation, frozen=True):
    """Delete a VMI or a revision. KubeVirt starts a deleted VMI again if the run strategy says so."""

    plural: Literal["virtualmachineinstances", "controllerrevisions"]
    which: int

    async def apply(self, world: World) -> str:
        state = await world.state()
        items = state.vmis if self.plural == VMIS else state.revisions
        if not items:
            return f"no {self.plural}"
        item = items[self.which % len(items)]
        answer = await world.delete(self.plural, item)
        return f"{item['metadata']['name']} {answer.code}"


class ForcePool(Operation, frozen=True):
    """Remove the pool finalizer from the pool. A user does this to make the pool disappear at once."""

    async def apply(self, world: World) -> str:
        owner = await world.owner()
        if owner is None:
            return "no owner"
        world.forced = True
        return str((await world.remove_finalizer(POOLS, owner, ours.POOL_FINALIZER)).code)


class RefuseCreates(Operation, frozen=True):
    """Let a policy refuse all creates of VMs in the namespace, or let them pass again."""

    refused: bool

    async def apply(self, world: World) -> str:
        return str((await world.refuse_creates(refused=self.refused)).code)


class Attach(Operation, frozen=True):
    """Make the pool the controller of a VM, as after the restore of a backup."""

    which: int

    async def apply(self, world: World) -> str:
        owner, vm = await world.owner(), await world.child(self.which)
        if owner is None:
            return "nothing to attach"
        metadata = {"labels": dict(LABELS), "ownerReferences": [reference_to(owner)]}
        return await change_this(world, vm, {"metadata": metadata})


def change_template(part: str, value: str | None) -> ChangeOwner:
    """Change one part of the pool's template. None removes the part."""
    text = {"test.vmherd.dev/template": value}
    memory = {"resources": {"requests": {"memory": value or "64M"}}}
    grace = int(value) if value and value.isdigit() else None
    of_vms: Mapping[str, dict[str, Any]] = {
        "label": {"metadata": {"labels": text}},
        "annotation": {"metadata": {"annotations": text}},
        "broken": {"metadata": {"annotations": {BROKEN_KEY: value}}},
        "instancetype": {"spec": {"instancetype": {"name": value} if value else None}},
        "strategy": {"spec": {"runStrategy": value or "Always"}},
    }
    of_vmis: Mapping[str, dict[str, Any]] = {
        "vmi-label": {"metadata": {"labels": text}},
        "vmi-annotation": {"metadata": {"annotations": text}},
        "behavior": {"metadata": {"annotations": {BEHAVIOR: value}}},
        "memory": {"spec": {"domain": memory}},
        "node": {"spec": {"nodeSelector": {"zone": value} if value else None}},
        "grace": {"spec": {"terminationGracePeriodSeconds": grace}},
    }
    if part in of_vms:
        change = of_vms[part]
    elif part in of_vmis:
        change = {"spec": {"template": of_vmis[part]}}
    else:
        change = {"spec": _storage(part, value)}
    return ChangeOwner({"spec": {"virtualMachineTemplate": change}})


def _storage(part: str, value: str | None) -> dict[str, Any]:
    """Volumes: the VM's disks, or references to ConfigMaps and Secrets.

    The value of the part "disks" has the names of the disks, each with an optional size: `root:2Gi,data`.
    """
    disk_texts = (value or "").split(",") if part == "disks" and value else []
    sizes = {name: size or "1Gi" for name, _, size in (text.partition(":") for text in disk_texts)}
    names = list(sizes)
    volumes: list[dict[str, Any]] = [{"name": name, "dataVolume": {"name": name}} for name in names]
    if part == "references" and value:
        volumes = [
            {"name": "config", "configMap": {"name": value}},
            {"name": "secret", "secret": {"secretName": value}},
            {"name": "sysprep", "sysprep": {"secret": {"name": value}}},
        ]
    disks = [{"name": volume["name"], "disk": {"bus": "virtio"}} for volume in volumes]
    claims = {
        name: {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        for name, size in sizes.items()
    }
    templates = [{"metadata": {"name": name}, "spec": {"pvc": claims[name], "source": {"blank": {}}}} for name in names]
    return {
        "dataVolumeTemplates": templates or None,
        "template": {"spec": {"domain": {"devices": {"disks": disks}}, "volumes": volumes}},
    }


def manifest(replicas: int = 3) -> dict[str, Any]:
    spec = {"domain": {"resources": {"requests": {"memory": "64M"}}, "devices": {}}}
    template = {"metadata": {"labels": dict(LABELS)}, "spec": spec}
    vm = {"metadata": {"labels": dict(LABELS)}, "spec": {"runStrategy": "Always", "template": template}}
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": NAME},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "virtualMachineTemplate": vm},
    }


PARTS: Mapping[str, tuple[str | None, ...]] = {
    "label": ("one", "two", None),
    "annotation": ("one", "two", None),
    "vmi-label": ("one", "two", None),
    "vmi-annotation": ("one", "two", None),
    "memory": ("64M", "128M", "0.0640G"),
    "node": ("north", "south", None),
    "behavior": ("never-ready", "crash-loop", "image-error", "datavolume-error", None, None, None),
    "broken": ("x", None, None),
    "disks": ("root", "root:2Gi", "root:3Gi", "root,data", "root:2Gi,data:2Gi", None),
    "references": ("settings", None),
    "instancetype": ("small", "large", None),
    "strategy": ("Always", "Halted", "RerunOnFailure", "Manual", "Always"),
    "grace": ("0", "30", None),
}
_EXPRESSION = {"key": "zone", "operator": "In", "values": ["north"]}
_SELECTORS: tuple[Any, ...] = (
    None,
    {"labelSelector": {"matchLabels": {"test.vmherd.dev/template": "one"}}},
    {"labelSelector": {"matchExpressions": [{"key": "test.vmherd.dev/edited", "operator": "DoesNotExist"}]}},
    {"nodeSelectorRequirementMatcher": [_EXPRESSION]},
)
_POLICIES = tuple(
    {"selectionPolicy": {**order, **({"selectors": selectors} if selectors else {})}}
    for order in (
        {"sortPolicy": "AscendingOrder"},
        {"sortPolicy": "DescendingOrder"},
        {"sortPolicy": "Newest"},
        {"sortPolicy": "Oldest", "basePolicy": "Random"},
        {"basePolicy": "DescendingOrder"},
        {},
    )
    for selectors in _SELECTORS
)
SCALE_IN: tuple[Any, ...] = (
    None,
    {"unmanaged": {}},
    *({"opportunistic": {"statePreservation": state}} for state in ("Disabled", "Offline", "Online")),
    *({"proactive": {"statePreservation": state}} for state in ("Disabled", "Offline", "Online")),
    *({"proactive": policy} for policy in _POLICIES),
    *({"proactive": {**policy, "statePreservation": "Offline"}} for policy in _POLICIES),
    {"proactive": {}, "unmanaged": {}},
)
UPDATE: tuple[Any, ...] = (
    None,
    None,
    {"unmanaged": {}},
    {"opportunistic": {}},
    {"proactive": {}},
    *({"proactive": policy} for policy in _POLICIES),
    {"opportunistic": {}, "proactive": {}},
)
HEALING: tuple[Any, ...] = (
    None,
    {},
    {"startUpFailureThreshold": 1},
    {"startUpFailureThreshold": 2, "minFailingToStartDuration": "1s"},
    {"minFailingToStartDuration": "2s"},
    {"startUpFailureThreshold": 0},
    {"minFailingToStartDuration": "soon"},
)
MAX_UNAVAILABLE: tuple[Any, ...] = (None, 1, 2, "1%", "50%", "100%", 0, "0%", "garbage", -1)
NAME_GENERATION: tuple[Any, ...] = (
    None,
    {"appendIndexToConfigMapRefs": True},
    {"appendIndexToSecretRefs": True, "appendIndexToConfigMapRefs": False},
    {"appendPostfixToSecretReferences": True},
)
OWNER_ANNOTATIONS: Mapping[str, tuple[str | None, ...]] = {
    ours.MIN_READY: ("1", "2", "-1", "soon", None, None),
    ours.PARTITION: ("1", "2", "100", "0", "many", None, None),
    ours.MAX_UNHEALTHY: ("1", "100%", "0", "most", None),
    ours.INDEX_SYSPREP: ("true", "yes", None),
    ours.PROGRESS_DEADLINE: ("1", "600", "soon", None),
    ours.REPLACE_UNREADY_AFTER: ("2", "600", "never", None, None),
    ours.TAKEOVER: ("proceed", "held", None),
    ours.MOST_DISRUPTIVE: (ours.RECREATE, ours.RECREATE, "restart", "never", None),
    "kubectl.kubernetes.io/last-applied-configuration": ("{}", None),
}
NOTES: Mapping[str, tuple[str | None, ...]] = {
    ours.HEALED: ("rubbish", json.dumps({"0": {"count": 3}}), "[]", None),
    ours.RECREATED: ("rubbish", json.dumps({"0": ["gone"], "7": ["gone"]}), None),
    ours.UNREADY: ("rubbish", "{}", None),
    ours.PARTITION_REVISION: ("herd-1", "no-such-revision", "!", None),
}
CHILD_ANNOTATIONS: Mapping[str, tuple[str | None, ...]] = {
    ours.REMOVE: ("true", "yes", None),
    ours.PROTECT: ("true", "True", "no", "", "false", None),
    ours.DELETION_COST: ("-5", "100", "cheap", "99999999999", None),
}
