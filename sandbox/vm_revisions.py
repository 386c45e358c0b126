"""This module builds the ControllerRevision that KubeVirt creates at each start of a VM.

All functions of this module are pure. A revision contains the VM's spec at the time of the start. The VM controller
compares this spec with later specs. Some differences take effect only after a restart of the VM.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from controller.apimachinery.owner_references import controller_reference
from informers.meta import ObjectMeta
from informers.resource import Resource
from sandbox.step import Delete, Effect, creation
from sandbox.vms import VMS, SimulatedVM


class SimulatedRevision(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: Raw = Raw(b"{}")


REVISIONS: Final = Resource(
    SimulatedRevision, group="apps", version="v1", plural="controllerrevisions", kind="ControllerRevision"
)


def record_start(vm: SimulatedVM, revisions: Mapping[str, SimulatedRevision]) -> Iterator[Effect]:
    """The effects create the ControllerRevision for the VM's generation and delete the revisions of earlier starts."""
    name = vm.revision_name
    for other in _of_starts(vm, revisions.values()):
        if other.metadata.name != name:
            yield Delete(REVISIONS, other.metadata.name, other.metadata.uid)
    if name not in revisions:
        meta = {"name": name, "ownerReferences": [controller_reference(VMS, vm.metadata)]}
        yield creation(REVISIONS, meta, data={"spec": vm.spec}, revision=vm.generation)


def start_revision(vm: SimulatedVM, revisions: Mapping[str, SimulatedRevision]) -> SimulatedRevision | None:
    return max(_of_starts(vm, revisions.values()), key=lambda each: each.revision, default=None)


def spec_in(revision: SimulatedRevision) -> dict[str, Any]:
    spec: dict[str, Any] = msgspec.json.decode(revision.data).get("spec") or {}
    return spec


def _of_starts(vm: SimulatedVM, revisions: Iterable[SimulatedRevision]) -> Iterator[SimulatedRevision]:
    prefix = f"revision-start-vm-{vm.metadata.uid}-"
    return (revision for revision in revisions if revision.metadata.name.startswith(prefix))
