"""The templates of VMIs that have lost their label `vmherd.dev/template-hash` (R14).

Without the label, a VMI looks outdated. If a policy, another controller or a user removes it again and again, the
update has no end. But a set gives each VMI a name of its own, and its revisions have the time of each rollout. So the
set finds the template: the last one that was rolled out before the VMI was created.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.field_error import FieldError
from controller.apimachinery.names import SUFFIX_LENGTH
from controller.kubevirt.annotations import TEMPLATE_HASH
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.revisions import hash_of_set_revision, rollouts_of
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.situation import rolled_out_in
from controller.replicaset.snapshot import Snapshot
from controller.runtime.members.groups import Group, Members, like, texts_of
from informers.meta import labels_of


def with_own_hashes(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which each VMI has the hash of the template from which the set has created it."""
    known = {hash_of_set_revision(each.metadata) for each in snapshot.revisions}
    groups = snapshot.members.groups
    if not known or all(_hash_in(group.traits) in known for group in groups):
        return snapshot
    intent = parse_intent(snapshot.owner)
    rollouts = [] if isinstance(intent, FieldError) else sorted(_rollouts(snapshot, intent))
    if isinstance(intent, FieldError) or not rollouts:
        return snapshot
    known.add(intent.template.hash)  # the server may refuse its revision
    base, times = intent.template.base, [at for at, *_ in rollouts]

    def hash_of(vmi: VirtualMachineInstance) -> str:
        created = with_timezone(vmi.metadata.creation_timestamp)
        if created is None or created < times[0] or vmi.metadata.name[:-SUFFIX_LENGTH] != base:
            return ""
        return rollouts[bisect_right(times, created) - 1][-1]

    found: list[Group[VirtualMachineInstance]] = []
    for group in groups:
        if _hash_in(group.traits) in known:
            found.append(group)
            continue
        parts: dict[str, list[VirtualMachineInstance]] = {}
        for vmi in group:
            parts.setdefault(hash_of(vmi), []).append(vmi)
        if parts.keys() == {""}:
            found.append(group)
            continue
        for hashed, members in parts.items():
            traits = _with_hash(group.traits, hashed)
            found.append(Group(tuple(_with_hash(each, hashed) for each in members), traits))
    return replace(snapshot, members=Members(tuple(found)))


def _rollouts(snapshot: Snapshot, intent: Intent) -> Iterator[tuple[datetime, int, str]]:
    """Yield when each template was rolled out, or nothing if the time of a return is not known.

    No VMI has a template without a revision: it is rolled out in this pass.
    """
    template, rejected, _ = rolled_out_in(snapshot, intent)
    since = intent.settings.returned_at
    if rejected is None or since is not None:
        yield from rollouts_of(snapshot.revisions)
    if rejected is not None and since is not None:
        yield since, snapshot.owner.metadata.generation or 0, template.hash


def _hash_in(vmi: VirtualMachineInstance) -> str | None:
    return labels_of(vmi.metadata).get(TEMPLATE_HASH)


def _with_hash(vmi: VirtualMachineInstance, hashed: str) -> VirtualMachineInstance:
    if not hashed:
        return vmi
    labels = texts_of({**labels_of(vmi.metadata), TEMPLATE_HASH: hashed})
    return like(vmi, metadata=like(vmi.metadata, labels=labels))
