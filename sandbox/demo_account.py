"""What the objects of a moment amount to: who is ready, who is updated, how many are missed. Pure, on JSON objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

REVISION = "kubevirt.io/vm-pool-revision-name"
"""On a pool's VM and on its VMI: the name of the revision that it was made from."""

Object: TypeAlias = Mapping[str, Any]


def name_of(subject: Object) -> str:
    return str(subject["metadata"]["name"])


def uid_of(subject: Object) -> str:
    return str(subject["metadata"]["uid"])


def status_of(subject: Object) -> Mapping[str, Any]:
    return subject.get("status") or {}


def is_leaving(subject: Object) -> bool:
    return "deletionTimestamp" in subject["metadata"]


def is_ready(subject: Object) -> bool:
    """Ready, and to stay."""
    conditions = status_of(subject).get("conditions") or ()
    return not is_leaving(subject) and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def revision_of(subject: Object) -> str:
    return str((subject["metadata"].get("labels") or {}).get(REVISION, ""))


def controller_of(subject: Object) -> Object | None:
    """The ownerReference of whoever it belongs to; None for what is nobody's."""
    references = subject["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def owned_by(owner: Object, candidates: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    uid = uid_of(owner)
    return tuple(each for each in candidates if (controller_of(each) or {}).get("uid") == uid)


def is_at_rest(owner: Object) -> bool:
    """Whether a set or a pool has seen its spec, and has as many as that asks for, all ready and all updated."""
    status = status_of(owner)
    counts = {status.get(count, 0) for count in ("replicas", "readyReplicas", "updatedReplicas")}
    seen = status.get("observedGeneration", 0) >= owner["metadata"]["generation"]
    return bool(seen and counts == {owner["spec"].get("replicas", 1)})


class Progress(Struct, frozen=True):
    """How many VMIs are ready, and how many of them were made from the newest revision."""

    updated: int
    ready: int


class Course(Struct, frozen=True):
    """VMIs by name, as they are after some of the changes that a watch tells of."""

    vmis: Mapping[str, Object]

    @classmethod
    def beginning(cls, vmis: Iterable[Object]) -> Course:
        return cls({name_of(vmi): vmi for vmi in vmis})

    def after(self, event: Object) -> Course:
        """One change later."""
        vmi = event["object"]
        others = {name: other for name, other in self.vmis.items() if name != name_of(vmi)}
        return Course(others if event["type"] == "DELETED" else {**others, name_of(vmi): vmi})

    def progress(self, outdated: str) -> Progress:
        """Where an update is that began from this revision."""
        ready = [vmi for vmi in self.vmis.values() if is_ready(vmi)]
        return Progress(updated=sum(revision_of(vmi) != outdated for vmi in ready), ready=len(ready))
