"""The limits of a rolling update, from the annotation of the set: `maxUnavailable` and `maxSurge` (R14).

A percentage of `maxUnavailable` rounds down and a percentage of `maxSurge` rounds up, as in a Deployment. With the
surge, the set has more VMIs than wanted while outdated VMIs are left: new VMIs are created first, and outdated VMIs are
deleted when the new ones are ready.
"""

from datetime import timedelta

from msgspec import Struct

from controller.apimachinery.quantities import parse_amount
from controller.kubevirt.annotations import ROLLING_UPDATE, is_protected
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.replicas.replica_limit import limited
from controller.replicas.settings import parse_deadline
from controller.replicas.wrong_annotations import setting
from controller.replicaset.intent import Intent
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import is_updated
from controller.replicaset.traits import VMIs
from informers.meta import annotations_of


class Rollout(Struct, frozen=True):
    """The settings of a rolling update.

    The rollout deletes ready VMIs only while fewer than `max_unavailable` of the wanted VMIs are not ready. At most
    `max_surge` VMIs exist in addition to the wanted VMIs. At least one of the two numbers is not 0, unless the set
    wants no VMI.
    """

    max_unavailable: int
    max_surge: int
    progress_deadline: timedelta


def parse_rollout(owner: ReplicaSet, wanted: int) -> Rollout | None:
    """Parse the rolling-update annotation of the set, or return None if it is absent or invalid."""
    text = setting(owner.metadata, ROLLING_UPDATE)
    if text is None:
        return None
    parts = (part.partition("=") for part in text.split(","))
    amounts = {name.strip(): parse_amount(value.strip()) for name, _, value in parts}
    unavailable, surge = amounts["maxUnavailable"], amounts.get("maxSurge")
    deadline = parse_deadline(owner.metadata)
    if surge is None:
        assert unavailable is not None, "the catalogue refuses two limits of 0"
        return Rollout(unavailable.of(wanted), 0, deadline)
    return Rollout(unavailable.floor(wanted) if unavailable is not None else 0, surge.ceiling(wanted), deadline)


def rolls_out(owner: ReplicaSet) -> bool:
    """Return True if the set has the rolling-update annotation. Such a set replaces all its outdated VMIs."""
    return ROLLING_UPDATE in annotations_of(owner.metadata)


def max_unavailable(owner: ReplicaSet) -> int | None:
    """Return the `maxUnavailable` of the rolling-update annotation, or None if it is absent or invalid."""
    rollout = parse_rollout(owner, 1 if owner.spec.replicas is None else owner.spec.replicas)
    return rollout.max_unavailable if rollout is not None else None


def surge_of(snapshot: Snapshot, intent: Intent, active: VMIs) -> int:
    """Return how many active VMIs the set may have now in addition to the wanted VMIs.

    One new VMI is created for each outdated VMI that the rolling update may delete. An outdated VMI that becomes busy
    after that keeps its new VMI.
    """
    rollout = parse_rollout(snapshot.owner, intent.wanted)
    if rollout is None or not rollout.max_surge or not intent.wanted:
        return 0
    outdated = active.where(lambda vmi: not is_updated(vmi, intent.template) and not is_protected(vmi.metadata))
    deletable = outdated.where(lambda vmi: not reason_to_spare_vmi(vmi, snapshot.now))
    present = min(len(active) - intent.wanted, len(outdated))
    surge = min(rollout.max_surge, max(len(deletable), present))
    return max(limited(intent.wanted + surge, len(active), snapshot.max_replicas) - intent.wanted, 0)
