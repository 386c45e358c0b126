"""The end state of a run, in a form that can be compared with the end state of another run.

Names of VMIs of a set, UIDs, times and versions differ between runs, so they are left out. What remains must be equal:
the owners with their specs and counts, the members with their content, the disks with their owners, the revisions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tests.faults.history import History, World
from tests.faults.states import (
    DATA_VOLUME,
    FINALIZER,
    HASH_LABEL,
    POOL,
    PREFIX,
    PVC,
    REVISION,
    SET,
    VM,
    VMI,
    Object,
    annotations_of,
    controller_of,
    controller_uid,
    counts,
    differences,
    finalizers_of,
    is_deleting,
    is_ready,
    labels_of,
    name_of,
    references_of,
    status_of,
    uid_of,
)

COUNTS = ("replicas", "readyReplicas", "updatedReplicas", "labelSelector")


def end_state(history: History) -> dict[str, Any]:
    """Return the end state of a history."""
    world = history.end
    state = {f"{owner['kind']}/{name_of(owner)}": _owner(world, owner) for owner in world.all(SET, POOL)}
    for item in world.all(VM, VMI, DATA_VOLUME, PVC, REVISION):
        if controller_uid(item) and item["kind"] == VMI and (controller_of(item) or {}).get("kind") == SET:
            continue  # a member of a set has a name that differs between runs
        if item["kind"] == REVISION and _is_spare(world, item):
            continue
        state[f"{item['kind']}/{name_of(item)}"] = _member(item)
    return state


def _is_spare(world: World, revision: Object) -> bool:
    """Return True if no VMI has the template of this set's revision, and the set does not want the template.

    VMIs never wait for the history. So after a fault, a template that was wanted for a short time may not be stored.
    """
    hashed = labels_of(revision).get(HASH_LABEL)
    used = {labels_of(vmi).get(HASH_LABEL) for vmi in world.all(VMI)}
    wanted = {status_of(owner).get("updateRevision") for owner in world.all(SET)}
    return hashed is not None and hashed not in used | wanted


def _owner(world: World, owner: Object) -> dict[str, Any]:
    status = status_of(owner)
    conditions = sorted((each["type"], each.get("reason", "")) for each in status.get("conditions") or ())
    return {
        "spec": owner.get("spec"),
        "terminating": is_deleting(owner),
        "finalizers": finalizers_of(owner),
        "status": {**{key: status.get(key) or 0 for key in COUNTS}, "conditions": conditions},
        "members": sorted(
            json.dumps(_member(vmi), sort_keys=True) for vmi in world.children(uid_of(owner), VMI) if counts(owner, vmi)
        ),
    }


def _member(item: Object) -> dict[str, Any]:
    return {
        "spec": item.get("spec", item.get("data")),
        "labels": labels_of(item),
        "annotations": {key: value for key, value in annotations_of(item).items() if not key.startswith(PREFIX)},
        "finalizers": [each for each in finalizers_of(item) if each == FINALIZER],
        "owners": sorted(f"{each['kind']}/{each['name']}" for each in references_of(item)),
        "terminating": is_deleting(item),
        "ready": is_ready(item),
    }


def compare(reference: Mapping[str, Any], state: Mapping[str, Any], masks: Iterable[str] = ()) -> list[str]:
    """Return the paths that differ. Paths that match a mask, such as `/ControllerRevision/*`, are left out."""
    masks = tuple(masks)
    paths = differences(dict(reference), dict(state))
    return [path for path in paths if not any(fnmatchcase(path, f"{mask}*") for mask in masks)]
