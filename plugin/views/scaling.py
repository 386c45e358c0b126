"""What a new number of replicas would change: the VMs that leave or come, and what happens to disks.

The plans of the controller say who leaves. Their input is a snapshot with the new number of replicas, and then the same
snapshot without the VMs that have left, until no VM leaves.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kubevirt import vmis, vms
from controller.kubevirt.annotations import DRAIN_SECONDS, POOL_FINALIZER, PROTECT, REMOVE, is_marked, is_protected
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.standby import WOKEN, has_standby_mark, mark_in
from controller.kubevirt.vms import disk_names_of, has_finished
from controller.pool.healing.heal import plan_replacements
from controller.pool.leaving.claims import lacking_finalizer
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation, situation_of
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.spec.policies import Strategy, keeps_disks
from controller.pool.standby import to_wake
from controller.replicas.settings import deletion_cost, read_settings
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.runtime.actions import Cause, Create, Delete, Patch, Plan
from controller.runtime.members.groups import by_name, one_by_one
from controller.runtime.waits import Why
from informers.meta import ObjectMeta, annotations_of

LISTED = 10


class Leaving(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A VM that leaves, with the reason why it is among the first, or a VM that stays, with the reason."""

    name: str
    why: str = ""


class ScalePreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """`staying` are the VMs that are protected, and those that would leave if nothing stopped them. `waking` are the
    standbys that take the place of missing VMs, and `resting` the VMs that become standbys (P32). `waiting` are the VMs
    that are not created yet, because of a disk. `held` says why the controller does not scale now. `drain` says how
    long the VMs that run may stay.
    """

    leaving: tuple[Leaving, ...] = ()
    staying: tuple[Leaving, ...] = ()
    waking: tuple[str, ...] = ()
    resting: tuple[str, ...] = ()
    creating: tuple[str, ...] = ()
    waiting: tuple[Leaving, ...] = ()
    disks: str = ""
    drain: str = ""
    held: str = ""


def preview(snapshot: PoolSnapshot | SetSnapshot) -> ScalePreview:
    plan_of: Any = plan_pool if isinstance(snapshot, PoolSnapshot) else plan_set
    left: Any = _without_delay(snapshot)
    first = plan = plan_of(left)
    gone: dict[str, Any] = {}
    leaving: list[Leaving] = []
    held = plan
    while causes := _leavers(left, plan):
        gone |= {each.metadata.uid: each for each in left.members if each.metadata.uid in causes}
        leaving += [Leaving(name=gone[uid].metadata.name, why=why or _why(gone[uid])) for uid, why in causes.items()]
        held, left = plan, replace(left, members=left.members.without(causes))
        plan = plan_of(left)
    wanted = 1 if snapshot.owner.spec.replicas is None else snapshot.owner.spec.replicas
    situation = situation_of(snapshot) if isinstance(snapshot, PoolSnapshot) else None
    return ScalePreview(
        leaving=tuple(leaving),
        staying=tuple(_staying(left, held)) if gone or len(left.members) > wanted else (),
        creating=tuple(each.key.name for each in creates_in(first)),
        disks=_disks(snapshot, gone.values()) if isinstance(snapshot, PoolSnapshot) else "",
        drain=_drain(snapshot.owner.metadata) if gone else "",
        held=held.held,
        **(_standbys(situation, first) if isinstance(situation, Situation) else {}),
    )


def _standbys(situation: Situation, plan: Plan) -> dict[str, Any]:
    """Return the standbys that take the place of missing VMs, in their order, and the VMs that become standbys."""
    missing = situation.target.wanted - len(situation.members)
    known = {each.metadata.name for each in situation.standby}
    marks = {each.key.name: mark_in(each.body) for each in plan.actions if isinstance(each, Patch)}
    resting = (name for name, mark in marks.items() if mark and not mark.startswith(WOKEN) and name not in known)
    return {"waking": tuple(each.metadata.name for each in to_wake(situation, missing)), "resting": tuple(resting)}


def with_replicas(snapshot: Any, replicas: int) -> Any:
    return with_owner(snapshot, replace(snapshot.owner, spec=replace(snapshot.owner.spec, replicas=replicas)))


def preview_lines(given: ScalePreview) -> list[str]:
    texts = {
        "would leave: ": _texts(given.leaving),
        "would stay:  ": _texts(given.staying),
        "would wake:  ": _listed(given.waking),
        "would rest:  ": _listed(given.resting),
        "would create:": _listed(given.creating),
        "would wait:  ": _texts(given.waiting),
        "disks:": given.disks,
        "drain:": given.drain,
        "held:": given.held,
    }
    return [f"{label} {text}" for label, text in texts.items() if text]


def with_owner(snapshot: Any, owner: Any) -> Any:
    """Return the snapshot with the new object. A write of another spec increases the generation."""
    before, meta = snapshot.owner, owner.metadata
    if owner.spec != before.spec and meta.generation == before.metadata.generation:
        owner = replace(owner, metadata=replace(meta, generation=(meta.generation or 0) + 1))
    return replace(snapshot, owner=owner)


def _drain(owner: ObjectMeta) -> str:
    time = read_settings(owner).drain
    return f"VMs that run leave when they have drained, after at most {time.total_seconds():.0f} s" if time else ""


def _without_delay(snapshot: Any) -> Any:
    """Return the snapshot with VMs that leave at once: they need not drain, and have the finalizer that keeps disks."""
    meta = snapshot.owner.metadata
    annotations = {name: text for name, text in annotations_of(meta).items() if name != DRAIN_SECONDS}
    snapshot = replace(snapshot, owner=replace(snapshot.owner, metadata=replace(meta, annotations=annotations)))
    if isinstance(snapshot, PoolSnapshot) and any(lacking_finalizer(snapshot, snapshot.members)):
        return replace(snapshot, members=one_by_one(map(_with_finalizer, snapshot.members)))
    return snapshot


def _with_finalizer(machine: Machine) -> Machine:
    meta = replace(machine.metadata, finalizers=(*(machine.metadata.finalizers or ()), POOL_FINALIZER))
    return replace(machine, vm=replace(machine.vm, metadata=meta))


def _leavers(snapshot: Any, plan: Plan) -> dict[str, str]:
    """Return the UIDs of the members that leave for good, in order, each with the cause or "" (P15: one that fails)."""
    chosen = [each.uid for each in plan.actions if isinstance(each, Delete) and each.cause is Cause.UNSPECIFIED]
    if isinstance(snapshot, SetSnapshot):
        active = {each.metadata.uid for each in snapshot.members if vmis.is_active(each)}
        return {uid: "" for uid in chosen if uid in active}
    machines, pool = {each.metadata.uid: each for each in snapshot.members}, situation_of(snapshot)
    left = {uid: each for uid in chosen if (each := machines.get(uid)) is not None}
    causes = {uid: "finished" if has_finished(each.vm, each.vmi) else "" for uid, each in left.items()}
    owner = snapshot.owner
    is_idle = owner.spec.paused or owner.metadata.deletion_timestamp is not None
    if isinstance(pool, FieldError) or is_idle or pool.target.stranded or pool.surplus <= len(causes):
        return causes
    doomed = plan_replacements(pool).uids - causes.keys()
    failing = [uid for each in by_name(pool.members) if (uid := each.metadata.uid) in doomed]
    return {**dict.fromkeys(failing[: pool.surplus - len(causes)], "failed"), **causes}


def _staying(snapshot: Any, plan: Plan) -> Iterator[Leaving]:
    protected = (each.metadata.name for each in snapshot.members if is_protected(each.metadata))
    yield from (Leaving(name=each, why=PROTECT) for each in protected)
    yield from (Leaving(name=name) for each in plan.waits if each.why is Why.USER for name in each.names)


def creates_in(plan: Plan) -> tuple[Create, ...]:
    """Return the creates of VMs and VMIs."""
    return tuple(each for each in plan.actions if isinstance(each, Create) and each.resource in (VMS, VMIS))


def with_obstacles(given: ScalePreview, obstacles: Mapping[str, str]) -> ScalePreview:
    """Return the preview with the VMs that are not created yet. `obstacles` has the reason of each of them by name."""
    waiting = tuple(Leaving(name=name, why=why) for name, why in obstacles.items() if why)
    creating = tuple(name for name in given.creating if not obstacles.get(name))
    return replace(given, creating=creating, waiting=waiting)


def _why(member: Any) -> str:
    vm, cost = getattr(member, "vm", member), deletion_cost(member.metadata)
    if isinstance(member, Machine) and has_standby_mark(member.metadata):
        return "standby"
    texts = [
        REMOVE if is_marked(member.metadata, REMOVE) else "",
        "" if (vms if isinstance(member, Machine) else vmis).is_ready(vm) else "not ready",
        f"deletion cost {cost}" if cost else "",
    ]
    return ", ".join(text for text in texts if text)


def _disks(snapshot: PoolSnapshot, gone: Iterable[Machine]) -> str:
    if not any(disk_names_of(each.vm) for each in gone):
        return ""
    spec = snapshot.owner.spec
    if not keeps_disks(spec):
        return "deleted with their VMs"
    blocks = (getattr(spec.scale_in_strategy, each.value) for each in Strategy)
    return f"kept (statePreservation {next(filter(None, blocks)).state_preservation})"


def _texts(machines: Iterable[Leaving]) -> str:
    return _listed(f"{each.name} ({each.why})" if each.why else each.name for each in machines)


def _listed(texts: Iterable[str]) -> str:
    every = list(texts)
    more = f", and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more
