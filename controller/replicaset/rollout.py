"""The rolling update. A replica set with the rolling-update annotation replaces its outdated VMIs step by step (R14).

A rollout deletes a ready VMI only if fewer than `maxUnavailable` of the wanted VMIs are not ready. An outdated VMI that
is not ready is deleted at once, because its deletion does not increase the number of VMIs that are not ready. If
`maxUnavailable` VMIs of the new template do not become ready, the rollout stops. If the rollout stops for longer than
the progress deadline, the controller reports an Event to the user, once for each template.
"""

from __future__ import annotations

import re
from datetime import timedelta

from msgspec import Struct

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.int_or_percent import parse_amount
from controller.kubevirt.annotations import ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.costs import malformed_costs
from controller.kubevirt.progress import invalid_annotation, parse_deadline, watch_progress
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_ready, unready_since
from controller.replicaset.intent import Intent
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.scale import delete_of
from controller.replicaset.snapshot import Snapshot
from controller.runtime.plan import Notice, Plan, Stage
from informers.meta import annotations_of, labels_of

_MAX_UNAVAILABLE = re.compile(r"\s*maxUnavailable\s*=\s*(?P<amount>[0-9]{1,9}%?)\s*", re.ASCII)


class Rollout(Struct, frozen=True):
    """The settings of a rolling update.

    `max_unavailable` is the maximum number of wanted VMIs that may be not ready while the rollout deletes ready VMIs.
    `notices` contains a notice if the progress deadline of the set is malformed.
    """

    max_unavailable: int
    progress_deadline: timedelta
    notices: tuple[Notice, ...] = ()


def parse_rollout(snapshot: Snapshot, wanted: int) -> Rollout | FieldError | None:
    """Parse the rolling-update annotation of the set, or return None if the set does not have this annotation."""
    annotations = annotations_of(snapshot.owner.metadata)
    text = annotations.get(ROLLING_UPDATE)
    if text is None:
        return None
    allowance = _parse_max_unavailable(text, wanted)
    if isinstance(allowance, FieldError):
        return allowance
    deadline = parse_deadline(snapshot.owner.metadata)
    return Rollout(allowance, deadline.after, deadline.notices)


def rolls_out(owner: ReplicaSet) -> bool:
    """Return True if the set has the rolling-update annotation. Such a set replaces all its outdated VMIs."""
    return ROLLING_UPDATE in annotations_of(owner.metadata)


def is_updated(vmi: VirtualMachineInstance, template_hash: str) -> bool:
    """Return True if the VMI was created from the template with this hash.

    A VMI without the template-hash label, for example an adopted VMI, counts as outdated.
    """
    return labels_of(vmi.metadata).get(TEMPLATE_HASH) == template_hash


def plan_rollout(snapshot: Snapshot, intent: Intent, active: tuple[VirtualMachineInstance, ...], *, limit: int) -> Plan:
    """Plan to delete at most `limit` outdated VMIs. A later pass creates the new VMIs.

    Call this function only if at least the wanted number of VMIs is active.
    """
    rollout = parse_rollout(snapshot, intent.wanted)
    if rollout is None:
        return Plan()
    if isinstance(rollout, FieldError):
        return Plan(notices=(invalid_annotation(ROLLING_UPDATE, snapshot.owner.metadata, rollout.message),))
    updated = {vmi.metadata.uid for vmi in active if is_updated(vmi, intent.template.hash)}
    if len(updated) == len(active):
        return Plan(notices=rollout.notices)
    outdated = [vmi for vmi in rank_for_removal(active) if vmi.metadata.uid not in updated]
    unavailable = max(intent.wanted - sum(map(is_ready, active)), 0)
    replaced, waiting = _choose(outdated, rollout.max_unavailable - unavailable)
    deletes = tuple(delete_of(snapshot, vmi, "created from an older template") for vmi in replaced[: max(limit, 0)])
    progress = Plan(
        stages=(Stage(deletes),) if deletes else (),
        notices=rollout.notices + malformed_costs(active),
        held=f"rollout: {waiting} outdated VMIs wait until more VMIs are ready" if waiting else "",
    )
    if replaced or not waiting:
        return progress
    stuck = [
        (unready_since(vmi) or snapshot.now, vmi.metadata.name)
        for vmi in active
        if vmi.metadata.uid in updated and not is_ready(vmi)
    ]
    return watch_progress(progress, stuck, rollout.progress_deadline, now=snapshot.now, template=intent.template.hash)


def _choose(outdated: list[VirtualMachineInstance], allowance: int) -> tuple[list[VirtualMachineInstance], int]:
    """Return the VMIs that are replaced now, in the given order, and the number of outdated VMIs that must wait.

    `allowance` is the number of ready VMIs that may be replaced now.
    """
    replaced, waiting = [], 0
    for vmi in outdated:
        if not is_ready(vmi):
            replaced.append(vmi)
        elif allowance > 0:
            allowance -= 1
            replaced.append(vmi)
        else:
            waiting += 1
    return replaced, waiting


def _parse_max_unavailable(text: str, wanted: int) -> int | FieldError:
    match = _MAX_UNAVAILABLE.fullmatch(text)
    amount = parse_amount(match["amount"]) if match else None
    if amount is None:
        return FieldError(
            f"annotation {ROLLING_UPDATE} is {quoted(text)}: it must be maxUnavailable=N with N at least 1, "
            "or maxUnavailable=P% with P from 1 to 100; outdated VMIs are not replaced"
        )
    return amount.of(wanted)
