"""The ControllerRevisions of a pool. Each revision stores an earlier or present spec of the pool (P11).

A revision belongs to the pool if the pool is its controller. A revision is current if its template has the same meaning
as the pool's template. Scaling creates no revision, because it does not change the template. A return to an earlier
template creates no revision either: the earlier revision becomes current again, with a new number.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import count

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.names import LABEL_LENGTH, cut
from controller.kubevirt.annotations import INDEX_SYSPREP, POOL_UID, is_marked
from controller.kubevirt.pool_types import PoolSpec
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vms import is_revision_name, revision_of
from controller.pool.members.ledger import State, state_of
from controller.pool.members.machine import Machine, Machines, vmi_revision_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.template import Template, parse_template
from controller.replicas.revisions import create_revision, delete_revisions, last_ready, unused_revisions
from controller.runtime.actions import Plan, Stage
from informers.meta import NO_LABELS

_decode_spec = msgspec.json.Decoder(PoolSpec).decode


class Revisions(Struct, frozen=True, kw_only=True):
    """The revisions of a pool.

    `templates` maps the name of each revision to its template. `template` is the pool's present template. The field
    `current` is the name of the current revision. `current_exists` is False if this revision has not been created yet.
    `current_names` are the names of all revisions whose template has the same meaning as the present template.
    If the VMs have returned from the template of the spec (P29), `template` is the one to which they return.
    `unreadable` are the names of the revisions that exist and whose template cannot be read (P30).
    """

    current: str
    template: Template
    current_exists: bool
    templates: Mapping[str, Template]
    unreadable: Set[str] = frozenset()
    current_names: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        digest = self.template.digest
        names = frozenset(name for name, template in self.templates.items() if template.digest == digest)
        force_setattr(self, "current_names", names)

    def is_current(self, name: str) -> bool:
        """Return True if the template of the revision `name` has the same meaning as the pool's template (P12)."""
        return name in self.current_names


def read_revisions(snapshot: Snapshot, template: Template, of_spec: Template | None = None) -> Revisions:
    """If no revision is current, the result has the name for a new revision. `of_spec` is the template of the spec if
    `template` is another one (P29).
    """
    of_spec = of_spec or template
    generation = snapshot.owner.metadata.generation
    templates: dict[str, Template] = {}
    matching: list[tuple[int, str]] = []
    existing = {each.metadata.name: each for each in snapshot.revisions if each.metadata.deletion_timestamp is None}
    for name, revision in existing.items():
        is_present = revision.revision == generation and _indexes_sysprep(revision) == of_spec.index_sysprep
        past = of_spec if is_present else template_of(revision)
        if past is not None:
            templates[name] = past
            if past.digest == template.digest:
                matching.append((revision.revision, name))
    current = max(matching)[1] if matching else _deleted_name(snapshot) or _new_name(snapshot, template)
    # A VM may have the name before its revision exists: the revision was deleted, or the VM was adopted (P3).
    templates[current] = template
    return Revisions(
        current=current,
        template=template,
        current_exists=bool(matching),
        templates=templates,
        unreadable=existing.keys() - templates.keys(),
    )


def plan_revision(snapshot: Snapshot, revisions: Revisions) -> tuple[Stage, ...]:
    """Return a stage that creates a missing current revision, before any write that needs it."""
    if revisions.current_exists:
        return ()
    owner = snapshot.owner
    create = create_revision(
        owner,
        snapshot.pools,
        revisions.current,
        owner.spec,
        labels={POOL_UID: owner.metadata.uid},
        worked=last_ready(snapshot.revisions, ready_revisions(snapshot)),
        annotations={INDEX_SYSPREP: "true"} if revisions.template.index_sysprep else NO_LABELS,
    )
    return (Stage((create,)),)


def ready_revisions(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Yield the revision of each group of VMs that are available and run it, with the number of VMs."""
    for group in snapshot.members.groups:
        vm, vmi = group.traits.vm, group.traits.vmi
        is_same = vmi is not None and vmi_revision_of(vmi) == revision_of(vm)
        if is_same and state_of(group.traits, snapshot.now)[0] is State.AVAILABLE:
            yield revision_of(vm), len(group)


def plan_pruning(snapshot: Snapshot, revisions: Revisions, *, noted: Iterable[str]) -> Plan:
    """Plan the deletion of at most `burst` unused revisions: they are not current, and no VM and no VMI uses them.

    The newest `revision_history` unused ones stay, so that a user can undo a change of the template. So do those whose
    names are `noted` on the pool: new VMs may get them.
    """
    used = revisions_in_use(snapshot.members) | {revision_of(each.vm) for each in snapshot.strays}
    used |= {revisions.current, last_ready(snapshot.revisions), *noted}
    unused = unused_revisions(snapshot.revisions, used, keep=snapshot.limits.revision_history)
    return Plan(stages=delete_revisions(unused, "no VM and no VMI uses this revision", burst=snapshot.limits.burst))


def delete_orphaned(snapshot: Snapshot, *, orphans: bool) -> tuple[Stage, ...]:
    """Return a stage that deletes the revisions of a deleted pool that the garbage collector leaves: those without an
    owner, and after a deletion with `--cascade=orphan` (`orphans`) all.
    """
    kept = (*(snapshot.revisions if orphans else ()), *snapshot.orphaned_revisions)
    return delete_revisions(kept, "its pool is being deleted", burst=snapshot.limits.burst)


def oldest_in_use(snapshot: Snapshot, revisions: Revisions) -> str:
    """Return the name of the oldest revision that an outdated VM or VMI has, by default the current one. During an
    update, a VM gets the current revision before its VMI restarts. So the VMIs count as well.
    """
    numbers = {revision.metadata.name: revision.revision for revision in snapshot.revisions}
    older = {name for name in revisions_in_use(snapshot.members) & numbers.keys() if not revisions.is_current(name)}
    return min(older, key=lambda name: (numbers[name], name), default=revisions.current)


def revisions_in_use(members: Machines) -> set[str]:
    """Return the revisions that these VMs and their VMIs have."""
    shared = members.traits()
    of_vms = {revision_of(each.vm) for each in shared}
    return of_vms | {vmi_revision_of(each.vmi) for each in shared if each.vmi is not None}


def template_of(revision: ControllerRevision) -> Template | None:
    """Return the template that the revision stores, or None if the template cannot be read or is invalid."""
    try:
        template = parse_template(_decode_spec(revision.data), index_sysprep=_indexes_sysprep(revision))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(template, FieldError) else template


def _indexes_sysprep(revision: ControllerRevision) -> bool:
    return is_marked(revision.metadata, INDEX_SYSPREP)


def _deleted_name(snapshot: Snapshot) -> str:
    """Return the name of the current revision if a user has deleted it, or "". It is created again with the same name,
    so its VMs stay current. The status of the present generation has the name.
    """
    status, generation = snapshot.owner.status, snapshot.owner.metadata.generation
    name = (status.update_revision or "") if status is not None and status.observed_generation == generation else ""
    return "" if name in snapshot.revision_names else name


def _new_name(snapshot: Snapshot, template: Template) -> str:
    """Return the name of a new revision: `<pool>-<generation>`.

    If this name is taken, is left to KubeVirt (see `is_revision_name`), or is too long for a label of a VM, a part of
    the template's digest is added. If this name is taken too, a number is added. The garbage collector may not have
    deleted the revisions of earlier pools with the same name yet. VMs of an earlier pool may have the name as a label,
    also those that were restored from a backup. If necessary, the pool's name is cut.
    """
    pool, generation = snapshot.owner.metadata.name, snapshot.owner.metadata.generation or 0
    name, digest = f"{pool}-{generation}", f"-{generation}-{template.digest[:8]}"
    is_taken = name in snapshot.revision_names or name in revisions_in_use(snapshot.members) or _has_older_vm(snapshot)
    if len(name) <= LABEL_LENGTH and is_revision_name(name) and not is_taken:
        return name
    suffixes = (digest if number == 0 else f"{digest}-{number}" for number in count())
    names = (cut(pool, LABEL_LENGTH - len(suffix)) + suffix for suffix in suffixes)
    return next(name for name in names if name not in snapshot.revision_names)


def _has_older_vm(snapshot: Snapshot) -> bool:
    """Return True if the pool has no revision, and a VM of its names is not younger: one of an earlier pool (P3)."""
    since = snapshot.owner.metadata.creation_timestamp
    if snapshot.revisions or since is None:
        return False
    metas = (each.metadata for each in (*snapshot.unowned, *snapshot.members))
    return any(each.creation_timestamp is not None and each.creation_timestamp <= since for each in metas)


def revision_number(snapshot: Snapshot, name: str, otherwise: str = "") -> str:
    """Return the number of a revision. If it does not exist, return `otherwise`, or if this is "", the pool's
    generation: the number that a new revision gets.
    """
    found = (str(each.revision) for each in snapshot.revisions if each.metadata.name == name)
    return next(found, otherwise or str(snapshot.owner.metadata.generation or "")) if name else ""


def is_updated(revisions: Revisions, machine: Machine) -> bool:
    """Return True if the VM and its VMI have the current template. If there is no VMI, only the VM is checked."""
    on_current = revisions.is_current(revision_of(machine.vm))
    return on_current and (machine.vmi is None or revisions.is_current(vmi_revision_of(machine.vmi)))
