"""Operations on replica sets, and the values that these operations use."""

from collections.abc import Mapping
from typing import Any

from controller.kubevirt import annotations as ours
from tests.controlplane.documents import set_document
from tests.faults.operations.changes import ChangeOwner
from tests.faults.operations.world import BEHAVIOR, NAME

BROKEN_KEY = "not a valid key!"
"""A key of an annotation that the CRD accepts in a template. The server refuses each object that has it."""


def change_template(part: str, value: str | None) -> ChangeOwner:
    """Change one part of the set's template. None removes the part."""
    changes: Mapping[str, dict[str, Any]] = {
        "label": {"metadata": {"labels": {"test.vmherd.dev/template": value}}},
        "annotation": {"metadata": {"annotations": {"test.vmherd.dev/template": value}}},
        "behavior": {"metadata": {"annotations": {BEHAVIOR: value}}},
        "broken": {"metadata": {"annotations": {BROKEN_KEY: value}}},
        "name": {"metadata": {"name": value}},
        "memory": {"spec": {"domain": {"resources": {"requests": {"memory": value or "64M"}}}}},
        "node": {"spec": {"nodeSelector": {"zone": value} if value else None}},
        "disk": {"spec": _disk({"disk": {"bus": "virtio"}}, {"containerDisk": {"image": "cirros"}}, value)},
        "old-disk": {"spec": _disk({"volumeName": value, "disk": None}, {"registryDisk": {"image": "cirros"}}, value)},
    }
    return ChangeOwner({"spec": {"template": changes[part]}})


def _disk(disk: dict[str, Any], volume: dict[str, Any], name: str | None) -> dict[str, Any]:
    if name is None:
        return {"domain": {"devices": {"disks": None}}, "volumes": None}
    disks = [{"name": "disk" if "volumeName" in disk else name, **disk}]
    return {"domain": {"devices": {"disks": disks}}, "volumes": [{"name": name, **volume}]}


def manifest() -> dict[str, Any]:
    return set_document(name=NAME)


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
ROLLS = ("maxUnavailable=1", "maxUnavailable=50%", "maxUnavailable=0,maxSurge=1")
OWNER_ANNOTATIONS: Mapping[str, tuple[str | None, ...]] = {
    ours.ROLLING_UPDATE: (*ROLLS, "maxUnavailable=0", "garbage", None),
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
