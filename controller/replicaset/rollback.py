"""The return of a set's VMIs to the last revision that was wholly ready (P29): see `replicas.rollback`."""

from collections.abc import Iterator
from datetime import datetime

from controller.kubevirt.vmis import is_ready
from controller.replicas.revisions import set_revision_name
from controller.replicas.rollback import Rollout, tells_of_template
from controller.replicaset.back_off import is_proven, next_proof
from controller.replicaset.rollout import vmi_stuck_since
from controller.replicaset.situation import Situation, usable_in
from controller.replicaset.template import has_hash, is_updated
from controller.replicaset.traits import replaces_failure


def rollout_of(situation: Situation) -> Rollout:
    """Return what the VMIs show. Without a rolling update, they do not return."""
    intent, snapshot, template = situation.intent, situation.snapshot, situation.template
    settings, owner = intent.settings, snapshot.owner.metadata
    revision, noted = set_revision_name(owner.name, template.hash), settings.ready_revision
    is_new = settings.returns and situation.target.rejected is None and noted != revision
    may_return = is_new and situation.rollout is not None
    if may_return and not noted:
        # The first template of a set has no way back.
        may_return = situation.active.some(lambda vmi: not is_updated(vmi, template))
    ready, ready_at = _ready_revision(situation) if is_new else ("", None)
    return Rollout(
        owner=owner,
        settings=settings,
        resource=snapshot.replicasets,
        digest=intent.template.hash,
        revision=revision,
        ready=ready,
        ready_at=ready_at,
        unready=_unready(situation) if may_return else (),
        usable=usable_in(snapshot, intent),
    )


def _ready_revision(situation: Situation) -> tuple[str, datetime | None]:
    """Return the revision of all wanted VMIs if all are ready, or "" and the time at which the next is proven."""
    snapshot, intent, active = situation.snapshot, situation.intent, situation.active
    hashes = set(map(situation.template.hash_of, active.traits()))
    short = active.where(lambda vmi: not is_ready(vmi) or (replaces_failure(vmi) and not is_proven(vmi, snapshot.now)))
    if len(hashes) != 1 or short or not situation.has_regular:
        return "", next_proof(short, snapshot.now)
    name = set_revision_name(snapshot.owner.metadata.name, min(hashes))
    return "" if isinstance(usable_in(snapshot, intent)(name), str) else name, None


def _unready(situation: Situation) -> Iterator[tuple[datetime, str]]:
    """Yield the VMIs of the new template that are not ready or have failed early, not adopted ones without a hash."""
    now, template = situation.snapshot.now, situation.template
    of_template = situation.active.where(lambda vmi: has_hash(vmi) and is_updated(vmi, template))
    stuck = of_template.where(lambda vmi: not is_ready(vmi) and tells_of_template(vmi))
    for group in stuck.groups:
        yield vmi_stuck_since(group.traits, now), min(each.metadata.name for each in group)
    for failure in situation.back_off.failures:
        if has_hash(failure.vmi) and tells_of_template(failure.vmi):
            yield failure.since, failure.vmi.metadata.name
