"""The objects of one namespace as an independent watch shows them, and their comparison with another run."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tests.faults.judge import states
from tests.faults.judge.states import HASH_LABEL, REVISION_LABEL, VM
from tests.faults.resources import CLAIMS, KIND_OF, REVISIONS, SETS, VMIS, VOLUMES

Json: TypeAlias = dict[str, Any]

START = "revision-start-vm-"
"""The ControllerRevisions with this prefix belong to KubeVirt. Their number depends on the restarts of a VM."""

MASK = "*"
MASKED = re.compile(
    r"uid|resourceVersion|namespace|managedFields|activePods|interfaces|ipAddress(es)?|stateChangeRequests"
    r"|generation|(desired|observed)Generation|kubevirt\.io/vm-generation|(kubevirt\.io/)?nodeName"
    r"|(vm|virtualMachine)RevisionName|last(Transition|Probe)Time|(creation|deletion)Timestamp"
    r"|phaseTransitionTimestamps?|vmherd\.dev/(adopted-template|healed|recreated|pool-uid|unready|early-failures)"
)
"""The fields that differ between two runs of the same scenario, such as UIDs, times and node names."""

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NAMESPACE = re.compile(r"\bf-[0-9a-f]{10}\b")


class Objects:
    """The current objects of a namespace, by resource and name."""

    def __init__(self) -> None:
        self.by_resource: dict[str, dict[str, Json]] = {plural: {} for plural in KIND_OF}

    def __getitem__(self, plural: str) -> dict[str, Json]:
        return self.by_resource[plural]

    def alive(self, plural: str) -> dict[str, Json]:
        """The objects without a deletion timestamp."""
        return {name: item for name, item in self[plural].items() if not states.is_deleting(item)}

    def owned(self, plural: str, owner: Json) -> dict[str, Json]:
        return {
            name: item for name, item in self[plural].items() if states.controller_uid(item) == states.uid_of(owner)
        }

    def counts(self) -> dict[str, int]:
        return {plural: len(items) for plural, items in self.by_resource.items() if items}


def end_state(objects: Objects) -> dict[str, list[str]]:
    """The objects without the fields that differ between runs. The random names of a set's VMIs are masked too.

    Each object is a line of JSON, so that a difference is easy to read.

    Revisions of sets that nothing needs are left out. VMIs never wait for the history. So after a fault, a template
    that was wanted for a short time may not be stored.
    """
    needed = {None, *(states.labels_of(vmi).get(HASH_LABEL) for vmi in objects[VMIS].values())}
    needed |= {states.status_of(owner).get("updateRevision") for owner in objects[SETS].values()}
    lines = {
        plural: sorted(
            _masked_line(plural, item)
            for name, item in items.items()
            if not name.startswith(START) and (plural != REVISIONS or states.labels_of(item).get(HASH_LABEL) in needed)
        )
        for plural, items in objects.by_resource.items()
    }
    return {plural: found for plural, found in lines.items() if found}


def differences(reference: Mapping[str, list[str]], found: Mapping[str, list[str]]) -> Iterator[str]:
    """The lines that only one of two end states has. Lines of the reference begin with "-", other lines with "+"."""
    for plural in sorted({*reference, *found}):
        wanted, have = Counter(reference.get(plural, ())), Counter(found.get(plural, ()))
        yield from _in_short(f"- {plural} ", wanted - have, have - wanted)
        yield from _in_short(f"+ {plural} ", have - wanted, wanted - have)


def without_left_over_disks(reference: Mapping[str, list[str]], found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return an end state without the disks that have no VM and that the reference does not have."""
    kept = {}
    for plural, lines in found.items():
        known = reference.get(plural, ())
        kept[plural] = [line for line in lines if plural not in (VOLUMES, CLAIMS) or line in known or _has_vm(line)]
    return {plural: lines for plural, lines in kept.items() if lines}


def _has_vm(line: str) -> bool:
    return any(owner["kind"] == VM for owner in states.references_of(json.loads(line)))


def _in_short(prefix: str, lines: Counter[str], others: Counter[str]) -> Iterator[str]:
    for line in lines.elements():
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
    masked = _masked(item)
    if plural == VMIS and REVISION_LABEL not in states.labels_of(item):
        masked["metadata"]["name"] = MASK
    if plural == REVISIONS and states.labels_of(item).get(HASH_LABEL):
        # The number is the generation of the set at the write, and a retry can come after another change of the set.
        masked["revision"] = MASK
    text = json.dumps(masked, sort_keys=True)
    return NAMESPACE.sub("<namespace>", UUID.sub("<uid>", text))


def _masked(value: Any) -> Any:
    match value:
        case dict():
            return {key: MASK if MASKED.fullmatch(key) else _masked(inner) for key, inner in value.items()}
        case list():
            return [_masked(inner) for inner in value]
        case _:
            return value
