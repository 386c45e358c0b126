"""Updates of VMs that run: KubeVirt changes the VMI where it can, so fewer VMs are restarted.

A change is *live* if the two templates differ only in fields that KubeVirt can change in a running VMI. The controller
patches the VM, and KubeVirt decides. Until KubeVirt has ended the change, the VMI keeps the label of its old revision.
A quarter of the pool may have an unfinished live change at the same time, and one VM at least.

Only this process knows since when a live change runs, because KubeVirt does not write the time. KubeVirt writes the
condition `RestartRequired` again and again with a new time, and its clock may differ. So this process also knows since
when the condition is true. After a restart of the controller, these times start again.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.live_updates import Verdict, restart_required, verdict_of, why_unfinished
from controller.kubevirt.vms import revision_of
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.situation import Situation
from controller.pool.spec.template import Template
from informers.meta import ObjectKey, labels_of

SETTLING: Final = timedelta(seconds=3)
"""The time for which the condition `RestartRequired` must be true before a restart. KubeVirt may take it back."""

SHARE: Final = 4
"""One VM of this number of VMs may have an unfinished live change."""


class LiveChanges:
    """Whether KubeVirt changes running VMIs, and since when this process has seen the live changes of each pool."""

    def __init__(self, is_live: Callable[[], bool]) -> None:
        self._is_live = is_live
        self._since: dict[ObjectKey, Mapping[tuple[str, bool], datetime]] = {}

    def follow(self, key: ObjectKey, members: Machines, now: datetime) -> Mapping[str, datetime] | None:
        """Return the start of each unfinished live change by the UID of its VM, or None if KubeVirt changes no VMI.

        If the change needs a restart, the time is the one at which this was seen first.
        """
        before = self._since.pop(key, {})
        if not self._is_live():
            return None
        changing = (
            (each.metadata.uid, restart_required(each.vm) is not None) for each in members.where(_is_unfinished)
        )
        since = {state: before.get(state, now) for state in changing}
        if since:
            self._since[key] = since
        return {uid: at for (uid, _), at in since.items()}

    def forget(self, key: ObjectKey) -> None:
        self._since.pop(key, None)


def is_live_change(past: Template | None, current: Template) -> bool:
    """Return True if KubeVirt can give `current` to a running VMI of the template `past`, apart from the disks."""
    return past is not None and past.rigid == current.rigid and past.machine != current.machine


def live_verdict(situation: Situation, machine: Machine) -> Verdict | None:
    """Return what KubeVirt has done with the live change of a VM, or None if no live change of the VM has begun.

    A live change has begun if the VM has another revision than its running VMI, and the change between them is live.
    """
    vm, vmi, templates = machine.vm, machine.vmi, situation.revisions.templates
    if situation.snapshot.live is None or vmi is None or not _may_be_live(machine):
        return None
    wanted = templates.get(revision_of(vm))
    if wanted is None or not is_live_change(templates.get(labels_of(vmi.metadata).get(REVISION_NAME, "")), wanted):
        return None
    return verdict_of(vm, vmi)


def restart_due(situation: Situation, machine: Machine) -> datetime:
    """Return the time from which the condition `RestartRequired` of the VM counts."""
    condition, now = restart_required(machine.vm), situation.now
    seen = (situation.snapshot.live or {}).get(machine.metadata.uid, now)
    told = with_timezone(condition.last_transition_time) if condition is not None else None
    return min(seen, told or now) + SETTLING


def most_live_changes(situation: Situation) -> int:
    return max(situation.target.wanted // SHARE, 1)


def late_change(machine: Machine) -> str:
    """Return the text about a live change that has exceeded the progress deadline of the pool."""
    assert machine.vmi is not None, "only a running VM has a live change"
    why = why_unfinished(machine.vm, machine.vmi)
    return f"{machine.metadata.name}: its change while it runs has not ended: {why}; restart the VM to end it"


def _may_be_live(machine: Machine) -> bool:
    vmi = machine.vmi
    return vmi is not None and vmis.is_active(vmi) and vmis.is_running(vmi)


def _is_unfinished(machine: Machine) -> bool:
    vm, vmi = machine.vm, machine.vmi
    return (
        vmi is not None and _may_be_live(machine) and labels_of(vmi.metadata).get(REVISION_NAME, "") != revision_of(vm)
    )
