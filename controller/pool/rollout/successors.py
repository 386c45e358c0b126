"""VMs that an update or healing has deleted, and the VMs that take their place (P20).

A deleted VM without a successor counts as unavailable. The caches cannot show it, and a restarted controller does not
remember it. So the controller writes the ordinals to the pool's annotation `vmherd.dev/recreated` before an update
deletes the VMs. Healing writes its own records.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import (
    HEALED,
    IN_SERVICE,
    POOL_FINALIZER,
    RECREATED,
    STANDBY_STATE,
    SUBSTITUTE,
    is_marked,
)
from controller.kubevirt.standby import Standby, has_standby_mark, note_of
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.members.machine import Machine
from controller.pool.members.notes import MAX_ENTRIES, Record, encode_note, read_note
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.partition_steps import template_below
from controller.pool.spec.indexing import encode_vm
from controller.pool.spec.naming import name_of
from controller.pool.spec.template import Template
from controller.runtime.actions import Stage
from informers.meta import NO_LABELS

SUBSTITUTED: Final[Mapping[str, str]] = {SUBSTITUTE: "true"}
STANDING: Final[Mapping[str, str]] = {STANDBY_STATE: Standby.PREPARING}
"""The marks of a new substitute, and of a new standby, which also gets its name (`note_of`)."""


class Recreation(Struct, frozen=True, array_like=True):
    """The UID of the VM that an update has deleted."""

    uid: str


def count_missing(situation: Situation) -> int:
    """Return the number of wanted VMs that do not exist because the controller has deleted their predecessors."""
    short = situation.target.wanted - len(situation.members)
    if short <= 0:
        return 0
    meta = situation.pool
    deleted = read_note(meta, RECREATED, Recreation).keys() | read_note(meta, HEALED, Record).keys()
    present = {situation.snapshot.ordinal_of(each) for each in situation.members} if deleted else set()
    return min(len(deleted - present), short)


def note_recreations(snapshot: Snapshot, machines: Iterable[Machine]) -> tuple[Stage, ...]:
    """Return a stage that notes the VMs before they are deleted. Notes of ordinals with a new VM are removed."""
    noted = read_note(snapshot.owner.metadata, RECREATED, Recreation)
    present = {snapshot.ordinal_of(each): each.metadata.uid for each in snapshot.members}
    entries = {ordinal: each for ordinal, each in noted.items() if present.get(ordinal, each.uid) == each.uid}
    ordinals = ((snapshot.ordinal_of(each), each.metadata.uid) for each in machines)
    entries |= {ordinal: Recreation(uid) for ordinal, uid in ordinals if ordinal is not None}
    newest = {ordinal: entries[ordinal] for ordinal in list(entries)[-MAX_ENTRIES:]}
    if newest == noted:
        return ()
    return snapshot.note({RECREATED: encode_note(newest)}, "notes the VMs that it recreates", essential=True).stages


def body_of(
    situation: Situation, ordinal: int, revision: str, template: Template, marks: Mapping[str, str] = NO_LABELS
) -> bytes:
    """Return the request body that creates the VM of this ordinal with a template and the name of its revision.

    `marks` are annotations: a substitute for a lost VM has one (P28), and so has a standby. A standby is out of service
    (P32).
    """
    # If the pool keeps no disks, nothing has to be done after a VM's deletion. One DELETE then removes the VM.
    finalizers = {"finalizers": (POOL_FINALIZER,)} if situation.intent.scale_in.preserve else {}
    owner = controller_reference(situation.snapshot.pools, situation.pool)
    if STANDBY_STATE in marks:
        marks = note_of(marks[STANDBY_STATE], name_of(situation.pool.name, ordinal))
    annotations = {"annotations": {**(template.annotations or {}), **marks}} if marks else {}
    ownership = {"ownerReferences": (owner,), **finalizers, **annotations}
    labels = {IN_SERVICE: "false"} if STANDBY_STATE in marks and IN_SERVICE in template.machine_labels else NO_LABELS
    return encode_vm(template, ordinal, revision, situation.pool, ownership, machine_labels=labels)


def template_for(situation: Situation, ordinal: int) -> tuple[str, Template]:
    """Return the revision and the template that a new VM of this ordinal gets."""
    if ordinal < situation.target.partition:
        return template_below(situation)
    return situation.revisions.current, situation.revisions.template


def successor_of(situation: Situation, vm: VirtualMachine) -> bytes:
    """Return the body of the VM that takes the place of this VM, which must have an ordinal. The successor of a
    substitute is one. Otherwise, a lost VM that is back could leave in its place (P28). That of a standby is a standby.
    """
    ordinal, marks = situation.snapshot.ordinal_of(vm) or 0, SUBSTITUTED if is_marked(vm.metadata, SUBSTITUTE) else {}
    marks = STANDING if has_standby_mark(vm.metadata) else marks
    return body_of(situation, ordinal, *template_for(situation, ordinal), marks)
