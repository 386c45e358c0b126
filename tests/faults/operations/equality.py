"""Compares the end of a sequence with a fresh start: a normal form of both states, and the differences that may stay.

A normal form leaves out what differs between two correct runs of the same spec: times, UIDs, versions, random names,
ordinals, the simulator's annotations, and the spelling of a value. `differences` allows only these traces of history:

- More children than wanted, if the spec forbids their deletion: a scale-in strategy other than proactive, selectors, or
  the annotation `protect` on a child (P8, P9, R6).
- Older templates, if the spec does not replace them: a set without rolling update, the update strategy unmanaged,
  selectors, a partition, or a protected VMI (R14, P12, P14). Under the strategy opportunistic only VMIs may be older
  (P13).
- The template of a VM that needs new disks but must not be deleted: the VM is protected, its run strategy does not
  start a new VM, or the update strategy is opportunistic (P21).
- Values that an operation wrote into a child: an update keeps what a user set (P12).
- A VM that its user stopped, or whose run strategy leaves the start to its user, need not run (P12).
- Disks without an owner, if the pool preserved state at some time (P10). Up to five old revisions (P11).
- The VMI of an earlier VM. With `--cascade=orphan`, a VMI outlives its VM and its pool, and the next VM of this name
  adopts the VMI. The VMI's revision can have the same name as a revision of the new pool, because each pool counts its
  generations from one.
- Revisions and disks of an earlier pool, if a user removed its finalizer by force (P6).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controller.kubevirt import annotations as ours
from controller.kubevirt.annotations import POOL_FINALIZER, REVISION_NAME, TEMPLATE_HASH
from tests.faults.judge import states
from tests.faults.judge.states import Object
from tests.faults.operations.sets import ROLLS
from tests.faults.operations.world import HOLD, State, World, matches

FINAL = ("Succeeded", "Failed", "Unknown")
ORDINAL = re.compile(r"herd-(\d+)")
HISTORY = 5
"""The default of --revision-history."""


def differences(world: World, now: State, fresh: State) -> list[str]:
    """Compare with a fresh start, and return the differences that no rule allows."""
    if now.owner is None or fresh.owner is None:
        return ["there is no owner"]
    of_kind = _of_set if world.kind == "sets" else _of_pool
    return [*_of_strangers(world, now), *_of_any(world, now), *of_kind(world, now, fresh)]


def _of_strangers(world: World, now: State) -> Iterator[str]:
    """Objects that do not belong to the owner are as their users left them."""
    present = {states.uid_of(item): item for item in (*now.vms, *now.vmis)}
    for uid, left in world.strangers.items():
        name = states.name_of(left)
        found = present.get(uid)
        if found is None:
            yield f"{name} is gone, although it does not belong to the owner"
            continue
        for field in ("labels", "annotations"):
            if _own(left["metadata"].get(field)) != _own(found["metadata"].get(field)):
                yield f"{name}: {field} changed from {left['metadata'].get(field)} to {found['metadata'].get(field)}"
        if left["spec"] != found["spec"]:
            yield f"{name}: its spec changed from {left['spec']} to {found['spec']}"


def _of_any(world: World, now: State) -> Iterator[str]:
    assert now.owner is not None
    uid = states.uid_of(now.owner)
    for item in now.objects:
        name, kind = states.name_of(item), item.get("kind", "")
        if states.is_deleting(item):
            yield f"{kind} {name} is still being deleted; its finalizers are {states.finalizers_of(item)}"
        stale = world.owner_uids - {uid}
        if any(reference["uid"] in stale for reference in states.references_of(item)):
            yield f"{kind} {name} belongs to an owner that is gone"


def _of_set(world: World, now: State, fresh: State) -> Iterator[str]:
    owner = now.owner
    assert owner is not None
    assert fresh.owner is not None
    uid = states.uid_of(owner)
    wanted = owner["spec"]["replicas"]
    members = [vmi for vmi in now.vmis if states.controller_uid(vmi) == uid]
    active = [vmi for vmi in members if not _has_ended(vmi)]
    protected = [vmi for vmi in active if states.is_protected(vmi)]
    yield from _count("active VMIs", len(active), wanted, allowed=len(protected))
    yield from (
        f"{states.name_of(vmi)} is {states.status_of(vmi).get('phase')}"
        for vmi in members
        if _has_ended(vmi) and not states.is_protected(vmi)
    )
    yield from (f"{states.name_of(vmi)} does not match, but is a member" for vmi in members if not matches(vmi))
    for vmi in now.vmis:
        if not states.controller_uid(vmi) and matches(vmi) and not _has_ended(vmi):
            yield f"{states.name_of(vmi)} matches and has no controller, but is not adopted"
    yield from (f"{states.name_of(vmi)} is not ready" for vmi in active if not states.is_ready(vmi))
    samples = [vmi for vmi in fresh.vmis if states.controller_uid(vmi) == states.uid_of(fresh.owner)]
    updated = None
    if samples:
        sample = samples[0]
        template = states.labels_of(sample).get(TEMPLATE_HASH)
        # VMIs without a hash belong to the template of their adoption (R14).
        adopted = states.annotations_of(owner).get(ours.ADOPTED_TEMPLATE) or template
        current = [vmi for vmi in active if (states.labels_of(vmi).get(TEMPLATE_HASH) or adopted) == template]
        updated = len(current)
        if states.annotations_of(owner).get(ours.ROLLING_UPDATE) in ROLLS:
            outdated = [vmi for vmi in active if vmi not in current and not states.is_protected(vmi)]
            yield from (f"{states.name_of(vmi)} is outdated after the rolling update" for vmi in outdated)
        for vmi in current:
            if states.labels_of(vmi).get(TEMPLATE_HASH) and states.uid_of(vmi) not in world.edited:
                yield from _compare(states.name_of(vmi), _form(vmi), _form(sample))
    yield from _status(owner, fresh.owner, replicas=len(active), ready=_ready(active), updated=updated)


def _of_pool(world: World, now: State, fresh: State) -> Iterator[str]:
    owner = now.owner
    assert owner is not None
    assert fresh.owner is not None
    spec, uid = owner["spec"], states.uid_of(owner)
    members = [vm for vm in now.vms if states.controller_uid(vm) == uid]
    protected = [vm for vm in members if states.is_protected(vm)]
    allowed = len(members) if not _deletes_any(spec) else len(protected)
    yield from _count("VMs", len(members), spec["replicas"], allowed=allowed)
    yield from (f"{states.name_of(vm)} does not match, but is a member" for vm in members if not matches(vm))
    for vm in now.vms:
        if vm not in members and ORDINAL.fullmatch(states.name_of(vm)) and POOL_FINALIZER in states.finalizers_of(vm):
            yield f"{states.name_of(vm)} is no member, but has the pool's finalizer"
    samples = [vm for vm in fresh.vms if states.controller_uid(vm) == states.uid_of(fresh.owner)]
    vmis = {states.name_of(vmi): vmi for vmi in now.vmis}
    strict = _updates_all(owner)
    for vm in members:
        yield from _runs(vm, vmis.get(states.name_of(vm)))
        if samples and strict and states.uid_of(vm) not in world.edited and not _keeps_disks(spec, vm, samples[0]):
            yield from _compare(states.name_of(vm), _form(vm), _form(samples[0]))
            vmi, sample = vmis.get(states.name_of(vm)), _vmi_of(fresh, samples[0])
            follows = _restarts(spec) and _strategy(vm) != "Manual"
            if vmi is not None and sample is not None and follows and not _is_older(vmi, vm):
                yield from _compare(f"VMI {states.name_of(vm)}", _vmi_form(vmi), _vmi_form(sample))
                if states.labels_of(vmi).get(REVISION_NAME) != states.labels_of(vm).get(REVISION_NAME):
                    yield f"VMI {states.name_of(vm)} has not the revision of its VM"
    yield from _of_revisions(world, now, uid)
    yield from _of_disks(world, now)
    yield from _status(owner, fresh.owner, replicas=len(members), ready=_ready(members), updated=None)
    # A running VM with the strategy Manual that needs new disks waits for its user (P13). A new VM does not run.
    follows = _restarts(spec) and all(_strategy(vm) != "Manual" for vm in members)
    alike = strict and follows and not world.edited & set(map(states.uid_of, members))
    if alike and samples and len(members) == spec["replicas"]:
        for field in ("updatedReplicas", "printableStatus"):
            yield from _compare(f"status.{field}", owner["status"].get(field), fresh.owner["status"].get(field))


def _of_revisions(world: World, now: State, uid: str) -> Iterator[str]:
    used = {states.labels_of(item).get(REVISION_NAME) for item in (*now.vms, *now.vmis)}
    unused = [each for each in now.revisions if states.name_of(each) not in used]
    if len(unused) > HISTORY:
        yield f"{len(unused)} unused revisions are left"
    if not world.forced:
        others = [each for each in now.revisions if states.controller_uid(each) != uid]
        yield from (f"revision {states.name_of(each)} is not the pool's" for each in others)


def _of_disks(world: World, now: State) -> Iterator[str]:
    vms = {states.uid_of(vm): vm for vm in now.vms}
    volumes = {states.name_of(volume) for volume in now.volumes}
    for vm in now.vms:
        for template in vm["spec"].get("dataVolumeTemplates") or ():
            if states.name_of(template) not in volumes:
                yield f"{states.name_of(vm)}: the disk {template['metadata']['name']} is missing"
    for volume in now.volumes:
        if states.controller_uid(volume) not in vms and not (world.preserved or world.forced):
            yield f"the disk {states.name_of(volume)} is left over, and the pool never preserved state"


def _runs(vm: Object, vmi: Object | None) -> Iterator[str]:
    if _strategy(vm) == "Always" and not states.is_ready(vm):
        yield f"{states.name_of(vm)} is not ready: {states.status_of(vm).get('printableStatus')}"
    elif _strategy(vm) == "Always" and vmi is None:
        yield f"{states.name_of(vm)} has no VMI"


def _status(owner: Object, fresh: Object, *, replicas: int, ready: int, updated: int | None) -> Iterator[str]:
    """The status has the right counts. Its conditions and its selector equal those of a fresh start."""
    status, new = states.status_of(owner), states.status_of(fresh)
    expected = {"replicas": replicas, "readyReplicas": ready}
    if updated is not None:
        expected["updatedReplicas"] = updated
    for field, count in expected.items():
        if status.get(field, 0) != count:
            yield f"status.{field} is {status.get(field, 0)}, but there are {count}"
    if status.get("observedGeneration") != owner["metadata"]["generation"]:
        yield f"status.observedGeneration is {status.get('observedGeneration')}"
    yield from _compare("status.labelSelector", status.get("labelSelector"), new.get("labelSelector"))
    yield from _compare("status.conditions", _conditions(status), _conditions(new))


def _conditions(status: Object) -> list[tuple[str, str, str]]:
    conditions = status.get("conditions") or ()
    return sorted((each["type"], each["status"], each.get("reason") or "") for each in conditions)


def _count(what: str, count: int, wanted: int, *, allowed: int) -> Iterator[str]:
    if not wanted <= count <= max(wanted, allowed):
        yield f"there are {count} {what}, and {wanted} are wanted"


def _deletes_any(spec: Object) -> bool:
    """Whether the pool may delete any of its VMs to scale in."""
    strategy = spec.get("scaleInStrategy") or {}
    policy = (strategy.get("proactive") or {}).get("selectionPolicy") or {}
    return not ({"unmanaged", "opportunistic"} & strategy.keys() or policy.get("selectors"))


def _updates_all(owner: Object) -> bool:
    """Whether the pool brings all its VMs to the current template. A partition that is no number updates no VM."""
    strategy = owner["spec"].get("updateStrategy") or {}
    policy = (strategy.get("proactive") or {}).get("selectionPolicy") or {}
    partition = states.annotations_of(owner).get(ours.PARTITION)
    has_partition = partition is not None and not re.fullmatch("0+", partition)
    return not ("unmanaged" in strategy or policy.get("selectors") or has_partition)


def _restarts(spec: Object) -> bool:
    """Whether the pool restarts VMIs for an update."""
    return "opportunistic" not in (spec.get("updateStrategy") or {})


def _keeps_disks(spec: Object, vm: Object, sample: Object) -> bool:
    """Whether the VM keeps its template because no update may delete its disks."""
    same = _disks(vm) == _disks(sample)
    return not same and (_strategy(vm) != "Always" or not _restarts(spec) or states.is_protected(vm))


def _disks(vm: Object) -> Any:
    return _without_ordinal(vm["spec"].get("dataVolumeTemplates"), states.name_of(vm))


def _vmi_form(vmi: Object) -> Any:
    return _form({"metadata": {**vmi["metadata"], "ownerReferences": []}, "spec": vmi["spec"]})


def _form(item: Object) -> Any:
    """Return what must be equal for two children of the same template."""
    meta = item["metadata"]
    references = [
        {key: reference.get(key) for key in ("apiVersion", "kind", "name", "controller", "blockOwnerDeletion")}
        for reference in meta.get("ownerReferences") or ()
    ]
    form = {
        "labels": _own(meta.get("labels")),
        "annotations": _own(meta.get("annotations")),
        "finalizers": sorted(name for name in meta.get("finalizers") or () if name != HOLD),
        "owners": references,
        "spec": _without_ordinal(item["spec"], meta["name"]),
    }
    return _without_empty(form)


def _own(texts: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels or annotations that must be the same as in a fresh namespace."""
    marks = (ours.REMOVE, ours.PROTECT, ours.DELETION_COST, ours.EARLY_FAILURES)
    foreign = ("sim.vmherd.dev/", "test.vmherd.dev/edited", "kubevirt.io/")
    return {key: text for key, text in (texts or {}).items() if key not in marks and not key.startswith(foreign)}


def _without_ordinal(spec: Any, name: str) -> Any:
    """The spec with "#" for the ordinal in the names of disks, and with one spelling of the memory."""
    text = json.dumps(spec)
    if found := ORDINAL.fullmatch(name):
        text = re.sub(rf'-{found[1]}"', '-#"', text)
    text = re.sub(rf'"{REVISION_NAME}": "[^"]*"', f'"{REVISION_NAME}": ""', text)
    return json.loads(text.replace('"0.0640G"', '"64M"'))


def _without_empty(value: Any) -> Any:
    """The value without null and without empty objects and lists: for KubeVirt they equal absent fields (P12)."""
    match value:
        case dict():
            kept = {key: _without_empty(each) for key, each in value.items()}
            return {key: each for key, each in kept.items() if each not in (None, {}, [])}
        case list():
            return [_without_empty(each) for each in value]
    return value


def _compare(what: str, now: Any, fresh: Any) -> Iterator[str]:
    """The fields in which two normal forms differ."""
    if isinstance(now, dict) and isinstance(fresh, dict):
        for key in sorted(now.keys() | fresh.keys()):
            yield from _compare(f"{what}.{key}", now.get(key), fresh.get(key))
    elif now != fresh:
        yield f"{what} is {now!r}, and {fresh!r} after a fresh start"


def _vmi_of(state: State, vm: Object) -> Object | None:
    return next((vmi for vmi in state.vmis if states.name_of(vmi) == states.name_of(vm)), None)


def _is_older(vmi: Object, vm: Object) -> bool:
    """Whether the VM has adopted the VMI of an earlier VM."""
    return str(vmi["metadata"].get("creationTimestamp", "")) < str(vm["metadata"].get("creationTimestamp", ""))


def _strategy(vm: Object) -> str:
    return str(vm["spec"].get("runStrategy", "Always"))


def _has_ended(vmi: Object) -> bool:
    return states.status_of(vmi).get("phase") in FINAL


def _ready(items: Iterable[Object]) -> int:
    return sum(map(states.is_ready, items))
