"""The answer of `why`: what the object has, what waits, what causes it, what comes next, and what a user can do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from controller.apimachinery.conditions import with_timezone
from controller.leaderelection.lease import Lease
from controller.runtime.dry_run import dry_run_report
from controller.runtime.plan import Plan
from plugin.views.ages import short
from plugin.views.listing import reason_of
from plugin.views.situation import Situation

LISTED = 3
"""The largest number of VMs, and of planned actions, that the command `why` lists."""

USUAL_LEASE_S = 15


class Reason(Struct, frozen=True, kw_only=True, rename="camel"):
    """One line: a topic such as `cause`, and its text."""

    topic: str
    text: str


class Leader(Struct, frozen=True, kw_only=True):
    """The controller's lease. `is_alive` is False if no controller renews it."""

    is_alive: bool
    text: str


def summary_of(situation: Situation) -> str:
    this = situation.identity
    counts = [f"wants {situation.wanted}", f"has {situation.total}", f"{situation.ready} ready"]
    if situation.revision:
        counts.append(f"{situation.updated} on revision {situation.revision}")
    return f"{this.short}/{this.name} {', '.join(counts)}."


def reasons_of(situation: Situation, leader: Leader | None, *, other_writer: str = "") -> tuple[Reason, ...]:
    """Return the reasons, the most important one first. `leader` is None if the user may not read leases.

    `other_writer` is the evidence that KubeVirt's own controller works on the object, or "". If KubeVirt's controller
    works on the object, vmherd does not.
    """
    lines: list[tuple[str, str]] = []
    if other_writer:
        lines.append(("leader", f"not vmherd: {other_writer}"))
    elif leader is not None and not leader.is_alive:
        lines.append(("leader", leader.text))
    if situation.is_deleting:
        lines.append(("held", "the object is being deleted"))
    blocked = reason_of(situation)
    if blocked:
        lines.append(("held", blocked))
    if situation.plan.held and situation.plan.held not in blocked:
        lines.append(("held", f"{situation.plan.held}{_limit(situation)}"))
    lines += [("cause", text) for text in (*situation.failures, *_causes(situation))]
    lines += [("next", text) for text in _next(situation.plan)]
    if leader is not None and leader.is_alive and not other_writer:
        lines.append(("leader", leader.text))
    lines += [("try", text) for text in _advice(situation)]
    return tuple(Reason(topic=topic, text=text) for topic, text in lines)


def why_lines(situation: Situation, reasons: Iterable[Reason]) -> list[str]:
    return [summary_of(situation), *(f"  {reason.topic:<8} {reason.text}" for reason in reasons)]


def leader_of(leases: Iterable[Lease], now: datetime) -> Leader:
    """Return the controller whose lease was renewed recently. If there is no such lease, say so."""
    dead = "no controller has a lease"
    for lease in leases:
        renewed = _time_of(lease.record.renew_time)
        if not lease.holder or renewed is None:
            continue
        passed = (now - renewed).total_seconds()
        text = f"{lease.holder} (lease {lease.metadata.key}, renewed {short(passed)} ago)"
        if passed <= 2 * (lease.record.lease_duration_seconds or USUAL_LEASE_S):
            return Leader(is_alive=True, text=text)
        dead = f"no controller renews the lease: the last one was {text}"
    return Leader(is_alive=False, text=dead)


def _time_of(text: str | None) -> datetime | None:
    try:
        return with_timezone(datetime.fromisoformat(text)) if text else None
    except ValueError:
        return None


def _limit(situation: Situation) -> str:
    if situation.most_unavailable is None or not situation.unavailable:
        return ""
    return f" ({situation.unavailable} of {situation.most_unavailable} allowed are unavailable)"


def _causes(situation: Situation) -> Iterable[str]:
    broken = [each for each in situation.members if each.problem]
    for each in broken[:LISTED]:
        yield f"{each.name}: {each.status} ({each.problem})"
    if len(broken) > LISTED:
        yield f"and {len(broken) - LISTED} more {situation.identity.member}s are not ready"


def _next(plan: Plan) -> Iterable[str]:
    actions = dry_run_report(plan, status=False).actions
    yield from actions[:LISTED]
    if len(actions) > LISTED:
        yield f"and {len(actions) - LISTED} more writes"
    if plan.requeue_after_s is not None:
        yield f"the controller looks again in {short(plan.requeue_after_s)} without any change"


def _advice(situation: Situation) -> Iterable[str]:
    this = f"{situation.identity.short}/{situation.identity.name}"
    keeps_history = situation.identity.member == "VM"
    if situation.is_paused:
        yield f"kubectl vmherd rollout resume {this}"
    elif (
        keeps_history
        and situation.updated < situation.target
        and any(each.is_updated and each.problem for each in situation.members)
    ):
        yield f"kubectl vmherd rollout undo {this}"
