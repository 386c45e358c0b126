"""The templates of VMIs whose label `vmherd.dev/template-hash` somebody has changed or removed (R14).

A policy for updates, another controller or a user may do so. By its label, such a VMI looks outdated, and so does the
VMI in its place, without end. But a set gives each VMI a name of its own and its present template. So a VMI with such
a name that is younger than the rollout of this template was created from it, and counts so.
"""

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.field_error import FieldError
from controller.apimachinery.names import SUFFIX_LENGTH
from controller.kubevirt.annotations import TEMPLATE_HASH
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.revisions import hash_of_set_revision, rolled_out_at
from controller.replicaset.intent import parse_intent
from controller.replicaset.situation import rolled_out_in
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import Template, is_updated
from controller.replicaset.traits import VMIs
from controller.runtime.members.groups import Group, Members, like, texts_of
from informers.meta import labels_of


def with_own_hashes(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which each VMI has the hash of the template from which the set has created it."""
    known = {hash_of_set_revision(each.metadata) for each in snapshot.revisions}

    def is_known(vmi: VirtualMachineInstance) -> bool:
        return labels_of(vmi.metadata).get(TEMPLATE_HASH) in known

    if not known or all(map(is_known, snapshot.members.traits())):
        return snapshot
    intent = parse_intent(snapshot.owner)
    if isinstance(intent, FieldError):
        return snapshot
    template, rejected, _ = rolled_out_in(snapshot, intent)
    since = rolled_out_at(snapshot.revisions, template.hash) if rejected is None else intent.settings.returned_at
    if since is None:
        return snapshot
    members = _relabelled(snapshot.members, template, since, lambda vmi: is_known(vmi) or is_updated(vmi, template))
    return replace(snapshot, members=members)


def _relabelled(
    members: VMIs, template: Template, since: datetime, keeps: Callable[[VirtualMachineInstance], bool]
) -> VMIs:
    def is_own(vmi: VirtualMachineInstance) -> bool:
        created = with_timezone(vmi.metadata.creation_timestamp)
        return vmi.metadata.name[:-SUFFIX_LENGTH] == template.base and created is not None and created >= since

    groups: list[Group[VirtualMachineInstance]] = []
    for group in members.groups:
        own = () if keeps(group.traits) else tuple(filter(is_own, group))
        if not own:
            groups.append(group)
            continue
        others = tuple(vmi for vmi in group if not is_own(vmi))
        groups += [Group(others, group.traits)] if others else []
        groups.append(Group(tuple(_with_hash(each, template) for each in own), _with_hash(group.traits, template)))
    return Members(tuple(groups))


def _with_hash(vmi: VirtualMachineInstance, template: Template) -> VirtualMachineInstance:
    labels = texts_of({**labels_of(vmi.metadata), TEMPLATE_HASH: template.hash})
    return like(vmi, metadata=like(vmi.metadata, labels=labels))
