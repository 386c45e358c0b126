"""Operations on replica sets, and the values that these operations use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from controller.kubevirt import annotations as ours
from tests.faults.operations import _change
from tests.faults.operations_world import BEHAVIOR, LABELS, NAME, World

BROKEN_KEY = "not a valid key!"
"""A key of an annotation that the CRD accepts in a template. The server refuses each object that has it."""


class ChangeTemplate(Struct, frozen=True, tag=True):
    """Change one part of the set's template. None removes the part."""

    part: Literal["label", "annotation", "memory", "node", "behavior", "broken", "name", "disk", "old-disk"]
    value: str | None

    async def apply(self, world: World) -> str:
        if self.part in ("disk", "old-disk"):
            return str((await world.change_owner({"spec": {"template": {"spec": _disk(self)}}})).code)
        return str((await world.change_owner({"spec": {"template": _part(self.part, self.value)}})).code)


class EditChild(Struct, frozen=True, tag=True):
    """Add a label to a VMI, as a user does."""

    which: int
    value: str | None

    async def apply(self, world: World) -> str:
        return await _change(world, self.which, {"metadata": {"labels": {"test.vmherd.dev/edited": self.value}}})


def _part(part: str, value: str | None) -> dict[str, Any]:
    changes: Mapping[str, dict[str, Any]] = {
        "label": {"metadata": {"labels": {"test.vmherd.dev/template": value}}},
        "annotation": {"metadata": {"annotations": {"test.vmherd.dev/template": value}}},
        "behavior": {"metadata": {"annotations": {BEHAVIOR: value}}},
        "broken": {"metadata": {"annotations": {BROKEN_KEY: value}}},
        "name": {"metadata": {"name": value}},
        "memory": {"spec": {"domain": {"resources": {"requests": {"memory": value or "64M"}}}}},
        "node": {"spec": {"nodeSelector": {"zone": value} if value else None}},
    }
    return changes[part]


def _disk(change: ChangeTemplate) -> dict[str, Any]:
    if change.value is None:
        return {"domain": {"devices": {"disks": None}}, "volumes": None}
    if change.part == "old-disk":
        disk = {"name": "disk", "volumeName": change.value, "disk": None}
        volume = {"name": change.value, "registryDisk": {"image": "cirros"}}
        return {"domain": {"devices": {"disks": [disk]}}, "volumes": [volume]}
    disk = {"name": change.value, "disk": {"bus": "virtio"}}
    volume = {"name": change.value, "containerDisk": {"image": "cirros"}}
    return {"domain": {"devices": {"disks": [disk]}}, "volumes": [volume]}


def manifest(replicas: int = 3) -> dict[str, Any]:
    template = {
        "metadata": {"labels": dict(LABELS)},
        "spec": {"domain": {"resources": {"requests": {"memory": "64M"}}}},
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": NAME},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template},
    }


PARTS: Mapping[str, tuple[str | None, ...]] = {
    "label": ("one", "two", None),
    "annotation": ("one", "two", None),
    "memory": ("64M", "128M", "0.0640G"),
    "node": ("north", None),
    "behavior": ("never-ready", "fail", "finish", "image-error", None, None, None),
    "broken": ("x", None, None),
    "name": ("web", None),
    "disk": ("root", None),
    "old-disk": ("root",),
}
OWNER_ANNOTATIONS: Mapping[str, tuple[str | None, ...]] = {
    ours.ROLLING_UPDATE: ("maxUnavailable=1", "maxUnavailable=50%", "maxUnavailable=0", "garbage", None),
    ours.PROGRESS_DEADLINE: ("1", "600", "-5", "soon", None),
    ours.REPLACE_UNREADY_AFTER: ("2", "600", "0", "never", None),
    ours.TEMPLATE_HASH: ("x", None),
}
CHILD_ANNOTATIONS: Mapping[str, tuple[str | None, ...]] = {
    ours.REMOVE: ("true", "yes", None),
    ours.PROTECT: ("true", "True", "no", "", "false", None),
    ours.DELETION_COST: ("-5", "100", "cheap", "99999999999", None),
    ours.EARLY_FAILURES: ("rubbish", None),
}
