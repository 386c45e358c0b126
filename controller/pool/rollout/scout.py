"""The scout of an update that must restart no VM (P21).

If the pool forbids restarts, one VM at a time gets a change of which only KubeVirt knows whether it needs a restart. If
KubeVirt asks for a restart, the VM gets the spec of its VMI back, and KubeVirt takes its wish back. Before that, an
annotation of the pool notes the template. While it is noted, no other VM gets it, so a template has one such scout.

A VM whose user has changed the same fields is no scout, because its old values would not come back.
"""

from controller.kubevirt.annotations import SCOUTED
from controller.kubevirt.live_updates import restart_required
from controller.kubevirt.vms import revision_of
from controller.pool.members.machine import Machine, vmi_revision_of
from controller.pool.members.situation import Situation
from controller.replicas.notes import plan_note
from controller.runtime.actions import Stage
from informers.meta import annotations_of


def why_no_scout(situation: Situation, machine: Machine) -> str:
    """Return why a change that KubeVirt may make while the VM runs counts as a restart, or ""."""
    if not situation.intent.forbids_restarts:
        return ""
    if scout := _noted(situation):
        return f"KubeVirt asked for it when {scout} had the change"
    is_of_user = machine.vmi is not None and vmi_revision_of(machine.vmi) == revision_of(machine.vm)
    return "KubeVirt asks for it already" if is_of_user and restart_required(machine.vm) is not None else ""


def note_scout(situation: Situation, scout: Machine) -> tuple[Stage, ...]:
    """Return the stage that must come before the scout gets its spec back, or none if the template is noted."""
    if _noted(situation):
        return ()
    note, why = f"{situation.revisions.template.digest} {scout.metadata.name}", "KubeVirt asks for a restart"
    return plan_note(situation.snapshot.pools, situation.pool, {SCOUTED: note}, why, essential=True).stages


def _noted(situation: Situation) -> str:
    """Return the name of the scout of the present template if KubeVirt asked for a restart of it, or ""."""
    digest, _, scout = annotations_of(situation.pool).get(SCOUTED, "").partition(" ")
    return scout if digest == situation.revisions.template.digest else ""
