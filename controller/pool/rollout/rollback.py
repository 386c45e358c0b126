"""The return of a pool's VMs to the last revision that was wholly ready (P29): see `replicas.rollback`."""

from collections.abc import Iterator
from datetime import datetime

from controller.kubevirt.vms import revision_of
from controller.pool.health import late_live_change, should_be_ready
from controller.pool.members.ledger import member_stuck_since
from controller.pool.members.revisions import is_updated
from controller.pool.members.situation import Situation, usable_in
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.rollout.brake import is_taken_over
from controller.replicas.rollback import Rollout, tells_of_template


def rollout_of(situation: Situation) -> Rollout:
    """Return what the VMs show. While the first update of the pool waits for its user, they do not return."""
    intent, snapshot, pool, revisions = situation.intent, situation.snapshot, situation.pool, situation.revisions
    settings, noted = intent.settings, intent.settings.ready_revision
    is_new = settings.returns and situation.target.rejected is None and not revisions.is_current(noted)
    may_return = is_new and is_taken_over(situation, situation.target.template)
    if may_return and not noted:
        # The first template of a pool has no way back.
        may_return = situation.members.some(lambda each: not is_updated(revisions, each))
    ready, ready_at = situation.wholly_ready() if is_new else ("", None)
    return Rollout(
        owner=pool,
        settings=settings,
        resource=snapshot.pools,
        digest=intent.template.digest,
        revision=revisions.current,
        ready=ready,
        ready_at=ready_at,
        unready=_unready(situation) if may_return else (),
        usable=usable_in(snapshot, intent),
    )


def _unready(situation: Situation) -> Iterator[tuple[datetime | None, str]]:
    """Yield the VMs with the new template that are not ready, and the first VM whose live change has not ended."""
    stuck = situation.members.where(
        lambda each: is_updated(situation.revisions, each) and should_be_ready(each) and tells_of_template(each.vmi)
    )
    for group in stuck.groups:
        yield member_stuck_since(situation.snapshot.revisions, group.traits), min(each.metadata.name for each in group)
    late = late_live_change(situation)
    if late is not None and situation.revisions.is_current(revision_of(late.vm)):
        yield (situation.snapshot.live or LiveUpdates()).since.get(late.metadata.uid), late.metadata.name
