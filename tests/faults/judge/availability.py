"""The availability of members during updates, for S9.

If the controller deletes a VMI or VM and so makes a ready member unavailable, this is a disruption. For a set, only
deletions for a rolling update count. After a scale-in, enough members are left (S2).
"""

from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct

from tests.faults.judge import states
from tests.faults.judge.history import Change, History, World
from tests.faults.judge.judge import Run
from tests.faults.judge.reasons import reason_of
from tests.faults.judge.states import CHILD_OF, POOL, VM, VMI, Object
from tests.faults.judge.timelines import our_deletes


class Disruption(Struct, frozen=True):
    """One disruption. `unavailable` is the number of unavailable members, this disruption included. The field `allowed`
    is the limit.
    """

    change: Change
    unavailable: int
    allowed: int


class _Sample(Struct, frozen=True):
    """The state of one owner after a change. `disrupted` is the number of disruptions so far."""

    time: float
    unavailable: int
    allowed: int
    disrupted: int


def disruptions(history: History, run: Run) -> Iterator[Disruption]:
    """Yield each disruption: a change that makes a member unavailable.

    The disruption has two numbers from its window: the fewest unavailable members, and the highest limit.
    """
    updates = {step.change.number for step in our_deletes(history) if reason_of(history, step, run)[0] == "outdated"}
    samples: dict[str, list[_Sample]] = {}
    world = World()
    for change in history.changes:
        uid = _owner_of(change, world)
        if not uid:
            world.apply(change)
            continue
        own = samples.setdefault(uid, [])
        disrupted = own[-1].disrupted if own else 0
        if _disrupts(change, world, updates):
            disrupted += 1
            yield _judged(change, own, disrupted, run)
        world.apply(change)
        owner = world.by_uid(uid)
        if owner is not None:
            own.append(_Sample(change.time, _unavailable(world, owner), states.most_unavailable(owner), disrupted))


def _owner_of(change: Change, world: World) -> str:
    """Return the UID of the set or pool that the change concerns, or ""."""
    if change.kind in CHILD_OF:
        return change.uid
    if change.kind not in (VM, VMI):
        return ""
    owner = world.by_uid(states.controller_uid(change.object))
    if owner is not None and owner["kind"] == VM:
        owner = world.by_uid(states.controller_uid(owner))
    return states.uid_of(owner) if owner is not None and owner["kind"] in CHILD_OF else ""


def _disrupts(change: Change, world: World, updates: set[int]) -> bool:
    if not change.ours or not change.starts_deletion or change.before is None:
        return False
    if change.kind == VMI:
        owner = world.by_uid(states.controller_uid(change.before))
        of_pool = owner is not None and owner["kind"] == VM
        return states.is_ready(change.before) and (of_pool or change.number in updates)
    if change.kind == VM and change.number in updates:
        return states.should_run(change.before) and not _is_unavailable(change.before, world)
    return False


def _judged(change: Change, samples: list[_Sample], disrupted: int, run: Run) -> Disruption:
    start = bisect_left(samples, run.window(change.time), key=lambda each: each.time)
    window = samples[max(start - 1, 0) :]
    reached = min((each.unavailable + disrupted - each.disrupted for each in window), default=disrupted)
    return Disruption(change, reached, max((each.allowed for each in window), default=0))


def _unavailable(world: World, owner: Object) -> int:
    """Return the number of unavailable members that should run. Ready members of a surge make it negative."""
    members = world.children(states.uid_of(owner), CHILD_OF[owner["kind"]])
    if owner["kind"] == POOL:
        return sum(_is_unavailable(vm, world) for vm in members if states.should_run(vm))
    ready = sum(states.is_ready(vmi) for vmi in members if states.counts(owner, vmi))
    return max(states.wanted(owner) - ready, -states.most_surge(owner))


def _is_unavailable(vm: Object, world: World) -> bool:
    vmis = world.children(states.uid_of(vm), VMI)
    return states.is_deleting(vm) or not any(
        states.is_ready(vmi) and not states.is_deleting(vmi) and not states.is_spent(vmi) for vmi in vmis
    )
