"""Plans for the ControllerRevisions of a set. Each revision stores an earlier or present template (R17).

A user can return to a stored template with `kubectl vmherd rollout undo`, and VMIs can return by themselves (P29). The
name of a revision has the hash of its template. So a return to an earlier template uses the earlier revision again,
with a new number.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt.annotations import ADOPTED_TEMPLATE, TEMPLATE_HASH
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmis import is_deleting
from controller.replicas.notes import plan_note
from controller.replicas.revisions import (
    create_revision,
    delete_revisions,
    hash_of_set_revision,
    last_ready,
    roll_out_again,
    set_revision_name,
    unused_revisions,
)
from controller.replicaset.back_off import is_proven
from controller.replicaset.situation import Situation
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import has_hash
from controller.runtime.actions import Plan, Stage
from informers.meta import ObjectMeta, annotations_of

ORPHANED: Final = "its set was deleted"
"""Why revisions go whose set was deleted with `--cascade=orphan`. The garbage collector does not delete them."""

SPREAD_S: Final = 300
NEW_S: Final = 60
"""A set counts as new if it is at most this number of seconds older than the first reconciliation."""


def plan_revision(situation: Situation) -> Plan:
    """Plan to create a missing revision of the template, or to note that its revision is rolled out again. An old set
    without a history waits up to `SPREAD_S`: an upgrade must cause no burst. No VMI waits for the history.
    """
    snapshot, hashed = situation.snapshot, situation.template.hash
    history, owner = snapshot.history, snapshot.owner
    name = set_revision_name(owner.metadata.name, hashed)
    if name in history.names:
        # If another object has the name, the set waits until that object is gone. Its deletion starts a reconciliation.
        if situation.target.rejected is not None:
            return Plan()
        ready = _ready_revisions(situation)
        return Plan(stages=roll_out_again(owner, history.revisions, name, snapshot.now, ready))
    if not situation.creates.number and not history.revisions and not _is_new(owner.metadata, history.since):
        wait_s = (history.since - snapshot.now).total_seconds() + spread_s(owner.metadata.uid)
        if wait_s > 0:
            return Plan(requeue_after_s=wait_s)
    data = {"template": owner.spec.template}
    worked = last_ready(history.revisions, _ready_revisions(situation))
    create = create_revision(owner, snapshot.replicasets, name, data, labels={TEMPLATE_HASH: hashed}, worked=worked)
    return Plan(stages=(Stage((replace(create, is_note=True),), essential=False),))


def plan_adopted_template(situation: Situation) -> Plan:
    """Plan to note the present template as that of members without a hash, which all new ones would be (R14)."""
    snapshot, kept = situation.snapshot, situation.claims.kept
    meta = snapshot.owner.metadata
    if ADOPTED_TEMPLATE in annotations_of(meta) or not kept.some(
        lambda vmi: not is_deleting(vmi) and not has_hash(vmi)
    ):
        return Plan()
    why = "notes the template of the VMIs that have no hash"
    return plan_note(snapshot.replicasets, meta, {ADOPTED_TEMPLATE: situation.intent.template.hash}, why)


def plan_pruning(situation: Situation) -> Plan:
    """Plan to delete at most `burst` revisions that no VMI has or returns to, but not the newest `keep`."""
    snapshot, intent = situation.snapshot, situation.intent
    history = snapshot.history
    # The present template has one of the revisions, except right after a change.
    has_unused = len(history.revisions) > history.keep + 1
    if not (has_unused or history.orphaned):
        return Plan()
    unused: list[ControllerRevision] = []
    if has_unused:
        shared = snapshot.members.traits()
        hashes = {intent.template.hash_of(vmi) for vmi in shared} | {intent.template.hash}
        used = {each.metadata.name for each in history.revisions if hash_of_set_revision(each.metadata) in hashes}
        used |= {intent.settings.ready_revision, last_ready(history.revisions)}
        unused = unused_revisions(history.revisions, used, keep=history.keep)
    stages = (
        *delete_revisions(unused, "no VMI uses this revision", burst=snapshot.burst),
        *delete_revisions(history.orphaned, ORPHANED, burst=snapshot.burst - len(unused)),
    )
    return Plan(stages=stages)


def _ready_revisions(situation: Situation) -> Iterator[tuple[str, int]]:
    """Yield the revision of each group of ready VMIs, with their number."""
    owner, template, now = situation.snapshot.owner.metadata.name, situation.template, situation.snapshot.now
    for group in situation.active.where(lambda vmi: is_proven(vmi, now)).groups:
        if hashed := template.hash_of(group.traits):
            yield set_revision_name(owner, hashed), len(group)


def _is_new(owner: ObjectMeta, since: datetime) -> bool:
    created = with_timezone(owner.creation_timestamp)
    return created is not None and created >= since - timedelta(seconds=NEW_S)


def spread_s(uid: str) -> int:
    """Return the delay of a set's first revision in seconds, from 0 to `SPREAD_S`. Each set has its own delay."""
    return crc32(uid.encode()) % SPREAD_S


def revision_number(snapshot: Snapshot, hashed: str) -> str:
    """Return the number of the revision with the template of this hash, or the hash if there is no such revision."""
    found = (str(each.revision) for each in snapshot.revisions if hash_of_set_revision(each.metadata) == hashed)
    return next(found, hashed)
