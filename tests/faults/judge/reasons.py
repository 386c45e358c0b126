"""The reason of a deletion, as the history shows it.

The controller may delete a member for these reasons:

- `owner`: the pool is being deleted (P6).
- `spent`: the VMI has finished or its state is unknown (R7).
- `unready`: the VMI runs unready, and the set asks for a replacement (R4a).
- `outdated`: the VMI or VM has another template than its owner, and the owner rolls out (R14, P13). A VM is deleted
  only if it needs new disks. Disks that only grow, and disks that are kept, are no reason (P21).
- `finished`: the VM is not ready, and the pool replaces finished VMs (P25).
- `healing`: the VM is not ready, and the pool heals (P15).
- `surplus`: no other reason applies, so more members exist than wanted (R6, P8).
"""

import copy
from collections.abc import Mapping

from tests.faults.judge import states
from tests.faults.judge.history import History
from tests.faults.judge.judge import Run
from tests.faults.judge.restarts import states_before
from tests.faults.judge.states import POOL, REVISION, Object
from tests.faults.judge.timelines import Step, Timeline, fewest_wanted


def reason_of(history: History, step: Step, run: Run) -> tuple[str, str]:
    """Return the reason of a deletion, and what is wrong with the deletion or ""."""
    owners = step.timeline.owners(run, step.index)
    versions = states_before(history, step.change, run)
    if not owners:
        return "surplus", f"{step.change.name} is deleted, but its owner was gone"
    if step.timeline.kind == POOL:
        reason = _pool_reason(history, step, owners, versions)
    else:
        reason = _set_reason(history, step, run, owners, versions)
    return reason, _problem(step, run, reason, owners)


def replaces_members(owner: Object) -> bool:
    """Return True if the owner replaces unready members, or if its annotation asks for rolling updates."""
    return _heals(owner) or states.ROLLING_UPDATE in states.annotations_of(owner)


def _set_reason(history: History, step: Step, run: Run, owners: list[Object], versions: tuple[Object, ...]) -> str:
    if any(map(states.is_spent, versions)):
        return "spent"
    if any(states.REPLACE_UNREADY in states.annotations_of(owner) for owner in owners) and not all(
        map(states.is_ready, versions)
    ):
        return "unready"
    rolls_out = any(states.ROLLING_UPDATE in states.annotations_of(owner) for owner in owners)
    return "outdated" if rolls_out and _is_outdated_vmi(history, step, run) else "surplus"


def _is_outdated_vmi(history: History, step: Step, run: Run) -> bool:
    """Return True if a newer template differs from the VMI's template, or if the VMI was adopted."""
    points = step.timeline.points
    created = next(
        (n for n, p in enumerate(points) if p.change.uid == step.change.uid and p.change.before is None), None
    )
    if (
        created is None
        or not points[created].change.ours
        or states.HASH_LABEL not in states.labels_of(step.change.object)
    ):
        return True
    before, now = (templates_of(history, step.timeline, run, index) for index in (created, step.index))
    return any(old != new for old in before for new in now)


def templates_of(history: History, timeline: Timeline, run: Run, index: int) -> list[Object]:
    """Return the templates that the owner has in the window, and the noted one to which the VMIs of a set return (P29).

    The VMs of a pool name their revision.
    """
    owners, revisions = timeline.owners(run, index), history.derive(_revisions)
    targets = (states.annotations_of(owner).get(states.ROLLED_BACK, "").partition(" to ")[2] for owner in owners)
    returned = (revisions.get((timeline.uid, name), {}).get("template") for name in targets)
    return [*map(states.template_of, owners), *filter(None, returned)]


def _pool_reason(history: History, step: Step, owners: list[Object], versions: tuple[Object, ...]) -> str:
    if any(map(states.is_deleting, owners)):
        return "owner"
    if any(_heals(owner) for owner in owners) and not all(map(states.is_ready, versions)):
        return "healing"
    if any(states.REPLACE_FINISHED in states.annotations_of(owner) for owner in owners) and not all(
        map(states.is_ready, versions)
    ):
        return "finished"
    rolls_out = any(states.strategy(owner, "updateStrategy")[0] == "proactive" for owner in owners)
    revision = revision_of(history, step.change.object, states.controller_uid(step.change.object))
    outdated = revision is None or any(may_replace_disks(revision, owner) for owner in owners)
    return "outdated" if rolls_out and outdated else "surplus"


def revision_of(history: History, vm: Object, pool_uid: str) -> Object | None:
    """Return the pool spec in the revision that a VM names, or None. The revision belongs to the pool with this UID.

    A pool that is deleted and created again may use the same names of revisions again.
    """
    return history.derive(_revisions).get((pool_uid, states.labels_of(vm).get(states.REVISION_LABEL, "")))


def _revisions(history: History) -> Mapping[tuple[str, str], Object]:
    return {
        (states.controller_uid(each.object), each.name): each.object.get("data") or {}
        for each in history.changes
        if each.kind == REVISION and states.controller_uid(each.object)
    }


def may_replace_disks(revision: Object, owner: Object) -> bool:
    """Return True if an update may delete the disks of a VM with this revision (P21)."""
    (before, old), (after, new) = _disks(revision), _disks(owner["spec"])
    leave = states.annotations_of(owner).get(states.MOST_DISRUPTIVE)
    if before == after and all(old[name] <= size for name, size in new.items()):
        return False
    return leave == states.RECREATE or (leave is None and before != after and not states.preserves(owner))


def _disks(pool_spec: Object) -> tuple[list[Object], dict[str, int]]:
    """Return the dataVolumeTemplates without their sizes, and the sizes by name."""
    spec = (pool_spec.get("virtualMachineTemplate") or {}).get("spec") or {}
    templates, sizes = copy.deepcopy(spec.get("dataVolumeTemplates") or []), {}
    for each in templates:
        claims = [(each.get("spec") or {}).get(kind) or {} for kind in ("pvc", "storage")]
        requests = [(claim.get("resources") or {}).get("requests") or {} for claim in claims]
        sizes[each["metadata"]["name"]] = sum(states.size_of(found.pop("storage", "0")) for found in requests)
    return templates, sizes


def _heals(owner: Object) -> bool:
    return (owner.get("spec") or {}).get("autohealing") is not None or states.REPLACE_UNREADY in states.annotations_of(
        owner
    )


def _problem(step: Step, run: Run, reason: str, owners: list[Object]) -> str:
    name = step.change.name
    if reason != "surplus":
        return ""
    if all(states.strategy(owner, "scaleInStrategy")[0] != "proactive" for owner in owners):
        return f"{name} is deleted, but the strategy of the scale-in forbids deletions"
    most = max(point.staying for point in step.timeline.window(run, step.index))
    if most <= fewest_wanted(owners):
        return f"{name} is deleted without a reason: {most} members, {fewest_wanted(owners)} are wanted"
    return ""
