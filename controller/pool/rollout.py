"""How far an update may go at once: who is available, how many more may be missed, which ordinals stay behind (P14).

A member is unavailable when it is meant to run and its VMI is not ready, not ready for long enough, or on its way out.
A VM that its user stopped is not unavailable. Deleted and restarted VMs are unavailable from the moment the cache shows
it, and nothing more happens before it does (R9), so nothing is counted twice and nothing is missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from controller.apimachinery.field_error import quoted
from controller.kubevirt import vmis
from controller.kubevirt.annotations import MIN_READY, PARTITION, PARTITION_REVISION, parse_integer
from controller.kubevirt.pool_types import Pool, UpdateStrategy
from controller.kubevirt.progress import invalid_annotation
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting, is_meant_to_run, revision_of
from controller.pool.revisions import Revisions
from controller.pool.snapshot import Snapshot
from controller.pool.template import Template
from controller.runtime.plan import Notice, Patch, Plan, Stage
from informers.meta import annotations_of
from informers.objects import PatchType

EVERYTHING: Final = 2**31


class Setting(Struct, frozen=True):
    """A number from an annotation, and what to tell the user of it."""

    number: int
    notices: tuple[Notice, ...] = ()


class Availability(Struct, frozen=True):
    """How many members are missed now, and when one that is ready will have been so for long enough."""

    unavailable: int
    next_at: datetime | None = None


def rolls_out(owner: Pool) -> bool:
    """True if the pool updates all its outdated VMs unasked: proactive, without selectors or a partition."""
    strategy = owner.spec.update_strategy or UpdateStrategy()
    if PARTITION in annotations_of(owner.metadata) or strategy.opportunistic or strategy.unmanaged:
        return False
    policy = strategy.proactive.selection_policy if strategy.proactive is not None else None
    return policy is None or policy.selectors is None


def partition_of(snapshot: Snapshot) -> Setting:
    """The ordinals below this keep their revision. While nobody can tell which, all do."""
    return _setting(snapshot, PARTITION, otherwise=EVERYTHING, meaning="nothing is rolled out")


def min_ready_of(snapshot: Snapshot) -> Setting:
    """For how many seconds a VMI has to be ready to count."""
    return _setting(snapshot, MIN_READY, otherwise=0, meaning="it counts as 0")


def template_for(snapshot: Snapshot, revisions: Revisions, ordinal: int, partition: int) -> tuple[str, Template]:
    """The revision that the VM of this ordinal is made from: below the partition, that of the VMs there."""
    if ordinal < partition:
        owner = snapshot.owner
        noted = annotations_of(owner.metadata).get(PARTITION_REVISION)
        reported = owner.status.current_revision if owner.status is not None else None
        name = _revision_below(snapshot, revisions, partition) or noted or reported or ""
        past = revisions.templates.get(name)
        if past is not None and not revisions.is_current(name):
            return name, past
    return revisions.current, revisions.template


def plan_partition_note(snapshot: Snapshot, revisions: Revisions) -> Plan:
    """Note on the pool which revision the VMs below the partition are on.

    The VMs themselves show it, until the last of them is deleted. Its successor is made from the noted revision.
    """
    meta, partition = snapshot.owner.metadata, partition_of(snapshot)
    name = "" if partition.notices else _revision_below(snapshot, revisions, partition.number)
    if name in ("", annotations_of(meta).get(PARTITION_REVISION)):
        return Plan()
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, "annotations": {PARTITION_REVISION: name}}})
    why = "the revision below the partition"
    note = Patch(resource=snapshot.pools, key=meta.key, body=body, type=PatchType.MERGE, why=why, is_note=True)
    return Plan(stages=(Stage((note,)),))


def _revision_below(snapshot: Snapshot, revisions: Revisions, partition: int) -> str:
    """The oldest revision of the VMs below the partition; "" if there are none whose template is known."""
    if not partition:
        return ""
    numbers = {revision.metadata.name: revision.revision for revision in snapshot.revisions}
    names = {
        revision_of(vm)
        for vm in snapshot.members
        if (ordinal := snapshot.ordinal_of(vm)) is not None and ordinal < partition
    }
    return min(names & revisions.templates.keys() & numbers.keys(), key=lambda name: (numbers[name], name), default="")


def count_unavailable(snapshot: Snapshot, members: Iterable[VirtualMachine], min_ready_s: int) -> Availability:
    """How many of the members that should run are not available."""
    unavailable, due = 0, []
    for vm in members:
        if not is_meant_to_run(vm):
            continue
        since = _ready_since(snapshot, vm)
        if since is not None:
            since = min(since, snapshot.now)  # a node's clock may be ahead of ours
        if since is not None and since + timedelta(seconds=min_ready_s) <= snapshot.now:
            continue
        unavailable += 1
        if since is not None:
            due.append(since + timedelta(seconds=min_ready_s))
    return Availability(unavailable, min(due, default=None))


def _ready_since(snapshot: Snapshot, vm: VirtualMachine) -> datetime | None:
    """Since when it serves; None where it does not, or is about to stop."""
    vmi = snapshot.vmi_of(vm)
    if vmi is None or is_deleting(vm) or not vmis.is_active(vmi):
        return None
    # Ready without a date: for as long as anybody can tell.
    return vmis.ready_since(vmi) or (snapshot.now - timedelta(seconds=EVERYTHING) if vmis.is_ready(vmi) else None)


def _setting(snapshot: Snapshot, annotation: str, *, otherwise: int, meaning: str) -> Setting:
    meta = snapshot.owner.metadata
    text = annotations_of(meta).get(annotation)
    if text is None:
        return Setting(0)
    number = parse_integer(text)
    if number is not None and number >= 0:
        return Setting(number)
    message = f"annotation {annotation} is {quoted(text)}: it must be a number from 0, so {meaning}"
    return Setting(otherwise, (invalid_annotation(annotation, meta, message),))
