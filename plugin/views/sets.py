"""The situation of a replica set. The input is the same snapshot as the controller takes of the set."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from controller.apimachinery.field_error import FieldError
from controller.kinds import REPLICA_SETS
from controller.kubevirt.annotations import ADOPTED_TEMPLATE, ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.problems import cause_of_vmi, text_of
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active, is_deleting, is_ready, node_of, phase_of
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import message_of
from controller.replicaset.health import find_troubles
from controller.replicaset.intent import Intent
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.rollout import vmi_stuck_since
from controller.replicaset.situation import situation_of
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.status import next_status
from controller.replicaset.template import Template, has_hash, is_updated
from informers.meta import annotations_of, labels_of
from plugin.views.situation import (
    TERMINATING,
    Member,
    Situation,
    finalizers_of,
    marks_of,
    not_yet_tried,
    situation_in_plan,
)


def situation_of_set(snapshot: Snapshot) -> Situation:
    owner, plan, found = snapshot.owner, plan_set(snapshot), situation_of(snapshot)
    status = next_status(snapshot, not_yet_tried(plan), plan.waits)
    situation = None if isinstance(found, FieldError) else found
    intent = situation.intent if situation is not None else None
    active, fields = snapshot.members.where(is_active), dict[str, Any]()
    hashed = intent.template.hash if intent is not None else ""
    # While KubeVirt's own controller runs the set, no VMI has a hash, and vmherd has noted no template.
    is_known = ADOPTED_TEMPLATE in annotations_of(owner.metadata) or any(map(has_hash, active))
    template = intent.template if intent is not None and (is_known or not active) else None
    updated = (status.updated_replicas or 0) if template is not None else 0
    if situation is not None:
        rollout = situation.rollout
        fields["wanted"] = fields["target"] = situation.intent.replicas
        fields["most_unavailable"] = rollout.max_unavailable if rollout is not None else None
        limit = situation.intent.rolling.unavailable if situation.intent.rolling is not None else None
        fields["percentage"] = f"{limit.number}%" if limit is not None and limit.percent else ""
        fields["subject"] = next((each.name for each, _ in find_troubles(situation)), "")
    if updated < len(active):
        fields["by_hand"] = _by_hand(snapshot, intent, template, active)
    ordered = sorted(snapshot.members, key=lambda vmi: (_created(vmi), vmi.metadata.name))
    return situation_in_plan(
        REPLICA_SETS,
        snapshot.replicasets.group,
        snapshot,
        plan,
        status,
        updated=updated,
        revision=hashed,
        old_revision=_old_hash(active, template, hashed),
        members=tuple(_member(vmi, template, snapshot.now) for vmi in ordered),
        invalid=found.message if isinstance(found, FieldError) else "",
        **fields,
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


def _member(vmi: VirtualMachineInstance, template: Template | None, now: datetime) -> Member:
    return Member(
        kind="vmi",
        name=vmi.metadata.name,
        revision=_hash_of(vmi, template),
        running_revision=_hash_of(vmi, template),
        status=TERMINATING if is_deleting(vmi) else phase_of(vmi) or "Pending",
        is_ready=is_ready(vmi),
        is_updated=template is not None and is_updated(vmi, template),
        is_deleting=is_deleting(vmi),
        node=node_of(vmi),
        created=vmi.metadata.creation_timestamp,
        problem=text_of(cause_of_vmi(vmi)),
        unready_since=vmi_stuck_since(vmi, now) if is_active(vmi) and not is_ready(vmi) else None,
        finalizers=finalizers_of(vmi.metadata),
        **marks_of(vmi, "vmi", now),
    )
