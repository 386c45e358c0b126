"""Liveness invariants: L1 to L6.

How the catalogue's invariants are worded for this controller:

- L1: at rest, each owner has the wanted members, or a reason why not: a pause, a back-off, a refusal, a protection, a
  strategy. The matrix also compares the end state with that of a run without faults.
- L2: at rest, the status equals a recount. The time of a condition changes only if the condition appears.
- L3: outside of faults, an owner has missing members or a wrong count in its status for at most `Run.reaction_s`. This
  covers L7 too, because each owner is judged alone.
- L4: within a minute, a set replaces each failing member at most four times (R4a). `EXTRA_CREATES` more VMIs may
  be created for the whole set.
- L5: after a fault ends, an owner that is not as wanted is repaired within `Run.reaction_s`.
- L6: a released lease gets a holder within two retries. Any other lease gets a new holder within
  its duration and two retries.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.faults.judge import states
from tests.faults.judge.history import History, World, shown
from tests.faults.judge.invariants_safety import holder_of
from tests.faults.judge.judge import Finding, Run, Violation, found, invariant
from tests.faults.judge.states import CHILD_OF, OWNERS, POOL, SET, VMI, Object
from tests.faults.judge.timelines import Point, Timeline, our_creates, timelines

EXCUSES = ("ReplicaBackOff", "ReplicaFailure")
"""The conditions of an owner whose members are missing for a known reason."""

A_MINUTE_S = 60.0
REPLACEMENTS_PER_MINUTE = 4
"""The maximum number of replacements of one failing member in a minute (R4a).

The first failed member is replaced at once. The next replacements wait for 10, 20 and 40 seconds.
"""

EXTRA_CREATES = 10


def end_of(history: History, run: Run) -> float:
    """Return the time at which the run ended."""
    last = max((each.time for each in history.changes), default=0.0)
    return run.ended if run.ended is not None else max(last, max((each.answered for each in history.ours), default=0.0))


def is_excused(owner: Object, world: World) -> bool:
    """Return True if the owner has an excuse for more or fewer members than wanted."""
    if (
        states.is_paused(owner)
        or states.is_deleting(owner)
        or any(states.is_true(owner, each) for each in EXCUSES)
        or is_invalid(owner)
    ):
        return True
    members = world.children(states.uid_of(owner), CHILD_OF[owner["kind"]])
    surplus = sum(states.counts(owner, each) for each in members) > states.wanted(owner)
    held = any(
        states.is_protected(each)
        or states.is_busy(each)
        or states.DRAINING in states.annotations_of(each)
        or states.status_of(each).get("snapshotInProgress")
        for each in members
    )
    name, settings = states.strategy(owner, "scaleInStrategy")
    selected = bool((settings.get("selectionPolicy") or {}).get("selectors"))
    spared = {"vmherd.dev/scale-in", states.SUBSTITUTE_LOST} & states.annotations_of(owner).keys()
    return surplus and (held or bool(spared) or (owner["kind"] == POOL and (name != "proactive" or selected)))


def is_invalid(owner: Object) -> bool:
    """Return True if the spec is invalid (R1, P1)."""
    spec = owner.get("spec") or {}
    template = spec.get("virtualMachineTemplate" if owner["kind"] == POOL else "template") or {}
    if owner["kind"] == POOL:
        template = (template.get("spec") or {}).get("template") or template
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector") or {}
    return not (selector.get("matchLabels") or selector.get("matchExpressions")) or not states.selects(owner, labels)


@invariant("L1")
def l1_at_rest_the_cluster_is_as_wanted(history: History, run: Run) -> Iterator[Finding]:
    if run.settled_from is None:
        return
    world = history.end
    for owner in world.all(*OWNERS):
        members = world.children(states.uid_of(owner), CHILD_OF[owner["kind"]])
        number = sum(states.counts(owner, each) for each in members)
        if number == states.wanted(owner) or is_excused(owner, world):
            yield None
        else:
            message = f"{owner['kind']}/{states.name_of(owner)} has {number} members, {states.wanted(owner)} are wanted"
            yield Violation("L1", message, (shown(owner.get("status")), *(shown(each["metadata"]) for each in members)))


@invariant("L2")
def l2_the_status_equals_a_recount(history: History, run: Run) -> Iterator[Finding]:
    for change in history.changes:
        if change.kind in OWNERS and change.ours and change.before is not None and change.after is not None:
            moved = _moved_times(change.before, change.after)
            message = f"the time of the conditions {moved} of {change.name} changes without a transition"
            yield found("L2", message if moved else "", change)
    if run.settled_from is None:
        return
    for owner in history.end.all(*OWNERS):
        if not states.is_deleting(owner):
            wrong = _miscounted(history.end, owner)
            message = f"the status of {states.name_of(owner)}: {wrong}"
            yield Violation("L2", message, (shown(states.status_of(owner)),)) if wrong else None


def _moved_times(before: Object, after: Object) -> list[str]:
    """Return the types of the conditions that stay true but get another transition time."""
    times = [
        {
            each["type"]: each.get("lastTransitionTime")
            for each in states.status_of(item).get("conditions") or ()
            if each["status"] == "True"
        }
        for item in (before, after)
    ]
    return [type_ for type_, time in times[1].items() if type_ in times[0] and times[0][type_] != time]


def recount(world: World, owner: Object) -> Object:
    """Return the counts that the status should have (R3, P7)."""
    members = [
        each for each in world.children(states.uid_of(owner), CHILD_OF[owner["kind"]]) if states.counts(owner, each)
    ]
    return {"replicas": len(members), "readyReplicas": sum(map(states.is_ready, members))}


def _miscounted(world: World, owner: Object) -> str:
    status = states.status_of(owner)
    expected = recount(world, owner)
    wrong = [
        f"{key} is {status.get(key, 0)}, counted {value}"
        for key, value in expected.items()
        if status.get(key, 0) != value
    ]
    generation = owner["metadata"].get("generation")
    if status.get("observedGeneration") not in (generation, None):
        wrong.append(f"observedGeneration is {status.get('observedGeneration')}, the generation is {generation}")
    if states.is_true(owner, "ReplicaPaused") != states.is_paused(owner):
        wrong.append(f"ReplicaPaused does not fit paused={states.is_paused(owner)}")
    exact = (owner.get("spec") or {}).get("selector", {}).get("matchLabels") or {}
    parts = (status.get("labelSelector") or "").split(",")
    if not is_invalid(owner) and any(f"{key}={value}" not in parts for key, value in exact.items()):
        wrong.append(f"labelSelector is {status.get('labelSelector')}")
    return "; ".join(wrong)


@invariant("L3")
def l3_each_deviation_is_repaired_in_time(history: History, run: Run) -> Iterator[Finding]:
    end = end_of(history, run)
    for timeline in timelines(history).values():
        since: float | None = None
        for index, point in enumerate(timeline.points):
            since = (point.time if since is None else since) if _deviates(point) else None
            until = timeline.points[index + 1].time if index + 1 < len(timeline.points) else end
            if since is None:
                yield None
            elif (waited := _outside_faults(run, since, until)) > run.reaction_s:
                message = f"{timeline.kind}/{timeline.name} is not as wanted for {waited:.1f} s"
                yield Violation(
                    "L3", message, (shown(point.owner), f"{point.counted} members, from {since:.3f} to {until:.3f}")
                )
                since = until
            else:
                yield None


def _deviates(point: Point) -> bool:
    """Return True if the status is wrong, or if members are missing and nothing in the status says why."""
    owner = point.owner
    if owner is None or states.is_deleting(owner) or is_invalid(owner):
        return False
    if states.status_of(owner).get("replicas", 0) != point.counted:
        return True
    return (
        not states.is_paused(owner)
        and point.counted < states.wanted(owner)
        and not any(states.is_true(owner, each) for each in EXCUSES)
    )


def _outside_faults(run: Run, start: float, end: float) -> float:
    """Return the seconds between two times. If a fault falls into this period, count from its end."""
    for fault in run.faults:
        if fault.start <= end and fault.end >= start:
            start = max(start, min(fault.end, end))
    return end - start


@invariant("L4")
def l4_failing_members_are_replaced_with_a_back_off(history: History, run: Run) -> Iterator[Finding]:
    creates: dict[str, list[int]] = {}
    for step in our_creates(history):
        if step.timeline.kind == SET:
            creates.setdefault(step.timeline.uid, []).append(step.index)
    for uid, indexes in creates.items():
        timeline = timelines(history)[uid]
        for index in indexes:
            start = timeline.points[index].time - A_MINUTE_S
            number = sum(start < timeline.points[each].time <= timeline.points[index].time for each in indexes)
            allowed = _replacements(timeline, start, index)
            message = f"{timeline.name} creates {number} VMIs in a minute, {allowed} are allowed"
            yield found("L4", message if number > allowed else "", timeline.points[index].owner)


def _replacements(timeline: Timeline, start: float, index: int) -> int:
    """Return the number of members that may be created in a minute: new members, and replacements of lost and failed
    ones.
    """
    points = [point for point in timeline.points[: index + 1] if point.time > start]
    before = [point for point in timeline.points[: index + 1] if point.time <= start]
    sizes = [states.wanted(point.owner) for point in (*before[-1:], *points) if point.owner is not None]
    lost = sum(
        point.change.kind == VMI
        and point.change.before is not None
        and not states.is_final(point.change.before)
        and (point.change.starts_deletion or (point.change.after is not None and not _is_member(point, timeline)))
        for point in points
    )
    return lost + REPLACEMENTS_PER_MINUTE * max(sizes, default=0) + EXTRA_CREATES


def _is_member(point: Point, timeline: Timeline) -> bool:
    after = point.change.after
    return after is not None and any(
        each["uid"] == timeline.uid for each in after["metadata"].get("ownerReferences") or ()
    )


@invariant("L5")
def l5_after_a_fault_the_work_goes_on(history: History, run: Run) -> Iterator[Finding]:
    end = end_of(history, run)
    for fault in run.faults:
        later = [each.end for each in run.faults if each.end > fault.end and each.start <= fault.end + run.reaction_s]
        limit = fault.end + run.reaction_s
        if later or limit > end:
            continue
        for timeline in timelines(history).values():
            points = [point for point in timeline.points if point.time <= limit]
            tail = [point for point in points if point.time > fault.end] or points[-1:]
            stuck = bool(tail) and all(map(_deviates, tail))
            message = f"{timeline.kind}/{timeline.name} is not repaired {run.reaction_s:g} s after a fault"
            yield found("L5", message if stuck else "", tail and tail[-1].owner)


@invariant("L6")
def l6_a_lease_gets_a_new_holder_in_time(history: History, run: Run) -> Iterator[Finding]:
    if run.lease is None:
        return
    writes = [
        each for each in history.ours if each.resource == "leases" and each.name == run.lease.name and holder_of(each)
    ]
    for earlier, later in pairwise(writes):
        old, new = (str(holder_of(each).get("holderIdentity") or "") for each in (earlier, later))
        if old == new or not new:
            continue
        limit = 2 * run.lease.retry_s + run.lease.slack_s + (run.lease.duration_s if old else 0.0)
        waited = _outside_faults(run, earlier.answered, later.time)
        message = f"{new} acquires the lease {waited:.1f} s after {old or 'its release'}, allowed are {limit:g} s"
        yield Violation("L6", message) if waited > limit else None
