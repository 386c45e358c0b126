"""Updates of VMs that run: KubeVirt changes the VMI where it can, so fewer VMs are restarted.

A change is *live* if the two templates differ only in fields that KubeVirt can change in a running VMI, and KubeVirt
will end the change (`why_not`). The controller patches the VM, and KubeVirt decides. Until KubeVirt has ended the
change, the VMI keeps the label of its old revision. A quarter of the pool may have an unfinished live change at the
same time, and one VM at least.

A change is *open* if only KubeVirt knows whether it needs a restart. Until its verdict, the VM takes the turn of a VM
that restarts. If the pool forbids restarts, one VM at a time gets such a change: the *scout* (P21). If KubeVirt asks
for a restart, the scout gets the spec of its VMI back, and KubeVirt takes its wish back. Before that, an annotation of
the pool notes the template. While it is noted, no other VM gets it, so a template has one such scout. A VM whose user
has changed the same fields is no scout, because its old values would not come back.

Only this process knows since when a live change runs, because KubeVirt does not write the time. KubeVirt writes the
condition `RestartRequired` again and again with a new time, and its clock may differ. So this process also knows since
when the condition is true. After a restart of the controller, these times start again.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import SCOUTED
from controller.kubevirt.live_updates import (
    Change,
    RolloutSettings,
    Verdict,
    restart_required,
    verdict_of,
    why_not,
    why_unfinished,
)
from controller.kubevirt.vms import revision_of
from controller.pool.members.machine import Machine, Machines, vmi_revision_of
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.spec.template import Template, machine_change
from controller.runtime.actions import Stage
from informers.meta import ObjectKey, annotations_of

SETTLING: Final = timedelta(seconds=3)
"""The time for which the condition `RestartRequired` must be true before a restart, because KubeVirt may take it back.
An open change without the condition counts as made after this time, because KubeVirt writes later that it migrates.
"""

SHARE: Final = 4
"""One VM of this number of VMs may have an unfinished live change."""


class LiveChanges:
    """How KubeVirt changes running VMIs, and since when this process has seen the live changes of each pool."""

    def __init__(self, rollout: Callable[[], RolloutSettings]) -> None:
        self._rollout = rollout
        self._since: dict[ObjectKey, Mapping[tuple[str, str, bool], datetime]] = {}

    def follow(self, key: ObjectKey, members: Machines, now: datetime, *, migrates: bool = False) -> LiveUpdates | None:
        """Return the unfinished live changes of a pool, or None if KubeVirt changes no VMI.

        If a change needs a restart, its time is the one at which this was seen first. Each template has its own time.
        `migrates` is true if the pool may start live migrations.
        """
        before, rollout = self._since.pop(key, {}), self._rollout()
        if not (rollout.changes or rollout.judges):
            return None
        changing = (
            (each.metadata.uid, revision_of(each.vm), restart_required(each.vm) is not None)
            for each in members.where(_is_unfinished)
        )
        since = {state: before.get(state, now) for state in changing}
        if since:
            self._since[key] = since
        starts = migrates and not (rollout.migrates or rollout.evicts)
        rollout = replace(rollout, migrates=True) if starts else rollout
        return LiveUpdates({uid: at for (uid, *_), at in since.items()}, rollout, starts)

    def forget(self, key: ObjectKey) -> None:
        self._since.pop(key, None)


def live_change(live: LiveUpdates | None, past: Template | None, current: Template) -> Change:
    """Return the change of a running VMI of the template `past`, apart from the disks. It is OTHER if KubeVirt does not
    make it.
    """
    if live is None or past is None:
        return Change.OTHER
    change, rollout = machine_change(past, current), live.rollout
    may_be = rollout.judges if change is Change.OPEN else change in (Change.PLACEMENT, Change.SIZE) and rollout.changes
    return change if may_be else Change.OTHER


def change_of(situation: Situation, machine: Machine, current: Template | None) -> tuple[Change, str]:
    """Return the live change of a VM to `current`, and the reason why KubeVirt does not end it, or ""."""
    change, obstacle = _change_of(situation, machine, current)
    return change, obstacle or (_why_no_scout(situation, machine) if change is Change.OPEN else "")


def _change_of(situation: Situation, machine: Machine, current: Template | None) -> tuple[Change, str]:
    """Return the same whether or not KubeVirt's verdict about the change to `current` is known."""
    live, vmi = situation.snapshot.live, machine.vmi
    if live is None or vmi is None or current is None or not may_be_live(machine):
        return Change.OTHER, ""
    past = situation.revisions.templates.get(vmi_revision_of(vmi))
    change = live_change(live, past, current)
    return change, why_not(change, live.rollout, vmi)


def _why_no_scout(situation: Situation, machine: Machine) -> str:
    """Return why a change that KubeVirt may make while the VM runs counts as a restart, or ""."""
    if not situation.intent.forbids_restarts:
        return ""
    if scout := _noted_scout(situation):
        return f"KubeVirt asked for it when {scout} had the change"
    is_of_user = machine.vmi is not None and vmi_revision_of(machine.vmi) == revision_of(machine.vm)
    return "KubeVirt asks for it already" if is_of_user and restart_required(machine.vm) is not None else ""


def note_scout(situation: Situation, scout: Machine) -> tuple[Stage, ...]:
    """Return the stage that must come before the scout gets its spec back, or none if the template is noted."""
    if _noted_scout(situation):
        return ()
    note, why = f"{situation.revisions.template.digest} {scout.metadata.name}", "KubeVirt asks for a restart"
    return situation.snapshot.note({SCOUTED: note}, why, essential=True).stages


def _noted_scout(situation: Situation) -> str:
    """Return the name of the scout of the present template if KubeVirt asked for a restart of it, or ""."""
    digest, _, scout = annotations_of(situation.pool).get(SCOUTED, "").partition(" ")
    return scout if digest == situation.revisions.template.digest else ""


def live_verdict(situation: Situation, machine: Machine) -> tuple[Verdict | None, bool]:
    """Return what KubeVirt has done with the live change of a VM, or None if no live change of the VM has begun. The
    second value is True if the change is open, also because KubeVirt may ask for a migration that nothing starts.

    A live change has begun if the VM has another revision than its running VMI, and the change between them is live. A
    change that KubeVirt will not end has not begun.
    """
    wanted = situation.revisions.templates.get(revision_of(machine.vm))
    change, obstacle = _change_of(situation, machine, wanted)
    if change is Change.OTHER or machine.vmi is None:
        return None, False
    verdict, is_open = verdict_of(machine.vm, machine.vmi), change is Change.OPEN
    if obstacle and verdict is not Verdict.APPLIED:
        return None, is_open
    # KubeVirt gives the VMI its new spec a moment before it asks for a migration.
    return verdict, is_open or bool(obstacle)


def settled_at(situation: Situation, machine: Machine) -> datetime:
    """Return the time from which KubeVirt's verdict counts."""
    condition, now, live = restart_required(machine.vm), situation.now, situation.snapshot.live
    seen = live.since.get(machine.metadata.uid, now) if live is not None else now
    told = with_timezone(condition.last_transition_time) if condition is not None else None
    return min(seen, told or now) + SETTLING


def because(obstacle: str) -> str:
    return f", because {obstacle}" if obstacle else ""


def most_live_changes(situation: Situation) -> int:
    return max(situation.target.wanted // SHARE, 1)


def late_change(machine: Machine) -> str:
    """Return the text about a live change that has exceeded the progress deadline of the pool."""
    assert machine.vmi is not None, "only a running VM has a live change"
    why = why_unfinished(machine.vm, machine.vmi)
    return f"{beginning_of_late_change(machine.metadata.name)} {why}; restart the VM to end it"


def beginning_of_late_change(name: str) -> str:
    return f"{name}: its change while it runs has not ended:"


def may_be_live(machine: Machine) -> bool:
    vmi = machine.vmi
    return vmi is not None and vmis.is_active(vmi) and vmis.is_running(vmi)


def _is_unfinished(machine: Machine) -> bool:
    vm, vmi = machine.vm, machine.vmi
    return vmi is not None and may_be_live(machine) and vmi_revision_of(vmi) != revision_of(vm)
