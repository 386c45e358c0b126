"""Questions about one object. The object is a dict, as the API server stores it.

The judge does not use the controller's code for these questions, so that an error there cannot hide itself.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

Object = dict[str, Any]

SET, POOL, VM, VMI = (
    "VirtualMachineInstanceReplicaSet",
    "VirtualMachinePool",
    "VirtualMachine",
    "VirtualMachineInstance",
)
DATA_VOLUME, PVC, REVISION = "DataVolume", "PersistentVolumeClaim", "ControllerRevision"
BUDGET = "PodDisruptionBudget"
OWNERS: Final = frozenset({SET, POOL})
DISKS: Final = frozenset({DATA_VOLUME, PVC})
CHILD_OF: Final = {SET: VMI, POOL: VM}
"""The kind of the members of each owner."""

FINALIZER: Final = "pool.kubevirt.io/finalizer"
REVISION_LABEL: Final = "kubevirt.io/vm-pool-revision-name"
HASH_LABEL: Final = "vmherd.dev/template-hash"
POOL_UID_LABEL: Final = "vmherd.dev/pool-uid"
PREFIX: Final = "vmherd.dev/"
RETURN_NOTES: Final = ("ready-revision", "rolled-back")
ROLLED_BACK: Final = "vmherd.dev/rolled-back"
ROLLING_UPDATE: Final = "vmherd.dev/rolling-update"
REPLACE_FINISHED: Final = "vmherd.dev/replace-finished"
REPLACE_UNREADY: Final = "vmherd.dev/replace-unready-after-seconds"
PROTECT: Final = "vmherd.dev/protect"
BUSY_UNTIL: Final = "vmherd.dev/busy-until"
DRAIN_SECONDS: Final = "vmherd.dev/drain-seconds"
DRAINING: Final = "vmherd.dev/draining"
DRAINED: Final = "vmherd.dev/drained"
SUBSTITUTE: Final = "vmherd.dev/substitute"
SUBSTITUTE_LOST: Final = "vmherd.dev/substitute-lost-after-seconds"
FAR: Final = "2999-01-01T00:00:00Z"
"""The end of the work of a VM that is busy during a whole test."""

MOST_DISRUPTIVE: Final = "vmherd.dev/most-disruptive-action"
RECREATE: Final = "recreate"
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
ALL: Final = 2**31


def name_of(item: Object) -> str:
    return str(item["metadata"]["name"])


def uid_of(item: Object) -> str:
    return str(item["metadata"]["uid"])


def version_of(item: Object) -> int:
    """Return the resourceVersion, or 0 if the object has none."""
    text = item.get("metadata", {}).get("resourceVersion") or "0"
    return int(text) if text.isdigit() else 0


def labels_of(item: Object) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Object) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def finalizers_of(item: Object) -> list[str]:
    return item["metadata"].get("finalizers") or []


def references_of(item: Object) -> list[Object]:
    return item["metadata"].get("ownerReferences") or []


def controller_of(item: Object) -> Object | None:
    """Return the ownerReference of the controller."""
    return next((each for each in references_of(item) if each.get("controller")), None)


def controller_uid(item: Object) -> str:
    """Return the UID of the owner that controls the object, or ""."""
    reference = controller_of(item)
    return str(reference["uid"]) if reference is not None else ""


def is_deleting(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def status_of(item: Object) -> Object:
    return item.get("status") or {}


def condition(item: Object, type_: str) -> Object | None:
    return next((each for each in status_of(item).get("conditions") or () if each["type"] == type_), None)


def is_true(item: Object, type_: str) -> bool:
    found = condition(item, type_)
    return found is not None and found.get("status") == "True"


def is_ready(item: Object) -> bool:
    return is_true(item, "Ready")


def is_final(vmi: Object) -> bool:
    return status_of(vmi).get("phase") in ("Succeeded", "Failed")


def is_spent(vmi: Object) -> bool:
    """Return True if the VMI has finished or its state is unknown (R3)."""
    ready = condition(vmi, "Ready") or {}
    lost = ready.get("status") == "False" and ready.get("reason") == "PodTerminating"
    return is_final(vmi) or status_of(vmi).get("phase") == "Unknown" or lost


def counts(owner: Object, child: Object) -> bool:
    """Return True if the child counts as a replica of its owner (R3, P7). Terminating VMs of a pool count."""
    return owner["kind"] == POOL or not (is_deleting(child) or is_spent(child))


def wanted(owner: Object) -> int:
    replicas = (owner.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def is_busy(item: Object) -> bool:
    return annotations_of(item).get(BUSY_UNTIL) == FAR


def is_protected(item: Object) -> bool:
    """Return True if vmherd must not delete the VM or VMI. Each value of the annotation but "false" protects."""
    return annotations_of(item).get(PROTECT, "false") != "false"


def is_paused(owner: Object) -> bool:
    return bool((owner.get("spec") or {}).get("paused"))


def template_of(owner: Object) -> Object:
    spec = owner.get("spec") or {}
    return (spec.get("virtualMachineTemplate" if owner["kind"] == POOL else "template")) or {}


def strategy(owner: Object, field: str) -> tuple[str, Object]:
    """Return the name of the strategy in `scaleInStrategy` or `updateStrategy`, and its settings."""
    for name, settings in ((owner.get("spec") or {}).get(field) or {}).items():
        if settings is not None:
            return name, settings
    return "proactive", {}


def preserves(pool: Object) -> bool:
    """Return True if the pool keeps the disks of deleted VMs (P10)."""
    return (strategy(pool, "scaleInStrategy")[1].get("statePreservation") or "Disabled") != "Disabled"


def most_unavailable(owner: Object) -> int:
    """Return the limit for unavailable members (P14, R14), or `ALL` without a limit."""
    if owner["kind"] == POOL:
        return _amount((owner.get("spec") or {}).get("maxUnavailable", "100%"), wanted(owner))
    limits = _rollout_limits(owner)
    if most_surge(owner) and limits.get("maxUnavailable") in ("0", "0%"):
        return 0
    return _amount(limits.get("maxUnavailable"), wanted(owner))


def most_surge(owner: Object) -> int:
    """Return how many members a rolling update of the set may add to the wanted members (R14)."""
    match = re.fullmatch(r"([0-9]+)(%?)", _rollout_limits(owner).get("maxSurge", "0"))
    if owner["kind"] == POOL or match is None:
        return 0
    return math.ceil(wanted(owner) * int(match[1]) / 100) if match[2] else int(match[1])


def most_substitutes(owner: Object) -> int:
    """Return how many substitutes for lost VMs a pool may have (P28)."""
    return most_unavailable(owner) if owner["kind"] == POOL and SUBSTITUTE_LOST in annotations_of(owner) else 0


def _rollout_limits(owner: Object) -> Mapping[str, str]:
    parts = (part.partition("=") for part in annotations_of(owner).get(ROLLING_UPDATE, "").split(","))
    return {name.strip(): value.strip() for name, _, value in parts}


def _amount(value: Any, of: int) -> int:
    match = re.fullmatch(r"([0-9]+)(%?)", str(value))
    if match is None:
        return ALL
    number = int(match[1])
    return max(math.floor(of * number / 100) if match[2] else number, 1)


def selects(owner: Object, labels: Mapping[str, str]) -> bool:
    """Return True if the selector of the owner matches the labels."""
    selector = (owner.get("spec") or {}).get("selector") or {}
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _accepts(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _accepts(requirement: Object, labels: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def ordinal_of(pool: str, vm: str) -> int | None:
    match = re.fullmatch(re.escape(pool) + r"-(0|[1-9][0-9]*)", vm)
    return int(match[1]) if match else None


def should_run(vm: Object) -> bool:
    """Return True if the VM should have a running VMI."""
    spec = vm.get("spec") or {}
    run = spec.get("runStrategy") or ("Always" if spec.get("running") else "Halted")
    return run not in ("Halted", "Manual", "Once", "RerunOnFailure") or bool(status_of(vm).get("ready"))


def disk_names(vm: Object) -> set[str]:
    """Return the names of the DataVolumes and PersistentVolumeClaims that the VM uses."""
    spec = vm.get("spec") or {}
    names = {each.get("metadata", {}).get("name") for each in spec.get("dataVolumeTemplates") or ()}
    for volume in ((spec.get("template") or {}).get("spec") or {}).get("volumes") or ():
        names.add((volume.get("dataVolume") or {}).get("name"))
        names.add((volume.get("persistentVolumeClaim") or {}).get("claimName"))
    return {name for name in names if name}


def size_of(quantity: str) -> int:
    """Return the bytes of a size such as `2Gi`."""
    number, unit = re.fullmatch(r"([0-9]+)([KMGT]?)i?", quantity, re.ASCII).groups()  # type: ignore[union-attr]
    return int(number) * (1024 if quantity.endswith("i") else 1000) ** " KMGT".index(unit or " ")


def seconds(text: str) -> float:
    """Return a timestamp of Kubernetes as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def differences(before: Any, after: Any, path: str = "") -> Iterable[str]:
    """Yield the path of each field that differs. A list is one field."""
    before, after = (
        {} if one is None and isinstance(other, dict) and other else one
        for one, other in ((before, after), (after, before))
    )
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key), after.get(key), f"{path}/{key}")
    elif before != after:
        yield path
