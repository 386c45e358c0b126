"""Safety invariants about the content of objects: S6, S9 to S12.

How the catalogue's invariants are worded for this controller:

- S6: a finalizer of another writer keeps its place in the list. If a pool keeps disks, the pool finalizer leaves a VM
  only if the VM terminates, is no member any more, or its pool is being deleted. Before the pool finalizer leaves,
  disks that must be kept lose their owner. At rest, no terminating object has the pool finalizer, and a member has the
  finalizer only if its pool keeps disks.
- S9: the deletion of a ready VMI for an update needs room: after it, at most `maxUnavailable` members that should run
  are unavailable. A delete of a VMI that is already unready is always allowed (P14, R14). A revision stays while a VM
  refers to it, and the revision's data is the pool's spec.
- S10: the garbage collector deletes no disk of a pool that keeps disks. Exceptions: a deletion in the foreground, a VM
  that was no member, a finalizer that others removed, and a VM that others delete before it has the finalizer. A new VM
  never takes a disk that its predecessor owns.
- S11: see `invariants_fields`.
- S12: each patch has a precondition: a resourceVersion, a JSON patch test, or a UID if the patch sets only keys of
  the controller. References and conditions of others stay.
"""

from collections.abc import Iterator
from typing import Any

from tests.faults.judge.availability import disruptions
from tests.faults.judge.history import Change, History, Request, World, named_version, shown
from tests.faults.judge.judge import Finding, Run, Violation, found, invariant
from tests.faults.judge.restarts import states_in
from tests.faults.judge.states import (
    DISKS,
    FINALIZER,
    FOREGROUND,
    HASH_LABEL,
    POOL,
    PREFIX,
    REVISION,
    REVISION_LABEL,
    SET,
    VM,
    VMI,
    Object,
    controller_uid,
    disk_names,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    ordinal_of,
    preserves,
    references_of,
    uid_of,
    version_of,
)


def patched(change: Change) -> Object | None:
    """Return the object after a patch.

    If the server removed the object, the answer to the patch shows the last state.
    """
    return change.after if change.after is not None or change.author is None else change.author.answer


def state_at_the_server(history: History, change: Change) -> Object:
    """Return the state to which the server applied the patch.

    If a patch removes the last finalizer, the server deletes the object without another look at it. A finalizer that
    another writer adds at this moment is lost. The answer has the version of the state that the server patched.
    """
    version = version_of(change.author.answer) if change.after is None and change.author and change.author.answer else 0
    states = (each.after for each in history.objects[change.kind, change.uid] if each.revision == version)
    return next(states, None) or change.was


@invariant("S6")
def s6_finalizers_are_removed_only_when_nothing_is_left_to_do(history: History, run: Run) -> Iterator[Finding]:
    for change, world in history.replay():
        if not change.ours or change.before is None or change.author is None or change.author.verb != "patch":
            continue
        after = patched(change)
        if after is None or finalizers_of(after) == finalizers_of(change.before):
            continue
        yield found("S6", _wrong_finalizers(history, run, change, after, world), change)
    if run.settled_from is not None:
        yield from _left_behind(history.end)


def _wrong_finalizers(history: History, run: Run, change: Change, after: Object, world: World) -> str:
    patched_state = state_at_the_server(history, change)
    before, kept = ([each for each in finalizers_of(item) if each != FINALIZER] for item in (patched_state, after))
    if before != kept:
        return f"the finalizers of others on {change.name} change from {before} to {kept}"
    if not is_conditional(change.write, "/metadata/finalizers"):
        return f"the finalizers of {change.name} change without a precondition"
    if FINALIZER in finalizers_of(after):
        return ""
    if change.kind == POOL:
        holders = [name_of(vm) for vm in world.children(change.uid, VM) if FINALIZER in finalizers_of(vm)]
        if not is_deleting(change.was):
            return f"{change.name} loses its finalizer, but is not being deleted"
        return f"{change.name} loses its finalizer before its VMs {holders}" if holders else ""
    return _wrong_removal(history, run, change, after, world)


def _wrong_removal(history: History, run: Run, change: Change, after: Object, world: World) -> str:
    """Return what is wrong with the removal of the finalizer from a VM."""
    vm = change.before or {}
    owner = world.by_uid(controller_uid(vm))
    if not is_deleting(vm) and controller_uid(after) and owner is not None and not is_deleting(owner):
        keeps = keeps_disks(history, run, change)
        return f"{change.name} loses the finalizer, but is a member whose disks must be kept" if keeps else ""
    if not is_deleting(vm) or FOREGROUND in finalizers_of(vm) or not keeps_disks(history, run, change):
        return ""
    owned = [name_of(each) for each in world.all(*DISKS) if any(r["uid"] == change.uid for r in references_of(each))]
    return f"{change.name} loses the finalizer, but still owns its disks {owned}" if owned else ""


def keeps_disks(history: History, run: Run, change: Change) -> bool:
    """Return True if the spec of the VM's pool preserves disks in each state of the window of this change."""
    pool = POOL, controller_uid(change.before or {"metadata": {}})
    owners = states_in(history.objects.get(pool, ()), run.window(change.time), change.time)
    return bool(owners) and all(map(preserves, owners))


def _left_behind(end: World) -> Iterator[Finding]:
    """Check the pool finalizer on all objects when the controller is at rest (P6, G9).

    No terminating object and no VM that has left its pool may have the finalizer. A member has the finalizer only if
    its pool keeps disks.
    """
    for pool in end.all(POOL):
        for vm in end.children(uid_of(pool), VM) if not is_deleting(pool) else ():
            needs = preserves(pool) and ordinal_of(name_of(pool), name_of(vm)) is not None
            if not is_deleting(vm) and (FINALIZER in finalizers_of(vm)) is not needs:
                problem = "has no pool finalizer" if needs else "has the pool finalizer, but its pool keeps no disks"
                yield Violation("S6", f"at rest, {name_of(vm)} {problem}", (shown(vm["metadata"]),))
    for item in end.all(POOL, VM):
        if FINALIZER in finalizers_of(item):
            pools = [pool for pool in end.all(POOL) if ordinal_of(name_of(pool), name_of(item)) is not None]
            is_stray = item["kind"] == VM and not controller_uid(item) and bool(pools)
            problem = "terminates with" if is_deleting(item) else "is no member and has" if is_stray else ""
            message = f"at rest, {name_of(item)} {problem} the pool finalizer"
            yield Violation("S6", message, (shown(item["metadata"]),)) if problem else None


def is_conditional(write: Request, path: str) -> bool:
    """Return True if the patch is applied only to the state for which it was made."""
    if isinstance(write.body, list):
        return any(step.get("op") == "test" and step["path"].startswith(path) for step in write.body)
    return bool(((write.body or {}).get("metadata") or {}).get("resourceVersion"))


@invariant("S9")
def s9_updates_stay_within_max_unavailable_and_keep_revisions(history: History, run: Run) -> Iterator[Finding]:
    for each in disruptions(history, run):
        message = f"{each.change.name} makes {each.unavailable} members unavailable, {each.allowed} are allowed"
        broken = each.unavailable > each.allowed
        yield found("S9", message if broken else "", each.change)
    for change, world in history.replay():
        if change.kind == REVISION and change.ours and change.starts_deletion:
            yield found("S9", _lost_revision(change, world), change)
        elif change.kind == REVISION and change.ours:
            yield found("S9", _wrong_revision(history, change), change)


def _lost_revision(change: Change, world: World) -> str:
    owner = controller_uid(change.before or {"metadata": {}})
    pool = world.by_uid(owner)
    if pool is None or is_deleting(pool):
        return ""
    vms, vmis = world.children(owner, VM), world.children(owner, VMI)
    users = [*vms, *(vmi for vm in vms for vmi in world.children(uid_of(vm), VMI))]
    using = [item for item in users if labels_of(item).get(REVISION_LABEL) == change.name]
    # The name of a set's revision ends with the hash of its template.
    using += [item for item in vmis if change.name.endswith("-" + labels_of(item).get(HASH_LABEL, "?"))]
    names = [f"{item['kind']}/{name_of(item)}" for item in using]
    return f"the revision {change.name} is deleted, but {names} refer to it" if names else ""


def _wrong_revision(history: History, change: Change) -> str:
    """Return what is wrong with the data of a new revision, or of one with the number of a later rollout."""
    if change.after is None:
        return ""
    if change.before is not None and change.before.get("data") != change.after.get("data"):
        return f"the revision {change.name} is changed"
    owner, generation = controller_uid(change.after), change.after.get("revision")
    changes = (*history.objects.get((POOL, owner), ()), *history.objects.get((SET, owner), ()))
    states = [each.after for each in changes if each.after is not None]
    specs = [_stored(state) for state in states if state["metadata"].get("generation") == generation]
    data = change.after.get("data") or {}
    if change.before is not None:  # the other fields of the pool may have changed
        specs, data = [_template_of(each) for each in specs], _template_of(data)
    same = not specs or any(without_nulls(spec) == without_nulls(data) for spec in specs)
    return "" if same else f"the revision {change.name} is not the spec of generation {generation}"


def _stored(owner: Object) -> Object:
    """Return what a revision stores of this set or pool: the template of a set, or the spec of a pool."""
    spec: Object = owner["spec"]
    return spec if owner["kind"] == POOL else {"template": spec.get("template")}


def _template_of(stored: Object) -> Object:
    template: Object = stored.get("template") or stored.get("virtualMachineTemplate") or {}
    return template


def without_nulls(value: Any) -> Any:
    """Return the value without null fields, which mean the same as absent fields."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@invariant("S10")
def s10_disks_that_must_be_kept_are_kept(history: History, run: Run) -> Iterator[Finding]:
    for change, world in history.replay():
        if change.kind in DISKS and change.starts_deletion and change.author is not None:
            yield found("S10", _lost_disk(history, run, change), change)
        elif change.kind == VM and change.after is None:
            kept = [name for name in disk_names(change.object) for kind in DISKS if world.get(kind, name)]
            yield from (None for _ in kept)
        elif change.kind == VM and change.before is None and change.ours:
            yield found("S10", _inherits(change, world), change)


def _lost_disk(history: History, run: Run, change: Change) -> str:
    if change.write.ours:
        return f"the controller deletes the disk {change.name}"
    if not change.write.by_collector or change.before is None:
        return ""
    for vm in _vms_behind(history, change.before):
        if problem := _must_be_kept(history, run, vm):
            return f"the garbage collector deletes the disk {change.name}: {problem}"
    return ""


def _vms_behind(history: History, disk: Object) -> Iterator[tuple[Change, ...]]:
    """Yield the changes of each VM that owns the disk, directly or through a DataVolume."""
    for reference in references_of(disk):
        changes = history.objects.get((reference["kind"], reference["uid"]))
        if changes and reference["kind"] == VM:
            yield changes
        elif changes:
            yield from _vms_behind(history, changes[-1].object)


def _must_be_kept(history: History, run: Run, vm: tuple[Change, ...]) -> str:
    begin = next((each for each in vm if each.starts_deletion), None)
    if begin is None or not keeps_disks(history, run, begin) or _was_unprotected(begin):
        return ""
    owner = history.objects.get((POOL, controller_uid(begin.before or {"metadata": {}})), ())
    states = [each.object for each in (*vm, *owner)]
    if any(FOREGROUND in finalizers_of(state) for state in states if is_deleting(state)):
        return ""
    by_others = [each for each in vm if not each.ours and each.before and FINALIZER in finalizers_of(each.before)]
    if any(FINALIZER not in finalizers_of(patched(each) or {"metadata": {}}) for each in by_others):
        return ""
    return f"it belonged to {begin.name}, whose pool keeps disks"


def _was_unprotected(deletion: Change) -> bool:
    """Return True if a user deleted a VM that had no pool finalizer yet, for example after a change to Offline."""
    author = deletion.author
    is_by_user = author is not None and not author.ours and not author.by_collector
    return is_by_user and FINALIZER not in finalizers_of(deletion.before or {"metadata": {}})


def _inherits(change: Change, world: World) -> str:
    """Return a sentence if a disk of a new VM still belongs to an earlier VM, or ""."""
    for name in disk_names(change.object):
        for kind in DISKS:
            disk = world.get(kind, name)
            if disk is None:
                continue
            owners = [each for each in references_of(disk) if each["kind"] == VM and each["name"] == change.name]
            if owners or is_deleting(disk):
                return f"{change.name} is created, but its disk {name} still belongs to its predecessor"
    return ""


OWN_CONDITIONS = ("Replica", "VirtualMachineFailure", "Reconciling", "Stalled")
"""The beginnings of the types of the controller's own conditions."""


@invariant("S12")
def s12_no_edit_of_another_writer_is_lost(history: History, run: Run) -> Iterator[Finding]:
    for write in history.ours:
        if write.verb in ("patch", "update") and write.kind and write.subresource in ("", "status"):
            yield found("S12", _blind(write), write.body)
    for change in history.changes:
        if change.ours and change.before is not None and change.after is not None and change.author is not None:
            if history.is_after_hole(change):
                continue
            yield found("S12", _overwritten(change), change)


def _blind(write: Request) -> str:
    """Return what is wrong if the patch could overwrite a change that the controller has not seen, or ""."""
    if write.verb == "update":
        return f"{write} replaces the whole object"
    if write.body is None and not write.succeeded:
        return ""  # the audit log has no body of a request that the server refused before it read the body
    if isinstance(write.body, list):
        tested = any(step.get("op") == "test" and step["path"] == "/metadata/uid" for step in write.body)
        return "" if tested else f"{write} tests no UID"
    metadata = (write.body or {}).get("metadata") or {}
    if metadata.get("resourceVersion"):
        return ""
    keys = {*(metadata.get("annotations") or {}), *(metadata.get("labels") or {})}
    own = all(key.startswith(PREFIX) or key == REVISION_LABEL for key in keys)
    narrow = set(write.body or {}) <= {"metadata"} and set(metadata) <= {"uid", "annotations", "labels"}
    return "" if metadata.get("uid") and narrow and own else f"{write} has no precondition"


def _overwritten(change: Change) -> str:
    assert change.after is not None
    wanted = named_version(change.write)
    if wanted and wanted != str(version_of(change.was)):
        return f"{change.write} was made for version {wanted}"
    after = {each["uid"] for each in references_of(change.after)}
    lost = [each for each in references_of(change.was) if each["uid"] not in after]
    if len(lost) > 1:
        return f"{change.name} loses several owners: {[each['name'] for each in lost]}"
    types = {each["type"] for each in (change.after.get("status") or {}).get("conditions") or ()}
    foreign = [each["type"] for each in (change.was.get("status") or {}).get("conditions") or ()]
    gone = [each for each in foreign if each not in types and not each.startswith(OWN_CONDITIONS)]
    return f"{change.name} loses the conditions {gone} of others" if gone else ""
