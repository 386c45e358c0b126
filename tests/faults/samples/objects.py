"""The objects of one namespace as an independent watch shows them, and their comparison with another run."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from controller.kubevirt.annotations import HISTORY, REVISION_NAME, TEMPLATE_HASH
from tests.controlplane.documents import owner_uid
from tests.faults.resources import KIND_OF, REVISIONS, SETS, VMIS

Json: TypeAlias = dict[str, Any]

START = "revision-start-vm-"
"""The ControllerRevisions with this prefix belong to KubeVirt. Their number depends on the restarts of a VM."""

FAR: Final = "2999-01-01T00:00:00Z"
"""The end of the work of a VM that is busy during a whole test."""

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


def labels_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Json) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def references_of(item: Json) -> list[Json]:
    return item["metadata"].get("ownerReferences") or []


def status_of(item: Json) -> Json:
    return item.get("status") or {}


class Objects:
    """The current objects of a namespace, by resource and name."""

    def __init__(self) -> None:
        self.by_resource: dict[str, dict[str, Json]] = {plural: {} for plural in KIND_OF}

    def __getitem__(self, plural: str) -> dict[str, Json]:
        return self.by_resource[plural]

    def alive(self, plural: str) -> dict[str, Json]:
        """The objects without a deletion timestamp."""
        return {name: item for name, item in self[plural].items() if "deletionTimestamp" not in item["metadata"]}

    def owned(self, plural: str, owner: Json) -> dict[str, Json]:
        return {name: item for name, item in self[plural].items() if owner_uid(item) == owner["metadata"]["uid"]}


def end_state(objects: Objects) -> dict[str, list[str]]:
    """The objects without the fields that differ between runs. The random names of a set's VMIs are masked too.

    Each object is a line of JSON, so that a difference is easy to read.

    Revisions of sets that nothing needs are left out. VMIs never wait for the history. So after a fault, a template
    that was wanted for a short time may not be stored.
    """
    needed = {None, *(labels_of(vmi).get(TEMPLATE_HASH) for vmi in objects[VMIS].values())}
    needed |= {status_of(owner).get("updateRevision") for owner in objects[SETS].values()}
    lines = {
        plural: sorted(
            _masked_line(plural, item)
            for name, item in items.items()
            if not name.startswith(START) and (plural != REVISIONS or labels_of(item).get(TEMPLATE_HASH) in needed)
        )
        for plural, items in objects.by_resource.items()
    }
    return {plural: found for plural, found in lines.items() if found}


def differences(reference: Mapping[str, list[str]], found: Mapping[str, list[str]]) -> Iterator[str]:
    """The lines that only one of two end states has. Lines of the reference begin with "-", other lines with "+"."""
    for plural in sorted({*reference, *found}):
        wanted, have = Counter(reference.get(plural, ())), Counter(found.get(plural, ()))
        for sign, lines, others in (("-", wanted - have, have - wanted), ("+", have - wanted, wanted - have)):
            known = {leaf for other in others for leaf in _leaves(json.loads(other))}
            for line in lines.elements():
                only = sorted(set(_leaves(json.loads(line))) - known)
                yield f"{sign} {plural} " + (" ".join(only) if only and known else line)


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
    if plural == VMIS and REVISION_NAME not in labels_of(item):
        masked["metadata"]["name"] = MASK
    if plural == REVISIONS and labels_of(item).get(TEMPLATE_HASH):
        # The number is the generation of the set at the write, and a retry can come after another change of the set.
        masked["revision"] = MASK
    text = json.dumps(masked, sort_keys=True)
    return NAMESPACE.sub("<namespace>", UUID.sub("<uid>", text))


def _masked(value: Any) -> Any:
    match value:
        case dict():
            notes = {key: inner for key, inner in value.items() if key != HISTORY and not _is_history(inner)}
            return {key: MASK if MASKED.fullmatch(key) else _masked(inner) for key, inner in notes.items()}
        case list():
            return [_masked(inner) for inner in value]
        case _:
            return value


def _is_history(value: Any) -> bool:
    """True for annotations with nothing but the history, which has the times of a run."""
    return isinstance(value, dict) and value.keys() == {HISTORY}
