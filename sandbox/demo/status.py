"""This module reads names, readiness and revisions from the JSON objects that the demo shows.

All functions of this module are pure.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

REVISION = "kubevirt.io/vm-pool-revision-name"
"""The label on a pool's VMs and VMIs. Its value is the name of their revision."""

Object: TypeAlias = Mapping[str, Any]


def name_of(subject: Object) -> str:
    return str(subject["metadata"]["name"])


def uid_of(subject: Object) -> str:
    return str(subject["metadata"]["uid"])


def status_of(subject: Object) -> Mapping[str, Any]:
    return subject.get("status") or {}


def is_terminating(subject: Object) -> bool:
    return "deletionTimestamp" in subject["metadata"]


def is_ready(subject: Object) -> bool:
    """Return True if the object is ready and is not being deleted."""
    conditions = status_of(subject).get("conditions") or ()
    return not is_terminating(subject) and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def revision_of(subject: Object) -> str:
    return str((subject["metadata"].get("labels") or {}).get(REVISION, ""))


def number_of_revision(name: str) -> int:
    """Return the number in the name of a revision, `<pool>-<number>`, or 0."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def place_of(vm: Object) -> tuple[str, int]:
    """Return the sort key of a VM. The key sorts by number: pool-10 is after pool-9."""
    stem, _, ordinal = name_of(vm).rpartition("-")
    return (stem, int(ordinal)) if ordinal.isdecimal() else (name_of(vm), 0)


def controller_of(subject: Object) -> Object | None:
    """Return the object's ownerReference with `controller: true`, or None if the object has no controller."""
    references = subject["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)
