"""This module builds the ControllerRevision that KubeVirt creates at each start of a VM.

All functions of this module are pure. A revision contains the VM's spec at the time of the start. The VM controller
compares this spec with later specs. Some differences take effect only after a restart of the VM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from informers.meta import ObjectMeta, OwnerReference
from informers.resource import Resource
from sandbox.ownership import controlled_by
from sandbox.step import Create, Delete, Effect
from sandbox.vms import VMS, SimulatedVM, revision_name


class _Data(Struct, frozen=True):
    spec: Raw = Raw(b"{}")


class SimulatedRevision(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: Raw = Raw(b"{}")


REVISIONS: Final = Resource(
    SimulatedRevision, group="apps", version="v1", plural="controllerrevisions", kind="ControllerRevision"
)


class _NewMeta(Struct, frozen=True, rename="camel"):
    name: str
    owner_references: tuple[OwnerReference, ...]


class _New(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    metadata: _NewMeta
    data: _Data
    revision: int


_encode: Final = msgspec.json.Encoder().encode
_decode_data: Final = msgspec.json.Decoder(_Data).decode


def record_start(vm: SimulatedVM, revisions: Mapping[str, SimulatedRevision]) -> Iterator[Effect]:
    """Yield the effects that record a start of the VM.

    The effects create the ControllerRevision for the VM's generation and delete the revisions of earlier starts.
    """
    name = revision_name(vm)
    for other in _of_starts(vm, revisions.values()):
        if other.metadata.name != name:
            yield Delete(REVISIONS, other.metadata.name, other.metadata.uid)
    if name not in revisions:
        meta = _NewMeta(name, (controlled_by(VMS, vm.metadata),))
        yield Create(
            REVISIONS,
            _encode(_New(REVISIONS.api_version, REVISIONS.kind, meta, _Data(vm.spec), vm.metadata.generation or 0)),
        )


def start_revision(vm: SimulatedVM, revisions: Mapping[str, SimulatedRevision]) -> SimulatedRevision | None:
    """Return the revision of the VM's last start, or None if no start is recorded."""
    return max(_of_starts(vm, revisions.values()), key=lambda each: each.revision, default=None)


def spec_in(revision: SimulatedRevision) -> dict[str, Any]:
    spec: dict[str, Any] = msgspec.json.decode(_decode_data(revision.data).spec)
    return spec


def _of_starts(vm: SimulatedVM, revisions: Iterable[SimulatedRevision]) -> Iterator[SimulatedRevision]:
    prefix = f"revision-start-vm-{vm.metadata.uid}-"
    return (revision for revision in revisions if revision.metadata.name.startswith(prefix))
