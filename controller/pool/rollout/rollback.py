"""The return of a pool's VMs to the last revision that was wholly ready (P29): see `replicas.rollback`."""

from collections.abc import Iterator
from datetime import datetime

from controller.kubevirt.delicate import paused_or_unreadable
from controller.kubevirt.vms import is_deleting, revision_of
from controller.pool.health import late_live_change, should_be_ready
from controller.pool.members.downtime import member_stuck_since
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation, usable_in
from controller.pool.rollout.brake import is_taken_over
from controller.pool.rollout.limits import count_unavailable, min_ready_of, should_run
from controller.pool.rollout.steps import is_updated, vmi_revision_of
from controller.replicas.rollback import Rollout, is_asked, ready_revision


def rollout_of(situation: Situation) -> Rollout:
    """Return what the VMs show. While the first update of the pool waits for its user, they do not return."""
    intent, snapshot, pool = situation.intent, situation.snapshot, situation.pool
    is_new = is_asked(pool) and intent.rejected is None and not situation.revisions.is_current(ready_revision(pool))
    return Rollout(
        owner=pool,
        resource=snapshot.pools,
        digest=(intent.rejected or intent.template).digest,
        revision=situation.revisions.current,
        ready=_ready_revision(situation) if is_asked(pool) else "",
        may_return=is_new and is_taken_over(snapshot, intent.template),
        unready=_unready(situation),
        usable=usable_in(snapshot, intent),
        stranded=intent.stranded,
    )


def _ready_revision(situation: Situation) -> str:
    """Return the revision that all VMs and VMIs have, if all wanted VMs exist, at least one should run, and all that
    should run are available. Otherwise return "".
    """
    members, templates, noted = situation.members, situation.revisions.templates, ready_revision(situation.pool)
    examples = members.examples()
    names = {revision_of(each.vm) for each in examples}
    names |= {vmi_revision_of(each.vmi) for each in examples if each.vmi is not None}
    digests = {templates[name].digest for name in names & templates.keys()}
    if len(digests) != 1 or not names <= templates.keys() or len(members) < situation.intent.wanted:
        return ""
    if noted in templates and templates[noted].digest in digests:
        return noted
    if members.some(lambda each: is_deleting(each.vm)) or not members.some(should_run):
        return ""
    is_short = count_unavailable(situation.snapshot, members, min_ready_of(situation.snapshot)).unavailable
    return "" if is_short else max(names)


def _unready(situation: Situation) -> Iterator[tuple[datetime | None, str]]:
    """Yield the VMs with the new template that are not ready, and the first VM whose live change has not ended. A lost
    VM says nothing about the template (P28).
    """

    def is_stuck(machine: Machine) -> bool:
        is_paused = machine.vmi is not None and paused_or_unreadable(machine.vmi)
        return is_updated(situation.revisions, machine) and should_be_ready(machine) and not is_paused

    for group in situation.members.where(is_stuck).without(situation.lost).groups:
        yield member_stuck_since(situation.snapshot, group[0]), min(each.metadata.name for each in group)
    late = late_live_change(situation)
    if late is not None:
        yield (situation.snapshot.live or {}).get(late.metadata.uid), late.metadata.name
