"""The situation of a replica set. The input is the same snapshot as the controller takes of the set."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from controller.apimachinery.field_error import FieldError
from controller.kinds import REPLICA_SETS
from controller.kubevirt.annotations import ADOPTED_TEMPLATE, TEMPLATE_HASH
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active, is_deleting, is_ready, node_of, phase_of
from controller.replicas.kstatus import texts_of
from controller.replicas.settings import read_settings
from controller.replicaset.back_off import trial_of
from controller.replicaset.health import problem_of
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.revisions import revision_number
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
    image_in,
    marks_of,
    not_yet_tried,
    situation_in_plan,
    told_of,
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
    if template is None and active and intent is not None:
        fields["by_hand"] = f"no VMI has the label {TEMPLATE_HASH}, so the template of the VMIs is not known"
    image = image_in(owner.spec.template.spec) if owner.spec.template is not None else ""
    now, deadline, texts = snapshot.now, read_settings(owner.metadata).deadline, texts_of(status.conditions)

    def member(vmi: VirtualMachineInstance) -> Member:
        is_current = template is not None and is_updated(vmi, template)
        is_down = is_active(vmi) and not is_ready(vmi)
        revision = revision_number(snapshot, _hash_of(vmi, template))
        found = Member(
            kind="vmi",
            name=vmi.metadata.name,
            revision=revision,
            running_revision=revision,
            status=TERMINATING if is_deleting(vmi) else phase_of(vmi) or "Pending",
            is_ready=is_ready(vmi),
            is_updated=is_current,
            image=image if is_current else "",
            is_deleting=is_deleting(vmi),
            node=node_of(vmi),
            restarts=trial_of(vmi).failures or None,
            created=vmi.metadata.creation_timestamp,
            unready_since=vmi_stuck_since(vmi, now) if is_down else None,
            finalizers=finalizers_of(vmi.metadata),
            **marks_of(vmi, "vmi", now),
        )
        return told_of(found, problem_of(vmi, now, deadline) if is_down else None, texts)

    ordered = sorted(snapshot.members, key=lambda vmi: (_created(vmi), vmi.metadata.name))
    return situation_in_plan(
        REPLICA_SETS,
        snapshot.replicasets.group,
        snapshot,
        plan,
        status,
        updated=updated,
        revision=revision_number(snapshot, hashed),
        old_revision=revision_number(snapshot, _old_hash(active, template, hashed)),
        members=tuple(map(member, ordered)),
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
