"""The situation of a replica set. The input is the same snapshot as the controller takes of the set."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

from controller.apimachinery.field_error import FieldError
from controller.kinds import REPLICA_SETS
from controller.kubevirt.annotations import ADOPTED_TEMPLATE, ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active, is_deleting, is_ready, node_of
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import message_of
from controller.replicaset.intent import Intent
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.rollout import vmi_stuck_since
from controller.replicaset.situation import situation_of
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.status import next_status
from controller.replicaset.template import Template, has_hash, is_updated
from informers.meta import annotations_of, labels_of
from plugin.views.problems import problem_of_vmi, status_of_vmi
from plugin.views.situation import Member, Situation, finalizers_of, marks_of, not_yet_tried, situation_in_plan


def situation_of_set(snapshot: Snapshot) -> Situation:
    owner = snapshot.owner
    plan = plan_set(snapshot)
    status = next_status(snapshot, not_yet_tried(plan), plan.waits)
    found = situation_of(snapshot)
    situation = None if isinstance(found, FieldError) else found
    intent = situation.intent if situation is not None else None
    active = snapshot.members.where(is_active)
    wanted = intent.replicas if intent is not None else owner.spec.replicas or 0
    hashed = intent.template.hash if intent is not None else ""
    # While KubeVirt's own controller runs the set, no VMI has a hash, and vmherd has noted no template.
    is_known = ADOPTED_TEMPLATE in annotations_of(owner.metadata) or any(map(has_hash, active))
    template = intent.template if intent is not None and (is_known or not active) else None
    ordered = sorted(snapshot.members, key=lambda vmi: (_created(vmi), vmi.metadata.name))
    members = tuple(_member(vmi, template, snapshot.now) for vmi in ordered)
    updated = (status.updated_replicas or 0) if template is not None else 0
    by_hand = _by_hand(snapshot, intent, template, active) if updated < len(active) else ""
    rollout = situation.rollout if situation is not None else None
    return situation_in_plan(
        REPLICA_SETS,
        snapshot.replicasets.group,
        snapshot,
        status,
        plan=plan,
        wanted=wanted,
        updated=updated,
        target=wanted,
        unavailable=max(wanted - (status.ready_replicas or 0), 0),
        most_unavailable=rollout.max_unavailable if rollout is not None else None,
        percentage=_percentage(owner),
        revision=hashed,
        old_revision=_old_hash(active, template, hashed),
        members=members,
        invalid=found.message if isinstance(found, FieldError) else "",
        by_hand=by_hand,
    )


def _created(vmi: VirtualMachineInstance) -> float:
    created = vmi.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0


def _hash_of(vmi: VirtualMachineInstance, template: Template | None) -> str:
    return template.hash_of(vmi) if template is not None else labels_of(vmi.metadata).get(TEMPLATE_HASH, "")


def _old_hash(active: Iterable[VirtualMachineInstance], template: Template | None, current: str) -> str:
    """Return the template hash that most of the outdated VMIs have, or "" if no VMI is outdated."""
    hashes = (_hash_of(vmi, template) for vmi in active)
    others = Counter(each or "?" for each in hashes if each != current)
    return max(others, key=lambda each: (others[each], each), default="")


def _by_hand(
    snapshot: Snapshot, intent: Intent | None, template: Template | None, active: Collection[VirtualMachineInstance]
) -> str:
    if intent is None:
        return ""
    if template is None:
        return f"no VMI has the label {TEMPLATE_HASH}, so the template of the VMIs is not known"
    outdated = sum(not is_updated(vmi, template) for vmi in active)
    if not intent.rolls_out:
        return f"{outdated} VMIs are outdated, and without the annotation {ROLLING_UPDATE} they stay so"
    return message_of(ROLLING_UPDATE, annotations_of(snapshot.owner.metadata)[ROLLING_UPDATE], Place.SET)


def _percentage(owner: ReplicaSet) -> str:
    """Return the limit of the rolling update if it is a percentage, or ""."""
    text = annotations_of(owner.metadata).get(ROLLING_UPDATE, "")
    found = re.search(r"maxUnavailable\s*=\s*([0-9]+%)", text, re.ASCII)
    return found[1] if found is not None else ""


def _member(vmi: VirtualMachineInstance, template: Template | None, now: datetime) -> Member:
    return Member(
        kind="vmi",
        name=vmi.metadata.name,
        revision=_hash_of(vmi, template),
        running_revision=_hash_of(vmi, template),
        status=status_of_vmi(vmi),
        is_ready=is_ready(vmi),
        is_updated=template is not None and is_updated(vmi, template),
        is_deleting=is_deleting(vmi),
        node=node_of(vmi),
        created=vmi.metadata.creation_timestamp,
        problem=problem_of_vmi(vmi),
        unready_since=vmi_stuck_since(vmi, now) if is_active(vmi) and not is_ready(vmi) else None,
        finalizers=finalizers_of(vmi.metadata),
        note=marks_of(vmi, now),
    )
