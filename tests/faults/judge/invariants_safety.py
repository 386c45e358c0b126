"""Safety invariants about created and deleted objects, adoptions, pauses and leases: S1 to S5, S7 and S8, and H0.

How the catalogue's invariants are worded for this controller:

- S1: names are deterministic, so a lost answer or a crash is no excuse for a second member. The count of S1 holds
  for an owner with a constant spec and no lost member. In all other cases each deletion needs a reason, and S2 limits
  the created members.
- S2: the history does not show where a reconciliation begins or ends. So the limit is G2: the number of members created
  since a state in the window never exceeds the number of members missing in that state. In the same way, the number of
  deletions of surplus members never exceeds the surplus.
- S3: the API server allows one VM for each name. So S3 checks that names are `<pool>-<ordinal>`, that no smaller
  ordinal stays free, and that no pool adopts a VM.
- S4: every delete request has a UID as precondition, and the object belongs to an owner at the moment of the request. A
  pool may restart the VMI of a VM that was a member at some time in the window. A precondition cannot prevent this
  restart, because the version of the VMI does not change when the VM leaves.
- S5: an owner is read from the server before it adopts. Pools never adopt. A release needs a label that does not match.
- S7: during a pause nothing is created, deleted or updated. Adoption, release, and the removal of finalizers go on (R8,
  P17). An owner that is being deleted creates nothing.
"""

from collections.abc import Iterator

from tests.faults.judge import states
from tests.faults.judge.history import Change, History, Request, own_reference, shown
from tests.faults.judge.judge import Finding, Run, Violation, described, found, invariant
from tests.faults.judge.reasons import reason_of, replaces_members
from tests.faults.judge.restarts import in_pause, restarts, states_before, states_in, states_read, unfounded
from tests.faults.judge.states import HASH_LABEL, OWNERS, POOL, POOL_UID_LABEL, REVISION, SET, VM, VMI, Object
from tests.faults.judge.timelines import (
    Step,
    Timeline,
    fewest_wanted,
    most_wanted,
    our_creates,
    our_deletes,
    our_steps,
    timelines,
)

CONFIRMED_WITHIN_S = 60.0
"""Before an owner adopts an orphan, the controller must read the owner from the server. The read may be at most this
old, in seconds.
"""


@invariant("H0")
def h0_the_history_has_the_effect_of_each_write(history: History, run: Run) -> Iterator[Finding]:
    """The history shows the effect of each successful write in the audit log, or the write changed nothing."""
    seen = {(each.kind, each.revision) for each in history.changes}
    for write in history.writes:
        if not write.kind or not write.succeeded or write.subresource not in ("", "status") or not write.name:
            continue
        if write.answer is None:
            yield Violation("H0", f"the audit log has no answer to {write}; the history needs RequestResponse")
        elif write.revision and (write.kind, write.revision) not in seen:
            yield Violation("H0", f"the observer did not see the effect of {write}", (shown(write.answer),))
        elif write.verb == "delete" and not write.revision and history.effect(write) is None:
            yield Violation("H0", f"the observer did not see the removal by {write}", (shown(write.answer),))
        else:
            yield None


@invariant("S1")
def s1_nothing_is_created_or_deleted_without_a_reason(history: History, run: Run) -> Iterator[Finding]:
    for timeline in timelines(history).values():
        yield from _constant(timeline)
    for step in our_deletes(history):
        yield found("S1", reason_of(history, step, run)[1], step.change)
    for restart in restarts(history, run):
        problem = unfounded(restart)
        yield Violation("S1", problem, (restart.evidence, shown(restart.vmi))) if problem else None


def _constant(timeline: Timeline) -> Iterator[Finding]:
    """If the spec is constant and only the controller changes members, check how many members were created and deleted.

    An owner that replaces unready or outdated members is left out.
    """
    points = [point for point in timeline.points if point.owner is not None]
    members = [point.change for point in points if point.change.kind not in OWNERS]
    owners = [point.owner for point in points if point.owner is not None]
    generations = {owner["metadata"].get("generation") for owner in owners}
    foreign = [change for change in members if not change.ours]
    moved = any(_comes_or_goes(change) or _changes_sides(change, owners[-1]) for change in foreign)
    moved = moved or any(map(_is_adopted, members))
    if len(generations) != 1 or moved or any(map(states.is_deleting, owners)) or any(map(replaces_members, owners)):
        return
    first = points[0]
    missing = states.wanted(owners[0]) - first.counted
    created, deleted = points[-1].created - first.created, sum(change.starts_deletion for change in members)
    wrong = created > max(missing, 0) or deleted > max(-missing, 0)
    message = f"{timeline.kind}/{timeline.name} lacks {missing} members: {created} creates, {deleted} deletes"
    yield Violation("S1", message, tuple(str(change.author) for change in members if change.ours)) if wrong else None


def _changes_sides(change: Change, owner: Object) -> bool:
    """Return True if the selector matches the labels only before or only after the change."""
    if change.before is None or change.after is None:
        return False
    return states.selects(owner, states.labels_of(change.before)) != states.selects(
        owner, states.labels_of(change.after)
    )


def _is_adopted(change: Change) -> bool:
    """Return True if the object gets its first ownerReference with `controller: true`."""
    both = change.before is not None and change.after is not None
    return both and not states.controller_uid(change.before or {}) and bool(states.controller_uid(change.after or {}))


def _comes_or_goes(change: Change) -> bool:
    """Return True if the number of members changes: one appears, terminates, finishes, or changes its controller."""
    before, after = change.before, change.after
    if before is None or change.starts_deletion:
        return True
    if after is None:
        return False
    return states.controller_uid(before) != states.controller_uid(after) or states.is_spent(before) != states.is_spent(
        after
    )


@invariant("S2")
def s2_creates_and_deletes_stay_within_what_is_missing_or_surplus(history: History, run: Run) -> Iterator[Finding]:
    for step in our_creates(history):
        window, owners = step.timeline.window(run, step.index), step.timeline.owners(run, step.index)
        created = step.point.created
        # The smallest possible number of members, over all states of the window.
        reached = min((point.counted + created - point.created for point in window), default=created)
        message = f"{step.change.name} is create {created}: {reached} of {most_wanted(owners)} wanted"
        yield found("S2", message if reached > most_wanted(owners) else "", step.change)
    surplus = [step for step in our_deletes(history) if reason_of(history, step, run)[0] == "surplus"]
    for timeline in timelines(history).values():
        yield from _surplus_deletes(run, [step for step in surplus if step.timeline is timeline])


def _surplus_deletes(run: Run, steps: list[Step]) -> Iterator[Finding]:
    """Check the deletions of surplus members of one owner. The wanted number of members must stay."""
    for number, step in enumerate(steps, start=1):
        window = step.timeline.window(run, step.index)
        first = step.index - len(window)
        # The largest possible number of members that stay, over all states of the window.
        left = max(
            point.staying - (number - sum(each.index <= index for each in steps))
            for index, point in enumerate(window, start=first)
        )
        fewest = fewest_wanted(step.timeline.owners(run, step.index))
        message = f"the delete of {step.change.name} leaves {left} members, {fewest} are wanted"
        yield found("S2", message if left < fewest else "", step.change)


@invariant("S3")
def s3_each_ordinal_has_one_vm(history: History, run: Run) -> Iterator[Finding]:
    taken = _Taken(history)
    for step in our_creates(history):
        if step.timeline.kind != POOL:
            continue
        vm, pool = step.change.object, step.timeline.name
        ordinal = states.ordinal_of(pool, states.name_of(vm))
        if ordinal is None:
            yield Violation("S3", f"{states.name_of(vm)} is no name of {pool}", described(step.change))
            continue
        start, end = run.window(step.point.time), run.aftermath(step.point.time)
        free = [n for n in range(ordinal) if not taken.within(f"{pool}-{n}", start, end)]
        message = f"{pool}-{ordinal} is created, but the ordinals {free} are free"
        yield found("S3", message if free else "", step.change)
    for change in history.changes:
        if change.kind != VM or not change.ours or change.before is None or change.after is None:
            continue
        added = [
            each for each in states.references_of(change.after) if own_reference(change.before, each["uid"]) is None
        ]
        yield Violation("S3", f"a pool adopts {change.name}", described(change)) if added else None


class _Taken:
    """The times in which each VM name was in use. The time of the controller's create request for a name counts too.

    The create requests of one reconciliation run in parallel. So the VM with the smaller ordinal may appear a moment
    later.
    """

    def __init__(self, history: History) -> None:
        self._spans: dict[str, list[tuple[float, float]]] = {}
        for (kind, _), changes in history.objects.items():
            if kind == VM:
                end = changes[-1].time if changes[-1].after is None else float("inf")
                self._spans.setdefault(changes[0].name, []).append((changes[0].time, end))
        for write in history.ours:
            if write.kind == VM and write.verb == "create":
                self._spans.setdefault(write.name, []).append((write.time, write.answered))

    def within(self, name: str, start: float, end: float) -> bool:
        """Return True if the name was in use at any time from `start` to `end`."""
        return any(since <= end and until >= start for since, until in self._spans.get(name, ()))


@invariant("S4")
def s4_only_members_are_deleted_by_uid(history: History, run: Run) -> Iterator[Finding]:
    for write in history.ours:
        if write.verb in ("delete", "deletecollection") and write.kind:
            yield found("S4", _unconditional(write), write.body)
    for change in history.changes:
        author = change.author
        if change.starts_deletion and author is not None and author.ours and author.verb == "delete":
            is_member = _is_member(history, run, change) or _is_vmi_of_member(history, run, change)
            yield found("S4", "" if is_member else f"{change.kind}/{change.name} belongs to no owner", change)


def _unconditional(write: Request) -> str:
    if write.verb == "deletecollection":
        return "a whole collection is deleted"
    if write.body is None and not write.succeeded:
        return ""  # the audit log has no body of a request that the server refused before it read the body
    uid = ((write.body or {}).get("preconditions") or {}).get("uid")
    return "" if uid else f"{write} has no UID as precondition"


def _is_member(history: History, run: Run, change: Change) -> bool:
    """Return True if the object belongs to a set or a pool that existed in the window (see S4)."""
    item = change.before or {"metadata": {}}
    if change.kind == REVISION and not states.controller_uid(item):
        return bool(states.labels_of(item).keys() & {POOL_UID_LABEL, HASH_LABEL})
    changes = [each for kind in OWNERS for each in history.objects.get((kind, states.controller_uid(item)), ())]
    return bool(states_in(tuple(changes), run.window(change.time), change.time))


def _is_vmi_of_member(history: History, run: Run, change: Change) -> bool:
    """Return True if the VMI belongs to a VM that a pool owned at some time in the window of the change."""
    if change.kind != VMI or change.before is None:
        return False
    changes = history.objects.get((VM, states.controller_uid(change.before)), ())
    versions = states_in(changes, run.window(change.time), change.time)
    return any((POOL, states.controller_uid(item)) in history.objects for item in versions)


@invariant("S5")
def s5_adoption_and_release_follow_owner_and_labels(history: History, run: Run) -> Iterator[Finding]:
    for change in history.changes:
        if not change.ours or change.before is None or change.after is None or change.kind not in (VM, VMI):
            continue
        if history.is_after_hole(change):  # then the state before the change is not known
            continue
        before, after = ({each["uid"] for each in states.references_of(item)} for item in (change.before, change.after))
        for uid in after - before:
            yield found("S5", _wrong_adoption(history, change, uid), change)
        for uid in before - after:
            yield found("S5", _wrong_release(history, run, change, uid), change)


def _wrong_adoption(history: History, change: Change, uid: str) -> str:
    assert change.after is not None
    reference = own_reference(change.after, uid) or {}
    author, owner = change.write, history.at(SET, uid, change.write.time)
    if reference.get("kind") != SET:
        return f"{change.name} gets an owner of kind {reference.get('kind')}"
    if states.controller_uid(change.was) or states.is_deleting(change.was):
        return f"{change.name} is adopted, but has a controller or is being deleted"
    if owner is not None and not states.selects(owner, states.labels_of(change.was)):
        return f"{change.name} is adopted, but its labels do not match"
    metadata = (author.body or {}).get("metadata") or {} if isinstance(author.body, dict) else {}
    if not metadata.get("uid") or metadata.get("resourceVersion") != str(states.version_of(change.was)):
        return f"the adoption of {change.name} does not have the UID and the version of the VMI"
    reads = [
        each
        for each in history.ours
        if each.verb == "get" and each.kind == SET and each.name == reference.get("name") and each.succeeded
        if author.time - CONFIRMED_WITHIN_S <= each.answered <= author.time + 0.001
    ]
    if not reads:
        return f"{change.name} is adopted, but its owner was not read from the server before"
    read = states_read(history.objects.get((SET, uid), ()), reads[-1])
    return f"{change.name} is adopted by an owner that leaves" if all(map(states.is_deleting, read)) else ""


def _wrong_release(history: History, run: Run, change: Change, uid: str) -> str:
    """Return what is wrong with the removal of an ownerReference.

    A VM loses the reference together with the finalizer. A set that is being deleted releases nothing. A pool that is
    being deleted releases its protected VMs (P20).
    """
    kind = SET if change.kind == VMI else POOL
    if own_reference(change.was, uid) is None or not (history.objects.get((kind, uid))):
        return f"{change.name} loses an owner that is no {kind}"
    start = run.window(change.time)
    owner = history.at(kind, uid, change.write.time)
    if kind == POOL and owner is not None and states.is_deleting(owner) and states.is_protected(change.was):
        return ""
    if owner is not None and all(
        states.selects(owner, states.labels_of(item)) for item in states_before(history, change, run)
    ):
        return f"{change.name} is released, but its labels match"
    if owner is not None and states.is_deleting(owner) and history.at(kind, uid, start) is not None:
        before = history.at(kind, uid, start)
        if before is not None and states.is_deleting(before):
            return f"{change.name} is released by an owner that is being deleted"
    return "" if change.uid in shown(change.write.body, 10**9) else f"the release of {change.name} has no UID"


@invariant("S7")
def s7_a_pause_or_a_deletion_stops_writes(history: History, run: Run) -> Iterator[Finding]:
    for step in our_steps(history):
        yield found("S7", _write_in_pause(step, run), step.change)
    for restart in restarts(history, run):
        problem = in_pause(restart)
        yield Violation("S7", problem, (restart.evidence,)) if problem else None


def _write_in_pause(step: Step, run: Run) -> str:
    change, owners = step.change, step.timeline.owners(run, step.index)
    if change.before is None and owners and all(map(states.is_deleting, owners)):
        return f"{change.name} is created, but its owner is being deleted"
    if not owners or not all(states.is_paused(owner) and not states.is_deleting(owner) for owner in owners):
        return ""
    if change.before is None:
        return f"{change.name} is created during a pause"
    author = change.author
    if change.starts_deletion and author is not None and author.verb == "delete":
        return f"{change.name} is deleted during a pause"
    if change.after is not None and change.after.get("spec") != change.before.get("spec"):
        return f"{change.name} is updated during a pause"
    return ""


def holder_of(write: Request) -> Object:
    """Return the spec of the lease in the answer to this write. If the write failed, return {}."""
    return ((write.answer or {}).get("spec") or {}) if write.succeeded else {}


@invariant("S8")
def s8_only_the_holder_of_the_lease_writes(history: History, run: Run) -> Iterator[Finding]:
    """Each write must arrive at the server before the lease of its sender ends.

    `slack_s` is the tolerance for a request that is under way.
    """
    if run.lease is None:
        return
    holder, expires, of_credential = "", 0.0, {}
    for write in sorted(history.writes, key=lambda each: each.time):
        if not write.ours:
            continue
        if write.resource == "leases":
            spec = holder_of(write)
            if write.name == run.lease.name and spec:
                holder = str(spec.get("holderIdentity") or "")
                of_credential.setdefault(write.credential, holder)
                expires = write.answered + run.lease.duration_s if holder else write.answered
        elif write.kind and write.resource != "events":
            mine = of_credential.get(write.credential)
            wrong = mine is None or mine != holder or write.time > expires + run.lease.slack_s
            message = f"{write} is sent by {mine or 'a controller without a lease'}, the lease is that of {holder!r}"
            evidence = (f"received {write.time:.3f}, the lease ends {expires:.3f}",)
            yield Violation("S8", message, evidence) if wrong else None
