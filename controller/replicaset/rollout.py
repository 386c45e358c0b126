"""Replacing outdated VMIs step by step, where the set asks for it (R14).

Of the VMIs that are wanted, no more than `maxUnavailable` are not ready because of us. One that is not ready anyway
costs nothing and may always go. A template that does not come up uses the allowance up and so stops its own rollout;
when that lasts longer than the progress deadline, the user is told, once for each template.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt.flaw import Flaw
from controller.kubevirt.markers import PROGRESS_DEADLINE, ROLLING_UPDATE, TEMPLATE_HASH, parse_integer, quoted
from controller.kubevirt.types import VirtualMachineInstance
from controller.kubevirt.vmis import is_ready, unready_since
from controller.planning import Notice, Plan, Stage
from controller.replicaset.intent import Intent
from controller.replicaset.ranking import INVALID_ANNOTATION, malformed_costs, rank_for_removal
from controller.replicaset.scale import delete_of
from controller.replicaset.snapshot import Snapshot
from informers.meta import annotations_of, labels_of

PROGRESS_DEADLINE_S: Final = 600

_MAX_UNAVAILABLE = re.compile(r"\s*maxUnavailable\s*=\s*(?P<number>[0-9]{1,9})(?P<percent>%?)\s*", re.ASCII)


class Rollout(Struct, frozen=True):
    max_unavailable: int
    progress_deadline: timedelta
    notices: tuple[Notice, ...] = ()


def parse_rollout(snapshot: Snapshot, wanted: int) -> Rollout | Flaw | None:
    """How the set wants its VMIs replaced; None where it does not want that."""
    annotations = annotations_of(snapshot.owner.metadata)
    text = annotations.get(ROLLING_UPDATE)
    if text is None:
        return None
    allowance = _parse_max_unavailable(text, wanted)
    if isinstance(allowance, Flaw):
        return allowance
    deadline = annotations.get(PROGRESS_DEADLINE, str(PROGRESS_DEADLINE_S))
    seconds = parse_integer(deadline)
    if seconds is None or seconds <= 0:
        message = (
            f"annotation {PROGRESS_DEADLINE} is {quoted(deadline)}: it must be a number of seconds, "
            f"so it counts as {PROGRESS_DEADLINE_S}"
        )
        notices = (_invalid(PROGRESS_DEADLINE, snapshot, message),)
        return Rollout(allowance, timedelta(seconds=PROGRESS_DEADLINE_S), notices)
    return Rollout(allowance, timedelta(seconds=seconds))


def is_updated(vmi: VirtualMachineInstance, template_hash: str) -> bool:
    """Whether it was made from this template. What was adopted without the label came from none we know."""
    return labels_of(vmi.metadata).get(TEMPLATE_HASH) == template_hash


def plan_rollout(snapshot: Snapshot, intent: Intent, active: tuple[VirtualMachineInstance, ...], *, limit: int) -> Plan:
    """Delete outdated VMIs, at most `limit`, for the next pass to replace. To be asked when the count is right."""
    rollout = parse_rollout(snapshot, intent.wanted)
    if rollout is None:
        return Plan()
    if isinstance(rollout, Flaw):
        return Plan(notices=(_invalid(ROLLING_UPDATE, snapshot, rollout.message),))
    updated = {vmi.metadata.uid for vmi in active if is_updated(vmi, intent.template.hash)}
    if len(updated) == len(active):
        return Plan(notices=rollout.notices)
    outdated = [vmi for vmi in rank_for_removal(active) if vmi.metadata.uid not in updated]
    unavailable = max(intent.wanted - sum(map(is_ready, active)), 0)
    going, waiting = _choose(outdated, rollout.max_unavailable - unavailable)
    deletes = tuple(delete_of(snapshot, vmi, "made from an older template") for vmi in going[: max(limit, 0)])
    progress = Plan(
        stages=(Stage(deletes),) if deletes else (),
        notices=rollout.notices + malformed_costs(active),
        held=f"rollout: {waiting} outdated wait until more are ready" if waiting else "",
    )
    if going or not waiting:
        return progress
    return _watch(progress, snapshot, intent, rollout, [vmi for vmi in active if vmi.metadata.uid in updated])


def _choose(outdated: list[VirtualMachineInstance], allowance: int) -> tuple[list[VirtualMachineInstance], int]:
    """Who goes now, in R6's order, and how many must wait for the allowance."""
    going, waiting = [], 0
    for vmi in outdated:
        if not is_ready(vmi):
            going.append(vmi)
        elif allowance > 0:
            allowance -= 1
            going.append(vmi)
        else:
            waiting += 1
    return going, waiting


def _watch(
    progress: Plan, snapshot: Snapshot, intent: Intent, rollout: Rollout, updated: list[VirtualMachineInstance]
) -> Plan:
    """Tell the user when the new template keeps the rollout waiting for too long; before that, wake at that moment."""
    stuck = [(unready_since(vmi) or snapshot.now, vmi.metadata.name) for vmi in updated if not is_ready(vmi)]
    if not stuck:
        return progress
    since, name = min(stuck)
    remaining = rollout.progress_deadline - (snapshot.now - since)
    if remaining > timedelta():
        # A node's clock may be ahead of ours: never sleep for longer than the deadline itself.
        return replace(progress, requeue_after_s=min(remaining, rollout.progress_deadline).total_seconds())
    stalled = Notice(
        reason="RolloutStalled",
        message=(
            f"{len(stuck)} virtual machines of the new template are not ready, {name} for longer than "
            f"{int(rollout.progress_deadline.total_seconds())} seconds; no more are replaced until they are"
        ),
        once=f"stalled {intent.template.hash}",
    )
    return replace(progress, notices=(*progress.notices, stalled))


def _parse_max_unavailable(text: str, wanted: int) -> int | Flaw:
    found = _MAX_UNAVAILABLE.fullmatch(text)
    number = int(found["number"]) if found else 0
    percent = bool(found and found["percent"])
    if number < 1 or (percent and number > 100):
        return Flaw(
            f"annotation {ROLLING_UPDATE} is {quoted(text)}: it must be maxUnavailable=N with N at least 1, "
            "or maxUnavailable=P% with P from 1 to 100; nothing is rolled out"
        )
    return max(wanted * number // 100, 1) if percent else number


def _invalid(annotation: str, snapshot: Snapshot, message: str) -> Notice:
    value = annotations_of(snapshot.owner.metadata).get(annotation)
    return Notice(reason=INVALID_ANNOTATION, message=message, once=f"{annotation} {value}")
