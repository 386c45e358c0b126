"""The objects of one namespace as an independent watch shows them, and their comparison with another run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

SETS = "virtualmachineinstancereplicasets"
POOLS = "virtualmachinepools"
VMS = "virtualmachines"
VMIS = "virtualmachineinstances"
REVISIONS = "controllerrevisions"
VOLUMES = "datavolumes"
CLAIMS = "persistentvolumeclaims"

API_OF: Mapping[str, str] = {
    SETS: "/apis/kubevirt.io/v1",
    POOLS: "/apis/pool.kubevirt.io/v1beta1",
    VMS: "/apis/kubevirt.io/v1",
    VMIS: "/apis/kubevirt.io/v1",
    REVISIONS: "/apis/apps/v1",
    VOLUMES: "/apis/cdi.kubevirt.io/v1beta1",
    CLAIMS: "/api/v1",
}
"""The path of the API group of each resource that a scenario uses."""

TEMPLATE_HASH = "vmherd.dev/template-hash"
POOL_REVISION = "kubevirt.io/vm-pool-revision-name"
START = "revision-start-vm-"
"""The ControllerRevisions with this prefix belong to KubeVirt. Their number depends on the restarts of a VM."""

MASK = "*"
MASKED = frozenset(
    [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "managedFields",
        "lastTransitionTime",
        "lastProbeTime",
        "phaseTransitionTimestamp",
        "phaseTransitionTimestamps",
        "vmherd.dev/adopted-template",
        "vmherd.dev/healed",
        "vmherd.dev/recreated",
        "vmherd.dev/pool-uid",
        "vmherd.dev/unready",
        "vmherd.dev/early-failures",
        "nodeName",
        "kubevirt.io/nodeName",
        "generation",
        "desiredGeneration",
        "observedGeneration",
        "stateChangeRequests",
        "vmRevisionName",
        "virtualMachineRevisionName",
        "namespace",
        "ipAddress",
        "ipAddresses",
        "interfaces",
        "activePods",
        "kubevirt.io/vm-generation",
    ]
)
"""The fields that differ between two runs of the same scenario, such as UIDs, times and node names."""

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NAMESPACE = re.compile(r"\bf-[0-9a-f]{10}\b")


class Objects:
    """The current objects of a namespace, by resource and name."""

    def __init__(self) -> None:
        self.by_resource: dict[str, dict[str, Json]] = {plural: {} for plural in API_OF}

    def __getitem__(self, plural: str) -> dict[str, Json]:
        return self.by_resource[plural]

    def alive(self, plural: str) -> dict[str, Json]:
        """The objects without a deletion timestamp."""
        return {name: item for name, item in self[plural].items() if "deletionTimestamp" not in item["metadata"]}

    def owned(self, plural: str, owner: Json) -> dict[str, Json]:
        uid = owner["metadata"]["uid"]
        return {name: item for name, item in self[plural].items() if controller_uid(item) == uid}

    def counts(self) -> dict[str, int]:
        return {plural: len(items) for plural, items in self.by_resource.items() if items}


def controller_uid(item: Json) -> str:
    """The UID of the object's controller; "" without one."""
    references = item["metadata"].get("ownerReferences") or ()
    return next((reference["uid"] for reference in references if reference.get("controller")), "")


def status_of(item: Json) -> Json:
    return item.get("status") or {}


def is_ready(item: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status_of(item).get("conditions") or ())


def has_condition(item: Json, type_: str) -> bool:
    return any(each["type"] == type_ for each in status_of(item).get("conditions") or ())


def end_state(objects: Objects) -> dict[str, list[str]]:
    """The objects without the fields that differ between runs. The random names of a set's VMIs are masked too.

    Each object is a line of JSON, so that a difference is easy to read.

    Revisions of sets that nothing needs are left out. VMIs never wait for the history. So after a fault, a template
    that was wanted for a short time may not be stored.
    """
    needed = {None, *(_hash_of(vmi) for vmi in objects[VMIS].values())}
    needed |= {status_of(owner).get("updateRevision") for owner in objects[SETS].values()}
    lines = {
        plural: sorted(
            _masked_line(plural, item)
            for name, item in items.items()
            if not name.startswith(START) and (plural != REVISIONS or _hash_of(item) in needed)
        )
        for plural, items in objects.by_resource.items()
    }
    return {plural: found for plural, found in lines.items() if found}


def _hash_of(item: Json) -> str | None:
    return (item["metadata"].get("labels") or {}).get(TEMPLATE_HASH)


def differences(reference: Mapping[str, list[str]], found: Mapping[str, list[str]]) -> list[str]:
    """The lines that only one of two end states has. Lines of the reference begin with "-", other lines with "+"."""
    return list(_differences(reference, found))


def without_left_over_disks(reference: Mapping[str, list[str]], found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return an end state without the disks that have no VM and that the reference does not have."""
    kept = {}
    for plural, lines in found.items():
        known = reference.get(plural, ())
        kept[plural] = [line for line in lines if plural not in (VOLUMES, CLAIMS) or line in known or _has_vm(line)]
    return {plural: lines for plural, lines in kept.items() if lines}


def _has_vm(line: str) -> bool:
    owners = json.loads(line)["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] == "VirtualMachine" for owner in owners)


def _differences(reference: Mapping[str, list[str]], found: Mapping[str, list[str]]) -> Iterator[str]:
    for plural in sorted({*reference, *found}):
        wanted, have = list(reference.get(plural, ())), list(found.get(plural, ()))
        for line in list(wanted):
            if line in have:
                wanted.remove(line)
                have.remove(line)
        yield from _in_short(f"- {plural} ", wanted, have)
        yield from _in_short(f"+ {plural} ", have, wanted)


def _in_short(prefix: str, lines: Iterable[str], others: Iterable[str]) -> Iterator[str]:
    for line in lines:
        fields = set(_leaves(json.loads(line)))
        known = {leaf for other in others for leaf in _leaves(json.loads(other))}
        only = sorted(fields - known)
        yield prefix + (" ".join(only) if only and known else line)


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _leaves(inner, f"{path}.{key}")
        case list():
            for number, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{number}]")
        case _:
            yield f"{path}={value}"


def _masked_line(plural: str, item: Json) -> str:
    # The items of a list have no kind.
    masked = {key: value for key, value in _masked(item).items() if key not in ("apiVersion", "kind")}
    metadata = masked["metadata"]
    if plural == VMIS and POOL_REVISION not in (metadata.get("labels") or {}):
        metadata["name"] = MASK
    if plural == REVISIONS and _hash_of(item):
        # The number is the generation of the set at the write, and a retry can come after another change of the set.
        masked["revision"] = MASK
    text = json.dumps(masked, sort_keys=True)
    return NAMESPACE.sub("<namespace>", UUID.sub("<uid>", text))


def _masked(value: Any) -> Any:
    match value:
        case dict():
            return {key: MASK if key in MASKED else _masked(inner) for key, inner in value.items()}
        case list():
            return [_masked(inner) for inner in value]
        case _:
            return value
